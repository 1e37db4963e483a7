//! What may a process rely on: its own answers, and what the one before it left?

use std::collections::BTreeSet;

use resus_core::facts::{Name, Version};
use resus_core::fencing::agent::{Act, Agent, Cause, Device, Failure, Heard, Memory, Start, Word};
use resus_core::fencing::lease::{Claim, Seen};
use resus_core::fencing::roll::Roll;
use resus_core::fencing::terms::{Circumstances, Resets, Terms, WATCHDOG_FOR};
use resus_core::fencing::vote::Reply;
use resus_core::fencing::wire;
use resus_core::time::Mono;

fn terms() -> Terms {
    Terms::of(Circumstances { agents: 3, watchdog_for: WATCHDOG_FOR, resets: Resets::AtExpiry, virtual_machine: false })
}

fn agent(memory: Option<Memory>, now: Mono) -> Agent {
    let start =
        Start { me: "x".into(), boot: "b".into(), terms: terms(), device: Device::Reliable, memory, relapsing_until: None };
    Agent::new(start, now)
}

fn lease(version: &str, claim: Claim) -> Seen {
    Seen { uid: "u".into(), version: Version(version.into()), claim, order: None }
}

/// Answers everything but what concerns the Lease, and returns that.
pub fn turn(agent: &mut Agent, memory: &mut Option<Memory>, fed: &mut Vec<i64>, now: Mono) -> Vec<Act> {
    let mut left = Vec::new();
    for _ in 0..10 {
        for act in agent.turn(now, 0) {
            match act {
                Act::Remember(known) => *memory = Some(known),
                Act::ReadRoll => {
                    let electors: BTreeSet<Name> = ["x", "y", "z"].map(Name::from).into();
                    agent.hear(Heard::Roll(Ok(Roll { number: 1, electors, ..Roll::default() })), now);
                }
                Act::Ask { vote, peers, trial: true } => {
                    for from in peers {
                        agent.hear(Heard::Replied { vote, from, reply: Word::Here, protocol: wire::PROTOCOL }, now);
                    }
                }
                Act::Open => {
                    fed.push(now.0);
                    agent.hear(Heard::Armed, now);
                }
                Act::Feed => fed.push(now.0),
                act @ (Act::Read | Act::Create(_) | Act::Renew(..)) => left.push(act),
                _ => {}
            }
        }
    }
    left
}

/// A new agent, brought to the point where it has promised something and the answer is there; its Lease, and what it remembers.
pub fn promising() -> (Agent, Seen, Option<Memory>, Mono) {
    let (mut memory, mut fed, mut now) = (None, Vec::new(), Mono(0));
    let mut first = agent(None, now);
    let mut known: Option<Seen> = None;
    while known.as_ref().is_none_or(|known| known.claim.bound.is_none()) {
        assert!(now.0 < 60_000, "it never promises anything");
        for act in turn(&mut first, &mut memory, &mut fed, now) {
            let answer = match act {
                Act::Create(claim) | Act::Renew(_, claim) => {
                    let version: u64 = known.as_ref().map_or(0, |known| known.version.0.parse().expect("a number"));
                    known = Some(lease(&(version + 1).to_string(), claim));
                    Ok(known.clone().expect("just made"))
                }
                _ => known.clone().ok_or(Failure::Missing),
            };
            first.hear(Heard::Lease(answer), now);
        }
        now = now.shift(1000);
    }
    (first, known.expect("it does"), memory, now)
}

/// The order may have been stored right after the server read what it answered so late.
#[test]
fn a_proof_counts_from_when_it_was_asked_for() {
    let (mut agent, known, mut memory, mut now) = promising();
    let mut fed = Vec::new();
    let mut asked_at = None;
    while asked_at.is_none() {
        now = now.shift(1000);
        let asks = !turn(&mut agent, &mut memory, &mut fed, now).is_empty();
        asked_at = asks.then_some(now);
    }
    let asked_at = asked_at.expect("it renews");
    // The answer takes 40 seconds, and no other ever comes.
    for seconds in 1..200 {
        now = asked_at.shift(seconds * 1000);
        if seconds == 40 {
            agent.hear(Heard::Lease(Ok(known.clone())), now);
        }
        turn(&mut agent, &mut memory, &mut fed, now);
    }
    let last = fed.iter().max().copied().expect("it was fed");
    let end = asked_at.after(terms().proof_for).0;
    assert!(last <= end && last > end - 5_000, "fed for the last time at {last}, the proof ends at {end}");
}

/// Found by the model of a proof's life: a write of a process that was killed is stored after the next one has read the Lease, which did
/// not promise anything then.
#[test]
fn what_an_earlier_process_sent_may_still_be_stored() {
    for remembers in [true, false] {
        let (mut memory, mut fed) = (None, Vec::new());
        let mut first = agent(None, Mono(0));
        assert_eq!(turn(&mut first, &mut memory, &mut fed, Mono(0)), [Act::Read]);
        first.hear(Heard::Lease(Err(Failure::Missing)), Mono(0));
        let created = turn(&mut first, &mut memory, &mut fed, Mono(0));
        let [Act::Create(claim)] = &created[..] else { panic!("{created:?}") };
        first.hear(Heard::Lease(Ok(lease("1", claim.clone()))), Mono(0));
        // Until it promises something, everything is answered.
        let (mut version, mut now, mut promise) = (1, Mono(0), None);
        while promise.is_none() {
            assert!(now.0 < 60_000, "it never promises anything");
            for act in turn(&mut first, &mut memory, &mut fed, now) {
                match act {
                    Act::Renew(_, claim) if claim.bound.is_some() => promise = Some(claim),
                    Act::Renew(_, claim) => {
                        version += 1;
                        first.hear(Heard::Lease(Ok(lease(&version.to_string(), claim))), now);
                    }
                    other => panic!("{other:?}"),
                }
            }
            now = now.shift(1000);
        }
        let promise = promise.expect("it does");
        assert!(!fed.is_empty(), "the device is open when it does");

        // It dies with that under way; the next one reads the Lease as it was.
        let began = now;
        let known = memory.clone().filter(|_| remembers);
        let mut second = agent(known, began);
        fed.clear();
        let mut asked = turn(&mut second, &mut memory, &mut fed, began);
        assert_eq!(asked, [Act::Read]);
        let before = Claim { bound: None, ..promise.clone() };
        second.hear(Heard::Lease(Ok(lease(&version.to_string(), before))), began);
        // Nothing is answered from now on: whatever was promised has to be kept.
        for second_later in 0..300 {
            let now = began.shift(second_later * 1000);
            asked.extend(turn(&mut second, &mut memory, &mut fed, now));
        }
        let last = fed.iter().max().copied();
        let proof_ends = began.after(terms().proof_for);
        assert!(
            last.is_none_or(|last| last <= proof_ends.0),
            "fed at {last:?}, proved until {proof_ends:?}, remembers: {remembers}"
        );
        assert_eq!(last.is_some(), remembers, "who does not know what was promised does not open the device");
    }
}

/// The answers that condemn it come in the moment in which it would feed its watchdog.
#[test]
fn who_is_told_to_die_does_not_feed_once_more() {
    let (mut agent, _, _, mut now) = promising();
    let mut asked = None;
    while asked.is_none() {
        assert!(now.0 < 120_000, "it never asks its peers");
        now = now.shift(1000);
        for act in agent.turn(now, 0) {
            match act {
                Act::Read | Act::Renew(..) => agent.hear(Heard::Lease(Err(Failure::Lost)), now),
                Act::Ask { vote, peers, trial: false } => asked = Some((vote, peers)),
                _ => {}
            }
        }
    }
    let (vote, peers) = asked.expect("it does");
    now = now.shift(3000);
    for from in peers {
        agent.hear(Heard::Replied { vote, from, reply: Word::Reply(Reply::Ordered), protocol: wire::PROTOCOL }, now);
    }
    let acts = agent.turn(now, 0);
    assert!(acts.contains(&Act::Die(Cause::Voted)), "{acts:?}");
    assert!(!acts.contains(&Act::Feed), "{acts:?}");
}
