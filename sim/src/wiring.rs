//! Between the controllers and the API: requests, their execution, answers and time-outs.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};
use resus_apiserver::Reply;
use resus_core::effect::{Effect, Owner, Sender};
use resus_core::input::Input;
use resus_core::lease::REQUEST_TIMEOUT;
use resus_core::mhc::facts::Place;
use resus_core::process::{News, Turn};
use resus_k8s::names::Places;
use resus_k8s::{answer, encode};
use serde_json::{Value, json};

use crate::clock::{Millis, SECOND, wall};
use crate::fleet::oracle::{Kind, Looks, Start, judge_node, judge_removal, judge_start};
use crate::fleet::truth::{Repair, Spot};
use crate::happening::What;
use crate::ledger::place;
use crate::net::Fate;
use crate::oracle::{BLIND_FOR, Doubt, Intent, judge_creation, judge_deletion};
use crate::policy::Slack;
use crate::replica::{Purpose, keep};
use crate::scenario::NAMESPACE;
use crate::simulation::{Call, Event, Heard, Sent, Simulation};

const TIMEOUT: Millis = REQUEST_TIMEOUT.as_millis() as Millis;
/// Up to 5 s of difference are none, and a date leaves out the parts of a second.
const PRECISION: Millis = 6 * SECOND;
/// As in the core: what a watch shows right after a break may have happened during it.
const CAUGHT_UP_AFTER: Millis = 5 * SECOND;
/// Between the plan and the moment at which a request leaves the process.
const DEPARTS_WITHIN: Millis = 3;
/// Planning takes between 0 and 2,500 microseconds; after the latter the loop rests for its longest pause, 50 ms.
const PLANS_FOR_MAX: Millis = 2_500;

impl Simulation {
    pub(crate) fn start(&mut self, replica: usize) {
        let now = self.now();
        if self.replicas[replica].process.is_none() {
            self.replicas[replica].start(self.scenario.flags, now);
            self.settle(replica);
        }
    }

    /// As by a power cut: nothing is said to anybody.
    pub(crate) fn kill(&mut self, replica: usize) {
        (self.replicas[replica].process, self.replicas[replica].frozen_until) = (None, self.now());
        self.connections.retain(|_, connection| connection.replica != replica);
    }

    pub(crate) fn wake(&mut self, replica: usize, life: u32) {
        if self.is_present(replica, life) && !self.postponed(replica, || Event::Wake { replica, life }) {
            self.settle(replica);
        }
    }

    /// The end of each pass through a controller's loop.
    pub(crate) fn settle(&mut self, replica: usize) {
        let now = self.now();
        let took = self.pace.within(0..=PLANS_FOR_MAX);
        let life = self.replicas[replica].lives;
        let Some(process) = &mut self.replicas[replica].process else { return };
        let turn = process.turn(now, Duration::from_micros(took.unsigned_abs()));
        let has_stopped = process.has_stopped(now);
        let wake_at = process.wake_at();
        let news = process.news();
        if !has_stopped && process.wakes_at.replace(wake_at) != Some(wake_at) {
            self.agenda.enter(wake_at, Event::Wake { replica, life });
        }
        for news in news {
            match news {
                News::Leads => self.trace.tell(now, What::Leads { replica }),
                News::LeadsNoMore { .. } => self.trace.tell(now, What::LeadsNoMore { replica }),
                News::Decided(decision) => self.trace.tell(now, What::Decided { replica, decision }),
                News::Breached(breach) => self.trace.violated("audit", now, format!("replica {replica}: {breach}")),
                _ => {}
            }
        }
        if has_stopped {
            self.trace.count("replica has stopped");
            return self.kill(replica);
        }
        if let Some(turn) = turn {
            self.carry_out(replica, turn);
        }
    }

    fn carry_out(&mut self, replica: usize, turn: Turn) {
        let life = self.replicas[replica].lives;
        for decision in &turn.plan.decisions {
            self.trace.count(crate::report::verdict_word(decision.verdict));
            self.trace.count(crate::report::because_word(&decision.because));
        }
        for number in turn.ends {
            self.end_watch(replica, number);
        }
        for (number, source, way) in turn.begins {
            self.begin_watch(replica, number, source, way);
        }
        for (effect, not_after) in turn.sends {
            let not_after =
                self.replicas[replica].process.as_ref().zip(not_after).map(|(process, at)| process.clock.true_time(at));
            let wait = self.pace.within(0..=DEPARTS_WITHIN);
            self.agenda.after(wait, Event::Depart { replica, life, effect: Box::new(effect), not_after });
        }
    }

    /// A request leaves the process, unless another may lead by now.
    pub(crate) fn depart(&mut self, replica: usize, life: u32, effect: Box<Effect>, not_after: Option<Millis>) {
        let now = self.now();
        if !self.is_present(replica, life)
            || self.postponed(replica, || Event::Depart { replica, life, effect: effect.clone(), not_after })
        {
            return;
        }
        if not_after.is_some_and(|at| now >= at) {
            self.trace.count("effect unsent");
            return self.tell(replica, answer::unsent(&effect, "the leadership has lapsed"));
        }
        let intent = self.intent(replica, Some(&effect));
        self.must_hold_the_lease(&effect, &intent);
        let request = match encode::encode(&effect, &Places::new(NAMESPACE)) {
            Ok(request) => request,
            Err(error) => return self.tell(replica, answer::unsent(&effect, &error.to_string())),
        };
        let process = self.replicas[replica].process.as_ref();
        let server = effect.key().cluster().zip(process).and_then(|(cluster, process)| process.server(cluster));
        let sent = Sent { request, server, effect: Some((*effect).clone()), intent, patience: Some(TIMEOUT) };
        let call = self.send(replica, sent);
        if let Some(process) = &mut self.replicas[replica].process {
            process.open.insert(call, (Purpose::Effect(*effect), now));
        }
    }

    /// S5: who writes stands in the lease.
    fn must_hold_the_lease(&mut self, effect: &Effect, intent: &Intent) {
        let writes = effect.key().nature().sender == Sender::LeaderWrites;
        if writes && self.holder.as_ref() != Some(&intent.identity) {
            let story = format!("{} sends {:?} while {:?} holds the lease", intent.identity, effect.key(), self.holder);
            self.violated([("S5", story)]);
        }
    }

    pub(crate) fn intent(&self, replica: usize, effect: Option<&Effect>) -> Intent {
        let process = self.replicas[replica].process.as_ref();
        let looked_at = match effect {
            Some(Effect::Create(creation)) => {
                process.zip(creation.node()).and_then(|(process, node)| process.looked_at.get(node).copied())
            }
            _ => None,
        };
        Intent {
            identity: process.map(|process| process.identity.clone()).unwrap_or_default(),
            sent_at: self.now(),
            looked_at,
            looks: effect.and_then(start).map(|start| self.looks(replica, &start.spot)).unwrap_or_default(),
            slack: Slack { any: PRECISION, watched_since: process.map_or(0, |process| process.doubted_at + CAUGHT_UP_AFTER) },
            wrong_from: process.and_then(|process| process.wrong_from),
        }
    }

    /// The looks at a machine, and at the node that it names now.
    fn looks(&self, replica: usize, spot: &Spot) -> Looks {
        let Some((fleet, process)) = self.fleet.as_ref().zip(self.replicas[replica].process.as_ref()) else {
            return Looks::default();
        };
        let is_it = |place: &Place| (&*place.namespace, &*place.name) == (&*spot.0, &*spot.1);
        let machine = process.machines_looked_at.iter().find(|(place, _)| is_it(place)).map(|(_, at)| *at);
        let node = fleet.truth.machine_at(spot).and_then(|machine| machine.node.as_ref());
        let is_away = self.remotes.contains_key(&spot.0);
        let mut looked = process.nodes_looked_at.iter();
        let node = node.and_then(|node| {
            let found = looked.find(|((cluster, name), _)| **name == **node && cluster.is_some() == is_away)?;
            Some(*found.1)
        });
        Looks { machine, node }
    }

    pub(crate) fn send(&mut self, replica: usize, sent: Sent) -> u64 {
        let Sent { request, server, effect, intent, patience } = sent;
        self.calls += 1;
        let number = self.calls;
        let is_up = match &server {
            None => self.api.is_up,
            Some(server) => self.remotes.get(server).is_some_and(|remote| remote.api.is_up),
        };
        let fate = self.net.fate(replica, is_up);
        if let Some(word) = fate.word() {
            self.trace.count(word);
        }
        let now = self.now();
        let lost = |told| (told, Event::Hear { replica, call: number, heard: Heard::Lost });
        let call = |answered| Call { number, replica, request, server, effect, intent, answered };
        let execute = |at, answered| (at, Event::Execute(Box::new(call(answered))));
        match fate {
            Fate::Through { executed, answered } => self.enter_after(execute(executed, Some(now + answered))),
            Fate::Refused { code, answered } => {
                let heard = Heard::Answer { response: refusal(code), executed_at: now };
                self.enter_after((answered, Event::Hear { replica, call: number, heard }));
            }
            Fate::CutBefore { told } => self.enter_after(lost(told)),
            Fate::CutAfter { executed, told } => {
                self.enter_after(execute(executed, None));
                told.into_iter().for_each(|told| self.enter_after(lost(told)));
            }
            Fate::Nowhere => {}
        }
        if let Some(patience) = patience {
            self.agenda.after(patience, Event::TimeOut { replica, call: number });
        }
        number
    }

    fn enter_after(&mut self, (wait, event): (Millis, Event)) {
        self.agenda.after(wait, event);
    }

    /// The server does what was asked.
    pub(crate) fn execute(&mut self, call: Call) {
        let Call { number, replica, request, server, effect, intent, answered } = call;
        let now = self.now();
        let (method, uri) = (request.method().clone(), request.uri().to_string());
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let verb = if watches { "WATCH" } else { method.as_str() };
        let whose = server.as_ref().map(|server| format!("{server}:")).unwrap_or_default();
        *self.asked.entry(format!("{verb} {whose}{}", request.uri().path())).or_default() += 1;
        let removed = match &effect {
            Some(Effect::Delete { key, .. }) => self.ledger.remediations.get(&place(key)).cloned(),
            _ => None,
        };
        let repair = match (&effect, &self.fleet) {
            (Some(Effect::Delete { key, .. }), Some(fleet)) if &*key.kind.kind == "Metal3Remediation" => {
                let spot = (key.namespace.as_deref().unwrap_or_default().to_owned(), key.name.to_string());
                fleet.truth.repairs.get(&spot).cloned().map(|repair| (spot, repair))
            }
            _ => None,
        };
        let api = match &server {
            None => Some(&mut self.api),
            Some(server) => match self.remotes.get_mut(server) {
                Some(remote) if remote.hangs => return,
                remote => remote.map(|remote| &mut remote.api),
            },
        };
        let heard = match api.filter(|api| api.is_up) {
            None => Heard::Lost,
            Some(api) => match api.handle(now, request) {
                Reply::Answer(mut response) => {
                    response.headers_mut().insert(header::DATE, date(now));
                    Heard::Answer { response, executed_at: now }
                }
                Reply::Watch(watch) => Heard::Opened { watch: Box::new(watch), date: date(now) },
            },
        };
        if let Heard::Answer { response, .. } = &heard {
            let code = response.status().as_u16().to_le_bytes();
            self.trace
                .feed(now, &[intent.identity.as_bytes(), method.as_str().as_bytes(), uri.as_bytes(), &code, response.body()]);
            if let Some(effect) = effect.filter(|_| response.status().is_success()) {
                self.ledger.writer = intent.identity.clone();
                self.read_ledger();
                self.ledger.writer.clear();
                self.judge_machines(&effect, &intent, repair);
                self.executed(&effect, &intent, removed, response);
            }
        }
        if let Some(at) = answered {
            self.agenda.enter(at, Event::Hear { replica, call: number, heard });
        }
    }

    /// What the oracles have to say about what was done to a machine.
    fn judge_machines(&mut self, effect: &Effect, intent: &Intent, repair: Option<(Spot, Repair)>) {
        let now = self.now();
        let doubt = Doubt { blind_for: BLIND_FOR + self.scenario.net.lag_max, skew: self.skew() };
        let Some(fleet) = &self.fleet else { return };
        let has_begun = |start: &Start| start.kind != Kind::Asked || fleet.truth.is_asked_by(&start.spot, &intent.identity, now);
        let begun = start(effect).filter(has_begun);
        let kind = begun.as_ref().map(|start| start.kind);
        let begun = begun.map(|start| judge_start(self.view(fleet), &start, intent, now, doubt)).unwrap_or_default();
        let removed = repair.and_then(|(spot, repair)| judge_removal(self.view(fleet), &spot, &repair, intent, doubt));
        let node = match effect {
            Effect::Create(creation) => creation.node().and_then(|node| judge_node(self.view(fleet), node, intent, doubt)),
            _ => None,
        };
        kind.into_iter().for_each(|kind| self.trace.count(kind.word()));
        self.violated(begun.into_iter().chain(removed).chain(node));
    }

    /// What the oracles have to say about what was stored.
    fn executed(
        &mut self,
        effect: &Effect,
        intent: &Intent,
        removed: Option<crate::ledger::Remediation>,
        response: &Response<Vec<u8>>,
    ) {
        let now = self.now();
        let blind_for = BLIND_FOR + self.scenario.net.lag_max;
        let skew = self.skew();
        let found = match effect {
            Effect::Create(creation) => {
                judge_creation(&self.ledger, &place(&creation.key), intent, now, Doubt { blind_for, skew })
            }
            Effect::Delete { .. } => removed
                .and_then(|removed| judge_deletion(&self.ledger, &removed, intent, Doubt { blind_for, skew }))
                .into_iter()
                .collect(),
            Effect::Lease(_) => {
                let lease: Value = serde_json::from_slice(response.body()).unwrap_or_default();
                let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned);
                if lease["kind"] == "Lease" && holder != self.holder {
                    self.holder = holder;
                    self.liveness.iter_mut().for_each(|liveness| liveness.changed_at = now);
                }
                return;
            }
            // A Lease is renewed while its remediation lasts.
            Effect::Look { .. }
            | Effect::LookMachine { .. }
            | Effect::Identify { .. }
            | Effect::Fetch { .. }
            | Effect::FindMachine { .. }
            | Effect::Read { .. }
            | Effect::Discover { .. }
            | Effect::ServerVersion
            | Effect::HoldNode(_) => {
                return;
            }
            Effect::Emit(_)
            | Effect::Status { .. }
            | Effect::Mark { .. }
            | Effect::Unconfirm { .. }
            | Effect::ReleaseNode { .. }
            | Effect::LeaseNamespace
            | Effect::DefaultTemplate
            | Effect::DefaultCheck(_)
            | Effect::Sign(_)
            | Effect::PowerCycle { .. }
            | Effect::DeleteMachine { .. }
            | Effect::MachineCheckStatus { .. }
            | Effect::Tie(_) => Vec::new(),
        };
        self.trace.count(effect.key().nature().verb);
        self.violated(found);
        let what = format!("{} writes {:?}", intent.identity, effect.key());
        let found = self.liveness.as_ref().and_then(|liveness| liveness.judge_write(&self.ledger, now, &what));
        self.violated(found);
    }

    pub(crate) fn hear(&mut self, replica: usize, call: u64, heard: Heard) {
        let now = self.now();
        if self.replicas[replica].frozen_until > now && self.replicas[replica].process.is_some() {
            let until = self.replicas[replica].frozen_until;
            return self.agenda.enter(until, Event::Hear { replica, call, heard });
        }
        let Some(process) = &mut self.replicas[replica].process else { return };
        let Some((purpose, sent_at)) = process.open.remove(&call) else { return };
        match purpose {
            Purpose::Effect(effect) => {
                let input = match heard {
                    Heard::Answer { response, executed_at } => {
                        let sent_at = process.clock.read(sent_at).mono;
                        let dated = answer::dated(response.headers(), effect.key().cluster().cloned(), sent_at);
                        process.take(None, dated.into_iter().filter(|_| effect.key().nature().tells_time).collect(), now);
                        if let (Effect::Look { cluster: None, node }, true) = (&effect, response.status().is_success()) {
                            process.looked_at.insert(node.clone(), executed_at);
                        }
                        process.looks(&effect, &response, executed_at);
                        answer::decode(&effect, &keep(), &response)
                    }
                    Heard::Opened { .. } | Heard::Lost => answer::lost(&effect, "the connection was lost"),
                };
                self.tell(replica, input);
            }
            Purpose::Watch(number) => self.hear_watch(replica, call, number, heard),
        }
    }

    pub(crate) fn time_out(&mut self, replica: usize, call: u64) {
        let now = self.now();
        let Some(process) = &mut self.replicas[replica].process else { return };
        if !process.open.contains_key(&call) {
            return;
        }
        // Who wakes up late finds the answer before the time-out.
        if self.replicas[replica].frozen_until > now {
            let until = self.replicas[replica].frozen_until + 1;
            return self.agenda.enter(until, Event::TimeOut { replica, call });
        }
        self.trace.count("request timed out");
        self.hear(replica, call, Heard::Lost);
    }

    fn tell(&mut self, replica: usize, input: Input) {
        let now = self.now();
        if let Some(process) = &mut self.replicas[replica].process {
            process.take(None, vec![input], now);
        }
        self.settle(replica);
    }

    pub(crate) fn is_present(&self, replica: usize, life: u32) -> bool {
        self.replicas[replica].lives == life && self.replicas[replica].process.is_some()
    }

    /// A process that stands still does it when it goes on.
    pub(crate) fn postponed(&mut self, replica: usize, event: impl FnOnce() -> Event) -> bool {
        let (now, until) = (self.now(), self.replicas[replica].frozen_until);
        if until > now {
            self.agenda.enter(until, event());
        }
        until > now
    }
}

/// The repair of a machine that the request begins, or may begin: what is written for an owner depends on what stands there.
fn start(effect: &Effect) -> Option<Start> {
    let spot = |place: &Place| (place.namespace.to_string(), place.name.to_string());
    match effect {
        Effect::Sign(signing) => Some(Start { spot: spot(&signing.machine.place), kind: Kind::Asked, check: None }),
        Effect::Create(creation) => match &creation.owner {
            Owner::Machine { name, check_uid, .. } => {
                let namespace = creation.key.namespace.as_deref().unwrap_or_default().to_owned();
                Some(Start { spot: (namespace, name.to_string()), kind: Kind::Made, check: Some(check_uid.to_string()) })
            }
            Owner::Check { .. } => None,
        },
        Effect::PowerCycle { machine, on: true, .. } => {
            Some(Start { spot: spot(&machine.place), kind: Kind::PowerCycled, check: None })
        }
        Effect::DeleteMachine { machine, .. } => Some(Start { spot: spot(&machine.place), kind: Kind::Deleted, check: None }),
        _ => None,
    }
}

/// As in every answer of a real server.
fn date(now: Millis) -> HeaderValue {
    let text = wall(now).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderValue::from_str(&text).expect("a date is plain text")
}

fn refusal(code: u16) -> Response<Vec<u8>> {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "message": "the server is currently unable to handle the request", "reason": "ServiceUnavailable",
    });
    if code == 429 {
        status["reason"] = json!("TooManyRequests");
        status["details"] = json!({"retryAfterSeconds": 1});
    }
    let mut response = Response::new(status.to_string().into_bytes());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    response
}
