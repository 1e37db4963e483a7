//! What do people see of a NodeHealthCheck?

use crate::decision::Because;
use crate::effect::Effect;
use crate::event::Event;
use crate::facts::{Check, Rival, Source};
use crate::nhc::{self, CheckStatus, Findings, Found};
use crate::plan::Draft;

impl Draft<'_> {
    /// What stood there stays: it cannot be judged any more, and is not gone because of that.
    pub(in crate::plan) fn report_unusable(&mut self, check: &Check, because: Because) {
        self.shut(check.name.clone(), &because);
        if !self.world.is_fresh(&Source::Checks, self.now.mono) {
            return;
        }
        let known = &check.status;
        let count = |number: Option<u32>| number.unwrap_or(0) as usize;
        let unlisted = |node: &nhc::UnhealthyNode| Found { node: node.clone(), because: None, held: None, label_is_empty: false };
        let unhealthy = known.unhealthy.iter().map(unlisted).collect();
        let findings = Findings {
            observed: count(known.observed),
            healthy: count(known.healthy),
            unhealthy,
            disabled: Some(because),
            recent: known.recent.clone(),
            ignored_leases: self.ignored_leases(Rival::Medik8s, check.take_over),
            ..Findings::default()
        };
        self.report(check, &findings);
    }

    pub(super) fn report_doubt(&mut self, check: &Check, source: &Source) {
        if !self.is_told(self.world.doubt_told_at(source)) {
            return;
        }
        let status = nhc::status_in_doubt(check, &Because::Stale { source: source.clone() }, self.now.wall);
        self.write_status(check, status, Vec::new());
    }

    pub(super) fn report(&mut self, check: &Check, findings: &Findings) {
        let desired = nhc::status(check, findings, self.now.wall);
        if desired == check.status && findings.brief.is_empty() {
            return;
        }
        let events = nhc::events(check, findings, &desired, self.now.wall);
        self.write_status(check, desired, events);
    }

    fn write_status(&mut self, check: &Check, status: CheckStatus, events: Vec<Event>) {
        let (name, version, gist) = (check.name.clone(), check.version.clone(), status.gist());
        let is_news = status != check.status;
        let write = is_news.then_some(Effect::Status { check: name, version, status, written_at: self.now.wall });
        self.write(&check.key(), events, gist, write);
    }
}
