//! An escalation goes on through everything that may go wrong: each step is taken exactly once.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures::StreamExt as _;
use http::StatusCode;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use resus_harness::{Action, Asked, Cluster, Process, Proxy, until};
use serde_json::Value;

use crate::escalation::{two_steps, until_given_up, until_powered};
use crate::faults::{begin, etcd_stands_still, expire_every_watch, refuse_every_second_write};
use crate::stage::{Stage, condition, stage};

/// Twice what the slowest fault has been seen to cost.
const IN_THE_END: Duration = Duration::from_secs(60);

async fn escalating(nodes: usize) -> Option<(Stage, Proxy, Process)> {
    let stage = stage(Cluster::builder().audit(true)).await?;
    stage.power_provider().await;
    stage.check_with("workers", "50%", two_steps()).await;
    let (proxy, controller) = begin(&stage, nodes).await;
    Some((stage, proxy, controller))
}

/// The first step is taken.
async fn breaks(stage: &Stage, node: &str) {
    stage.condition(node, "Ready", "False", 60).await;
    until_rebooted(stage, &[node]).await;
}

async fn until_rebooted(stage: &Stage, expected: &[&str]) {
    until(IN_THE_END, &format!("the first step is taken on {expected:?}"), || async {
        (stage.remediations().await == expected).then_some(())
    })
    .await;
}

/// The provider gives up, and the second step is taken; the first stays, and says that it is over.
async fn escalates(stage: &Stage, node: &str) {
    until_powered(stage, IN_THE_END, &[node]).await;
    until_given_up(stage, IN_THE_END, node).await;
}

async fn recovers(stage: &Stage, node: &str) {
    stage.condition(node, "Ready", "True", 0).await;
    until_rebooted(stage, &[]).await;
    until_powered(stage, IN_THE_END, &[]).await;
    let is_well = |status: &Value| status["phase"] == "Enabled" && status["unhealthyNodes"].is_null();
    until(IN_THE_END, "nothing is left of it", || async { is_well(&stage.status("workers").await).then_some(()) }).await;
}

async fn fails(stage: &Stage, node: &str) {
    stage.provider_says("RebootRemediation", node, "Succeeded", "False").await;
}

async fn whole(stage: &Stage, node: &str) {
    breaks(stage, node).await;
    fails(stage, node).await;
    escalates(stage, node).await;
    recovers(stage, node).await;
}

/// How often each step was taken, on all nodes together.
fn taken(stage: &Stage) -> (usize, usize) {
    (stage.times_created_of("rebootremediations"), stage.times_created_of("powerremediations"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_restarts_between_the_steps_takes_none_twice() {
    let Some((stage, proxy, controller)) = escalating(4).await else { return };
    let restart = async |expected: (usize, usize)| {
        // What the server has answered last may be missing in the log of one that is killed.
        until(IN_THE_END, "each step stands in the audit log", || async { (taken(&stage) == expected).then_some(()) }).await;
        stage.cluster.apiserver().kill();
        stage.cluster.apiserver().restart().await.expect("it comes back");
    };
    breaks(&stage, "n1").await;
    restart((1, 0)).await;
    // The next step is on its way when the server goes, and arrives when the controller has taken it once more.
    let late = proxy.rule(|asked| asked.is("POST", "/powerremediations"), Action::HoldBefore).times(1);
    fails(&stage, "n1").await;
    late.reached().await;
    restart((1, 0)).await;
    escalates(&stage, "n1").await;
    println!("late: {:?}", late.release().await);
    recovers(&stage, "n1").await;
    assert_eq!(taken(&stage), (1, 1));
    assert!(controller.is_running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_that_stands_still_between_the_steps_takes_none_twice() {
    let Some((stage, proxy, controller)) = escalating(4).await else { return };
    let versions = versions(&stage).await;
    breaks(&stage, "n1").await;
    // The next step reaches the server just after etcd has stopped: nobody can tell whether it is stored before etcd goes on.
    let late = proxy.rule(|asked| asked.is("POST", "/powerremediations"), Action::HoldBefore).times(1);
    fails(&stage, "n1").await;
    late.reached().await;
    stage.cluster.etcd().pause();
    let (answers, ()) = tokio::join!(late.release(), etcd_stands_still(&stage, &controller));
    println!("late: {answers:?}");
    escalates(&stage, "n1").await;
    recovers(&stage, "n1").await;
    whole(&stage, "n2").await;
    assert_eq!(born_since(&stage, &versions).await, (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_cut_or_expire_take_no_step_twice() {
    let Some((stage, proxy, _controller)) = escalating(4).await else { return };
    breaks(&stage, "n1").await;
    proxy.cut_all().await;
    fails(&stage, "n1").await;
    proxy.cut_all().await;
    escalates(&stage, "n1").await;
    proxy.cut_all().await;
    recovers(&stage, "n1").await;
    let gone = expire_every_watch(&proxy).await;
    whole(&stage, "n2").await;
    gone.remove().await;
    assert_eq!(taken(&stage), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_which_every_second_is_refused_take_no_step_twice() {
    let Some((stage, proxy, _controller)) = escalating(4).await else { return };
    let busy = refuse_every_second_write(&proxy);
    whole(&stage, "n1").await;
    assert!(busy.hits() >= 5, "{} writes were refused", busy.hits());
    assert_eq!(taken(&stage), (1, 1));
}

/// A token that is just being renewed, or an authentication webhook that is away: this says nothing about our rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_are_refused_once_cost_no_right() {
    let Some((stage, proxy, _controller)) = escalating(4).await else { return };
    let refusal = Action::refuse(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
    let refused = proxy.rule(|asked| asked.is("PATCH", "/rebootremediations"), refusal).times(1);
    breaks(&stage, "n1").await;
    fails(&stage, "n1").await;
    refused.reached().await;
    escalates(&stage, "n1").await;
    let updates = proxy.requests().into_iter().filter(|one| one.method == "PUT" && one.path.contains("/rebootremediations"));
    assert_eq!(updates.count(), 0, "it is patched, as before");
    assert_eq!(condition(&stage.status("workers").await, "LimitedRights"), &Value::Null);
    recovers(&stage, "n1").await;
}

/// At whichever of its writes: never sent, or stored without it hearing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_killed_again_and_again_takes_no_step_twice() {
    let Some((stage, proxy, controller)) = escalating(4).await else { return };
    let versions = versions(&stage).await;
    let mut kills = 0;
    let story = async {
        for node in ["n1", "n2"] {
            whole(&stage, node).await;
        }
    };
    let reaper = async {
        loop {
            kill_at_random(&stage, &proxy, &controller).await;
            kills += 1;
        }
    };
    tokio::select! {
        () = story => {}
        () = reaper => unreachable!("it never ends"),
    }
    assert!(kills >= 5, "it was killed {kills} times");
    assert_eq!(born_since(&stage, &versions).await, (2, 2));
}

pub async fn versions(stage: &Stage) -> (String, String) {
    (version(stage, "RebootRemediation").await, version(stage, "PowerRemediation").await)
}

/// As [`taken`], where a client may go away meanwhile: the audit log does not know what became of its request, the
/// history of the objects does.
pub async fn born_since(stage: &Stage, versions: &(String, String)) -> (usize, usize) {
    (born(stage, "RebootRemediation", &versions.0).await, born(stage, "PowerRemediation", &versions.1).await)
}

async fn version(stage: &Stage, kind: &str) -> String {
    let all = stage.objects_api(kind).list(&ListParams::default()).await.expect("they can be listed");
    all.metadata.resource_version.expect("a list has a version")
}

/// How many objects of this kind were stored since then.
async fn born(stage: &Stage, kind: &str, since: &str) -> usize {
    let params = WatchParams::default().timeout(2); // All of it is history, and comes at once.
    let events = stage.objects_api(kind).watch(&params, since).await.expect("they can be watched").collect::<Vec<_>>().await;
    let is_birth = |event: &kube::Result<WatchEvent<DynamicObject>>| match event {
        Ok(WatchEvent::Added(_)) => true,
        Ok(WatchEvent::Modified(_) | WatchEvent::Deleted(_) | WatchEvent::Bookmark(_)) => false,
        Ok(WatchEvent::Error(error)) => panic!("the history is lost: {error:?}"),
        Err(error) => panic!("the history cannot be read: {error}"),
    };
    events.iter().filter(|event| is_birth(event)).count()
}

async fn kill_at_random(stage: &Stage, proxy: &Proxy, controller: &Process) {
    let chance = RandomState::new().hash_one(()) as usize;
    let (skips, action) = (chance % 5, if chance & 64 == 0 { Action::HoldBefore } else { Action::HoldAfter });
    let is_ours = |asked: &Asked| asked.method != "GET" && !asked.path.contains("/leases/resus-controller");
    let write = proxy.rule(is_ours, action.clone()).skip(skips).times(1);
    println!("killed after {skips} writes, {action:?}");
    write.reached().await;
    controller.kill();
    write.cut_held();
    stage.forget_leader().await;
    controller.start_again().expect("it starts again");
}
