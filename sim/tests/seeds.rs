//! Seeds: one number draws a cluster, its checks and its faults.
//!
//!     RESUS_SEEDS=5000 cargo test --release -p resus-sim    more of them
//!     RESUS_SEED=17 cargo test -p resus-sim seeds -- --nocapture    the whole story of one

use resus_sim::fleet::draw::MACHINES_FROM;
use resus_sim::report::Report;
use resus_sim::run::{Tally, run, tally, tell};
use resus_sim::scenario::Failure;
use resus_sim::swarm::WRONG_CLOCKS_FROM;

/// Enough to meet every fault and every decision several times.
const SEEDS: u64 = 200;
/// Of each hundred seeds, how many with Machines there are beside.
const WITH_MACHINES: u64 = 40;
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
    let machines = MACHINES_FROM..MACHINES_FROM + seeds * WITH_MACHINES / 100;
    let found = FOUND.into_iter().filter(|found| *found >= seeds);
    let mut all: Vec<u64> = (0..seeds).chain(found).chain(wrong_clocks).chain(machines).collect();
    // Of each kind some at once, so that whatever is wrong is soon found.
    all.sort_by_key(|seed| seed % WRONG_CLOCKS_FROM);
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
    all.extend(of_machines());
    all
}

/// The same for Machines.
fn of_machines() -> Vec<&'static str> {
    let mut all = vec!["machine check written", "machine check dropped", "machine check paused", "machine template dropped"];
    all.extend(["workload cluster down", "workload cluster hangs", "cluster paused"]);
    all.extend(["kubeconfig renewed", "kubeconfig missing", "kubeconfig nonsense", "kubeconfig elsewhere"]);
    all.extend(["machine deleted", "repair asked for", "machine skipped", "machine failed", "node of a machine removed"]);
    all.extend(["repair removed", "name of a machine occupied", "remediator holds", "remediator never acts"]);
    all.extend(["owner asked", "repair made", "machine power-cycled", "machine deleted by us"]);
    all.extend(["sign", "tie", "power-cycle", "delete-machine"]);
    all.extend([
        "because machine pending",
        "because unjudged",
        "because machine leaving",
        "because signing",
        "because owner's turn",
    ]);
    all.extend(["because machine remediated", "because deleting machine", "because power cycle asked"]);
    all.extend(["because check paused", "because cluster paused", "because no access", "because another cluster"]);
    all.extend(["because outside range"]);
    all
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
