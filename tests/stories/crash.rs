//! The controller is killed at every effect of the thin path, before the server hears of it and after it has stored
//! it; and what was sent before the kill may still arrive long after. Nothing is lost, nothing is doubled.

use resus_harness::{Action, Asked, Cluster, Proxy, Rule};

use crate::stage::{SOON, Stage, bare_stage, stage};

/// When in its life a node's story reaches the effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum During {
    Break,
    Recovery,
}

struct Effect {
    name: &'static str,
    during: During,
    is: fn(&Asked) -> bool,
}

const EFFECTS: [Effect; 8] = [
    Effect { name: "look", during: During::Break, is: |asked| asked.is("GET", "/api/v1/nodes/") },
    Effect { name: "create", during: During::Break, is: |asked| asked.is("POST", "/rebootremediations") },
    Effect { name: "event of a start", during: During::Break, is: |asked| asked.is("POST", "/events") },
    Effect { name: "status of a start", during: During::Break, is: |asked| asked.is("PATCH", "/status") },
    Effect { name: "lease", during: During::Break, is: |asked| asked.is("PUT", "/leases/") },
    Effect { name: "delete", during: During::Recovery, is: |asked| asked.is("DELETE", "/rebootremediations/") },
    Effect { name: "event of an end", during: During::Recovery, is: |asked| asked.is("POST", "/events") },
    Effect { name: "status of an end", during: During::Recovery, is: |asked| asked.is("PATCH", "/status") },
];

/// What becomes of the request on whose way the controller is killed.
#[derive(Clone, Copy, Debug)]
enum Fate {
    NeverSent,
    StoredUnread,
    ExecutedLate,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_effect_nothing_is_lost_or_doubled() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    let fates = [Fate::NeverSent, Fate::StoredUnread, Fate::ExecutedLate];
    let count = EFFECTS.len() * fates.len();
    stage.nodes(count).await;
    stage.check("workers", 5, "50%").await;
    let proxy = Proxy::in_front_of(&stage.cluster).await.expect("the proxy starts");
    let kubeconfig = stage.account_through(&proxy).await;
    let controller = stage.controller("controller", &kubeconfig);

    let cases = EFFECTS.iter().flat_map(|effect| fates.map(|fate| (effect, fate)));
    for (n, (effect, fate)) in cases.enumerate() {
        let node = format!("n{}", n + 1);
        println!("{node}: killed at {}, {fate:?}", effect.name);
        controller.wait_for_log(" leading", SOON).await.expect("it leads");
        stage.until_status("workers", "the last case is over", |status| status["phase"] == "Enabled").await;

        if effect.during == During::Recovery {
            stage.condition(&node, "Ready", "False", 60).await;
            remediating(&stage, &node).await;
        }
        let rule = catch(&proxy, effect, fate);
        let broken = if effect.during == During::Break { "False" } else { "True" };
        stage.condition(&node, "Ready", broken, if broken == "True" { 0 } else { 60 }).await;
        rule.reached().await;
        controller.kill();
        if !matches!(fate, Fate::ExecutedLate) {
            rule.cut_held();
        }
        stage.forget_leader().await;
        controller.start_again().expect("it starts again");
        controller.wait_for_log(" leading", SOON).await.expect("it leads");

        if effect.during == During::Break {
            remediating(&stage, &node).await;
            late(fate, &rule).await;
            remediating(&stage, &node).await;
            stage.condition(&node, "Ready", "True", 0).await;
        }
        stage.until_remediations(&[]).await;
        stage.until_status("workers", "the end is reported", |status| status["phase"] == "Enabled").await;
        if effect.during == During::Recovery {
            late(fate, &rule).await;
        }
    }

    assert_eq!(stage.times_created(), count, "one remediation for each node");
    let events = stage.events().await;
    for n in 1..=count {
        let node = format!("node n{n}");
        let about = |reason: &str| {
            events
                .iter()
                .filter(|(own, text)| own == reason && (text.ends_with(&node) || text.contains(&format!("{node}:"))))
                .count()
        };
        let counts = (about("DetectedUnhealthy"), about("RemediationCreated"), about("RemediationRemoved"));
        assert_eq!(counts, (1, 1, 1), "events of {node}: {events:#?}");
    }
}

fn catch(proxy: &Proxy, effect: &'static Effect, fate: Fate) -> Rule {
    let action = match fate {
        Fate::NeverSent | Fate::ExecutedLate => Action::HoldBefore,
        Fate::StoredUnread => Action::HoldAfter,
    };
    proxy.rule(effect.is, action).times(1)
}

/// What the killed process sent arrives after its successor has done the work.
async fn late(fate: Fate, rule: &Rule) {
    if matches!(fate, Fate::ExecutedLate) {
        let answers = rule.release().await;
        println!("late: {answers:?}");
    }
}

async fn remediating(stage: &Stage, node: &str) {
    stage.until_remediations(&[node]).await;
    stage
        .until_status("workers", "the start is reported", |status| {
            status["unhealthyNodes"][0]["remediations"][0]["resource"]["name"] == node
        })
        .await;
}

/// The very first effects: the namespace and the lease itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_first_becomes_leader() {
    let Some(stage) = bare_stage(Cluster::builder()).await else { return };
    let proxy = Proxy::in_front_of(&stage.cluster).await.expect("the proxy starts");
    let kubeconfig =
        stage.cluster.kubeconfig_via(&proxy.url(), stage.cluster.admin_kubeconfig()).expect("a kubeconfig can be written");
    for path in ["/api/v1/namespaces", "/leases"] {
        for action in [Action::HoldBefore, Action::HoldAfter] {
            stage.forget_leader().await;
            let rule = proxy.rule(move |asked| asked.is("POST", path), action).times(1);
            let controller = stage.controller("killed", &kubeconfig);
            rule.reached().await;
            controller.kill();
            rule.cut_held();
        }
    }
    stage.forget_leader().await;
    let controller = stage.controller("controller", &kubeconfig);
    controller.wait_for_log(" leading", SOON).await.expect("it leads in the end");
}
