//! What was measured, next to what we want to reach?

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::measure::{FAIL_AT_ONCE, Round, STORM_FOR, Storm};
use crate::stage::Subjects;
use crate::usage::Memory;

/// Set for 5,000 nodes; fewer should need no more.
const RESIDENT_GOAL_MIB: f64 = 30.0;
/// More than this is no longer small, whatever the goal; machines come on top of their nodes.
const RESIDENT_MAX_MIB: f64 = 45.0;
const RESIDENT_OF_MACHINES_MAX_MIB: f64 = 60.0;
const BEAT_GOAL_MS: f64 = 0.05;
const P50_GOAL: Duration = Duration::from_millis(150);
const P99_GOAL: Duration = Duration::from_millis(500);
const STORM_GOAL_S: f64 = 1.0;
/// How many plain round trips a reaction may take: what it says about us holds on a slow machine too. Those of equally
/// many at once, as the server would otherwise be compared with itself at rest.
const ROUND_TRIPS_GOAL: f64 = 5.0;

pub struct Report {
    pub subjects: Subjects,
    pub nodes: usize,
    pub node_bytes: usize,
    /// Before and after.
    pub load: [String; 2],
    pub synced: Memory,
    pub busy: Memory,
    pub rounds: Vec<Round>,
    pub storm: Storm,
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Report { subjects, nodes, node_bytes, load: [before, after], rounds, storm, .. } = self;
        let with_machines = if *subjects == Subjects::Machines { "machines, each with one of as many " } else { "" };
        writeln!(
            f,
            "{nodes} {with_machines}nodes of {node_bytes} bytes, {} rounds, load average {before} before, {after} after",
            rounds.len()
        )?;
        writeln!(
            f,
            "storm: {} nodes failed, {} remediations, limit 40%, watched for {:.0} s\n",
            storm.failed,
            storm.remediations,
            storm.lasted.as_secs_f64()
        )?;
        writeln!(f, "{:42} {:>16} {:>16} {:12} each round", "", "measured", "goal", "")?;
        for Row { what, measured, goal, missed, each_round } in self.rows() {
            let missed = if missed { "goal missed" } else { "" };
            writeln!(f, "{}", format!("{what:42} {measured:>16} {goal:>16} {missed:12} {each_round}").trim_end())?;
        }
        Ok(())
    }
}

struct Row {
    what: String,
    measured: String,
    goal: String,
    missed: bool,
    each_round: String,
}

impl Report {
    fn rows(&self) -> Vec<Row> {
        vec![
            figure("memory after sync (RSS)", mib(self.synced.resident), "MiB", Some(RESIDENT_GOAL_MIB)),
            figure("memory, peak until synced", mib(self.synced.peak), "MiB", None),
            figure("memory after the rounds (RSS)", mib(self.busy.resident), "MiB", None),
            figure("memory, peak of the rounds", mib(self.busy.peak), "MiB", None),
            self.beats(),
            self.times("failure seen -> object, p50 / p99", |round| &round.failed, true),
            self.times("recovery seen -> object gone, p50 / p99", |round| &round.recovered, true),
            self.behind(),
            self.times("plain create -> watch, one at a time", |round| &round.alone, false),
            self.times(&format!("plain create -> watch, {FAIL_AT_ONCE} at once"), |round| &round.together, false),
            self.round_trips("failure / plain at once, p99 / p99", |round| &round.failed),
            self.round_trips("recovery / plain at once, p99 / p99", |round| &round.recovered),
            figure(&format!("CPU in a storm, {} s", STORM_FOR.as_secs()), self.storm.cpu.as_secs_f64(), "s", Some(STORM_GOAL_S)),
        ]
    }

    fn beats(&self) -> Row {
        let all: f64 = self.rounds.iter().map(|round| round.beat.cpu_seconds).sum();
        let beats: usize = self.rounds.iter().map(|round| round.beat.beats).sum();
        let each = self.rounds.iter().map(|round| format!("{:.3}", round.beat.cpu_seconds * 1000.0 / round.beat.beats as f64));
        let milliseconds = all * 1000.0 / beats as f64;
        Row {
            measured: format!("{milliseconds:.3} ms"),
            goal: format!("{BEAT_GOAL_MS} ms"),
            each_round: each.collect::<Vec<_>>().join("  "),
            ..figure("CPU per node heartbeat", milliseconds, "ms", Some(BEAT_GOAL_MS))
        }
    }

    /// The worst round: a controller that cannot keep up falls behind further and further.
    fn behind(&self) -> Row {
        let seconds = self.rounds.iter().map(|round| round.beat.behind.as_secs_f64());
        let worst = seconds.clone().fold(0.0, f64::max);
        Row {
            what: "failure after heartbeats -> object, worst".to_owned(),
            measured: format!("{worst:.3} s"),
            goal: format!("{:.3} s", P99_GOAL.as_secs_f64()),
            missed: worst > P99_GOAL.as_secs_f64(),
            each_round: seconds.map(|seconds| format!("{seconds:.3}")).collect::<Vec<_>>().join("  "),
        }
    }

    fn times(&self, what: &str, of: impl Fn(&Round) -> &Vec<Duration>, has_goal: bool) -> Row {
        let both = |[p50, p99]: [Duration; 2]| format!("{:.3} / {:.3}", p50.as_secs_f64(), p99.as_secs_f64());
        let [p50, p99] = percentiles(self.rounds.iter().flat_map(&of));
        let each = self.rounds.iter().map(|round| both(percentiles(of(round))));
        Row {
            what: what.to_owned(),
            measured: format!("{} s", both([p50, p99])),
            goal: if has_goal { format!("{} s", both([P50_GOAL, P99_GOAL])) } else { String::new() },
            missed: has_goal && (p50 > P50_GOAL || p99 > P99_GOAL),
            each_round: each.collect::<Vec<_>>().join("  "),
        }
    }

    /// What must not be, on whichever machine: a regression, not merely a goal that is not reached yet.
    pub fn breaches(&self) -> Vec<String> {
        let reactions = [("failure", self.ratio(|round| &round.failed)), ("recovery", self.ratio(|round| &round.recovered))];
        let slow = reactions.into_iter().filter(|(_, ratio)| *ratio > ROUND_TRIPS_GOAL).map(|(what, ratio)| {
            format!("the p99 of a {what} takes {ratio:.1} plain round trips at once, more than {ROUND_TRIPS_GOAL}")
        });
        let resident = mib(self.synced.resident).max(mib(self.busy.resident));
        let max = match self.subjects {
            Subjects::Nodes => RESIDENT_MAX_MIB,
            Subjects::Machines => RESIDENT_OF_MACHINES_MAX_MIB,
        };
        let large = (resident > max).then(|| format!("{resident:.1} MiB in memory, more than {max}"));
        slow.chain(large).map(|breach| format!("{}: {breach}", self.subjects.name())).collect()
    }

    fn ratio(&self, of: impl Fn(&Round) -> &Vec<Duration>) -> f64 {
        let [_, all] = percentiles(self.rounds.iter().flat_map(&of));
        let [_, plain] = percentiles(self.rounds.iter().flat_map(|round| &round.together));
        all.as_secs_f64() / plain.as_secs_f64()
    }

    fn round_trips(&self, what: &str, of: impl Fn(&Round) -> &Vec<Duration>) -> Row {
        let plain = |round: &Round| percentiles(&round.together)[1].as_secs_f64();
        let each = self.rounds.iter().map(|round| format!("{:.1}", percentiles(of(round))[1].as_secs_f64() / plain(round)));
        let ratio = self.ratio(&of);
        Row { each_round: each.collect::<Vec<_>>().join("  "), ..figure(what, ratio, "", Some(ROUND_TRIPS_GOAL)) }
    }
}

fn figure(what: &str, measured: f64, unit: &str, goal: Option<f64>) -> Row {
    Row {
        what: what.to_owned(),
        measured: format!("{measured:.2} {unit}").trim_end().to_owned(),
        goal: goal.map(|goal| format!("{goal:.0} {unit}").trim_end().to_owned()).unwrap_or_default(),
        missed: goal.is_some_and(|goal| measured > goal),
        each_round: String::new(),
    }
}

/// The 50th and the 99th: of a hundred, the 50th and the 99th in order.
fn percentiles<'a>(times: impl IntoIterator<Item = &'a Duration>) -> [Duration; 2] {
    let mut times: Vec<Duration> = times.into_iter().copied().collect();
    times.sort();
    [50, 99].map(|percent| times.get((times.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default())
}

fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
