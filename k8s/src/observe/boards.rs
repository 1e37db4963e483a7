//! What do the conditions of a Machine say, who wrote them, and where would another go?

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use resus_core::facts::{Condition, READY};
use resus_core::mhc::facts::{Board, Dialect, Flavour, Posted, Sign, Slot, Style};
use resus_core::time::Wall;
use serde::Deserialize;
use serde_json::Value;

use super::{AtMost, dated, wall};
use crate::{limits, names};

/// A list of conditions as it stands in a status.
pub struct List {
    pub style: Style,
    /// How many elements of the path to it are missing, the status included.
    pub missing: u8,
    pub posts: Vec<Post>,
}

/// A condition, with all that it says in either style.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Post {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub status: Box<str>,
    reason: Option<Box<str>>,
    severity: Option<Box<str>>,
    message: Option<Box<str>>,
    last_transition_time: Option<Time>,
    observed_generation: Option<i64>,
}

/// One for each style of the dialect.
pub fn lists(status: &Value, dialect: Dialect) -> serde_json::Result<Vec<List>> {
    dialect.styles().iter().map(|style| list(status, dialect, *style)).collect()
}

/// Null is as good as absent, and what is written there takes its place.
fn list(status: &Value, dialect: Dialect, style: Style) -> serde_json::Result<List> {
    let path = names::conditions(dialect, style);
    let mut missing = path.len() + usize::from(status.is_null());
    let mut at = status;
    for element in path {
        match at.get(element).filter(|next| !next.is_null()) {
            Some(next) => (at, missing) = (next, missing - 1),
            None => return Ok(List { style, missing: u8::try_from(missing).unwrap_or(u8::MAX), posts: Vec::new() }),
        }
    }
    let posts = AtMost::<Post, { limits::CONDITIONS_MAX }>::deserialize(at)?.all("conditions")?;
    Ok(List { style, missing: 0, posts })
}

/// Of the new style where the version has it. A server of v1beta1 that is older than that style drops it.
pub fn newest(lists: &[List], dialect: Dialect) -> &[Post] {
    let is_there = |list: &&List| list.missing == 0 || dialect != Dialect::V1beta1;
    lists.iter().find(is_there).map_or(&[], |list| &list.posts)
}

pub fn has_signs(lists: &[List]) -> bool {
    let is_sign = |post: &Post| Sign::ALL.iter().any(|sign| sign.name() == &*post.kind);
    lists.iter().flat_map(|list| &list.posts).any(is_sign)
}

impl Post {
    pub fn since(&self) -> Option<Wall> {
        self.last_transition_time.as_ref().map(|time| wall(time.0))
    }

    pub fn condition(&self) -> Condition {
        Condition {
            kind: self.kind.clone(),
            status: (&*self.status).into(),
            // As for nodes: it counts from when it is first seen.
            since: dated(self.last_transition_time.as_ref().map(|time| time.0)),
            reason: self.reason.clone().unwrap_or_default(),
        }
    }

    pub fn posted(&self, ours: bool) -> Posted {
        let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or_default().into();
        Posted {
            status: (&*self.status).into(),
            reason: text(&self.reason),
            severity: self.severity.as_deref().filter(|severity| !severity.is_empty()).map(Into::into),
            message: text(&self.message),
            since: self.since().unwrap_or(Wall(0)),
            observed_generation: self.observed_generation,
            ours,
        }
    }
}

/// One for each list, in their order. `managed` is the Machine's `managedFields`.
pub fn boards(lists: &[List], managed: &Value) -> Box<[Board]> {
    let of_new = lists.iter().filter(|list| list.style == Style::New).flat_map(|list| &list.posts);
    let in_new: Vec<&str> = of_new.map(|post| &*post.kind).collect();
    // Of a list that changes hands as a whole only the last writer is known; the new style knows each condition's.
    let ours = |style: Style, sign: Sign| match in_new.contains(&sign.name()) {
        true => wrote(managed, Style::New, sign),
        false => wrote(managed, style, sign),
    };
    let board = |list: &List| Board {
        style: list.style,
        missing: list.missing,
        slots: Sign::ALL.map(|sign| slot(list, sign, || ours(list.style, sign))),
    };
    lists.iter().map(board).collect()
}

fn slot(List { style, posts, .. }: &List, sign: Sign, ours: impl Fn() -> bool) -> Slot {
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    match posts.iter().position(|post| &*post.kind == sign.name()) {
        Some(at) => Slot::At(number(at), posts[at].posted(ours())),
        None => Slot::Before(number(posts.iter().position(|post| is_after(&post.kind, sign, *style)).unwrap_or(posts.len()))),
    }
}

/// Cluster API sorts what people look at first to the front, and what is rarely there to the end.
fn is_after(kind: &str, sign: Sign, style: Style) -> bool {
    match (style, kind) {
        (_, READY) | (Style::New, "Available") => false,
        (Style::New, "Deleting" | "Paused") => true,
        (Style::New | Style::Legacy, kind) => kind > sign.name(),
    }
}

/// Did we write what this condition says, and nobody else since?
fn wrote(managed: &Value, style: Style, sign: Sign) -> bool {
    let entries = managed.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_ours = |entry: &&Value| entry.get("manager").is_some_and(|manager| manager == names::MANAGER);
    let (ours, theirs): (Vec<&Value>, Vec<&Value>) =
        entries.iter().filter(|entry| covers(entry, style, sign).unwrap_or(false)).partition(is_ours);
    !ours.is_empty() && theirs.is_empty()
}

/// Fields of an entry, in the words of the version that it was written in, whichever one the Machine is read in.
fn covers(entry: &Value, style: Style, sign: Sign) -> Option<bool> {
    let api_version = entry.get("apiVersion")?.as_str()?;
    let mut dialects = Flavour::ALL.into_iter().flat_map(Flavour::dialects);
    let dialect = dialects.find(|dialect| dialect.api_version() == api_version && dialect.styles().contains(&style))?;
    let mut fields = entry.get("fieldsV1")?.get("f:status")?;
    for element in names::conditions(*dialect, style) {
        fields = fields.get(format!("f:{element}"))?;
    }
    let fields = fields.as_object()?;
    // A list that is not split up by type has one owner.
    let of_sign = || fields.get(&format!(r#"k:{{"type":"{}"}}"#, sign.name()));
    Some(fields.is_empty() || of_sign().is_some_and(|own| SAYS.iter().any(|field| own.get(field).is_some())))
}

/// Whoever changes one of these says something else.
const SAYS: [&str; 3] = ["f:status", "f:reason", "f:message"];
