//! Seeds: one number draws a cluster, its checks and its faults.
//!
//!     RESUS_SEEDS=5000 cargo test --release -p resus-sim    more of them
//!     RESUS_SEED=17 cargo test -p resus-sim seeds -- --nocapture    the whole story of one

use resus_sim::report::Report;
use resus_sim::run::{Tally, run, tally, tell};
use resus_sim::scenario::Failure;
use resus_sim::swarm::WRONG_CLOCKS_FROM;

/// Enough to meet every fault and every decision several times.
const SEEDS: u64 = 200;
/// Seeds beyond those that found a bug once.
const FOUND: [u64; 3] = [543, 880, 964];

#[test]
fn seeds_keep_every_promise() {
    if let Some(seed) = number("RESUS_SEED") {
        let report = tell(seed, |happening| println!("{happening}"));
        let report = Report { story: Vec::new(), ..report };
        println!("{report}");
        assert!(report.violations.is_empty(), "seed {seed} went wrong: see above");
        return;
    }
    let seeds = number("RESUS_SEEDS").unwrap_or(SEEDS);
    let wrong_clocks = WRONG_CLOCKS_FROM..WRONG_CLOCKS_FROM + seeds;
    let all: Vec<u64> = (0..seeds).chain(FOUND.into_iter().filter(|found| *found >= seeds)).chain(wrong_clocks).collect();
    let Tally { counters, failed } = tally(&all, run, "RESUS_SEED");
    assert!(failed.is_empty(), "these seeds went wrong:\n{}", failed.join("\n"));
    let missing: Vec<&str> = expected().into_iter().filter(|what| !counters.contains_key(what)).collect();
    assert!(seeds < SEEDS || missing.is_empty(), "the simulator has lost its teeth: none of {missing:?} in {counters:#?}");
}

/// What must have happened somewhere: every kind of failure, fault, decision and write.
fn expected() -> Vec<&'static str> {
    let mut all: Vec<&str> = Failure::ALL.iter().map(|failure| failure.word()).collect();
    all.extend(["zone fails", "mend", "planned reboot", "node removed", "node leaves", "node relabelled"]);
    all.extend(["check written", "check dropped", "check paused", "template dropped", "provider installed"]);
    all.extend(["remediation removed", "name occupied", "provider never acts", "provider fails", "provider holds"]);
    all.extend(["api down", "history compacted", "link cut", "watches lag", "watches dropped"]);
    all.extend(["replica killed", "replica stopped", "replica has stopped", "replica frozen", "clock stepped"]);
    all.extend(["clock set", "kubelet's clock stepped", "because clock differs"]);
    all.extend(["request slow", "request refused", "request cut before", "answer lost", "request late", "request nowhere"]);
    all.extend(["request timed out", "effect unsent", "create", "delete", "event", "status"]);
    all.extend(["verdict leave", "verdict wait", "verdict hold", "verdict start", "verdict keep", "verdict remove"]);
    // Not among them: an object that the API server would not store, and more requests at once than there are nodes.
    all.extend(["because healthy", "because pending", "because never reported", "because node leaving", "because stale"]);
    all.extend(["because kind not served", "because template missing", "because template invalid", "because paused"]);
    all.extend(["because too many unhealthy", "because overlapping", "because occupied", "because leaving"]);
    all.extend(["because not leading", "because removed", "because looking", "because creating", "because refused"]);
    all.extend(["because remediating", "because not selected", "because node gone", "because node gone, provider busy"]);
    all.extend(["node excluded", "node held", "mark", "release-node"]);
    all.extend(["because excluded", "because held", "because holding", "because no template left", "because making room"]);
    all.extend(["because healthy delay", "because storm cooldown", "because control plane busy", "because etcd quorum"]);
    all
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
