//! Which checks start nothing now, and about how many nodes is nothing done?
//!
//! For dashboards and alerts. A series goes with its reason, and all of them with their check.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use resus_core::decision::Verdict;
use resus_core::facts::Name;
use resus_core::plan::Plan;

/// By check and by the word for why.
type Counts = BTreeMap<(Name, &'static str), i64>;

pub struct Gates {
    shut: Series,
    held: Series,
}

impl Gates {
    pub fn new(registry: &mut Registry) -> Gates {
        let gates = Gates { shut: Series::default(), held: Series::default() };
        registry.register("gate_shut", "1 while nothing starts under the check", gates.shut.family.clone());
        registry.register("held_nodes", "Unhealthy nodes or machines about which nothing is done", gates.held.family.clone());
        gates
    }

    /// Who only looks on would count a second time. Returns how many decisions there are of each verdict.
    pub fn observe(&self, plan: &Plan) -> [usize; Verdict::ALL.len()] {
        let (verdicts, held) = count(plan);
        let shut = plan.shut.iter().map(|(check, why)| ((check.clone(), *why), 1));
        self.shut.show(if plan.leads { shut.collect() } else { Counts::new() });
        self.held.show(if plan.leads { held } else { Counts::new() });
        verdicts
    }
}

/// In one pass, and without a thought for each node: neighbours are nearly always of one check, and held for one reason.
fn count(plan: &Plan) -> ([usize; Verdict::ALL.len()], Counts) {
    let (mut verdicts, mut held) = ([0; Verdict::ALL.len()], Counts::new());
    let mut run: Option<(&Name, &'static str, i64)> = None;
    let mut end = |run: Option<(&Name, &'static str, i64)>| {
        if let Some((check, why, many)) = run {
            *held.entry((check.clone(), why)).or_default() += many;
        }
    };
    for decision in &plan.decisions {
        verdicts[decision.verdict as usize] += 1;
        if !decision.is_held() {
            continue;
        }
        let why = decision.because.word();
        match &mut run {
            Some((check, known, many)) if *known == why && **check == decision.check => *many += 1,
            _ => end(run.replace((&decision.check, why, 1))),
        }
    }
    end(run);
    (verdicts, held)
}

#[derive(Default)]
struct Series {
    family: Family<[(&'static str, String); 2], Gauge>,
    shown: Mutex<Counts>,
}

impl Series {
    fn show(&self, now: Counts) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown == now {
            return;
        }
        let labels = |(check, why): &(Name, &str)| [("check", check.to_string()), ("reason", (*why).to_owned())];
        for key in shown.keys().filter(|key| !now.contains_key(*key)) {
            self.family.remove(&labels(key));
        }
        for (key, many) in &now {
            self.family.get_or_create(&labels(key)).set(*many);
        }
        *shown = now;
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use resus_core::decision::{Because, Decision};

    use super::*;

    fn held(check: &str, node: &str, because: Because) -> Decision {
        Decision { check: check.into(), node: node.into(), verdict: Verdict::Hold, because }
    }

    fn series(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let mut series: Vec<String> = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        series.sort();
        series
    }

    #[test]
    fn series_go_with_their_reason_and_their_check_and_are_the_leaders() {
        let mut registry = Registry::default();
        let gates = Gates::new(&mut registry);
        let zone = |zone: &str| Because::ZoneDark { zone: zone.into(), not_healthy: 1, allowed: 0, of: 1 };
        let mut plan = Plan { leads: true, ..Plan::default() };
        plan.shut = [(Name::from("workers"), "TooManyUnhealthy"), (Name::from("ns/machines"), "NoAccess")].into();
        plan.decisions = vec![
            held("workers", "n1", zone("a")),
            held("workers", "n2", Because::Excluded),
            held("workers", "n3", zone("b")),
            held("other", "n3", zone("b")),
            Decision { verdict: Verdict::Keep, ..held("workers", "n4", Because::NoTemplateLeft) },
            Decision { verdict: Verdict::Leave, ..held("workers", "n5", Because::Healthy) },
        ];
        let verdicts = gates.observe(&plan);
        assert_eq!(Verdict::ALL.map(|verdict| verdicts[verdict as usize]), [1, 0, 4, 0, 1, 0]);
        assert_eq!(
            series(&registry),
            [
                r#"gate_shut{check="ns/machines",reason="NoAccess"} 1"#,
                r#"gate_shut{check="workers",reason="TooManyUnhealthy"} 1"#,
                r#"held_nodes{check="other",reason="ZoneDark"} 1"#,
                r#"held_nodes{check="workers",reason="Excluded"} 1"#,
                r#"held_nodes{check="workers",reason="NoTemplateLeft"} 1"#,
                r#"held_nodes{check="workers",reason="ZoneDark"} 2"#,
            ]
        );
        plan.shut = [(Name::from("workers"), "Paused")].into();
        plan.decisions.truncate(1);
        gates.observe(&plan);
        let left = [r#"gate_shut{check="workers",reason="Paused"} 1"#, r#"held_nodes{check="workers",reason="ZoneDark"} 1"#];
        assert_eq!(series(&registry), left);
        gates.observe(&Plan { leads: false, ..plan });
        assert_eq!(series(&registry), [""; 0]);
    }
}
