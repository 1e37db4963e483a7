//! Many nodes at once: what does the controller cost the API server?

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use resus_harness::{Cluster, until};

use crate::stage::{AT_ONCE, Stage, stage};

const NODES: usize = 1000;
const FLAPS_FOR: SignedDuration = SignedDuration::from_secs(25);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_nodes_that_flap_are_at_most_two_status_writes_a_second() {
    let Some(stage) = stage(Cluster::builder().audit(true)).await else { return };
    stage.nodes(NODES).await;
    for check in ["one", "two"] {
        stage.check(check, 5, "1%").await;
    }
    let kubeconfig = stage.account().await;
    let controller = stage.controller("controller", &kubeconfig);
    until_healthy(&stage).await;

    let began_at = Timestamp::now();
    let mut turns = 0;
    while Timestamp::now().duration_since(began_at) < FLAPS_FOR || turns % 2 == 1 {
        // Unhealthy at once, so that both statuses list nearly all nodes, and change all the time.
        let ready = ["False", "True"][turns % 2];
        let all = (1..=NODES).map(|n| {
            let stage = &stage;
            async move { stage.condition(&format!("n{n}"), "Ready", ready, 60).await }
        });
        stream::iter(all).buffer_unordered(AT_ONCE).collect::<()>().await;
        turns += 1;
    }
    assert!(turns >= 4, "several times, not {turns}");
    until_healthy(&stage).await;
    assert!(controller.is_running());

    let written = status_writes(&stage);
    assert_eq!(written.len(), 2, "{written:?}");
    for (check, times) in written {
        println!("{check}: {} status writes in {turns} turns", times.len());
        assert!(times.len() >= 5, "they tell of the flapping");
        let close = times.windows(3).find(|three| three[2].duration_since(three[0]) < SignedDuration::from_secs(1));
        assert_eq!(close, None, "three status writes of {check} within a second");
    }
}

async fn until_healthy(stage: &Stage) {
    for check in ["one", "two"] {
        until(Duration::from_secs(60), &format!("{check} sees {NODES} healthy nodes"), || async {
            (stage.status(check).await["healthyNodes"] == NODES).then_some(())
        })
        .await;
    }
}

/// When the status of each check was written.
fn status_writes(stage: &Stage) -> BTreeMap<String, Vec<Timestamp>> {
    let mut written: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    for entry in stage.cluster.audit_log().expect("the audit log can be read") {
        let path = entry.uri.split('?').next().unwrap_or_default();
        let check = path.split_once("/nodehealthchecks/").and_then(|(_, rest)| rest.strip_suffix("/status"));
        if let Some(check) = check.filter(|_| entry.verb == "patch") {
            written.entry(check.to_owned()).or_default().push(entry.at);
        }
    }
    written.values_mut().for_each(|times| times.sort_unstable());
    written
}
