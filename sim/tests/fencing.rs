//! Seeds of fencing: one number draws machines, what runs on them, and what fails.
//!
//!     RESUS_FENCING_SEEDS=20000 cargo test --release -p resus-sim --test fencing    more of them
//!     RESUS_FENCING_SEED=17 cargo test -p resus-sim --test fencing -- --nocapture    the whole story of one

use resus_sim::fencing::plots::Plot;
use resus_sim::fencing::scenario::Kind;
use resus_sim::fencing::{run, tell};
use resus_sim::report::Report;
use resus_sim::run::{Tally, tally};

/// Enough to meet every fault several times, and to find each rule of fencing that is broken on purpose.
const SEEDS: u64 = 2_000;

#[test]
fn nothing_ever_runs_twice() {
    if let Some(seed) = number("RESUS_FENCING_SEED") {
        let report = tell(seed, |happening| println!("{happening}"));
        let report = Report { story: Vec::new(), ..report };
        println!("{report}");
        assert!(report.violations.is_empty(), "seed {seed} went wrong: see above");
        return;
    }
    let seeds = number("RESUS_FENCING_SEEDS").unwrap_or(SEEDS);
    let all: Vec<u64> = (0..seeds).collect();
    let Tally { counters, failed } = tally(&all, run, "RESUS_FENCING_SEED");
    assert!(failed.is_empty(), "these seeds went wrong:\n{}", failed.join("\n"));
    let missing: Vec<&str> = expected().into_iter().filter(|what| !counters.contains_key(what)).collect();
    assert!(seeds < SEEDS || missing.is_empty(), "the simulator has lost its teeth: none of {missing:?} in {counters:#?}");
}

/// What must have happened somewhere: every kind of fault, and each turn that a fencing can take.
fn expected() -> Vec<&'static str> {
    let mut all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
    all.extend(Plot::ALL.iter().map(|plot| plot.word()));
    all.extend(["feed written late", "emergency restart fails", "boot without an agent", "leader frozen before a write"]);
    all.extend(["answer lost", "late write stored", "late write refused", "late step stored", "late step refused"]);
    all.extend(["leader changes", "deposed leader learns of it"]);
    all.extend(["deposed leader's write stored", "deposed leader's write refused"]);
    all.extend(["promised", "withdrawn", "disarmed", "agent has left", "relapsing"]);
    all.extend(["lease conflict", "lease missing", "lease lost", "trial", "trial heard", "vote"]);
    all.extend(["peer says healthy", "peer says ordered", "peer says no api"]);
    all.extend(["lives by the word of a peer", "lives by the word of most"]);
    all.extend(["ends: ordered", "ends: voted", "ends: silence", "reset by agent", "reset by watchdog"]);
    all.extend(["kubelet could not show itself", "pods started in a new boot", "pod ended by its kubelet"]);
    all.extend(["cordoned", "ordered", "acknowledged", "held", "released", "unheld", "uncordoned", "node deleted"]);
    all.extend(["committed: out of service", "committed: resource deletion", "committed: node deletion"]);
    all.extend(["released by time", "released by its bmc's word", "released by a person's word"]);
    all.extend(["released without a watchdog", "unassured double run", "pod removed by force"]);
    all.extend(["done: back", "done: released", "done: cleared", "waits: acknowledging", "waits: dying", "waits: holding"]);
    all.extend(["waits: no agent", "waits: no promise", "waits: not assured", "waits: not marked", "waits: tolerate"]);
    all.extend(["waits: pods leaving", "waits: node gone"]);
    all
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
