//! A provider of remediations: it sees RebootRemediation and PowerRemediation objects and, mostly, resets the machine
//! they name.

use serde_json::{Value, json};

use crate::api::{Api, MERGE, PROVIDED};
use crate::clock::{Millis, SECOND};
use crate::ledger::Ledger;
use crate::rng::Rng;
use crate::scenario::ProviderSpec;

pub struct Provider {
    spec: ProviderSpec,
    rng: Rng,
}

/// What the provider does next about the object with this name, as in the ledger, and uid.
#[derive(Clone, Debug)]
pub struct Job {
    pub name: String,
    pub uid: String,
    pub step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look at it, and begin if it is to be done at all.
    Begin,
    /// Reset the machine.
    Reset,
    Report,
    /// Take the finalizer off an object that is being deleted.
    Release,
}

/// What comes of it.
#[derive(Debug)]
pub enum Next {
    After(Millis, Job),
    Reset { node: String },
    Count(&'static str),
}

/// While the API is away, and after a failed attempt.
const AGAIN_AFTER: Millis = 3 * SECOND;
const RETRY_AFTER: Millis = 60 * SECOND;
const FINALIZER: &str = "provider.test/held";

impl Provider {
    pub fn new(spec: ProviderSpec, rng: Rng) -> Provider {
        Provider { spec, rng }
    }

    /// From now on it does what it should, within its time.
    pub fn heals(&mut self) {
        self.spec = ProviderSpec { never: 0, fails: 0, holds: 0, ..self.spec.clone() };
    }

    pub fn sees(&mut self, name: String, uid: String, deleting: bool) -> Option<Next> {
        let step = if deleting { Step::Release } else { Step::Begin };
        let wait = self.rng.within(SECOND..=3 * SECOND);
        (!self.spec.idle).then_some(Next::After(wait, Job { name, uid, step }))
    }

    pub fn works(&mut self, job: Job, now: Millis, api: &mut Api, ledger: &Ledger) -> Vec<Next> {
        let Some(object) = ledger.remediations.get(&job.name).filter(|object| object.uid == job.uid) else { return Vec::new() };
        let path = format!("{PROVIDED}/{}", job.name);
        let (node, held, deleting) = (object.node.clone(), object.held, object.deleting);
        let next = |step| Job { step, ..job.clone() };
        let mut patch = |path: &str, body: &Value| api.patch(now, path, MERGE, body) != 0;
        let status = format!("{path}/status");
        match job.step {
            Step::Begin if deleting => Vec::new(),
            Step::Begin if self.rng.chance(self.spec.never) => vec![Next::Count("provider never acts")],
            Step::Begin => {
                let mut counted = Vec::new();
                if !held && self.rng.chance(self.spec.holds) {
                    patch(&path, &json!({"metadata": {"finalizers": [FINALIZER]}}));
                    counted.push(Next::Count("provider holds"));
                }
                let wait = match patch(&status, &conditions("True", "Unknown")) {
                    true => Next::After(self.rng.within(self.spec.works_for.0..=self.spec.works_for.1), next(Step::Reset)),
                    false => Next::After(AGAIN_AFTER, next(Step::Begin)),
                };
                counted.push(wait);
                counted
            }
            Step::Reset if self.rng.chance(self.spec.fails) => {
                patch(&status, &conditions("False", "False"));
                vec![Next::Count("provider fails"), Next::After(RETRY_AFTER, next(Step::Begin))]
            }
            Step::Reset => vec![Next::Reset { node }, Next::After(AGAIN_AFTER, next(Step::Report))],
            Step::Report if patch(&status, &conditions("False", "True")) => Vec::new(),
            Step::Release if !held || patch(&path, &json!({"metadata": {"finalizers": null}})) => Vec::new(),
            Step::Report | Step::Release => vec![Next::After(AGAIN_AFTER, job)],
        }
    }
}

fn conditions(processing: &str, succeeded: &str) -> Value {
    json!({"status": {"conditions": [
        {"type": "Processing", "status": processing},
        {"type": "Succeeded", "status": succeeded},
    ]}})
}
