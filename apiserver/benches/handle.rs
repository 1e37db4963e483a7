//! How many Node heartbeats does the embedded server take, and how much memory does a Node need there?
//!
//! One thread, no sockets: `handle` and `follow` alone.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]

#[path = "../../tests/harness/src/bin/bench/node.rs"]
mod node;

use std::time::{Duration, Instant};

use http::{Request, header};
use jiff::{SignedDuration, Timestamp};
use resus_apiserver::{Reply, Server, Watch};
use serde_json::json;

const NODES: usize = 5_000;
const WATCHERS: usize = 10;
/// One round on a shared machine is an anecdote; three show whether they agree.
const ROUNDS: usize = 3;
const ROUND_FOR: Duration = Duration::from_secs(5);
/// Until the history is full of old versions.
const FILL: usize = 2 * NODES;
/// What the issue asks for; missing it is said, not hidden.
const PATCHES_WANTED: f64 = 10_000.0;
const BYTES_WANTED: usize = 15_000;

fn main() {
    let mut bench = Bench::start();
    let before = resident();
    bench.make_nodes();
    let bytes = bench.node_bytes();
    let mut watches: Vec<Watch> = (0..WATCHERS).map(|_| bench.watch()).collect();
    for n in 0..FILL {
        bench.beat(n % NODES);
        bench.follow(&mut watches);
    }
    let each = resident().saturating_sub(before) / NODES;
    println!("{NODES} Nodes of {bytes} bytes, {WATCHERS} watchers, history full");
    println!("  memory per Node   {each} bytes   (wanted: below {BYTES_WANTED}) {}", verdict(each < BYTES_WANTED));
    for round in 0..ROUNDS {
        let (began_at, cpu_before, mut patches, mut lines) = (Instant::now(), cpu_seconds(), 0, 0);
        while began_at.elapsed() < ROUND_FOR {
            bench.beat(patches % NODES);
            lines += bench.follow(&mut watches);
            patches += 1;
        }
        assert_eq!(lines, patches * WATCHERS, "every watcher hears of every heartbeat");
        // Of the core's own time: others may be at work on it.
        let rate = patches as f64 / (cpu_seconds() - cpu_before);
        println!(
            "  round {}: {rate:.0} status patches a second of one core (wanted: {PATCHES_WANTED}) {}",
            round + 1,
            verdict(rate >= PATCHES_WANTED)
        );
    }
}

fn verdict(holds: bool) -> &'static str {
    if holds { "ok" } else { "MISSED" }
}

struct Bench {
    server: Server,
    now: Timestamp,
}

impl Bench {
    fn start() -> Bench {
        let now = Timestamp::now();
        Bench { server: Server::new(1, now), now }
    }

    fn make_nodes(&mut self) {
        for n in 0..NODES {
            let request = Request::post("/api/v1/nodes?fieldManager=kubelet").body(node::node(n).to_string().into_bytes());
            self.ask(request.expect("a request"));
        }
    }

    fn ask(&mut self, request: Request<Vec<u8>>) -> Vec<u8> {
        match self.server.handle(self.now, request) {
            Reply::Answer(answer) if answer.status().is_success() => answer.into_body(),
            Reply::Answer(answer) => panic!("{}", String::from_utf8_lossy(answer.body())),
            Reply::Watch(_) => panic!("no watch was asked for"),
        }
    }

    fn node_bytes(&mut self) -> usize {
        self.ask(Request::get(format!("/api/v1/nodes/{}", node::name(0))).body(Vec::new()).expect("a request")).len()
    }

    fn watch(&mut self) -> Watch {
        let path = format!("/api/v1/nodes?watch=true&resourceVersion={}", self.server.version());
        match self.server.handle(self.now, Request::get(path).body(Vec::new()).expect("a request")) {
            Reply::Watch(watch) => watch,
            Reply::Answer(answer) => panic!("{}", String::from_utf8_lossy(answer.body())),
        }
    }

    /// As a kubelet sends it: the times of its four conditions.
    fn beat(&mut self, n: usize) {
        self.now += SignedDuration::from_secs(1);
        let at = node::written(self.now);
        let conditions = node::KUBELETS.map(|kind| json!({"type": kind, "lastHeartbeatTime": at}));
        let request = Request::patch(format!("/api/v1/nodes/{}/status", node::name(n)))
            .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json")
            .header(header::USER_AGENT, "kubelet/v1.36.4")
            .body(json!({"status": {"conditions": conditions}}).to_string().into_bytes());
        self.ask(request.expect("a request"));
    }

    fn follow(&self, watches: &mut [Watch]) -> usize {
        watches.iter_mut().map(|watch| self.server.follow(self.now, watch).lines.len()).sum()
    }
}

/// Time that this process had a core.
fn cpu_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds: f64 = statistics.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default();
    nanoseconds / 1e9
}

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
    pages * 4096
}
