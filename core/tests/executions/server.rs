//! The API server's half of the model: what becomes of a request.

use resus_core::effect::{Creation, Effect, Hold, Mark, Owner};
use resus_core::facts::{Name, NodeLease, Object, OwnerRef, Served, Signal, Version};
use resus_core::input::{Answer, Fact, Gone, Input};
use resus_core::lease::{LeaseAnswer, LeaseEffect, Record};
use resus_core::time::Wall;

use crate::model::{Cluster, EPOCH};

impl Cluster {
    pub fn elect(&mut self, effect: &LeaseEffect) -> LeaseAnswer {
        match effect {
            LeaseEffect::Namespace => LeaseAnswer::NamespaceCreated,
            LeaseEffect::Read => self.lease.clone().map_or(LeaseAnswer::Missing, LeaseAnswer::Found),
            LeaseEffect::Create(record) | LeaseEffect::Write(record) => {
                self.version += 1;
                let record = Record { version: Version(self.version.to_string().into()), ..record.clone() };
                self.lease = Some(record.clone());
                LeaseAnswer::Found(record)
            }
        }
    }

    pub fn store(&mut self, effect: &Effect) -> Answer {
        self.version += 1;
        match effect {
            Effect::Look { node, .. } => match self.broken_since.contains_key(node) {
                true => Answer::Done(Some(Fact::Node(self.node(node)))),
                false => Answer::Missing,
            },
            Effect::Create(creation) if self.objects.contains_key(&creation.key) => Answer::Exists,
            Effect::Create(creation) => {
                let object = self.object(creation);
                self.created.push((creation.node().cloned().unwrap_or_else(|| "".into()), self.time));
                self.objects.insert(object.key.clone(), object.clone());
                self.tell(Input::Seen(Fact::Object(object)));
                Answer::Done(None)
            }
            Effect::Delete { key, uid, .. } => match self.objects.get(key) {
                Some(object) if object.uid == *uid => {
                    self.objects.remove(key);
                    self.tell(Input::Gone(Gone::Object(key.clone(), uid.clone())));
                    Answer::Done(None)
                }
                Some(_) => Answer::Conflict,
                None => Answer::Missing,
            },
            Effect::Read { key, .. } => match self.objects.contains_key(key) {
                true => Answer::Done(None),
                false => Answer::Missing,
            },
            Effect::Mark { whole: None, .. } if self.patch_is_forbidden => {
                Answer::Refused { why: "no".into(), retry_after: None, forbidden: true }
            }
            Effect::Mark { key, uid, mark, .. } => match self.objects.get(key) {
                Some(object) if object.uid == *uid => {
                    self.change_object(key, |object| match mark {
                        Mark::TimedOut(_) => object.timed_out = true,
                        Mark::HealthySince(since) => object.healthy_since = *since,
                        Mark::Old => object.flagged_old = true,
                    });
                    Answer::Done(None)
                }
                Some(_) => Answer::Conflict,
                None => Answer::Missing,
            },
            Effect::Fetch { key, .. } => match self.objects.get(key) {
                Some(object) => Answer::Done(Some(Fact::Whole { key: key.clone(), uid: object.uid.clone(), json: "{}".into() })),
                None => Answer::Missing,
            },
            Effect::FindMachine { namespace, name, .. } => match self.machines.get(&*format!("{namespace}/{name}")) {
                Some((uid, node)) => Answer::Done(Some(Fact::MachineOfNode { uid: uid.clone(), node: node.clone() })),
                None => Answer::Missing,
            },
            Effect::Unconfirm { node } => {
                self.annotations.remove(node);
                self.touch(node);
                Answer::Done(None)
            }
            Effect::HoldNode(hold) => self.hold(hold),
            Effect::ReleaseNode { lease } => match self.node_leases.get(&lease.name) {
                Some(known) if known.uid == lease.uid && known.version == lease.version => {
                    self.node_leases.remove(&lease.name);
                    self.tell(Input::Gone(Gone::NodeLease(lease.name.clone())));
                    Answer::Done(None)
                }
                Some(_) => Answer::Conflict,
                None => Answer::Missing,
            },
            Effect::LeaseNamespace | Effect::DefaultTemplate => Answer::Done(None),
            Effect::DefaultCheck(workers) => {
                self.default_checks.push(*workers);
                Answer::Done(None)
            }
            Effect::Discover { api_version } => Answer::Done(Some(self.kinds(api_version))),
            Effect::ServerVersion => Answer::Done(Some(Fact::Server { version: self.server.clone() })),
            Effect::Emit(event) if self.events.iter().any(|known| known.name == event.name) => Answer::Exists,
            Effect::Emit(event) => {
                self.events.push(event.clone());
                Answer::Done(None)
            }
            Effect::Status { version, .. } if *version != self.check.version => Answer::Conflict,
            Effect::Status { status, .. } => {
                self.check.status = status.clone();
                self.check_changed();
                Answer::Done(Some(Fact::Check(self.check.clone())))
            }
            Effect::Identify { .. }
            | Effect::LookMachine { .. }
            | Effect::Sign(_)
            | Effect::PowerCycle { .. }
            | Effect::DeleteMachine { .. }
            | Effect::MachineCheckStatus { .. }
            | Effect::Tie(_) => unreachable!("there are no machines here"),
            Effect::Lease(_) => unreachable!("elections have their own answers"),
        }
    }

    fn hold(&mut self, hold: &Hold) -> Answer {
        let known = self.node_leases.get(&hold.name);
        match (known, &hold.before) {
            (Some(_), None) => return Answer::Exists,
            (Some(known), Some(before)) if known.version != before.version => return Answer::Conflict,
            (None, Some(_)) => return Answer::Missing,
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.set_node_lease(NodeLease {
            name: hold.name.clone(),
            uid: format!("lease-{}", hold.name).into(),
            version: Version(self.version.to_string().into()),
            holder: hold.holder.clone(),
            acquired_at: hold.at,
            renewed_at: hold.at,
            lasts_for: hold.lasts_for,
            transitions: 0,
        });
        Answer::Done(None)
    }

    fn kinds(&self, api_version: &Name) -> Fact {
        let mut fact = kinds(api_version);
        if let Fact::Kinds { served, .. } = &mut fact {
            served.extend(self.installed.iter().map(|kind| (kind.clone(), Served { plural: "any".into(), namespaced: true })));
        }
        let installed = [Signal::ClusterVersions, Signal::Plans].into_iter().filter(|signal| self.signals.contains_key(signal));
        for kind in installed.filter_map(Signal::kind).filter(|kind| kind.api_version == *api_version) {
            let Fact::Kinds { served, .. } = &mut fact else { unreachable!("it was made so") };
            served.insert(kind.kind, Served { plural: "any".into(), namespaced: false });
        }
        fact
    }

    fn object(&self, creation: &Creation) -> Object {
        let Owner::Check { node, check_uid, control_plane, machine, .. } = &creation.owner else {
            unreachable!("there are no machines here")
        };
        Object {
            key: creation.key.clone(),
            uid: format!("uid-{}", self.version).into(),
            version: Version(self.version.to_string().into()),
            created_at: Wall(EPOCH + self.time + self.server_step.unwrap_or(0)),
            deleting: false,
            finalizers: 0,
            owners: [Some((check_uid, true)), machine.as_ref().map(|(_, uid)| (uid, false))]
                .into_iter()
                .flatten()
                .map(|(uid, is_check)| OwnerRef { uid: Box::from(&**uid), controls: false, is_check })
                .collect(),
            node: node.clone(),
            template: Some(creation.template.clone()),
            allows_several: false,
            processing: false,
            control_plane: *control_plane,
            expects_node_to_go: false,
            succeeded: None,
            timed_out: false,
            healthy_since: None,
            flagged_old: false,
            machine_check: None,
            body: None,
        }
    }
}

fn kinds(api_version: &Name) -> Fact {
    let served = |plural: &str| Served { plural: plural.into(), namespaced: true };
    let served = ["RebootTemplate", "Reboot", "PowerTemplate", "Power", "Metal3RemediationTemplate", "Metal3Remediation"]
        .map(|kind| (kind, served(&kind.to_lowercase())));
    Fact::Kinds {
        api_version: api_version.clone(),
        served: served.into_iter().map(|(kind, served)| (kind.into(), served)).collect(),
    }
}
