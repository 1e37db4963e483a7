//! Nothing that others write ends in a panic, in a request that cannot be made, or in a text without end.
//!
//! Random objects, list pages, watch lines and answers go the whole way: read, believed, planned with, written. Most are
//! honest, so that something is decided; the others are valid JSON with hostile values, or garbage.

mod dice;
mod honest;

use std::collections::{BTreeMap, BTreeSet};

use http::{Method, Request, Response, StatusCode};
use resus_core::audit::audit;
use resus_core::effect::Effect;
use resus_core::facts::{Claim, Source};
use resus_core::input::Input;
use resus_core::lease::{Election, Timing};
use resus_core::plan::plan;
use resus_core::text::TEXT_MAX;
use resus_core::time::{Mono, Now, Wall};
use resus_core::world::World;
use resus_k8s::answer;
use resus_k8s::encode::{Unsendable, encode};
use resus_k8s::feed::{self, Line};
use resus_k8s::names::Places;
use resus_k8s::observe::Keep;
use serde_json::{Value, json};

use crate::dice::{Dice, FILL};

/// Things of others that are read, where the environment names no other number.
const THINGS: u64 = 20_000;
/// Turns of the loop for each world.
const TURNS: u32 = 40;
/// Resident memory of the whole process, in KiB.
const MEMORY_MAX: u64 = 256 << 10;

#[test]
fn whatever_others_write_is_read_decided_on_and_answered() {
    let things = std::env::var("RESUS_FUZZ").map_or(THINGS, |text| text.parse().expect("RESUS_FUZZ is a number"));
    let mut tally = Tally::default();
    let mut seed = 0;
    while tally.things < things {
        seed += 1;
        let mut site = Site::new(seed);
        (0..TURNS).for_each(|_| site.turn(&mut tally));
    }
    println!("{} things in {seed} worlds: {:?}", tally.things, tally.sent);
    let wanted = [
        "look",
        "identify",
        "create",
        "delete",
        "machine",
        "hold-node",
        "discover",
        "event",
        "status",
        "sign",
        "delete-machine",
        "lease",
    ];
    let missing: Vec<&str> = wanted.into_iter().filter(|verb| !tally.sent.contains_key(verb)).collect();
    assert!(missing.is_empty(), "never sent, so that nothing is known of it: {missing:?}");
    let most = resident();
    assert!(most < MEMORY_MAX, "{most} KiB at most");
}

/// A text that no request can be made of is an error, with a sentence.
#[test]
fn what_is_too_long_for_an_address_is_an_error() {
    let (long, odd) = ("a".repeat(70_000), "1 2\r\n\u{0}\u{fc}%2F../?&#");
    let places = Places::new("resus");
    let too_long = |made: Result<Request<Vec<u8>>, Unsendable>| matches!(made, Err(Unsendable::Address(_)));
    assert!(too_long(feed::watch(&Source::Nodes, None, &places, &long)));
    assert!(too_long(feed::list(&Source::Nodes, None, &places, Some(&long), 100)));
    let look = |node: &str| Effect::Look { cluster: None, node: node.into() };
    let find = |name: &str| Effect::FindMachine { node: "n".into(), namespace: "default".into(), name: name.into() };
    let discover = |version: &str| Effect::Discover { api_version: version.into() };
    for effect in [look(&long), find(&long), discover(&long)] {
        assert!(too_long(encode(&effect, &places)));
        let Input::Answered(_, resus_core::input::Answer::Refused { why, .. }) = answer::unsent(&effect, "it is too long") else {
            panic!("what was not sent is refused")
        };
        assert_eq!(&*why, "not sent: it is too long");
    }
    for effect in [look(odd), find(odd)] {
        assert!(encode(&effect, &places).is_ok());
    }
    let watch = feed::watch(&Source::Nodes, None, &places, "1 2").expect("every version can be asked for");
    assert!(watch.uri().query().expect("a query").ends_with("resourceVersion=1%202"));
}

#[derive(Default)]
struct Tally {
    things: u64,
    unsendable: u64,
    sent: BTreeMap<&'static str, u64>,
}

struct Site {
    dice: Dice,
    world: World,
    keep: Keep,
    listed: BTreeSet<Source>,
    now: Now,
}

impl Site {
    fn new(seed: u64) -> Site {
        let mut world = World::new(Election::new("me".into(), Timing::default()), Claim::All);
        world.machine_claim = Claim::All;
        let keep = Keep::of(&world.detectors);
        let now = Now { wall: Wall(honest::EPOCH), mono: Mono(0) };
        Site { dice: Dice(seed), world, keep, listed: BTreeSet::new(), now }
    }

    fn hear(&mut self, input: Input) {
        self.world.apply(input, self.now);
    }

    fn turn(&mut self, tally: &mut Tally) {
        let decided = plan(&self.world, self.now);
        let breaches = audit(&self.world, &decided, self.now);
        assert!(breaches.is_empty(), "what others write breaks no rule: {breaches:?}");
        for decision in &decided.decisions {
            people_can_read(&decision.because.to_string());
        }
        for source in &decided.watches {
            if self.listed.insert(source.clone()) {
                self.list(source, tally);
            } else if self.dice.below(3) == 0 {
                self.line(source, tally);
            }
        }
        for effect in decided.effects {
            self.world.sent(&effect, self.now);
            self.carry_out(&effect, tally);
        }
        let passed = i64::from(self.dice.pick(&[10, 500, 2_000, 2_000, 2_000, 60_000]));
        self.now = Now { wall: Wall(self.now.wall.0 + passed), mono: Mono(self.now.mono.0 + passed) };
    }

    fn list(&mut self, source: &Source, tally: &mut Tally) {
        self.hear(Input::Listing(source.clone()));
        let items: Vec<Value> = honest::objects(source).into_iter().map(|object| self.dice.bent(object)).collect();
        let page = json!({"metadata": {"resourceVersion": "7", "continue": ""}, "items": items});
        let page = self.dice.bent_rarely(page).to_string();
        let page = self.dice.garbled(page);
        tally.things += 1;
        if let Ok(page) = feed::read_page(source, &self.keep, &page) {
            for input in page.inputs {
                unreadable_is_short(&input);
                self.hear(input);
            }
            tally.unsendable += u64::from(feed::watch(source, None, &Places::new("resus"), &page.version).is_err());
        }
        self.hear(Input::Listed(source.clone()));
    }

    fn line(&mut self, source: &Source, tally: &mut Tally) {
        let objects = honest::objects(source);
        let object = match objects.is_empty() {
            true => json!({"metadata": {"name": "x", "resourceVersion": "8"}}),
            false => objects[self.dice.index(objects.len())].clone(),
        };
        let kind = self.dice.pick(&["ADDED", "MODIFIED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "?"]);
        let line = json!({"type": kind, "object": self.dice.bent(object)}).to_string();
        let line = self.dice.garbled(line);
        tally.things += 1;
        if let Ok(Line::Input(input, version)) = feed::read_line(source, &self.keep, &line) {
            unreadable_is_short(&input);
            self.hear(input);
            let version = version.unwrap_or_default();
            tally.unsendable += u64::from(feed::watch(source, None, &Places::new("resus"), &version).is_err());
        }
    }

    fn carry_out(&mut self, effect: &Effect, tally: &mut Tally) {
        *tally.sent.entry(effect.key().nature().verb).or_default() += 1;
        tally.things += 1;
        let input = match encode(effect, &Places::new("resus")) {
            Ok(request) => {
                if matches!(effect, Effect::Status { .. } | Effect::MachineCheckStatus { .. } | Effect::Emit(_) | Effect::Sign(_))
                {
                    self.people_can_read(&serde_json::from_slice(request.body()).expect("JSON"));
                }
                let response = self.response(effect, &request);
                if response.status().is_success() {
                    self.watched(effect, &request);
                }
                answer::decode(effect, &self.keep, &response)
            }
            Err(error) => {
                tally.unsendable += 1;
                answer::unsent(effect, &error.to_string())
            }
        };
        self.hear(input);
    }

    fn people_can_read(&self, json: &Value) {
        match json {
            Value::String(text) => people_can_read(text),
            Value::Array(all) => all.iter().for_each(|value| self.people_can_read(value)),
            // What others wrote into a status is left as it is.
            Value::Object(all) if all.get("type").is_some_and(|kind| self.stands(kind, all.get("message"))) => {}
            Value::Object(all) => all.iter().for_each(|(key, value)| {
                people_can_read(key);
                self.people_can_read(value);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn stands(&self, kind: &Value, message: Option<&Value>) -> bool {
        let mut all = self.world.checks.values().flat_map(|check| &check.status.conditions);
        all.any(|own| *kind == *own.kind && message.is_some_and(|message| *message == *own.message))
    }

    /// What is stored is seen by whoever watches.
    fn watched(&mut self, effect: &Effect, request: &Request<Vec<u8>>) {
        let source = match effect {
            Effect::HoldNode(_) => Source::NodeLeases,
            Effect::Create(creation) => Source::Objects(creation.key.kind.clone()),
            _ => return,
        };
        let line = json!({"type": "ADDED", "object": honest::answer(effect, request)});
        if let Ok(Line::Input(input, _)) = feed::read_line(&source, &self.keep, line.to_string().as_bytes()) {
            self.hear(input);
        }
    }

    fn response(&mut self, effect: &Effect, request: &Request<Vec<u8>>) -> Response<Vec<u8>> {
        let is_lease = matches!(effect, Effect::Lease(_));
        // Who does not lead decides nothing.
        let (code, body) = match self.dice.below(10) {
            0 | 1 if !is_lease => {
                let code = self.dice.pick(&[400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 302]);
                let status = json!({"kind": "Status", "code": code, "reason": "AlreadyExists", "message": "no", "details": {"retryAfterSeconds": 1}});
                (code, self.dice.bent(status))
            }
            2 if !is_lease => (200, self.dice.bent(honest::answer(effect, request))),
            _ if is_lease && request.method() == Method::GET => (404, json!({})),
            _ => (200, honest::answer(effect, request)),
        };
        let body = if is_lease { body.to_string().into_bytes() } else { self.dice.garbled(body.to_string()) };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).expect("a code");
        response
    }
}

fn unreadable_is_short(input: &Input) {
    if let Input::Unreadable { name, why, .. } = input {
        people_can_read(name);
        people_can_read(why);
    }
}

/// Lines are broken by us alone, and no text of others is shown at length.
fn people_can_read(text: &str) {
    let odd = text.chars().find(|c| (c.is_control() && *c != '\n') || matches!(c, '\u{202a}'..='\u{202e}'));
    assert_eq!(odd, None, "in {text:?}");
    assert!(!text.contains(&FILL.repeat(TEXT_MAX + 1)), "{} characters: {}", text.chars().count(), &text[..text.len().min(400)]);
}

/// The most that was ever resident, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}
