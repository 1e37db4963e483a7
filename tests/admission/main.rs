//! Is a mistake in a check refused where it is written, and does it do harm where nobody refuses it?

mod bad;
mod fuzz;
mod good;
mod machines;
mod nodes;
mod running;
mod side;
mod without;

use resus_core::facts::Check;
use resus_k8s::observe;
use serde_json::{Value, json};

use crate::bad::{Read, merge};
use crate::good::base;
use crate::side::{CHECKS, Side};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_server_refuses_each_mistake_and_says_what_to_write() {
    mistakes_are_refused(&mut Side::embedded()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_refuses_each_mistake_and_says_what_to_write() {
    let Some(mut side) = Side::real_or_skip().await else { return };
    mistakes_are_refused(&mut side).await;
}

/// One server, for starting a real one takes longer than all questions.
async fn mistakes_are_refused(side: &mut Side) {
    let mut wrong = Vec::new();
    for bad in bad::all() {
        let answer = side.try_create(CHECKS, &check("bad", &bad.whole())).await;
        if answer.code != 422 || !answer.blames(bad.field, bad.says) {
            let (code, said) = (answer.code, answer.message());
            wrong.push(format!("{}\n  should blame {} with {:?}: {code} {said}", bad.spec, bad.field, bad.says));
        }
    }
    for spec in good::all() {
        let mut whole = base();
        merge(&mut whole, &spec);
        let answer = side.try_create(CHECKS, &check("good", &whole)).await;
        if !answer.is_ok() {
            wrong.push(format!("{whole}\n  should be taken: {}", answer.message()));
        }
    }
    for (path, yaml) in good::USERS {
        let object: Value = serde_saphyr::from_str(yaml).expect("it is YAML");
        let answer = side.try_create(path, &object).await;
        if !answer.is_ok() {
            wrong.push(format!("{yaml}\n  should be taken: {}", answer.message()));
        }
    }
    wrong.extend(machines::mistakes(side).await);
    for (path, object, field, says) in bad::poison_pills() {
        let answer = side.try_create(path, &object).await;
        if answer.code != 422 || !answer.blames(field, says) {
            wrong.push(format!("{object}\n  should blame {field} with {says:?}: {} {}", answer.code, answer.message()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A foreign definition has none of our rules.
#[test]
fn mistakes_that_nobody_refused_are_found_when_they_are_read() {
    for bad in bad::all() {
        let policy = read(&check("bad", &bad.whole())).policy;
        match (bad.read, policy) {
            (Read::Says(says), Err(why)) => assert!(why.0.contains(says), "{}: {}, not {says}", bad.spec, why.0),
            (Read::Harmless, Ok(_)) => {}
            (Read::Says(_) | Read::Harmless, policy) => panic!("{}: {policy:?}", bad.spec),
        }
    }
    for spec in good::all() {
        let mut whole = base();
        merge(&mut whole, &spec);
        read(&check("good", &whole)).policy.unwrap_or_else(|why| panic!("{whole}: {}", why.0));
    }
    for (_, yaml) in good::USERS.into_iter().filter(|(path, _)| *path == CHECKS) {
        let object = serde_saphyr::from_str(yaml).expect("it is YAML");
        read(&object).policy.unwrap_or_else(|why| panic!("{yaml}: {}", why.0));
    }
}

fn check(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": {"name": name}, "spec": spec})
}

fn read(object: &Value) -> Check {
    observe::check(object.to_string().as_bytes()).expect("its metadata is good")
}
