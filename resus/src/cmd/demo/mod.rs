//! `resus demo`: a cluster to watch, whose nodes break and are repaired.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;

mod balance;
mod machines;
mod paint;
mod panel;
mod script;
mod serve;
mod stage;
mod story;

use panel::Panel;
use script::Script;
use stage::Stage;
use story::Story;

/// Watch nodes break and be repaired: a whole cluster in this one process.
///
/// The controller and the API server are the real code; machines, their kubelets and the provider that power-cycles them
/// are simulated, and time runs faster than it does. It takes half a minute, and ends with 0 if all went as told.
#[derive(Args)]
pub struct Demo {
    /// How many workers there are, from 3 to 500.
    #[arg(long, value_name = "NUMBER", default_value_t = 12, value_parser = nodes)]
    nodes: usize,

    /// Do not wait for readers; so it is anyway if the output is no terminal.
    #[arg(long, conflicts_with = "serve")]
    fast: bool,

    /// Instead of a story, a cluster that stays: break its nodes yourself, with kubectl, until ctrl-c.
    #[arg(long)]
    serve: bool,

    /// With --serve: where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443", requires = "serve")]
    listen: SocketAddr,

    /// With --serve: where to write address and credentials; the file appears when the server is ready.
    #[arg(long, value_name = "FILE", default_value = "resus.kubeconfig", requires = "serve")]
    write_kubeconfig: PathBuf,
}

impl Demo {
    pub fn run(self) -> Result<()> {
        let Demo { nodes, fast, serve, listen, write_kubeconfig } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match serve {
            true => runtime.block_on(serve::serve(&Script::new(nodes), listen, &write_kubeconfig)),
            false => runtime.block_on(tell(Script::new(nodes), fast)),
        }
    }
}

/// Fewer have no zone that is too much to fail; more take longer to simulate than anybody likes to watch.
fn nodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(nodes @ 3..=500) => Ok(nodes),
        _ => Err("write a number from 3 to 500".to_owned()),
    }
}

async fn tell(script: Script, fast: bool) -> Result<()> {
    let mut stage = Stage::new(Panel::new(&script), fast);
    if !stage.is_paced() {
        let played = play(&mut stage, script).await;
        if played.as_ref().is_err_and(has_lost_its_reader) {
            std::process::exit(141);
        }
        return played;
    }
    let interrupted = crate::cmd::controller::asked_to_stop()?;
    let played = tokio::select! {
        played = play(&mut stage, script) => Some(played),
        () = interrupted => None,
    };
    drop(stage);
    match played {
        Some(played) => played,
        // As a shell says of a program that ctrl-c has ended.
        None => std::process::exit(130),
    }
}

/// As by `resus demo | head`: nobody is left to be told, and a shell calls that 141.
fn has_lost_its_reader(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn play(stage: &mut Stage, script: Script) -> Result<()> {
    stage.say(&introduction(&script))?;
    let mut story = Story::new(script);
    while let Some(line) = story.next() {
        stage.show(&line).await.context("cannot show the story")?;
    }
    stage.close()?;
    let balance = story.end();
    stage.say(&[String::new()])?;
    stage.say(&balance.summary())?;
    let wrong = balance.wrong();
    if !wrong.is_empty() {
        bail!("the story did not go as told:\n  {}", wrong.join("\n  "));
    }
    stage.say(&NEXT.map(str::to_owned))?;
    Ok(())
}

fn introduction(script: &Script) -> Vec<String> {
    vec![
        format!(
            "{} workers in {} zones. They are simulated; the controller and the API server are the real ones, in time-lapse.",
            script.workers(),
            script.zones.len()
        ),
        format!(
            "The check \"{}\": a worker is unhealthy if Ready is Unknown or False for 300s, or DiskBroken is True for 60s.",
            script::CHECK
        ),
        format!(
            "It is repaired then, but only while at most {} ({}) are not healthy: more than that is no broken worker.",
            script.max_unhealthy, script.allowed
        ),
    ]
}

const NEXT: [&str; 5] = [
    "",
    "Now break some yourself:",
    "  resus demo --serve",
    "  kubectl --kubeconfig resus.kubeconfig get nodes --watch",
    "  kubectl --kubeconfig resus.kubeconfig annotate node worker-2 demo.resus.dev/break=power",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong_with(script: Script) -> Vec<String> {
        let mut story = Story::new(script);
        while story.next().is_some() {}
        story.end().wrong().to_vec()
    }

    #[test]
    fn the_story_goes_as_told_with_any_number_of_workers() {
        for workers in [3, 4, 5, 6, 7, 8, 10, 12, 24, 37] {
            let wrong = wrong_with(Script::new(workers));
            assert!(wrong.is_empty(), "{workers} workers: {wrong:?}");
        }
    }

    #[test]
    fn a_story_that_goes_otherwise_is_noticed() {
        let mut one_too_many = Script::new(12);
        one_too_many.repaired.push(("worker-3".to_owned(), "the power is gone"));
        assert_eq!(wrong_with(one_too_many), ["worker-3 was repaired 0 times, and should have been 1 times"]);

        let mut none_allowed = Script::new(12);
        none_allowed.allowed = 0;
        assert!(wrong_with(none_allowed).contains(&"1 repairs at once, and only 0 are allowed".to_owned()));

        let mut too_short = Script::new(12);
        too_short.scenario.ends_at = 60_000;
        assert!(wrong_with(too_short).iter().any(|wrong| wrong == "still broken at the end: worker-2"));
    }

    #[test]
    fn too_few_workers_are_refused_with_what_to_write() {
        for (text, fits) in [("2", false), ("3", true), ("500", true), ("501", false), ("-1", false), ("many", false)] {
            assert_eq!(nodes(text).is_ok(), fits, "{text}");
        }
    }
}
