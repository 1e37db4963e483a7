//! Which rights did the controller's own account use in all stories together, and which did it lack?
//!
//! Each cluster that ends adds what its audit log has to one file, and a test that runs after the stories compares it with the
//! roles that we ship. Without the file, as where somebody runs a single story, nothing is written down.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::audit;
use crate::process::read_lossy;

/// Whose rights they are, in whichever namespace it is installed.
const ACCOUNT: (&str, &str) = ("system:serviceaccount:", ":resus-controller");

/// A request as RBAC judged it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Exercised {
    pub verb: String,
    pub group: String,
    /// Plural; with `/subresource` where there is one.
    pub resource: String,
    /// Empty: none, or all of them.
    pub namespace: String,
    /// Empty where no single one is asked for.
    pub name: String,
    pub allowed: bool,
    /// Which story it was in.
    pub story: String,
}

/// Where stories write down what was asked, if they are to.
pub fn rights_file() -> Option<PathBuf> {
    std::env::var_os("RESUS_RIGHTS_FILE").map(PathBuf::from)
}

/// What all stories have written there.
pub fn exercised(file: &Path) -> anyhow::Result<Vec<Exercised>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("{line:?}"))).collect()
}

/// Takes down what a cluster's audit log has. `lacks_rights`: the story takes rights away, so that refusals say nothing.
pub(crate) fn note(log: &Path, lacks_rights: bool) -> anyhow::Result<()> {
    let Some(file) = rights_file().filter(|_| log.exists()) else { return Ok(()) };
    let story = std::thread::current().name().unwrap_or("a story").to_owned();
    let ours = |user: &str| user.starts_with(ACCOUNT.0) && user.ends_with(ACCOUNT.1);
    let entries = audit::parse(&read_lossy(log))?.into_iter().filter(|entry| ours(&entry.user));
    let all: BTreeSet<Exercised> =
        entries.filter_map(|entry| Some(Exercised { story: story.clone(), ..entry.exercised? })).collect();
    // The server hears of a role some moments after it was stored: what it grants a moment later was not missing.
    let is_missing = |one: &Exercised| !lacks_rights && !all.contains(&Exercised { allowed: true, ..one.clone() });
    let mut text = String::new();
    for one in all.iter().filter(|one| one.allowed || is_missing(one)) {
        text.push_str(&serde_json::to_string(one)?);
        text.push('\n');
    }
    let mut file = OpenOptions::new().create(true).append(true).open(&file).context("the file of RESUS_RIGHTS_FILE")?;
    Ok(file.write_all(text.as_bytes())?)
}
