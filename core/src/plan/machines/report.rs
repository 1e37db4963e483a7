//! What do people see of a MachineHealthCheck?

use super::find::clusters;
use super::{Round, Subject};
use crate::decision::{Because, Outcome};
use crate::effect::{Effect, LabelGoes, OwnerGoes, Target, Tying};
use crate::event::Event;
use crate::facts::{Object, Source};
use crate::flight::Clearance;
use crate::mhc::facts::{MachineCheck, MachineCheckStatus};
use crate::mhc::status::{self, Findings};
use crate::plan::Draft;
use crate::plan::attempt::Deletion;
use crate::world::DOUBT_TOLD_AFTER;

/// Events about machines that are on their way at once; each waits for nobody, so a few suffice.
const NEWS_AT_ONCE: usize = 20;
/// The API server takes no longer value of a label, in bytes.
const LABEL_MAX: usize = 63;

impl<'a> Draft<'a> {
    pub(super) fn report_machines(&mut self, check: &MachineCheck, found: &Findings) {
        let styles = self.world.styles(check.dialect);
        let desired = status::status(check, styles, found, self.now.wall);
        let events = status::events(check, &desired, self.now.wall);
        self.write_machine_status(check, desired, events);
    }

    /// Nothing can be decided under this check, and here is why.
    pub(super) fn report_shut(&mut self, check: &'a MachineCheck, because: &Because) {
        self.shut(check.place.to_string().into(), because);
        self.hold_all(check, because);
        self.write_shut(check, because);
    }

    fn write_shut(&mut self, check: &MachineCheck, because: &Because) {
        let styles = self.world.styles(check.dialect);
        let desired = status::status_shut(check, styles, because, self.now.wall);
        let events = status::events(check, &desired, self.now.wall);
        self.write_machine_status(check, desired, events);
    }

    pub(super) fn report_paused(&mut self, check: &MachineCheck) {
        // Who took the check over from a controller that says so itself leaves that to it.
        if !(check.take_over && check.paused) {
            let desired = status::status_paused(check, self.world.styles(check.dialect), self.now.wall);
            self.write_machine_status(check, desired, Vec::new());
        }
    }

    /// Doubts come and go with every broken connection; only one that lasts is worth a word.
    pub(super) fn report_machine_doubt(&mut self, check: &MachineCheck, source: &Source) {
        self.shut(check.place.to_string().into(), &Because::Stale { source: source.clone() });
        // A Cluster may be heard of all the time, and never say which one it is.
        let asked_since = if let Source::RemoteNodes(cluster) = source { self.world.fleet.asked_since(cluster) } else { None };
        let asked_told_at = asked_since.map(|since| since.after(DOUBT_TOLD_AFTER));
        if self.is_told(self.world.doubt_told_at(source).into_iter().chain(asked_told_at).min()) {
            self.write_shut(check, &Because::Stale { source: source.clone() });
        }
    }

    fn write_machine_status(&mut self, check: &MachineCheck, desired: MachineCheckStatus, events: Vec<Event>) {
        if desired != check.status && self.world.is_fresh(&Source::MachineChecks(check.dialect), self.now.mono) {
            let gist = desired.gist();
            self.write(&check.key(), events, gist, Some(Effect::MachineCheckStatus { check: target(check), status: desired }));
        }
    }

    /// A check that is not tied to its Cluster is left behind when that is moved, and stays when that is deleted. Is it being
    /// tied, so that its version is about to change?
    pub(super) fn tie(&mut self, round: &Round<'a>) -> bool {
        let check = round.check;
        let (Some(cluster), Ok(Some(dialect))) = (round.reach.cluster(), clusters(self.world)) else { return false };
        if round.paused || round.doubt.is_some() || cluster.uid.is_empty() {
            return false;
        }
        let label = match &check.ties.label {
            Some(own) if **own == *cluster.key.name => None,
            _ if cluster.key.name.len() > LABEL_MAX => None,
            _ if check.ties.has_labels => Some(LabelGoes::Beside),
            _ => Some(LabelGoes::First),
        };
        let owner = match &check.ties.owner {
            Some((_, uid)) if **uid == *cluster.uid => None,
            Some((at, _)) => Some(OwnerGoes::At(*at)),
            None if check.ties.has_owners => Some(OwnerGoes::Last),
            None => Some(OwnerGoes::First),
        };
        if label.is_none() && owner.is_none() {
            return false;
        }
        let (cluster, cluster_uid) = (cluster.key.name.clone(), cluster.uid.clone());
        let effect = Effect::Tie(Tying { check: target(check), cluster, cluster_uid, dialect, label, owner });
        let (key, before) = (effect.key(), self.plan.effects.len());
        self.send(effect);
        self.plan.effects.len() > before || self.world.flights.clearance(&key, self.now.mono) == Clearance::UnderWay
    }

    /// What has happened to machines is told as soon as there is time for it.
    pub(super) fn tell_news(&mut self) {
        for event in self.world.fleet.news.iter().take(NEWS_AT_ONCE) {
            self.send_in_time(Effect::Emit(event.clone()));
        }
    }

    /// Remediations of machines that the check no longer watches over.
    pub(super) fn clear_strays(&mut self, round: &Round<'a>, subjects: &[Subject<'a>]) {
        let Some(kind) = round.kind.as_ref().filter(|_| round.doubt.is_none()) else { return };
        let world = self.world;
        let is_stray = |object: &&Object| {
            let check = round.check;
            let is_left_alone = || {
                let machines = world.fleet.machines_in(check.place.flavour, &check.place.namespace);
                let mut namesakes = machines.filter(|machine| machine.place.name == object.key.name);
                namesakes.any(|machine| machine.marks.paused || machine.consists_of(object))
            };
            object.key.kind == *kind
                && object.key.namespace.as_ref() == Some(&check.place.namespace)
                && object.machine_check.as_ref() == Some(&check.uid)
                && !object.deleting
                && !subjects.iter().any(|subject| subject.machine.place.name == object.key.name)
                && !is_left_alone()
        };
        for object in world.objects.values().filter(is_stray) {
            if let Deletion::Sent | Deletion::Queued = self.delete(object, Vec::new()) {
                let label = round.check.place.to_string().into();
                self.decided(label, &object.key.name, Outcome::remove(Because::NotSelected));
            }
        }
    }
}

fn target(check: &MachineCheck) -> Target {
    Target { place: check.place.clone(), dialect: check.dialect, uid: check.uid.clone(), version: check.version.clone() }
}
