//! Do two servers answer the same thousands of random requests alike, and end in the same state?
//!
//! One seed draws all operations beforehand. Each server gets them in the same order, over its own connection; versions
//! and uids in a request are those that this very server told before.

mod draw;
mod fragments;
mod normal;
mod operation;
mod side;

use crate::client::Api;
use crate::random::draw::Draw;
use crate::random::normal::Normal;
use crate::random::operation::Operation;
use crate::random::side::{Side, Told};

const OPERATIONS: usize = 5_000;
/// A test of refusals that is refused too seldom tests something else.
const REFUSED_AT_LEAST: f64 = 0.2;
/// Used unless `RESUS_SEED` says something else. Any will do; a fixed one makes a failure come back.
const SEED: u64 = 20_260_101;
/// Of operations that are answered differently; later ones often follow from the first.
const SHOWN_MAX: usize = 12;

/// `one` is the server that knows how to answer.
pub async fn end_alike(one: &Api, other: &Api) {
    let seed = std::env::var("RESUS_SEED").ok().map_or(SEED, |seed| seed.parse().expect("RESUS_SEED is a number"));
    println!("seed {seed} (RESUS_SEED={seed} draws the same operations again)");
    let mut draw = Draw::new(seed);
    let operations: Vec<Operation> = (0..OPERATIONS).map(|_| operation::draw(&mut draw)).collect();

    let (mut one, mut other) = tokio::join!(Side::begin(one), Side::begin(other));
    tokio::join!(one.run(&operations), other.run(&operations));
    let (one, other) = tokio::join!(one.end(), other.end());

    check_refusals(&one);
    let (one, other) = (Normal::of(&one), Normal::of(&other));
    if let Some(difference) = first_difference(&operations, &one, &other) {
        panic!("seed {seed}: {difference}");
    }
}

fn check_refusals(told: &Told) {
    let refused = told.answers.iter().filter(|answer| answer.code >= 400).count();
    let share = refused as f64 / told.answers.len() as f64;
    println!("{refused} of {} operations were refused", told.answers.len());
    assert!(share >= REFUSED_AT_LEAST, "only {share:.2} of the operations were refused");
}

fn first_difference(operations: &[Operation], one: &Normal, other: &Normal) -> Option<String> {
    let unlike: Vec<usize> = (0..operations.len()).filter(|index| one.answers[*index] != other.answers[*index]).collect();
    if !unlike.is_empty() {
        let shown = unlike.iter().take(SHOWN_MAX).map(|index| {
            let (one, other) = (&one.answers[*index], &other.answers[*index]);
            format!(
                "operation {index}: {}\n--- real server\n{}\n--- the other\n{}\n",
                operations[*index],
                only(one, other),
                only(other, one)
            )
        });
        let shown: String = shown.collect();
        return Some(format!("{} of {} operations are answered differently\n{shown}", unlike.len(), operations.len()));
    }
    for (what, ones, others) in [("states", &one.states, &other.states), ("events", &one.events, &other.events)] {
        for ((kind, ones), (_, others)) in ones.iter().zip(others) {
            let first = (0..ones.len().max(others.len())).find(|index| ones.get(*index) != others.get(*index));
            if let Some(first) = first {
                let (ones, others) = (ones.get(first), others.get(first));
                return Some(format!(
                    "the {what} of {kind} differ at {first}\n--- real server\n{ones:#?}\n--- the other\n{others:#?}"
                ));
            }
        }
    }
    None
}

/// The lines of an answer that the other one has not; all of it where only the order differs.
fn only(one: &str, other: &str) -> String {
    let lines: Vec<&str> = one.lines().filter(|line| !other.lines().any(|known| known == *line)).collect();
    if lines.is_empty() { one.to_owned() } else { lines.join("\n") }
}
