//! Is it a real cluster, and can it be broken and mended?

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Resource};
use resus_harness::{Cluster, cluster_or_skip, until};

const SOON: Duration = Duration::from_secs(30);

const READER: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
"#;

#[tokio::test]
async fn a_cluster_stores_refuses_records_and_survives() {
    let began_at = Instant::now();
    let Some(cluster) = cluster_or_skip(Cluster::builder().audit(true)).await else { return };
    println!("a cluster took {:?}", began_at.elapsed());
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), "default");

    kubectl_writes_and_the_client_reads(&cluster, &maps).await;
    a_service_account_is_refused_what_it_was_not_granted(&cluster).await;
    the_audit_log_has_each_request_once(&cluster).await;
    a_paused_etcd_stops_requests(&cluster).await;
    a_killed_apiserver_keeps_its_data(&cluster, &maps).await;
    a_killed_etcd_keeps_its_data(&cluster, &maps).await;
}

async fn kubectl_writes_and_the_client_reads(cluster: &Cluster, maps: &Api<ConfigMap>) {
    let said = cluster.kubectl(["create", "configmap", "greeting", "--from-literal=text=hello"]).await.expect("kubectl runs");
    said.ok().expect("an admin may create");
    assert_eq!(text_of(maps).await.expect("it was created"), "hello");
    let refused = cluster.kubectl(["create", "configmap", "greeting"]).await.expect("kubectl runs");
    assert!(!refused.status.success() && refused.stderr.contains("already exists"), "{refused:?}");
}

async fn a_service_account_is_refused_what_it_was_not_granted(cluster: &Cluster) {
    cluster.apply(READER).await.expect("the manifests are good");
    let kubeconfig = cluster.kubeconfig_for("default", "reader").await.expect("the service account exists");
    let client = cluster.client_of(&kubeconfig).await.expect("the kubeconfig is good");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    // RBAC is served from the server's watch cache, which may lag behind what was just applied.
    let text = until(SOON, "reading is granted", || async { text_of(&maps).await.ok() }).await;
    assert_eq!(text, "hello");
    let refused = maps.delete("greeting", &DeleteParams::default()).await.expect_err("deleting is not granted");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused:?}");
}

async fn the_audit_log_has_each_request_once(cluster: &Cluster) {
    let reader = "system:serviceaccount:default:reader";
    let kubeconfig = cluster.kubeconfig_for("default", "reader").await.expect("the service account exists");
    let watching = cluster.client_of(&kubeconfig).await.expect("the kubeconfig is good");
    let watch = http::Request::get("/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1");
    let events = watching.request_text(watch.body(Vec::new()).expect("a good request")).await.expect("a watch ends in time");
    assert!(events.contains("greeting"), "{events}");

    let entries = cluster.audit_log().expect("the cluster writes one");
    let of_reader: Vec<_> = entries.iter().filter(|entry| entry.user == reader).collect();
    let deletes: Vec<_> = of_reader.iter().filter(|entry| entry.verb == "delete").collect();
    assert!(matches!(deletes[..], [delete] if delete.code == 403 && delete.uri.ends_with("/configmaps/greeting")), "{deletes:?}");
    let watches: Vec<_> = of_reader.iter().filter(|entry| entry.verb == "watch").collect();
    assert!(matches!(watches[..], [watch] if watch.code == 200 && watch.at > deletes[0].at), "{watches:?}");
}

async fn a_paused_etcd_stops_requests(cluster: &Cluster) {
    cluster.etcd().pause();
    let write = ["create", "configmap", "late", "--request-timeout=2s"];
    let stuck = cluster.kubectl(write).await.expect("kubectl runs");
    assert!(!stuck.status.success(), "nothing can be stored: {stuck:?}");
    assert!(cluster.apiserver().is_running(), "the server outlives its store");
    cluster.etcd().resume();
    let list = || async {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), "default");
        maps.list(&ListParams::default()).await.ok()
    };
    until(SOON, "requests work again", list).await;
    cluster.apiserver().wait_ready().await.expect("it recovers");
}

async fn a_killed_apiserver_keeps_its_data(cluster: &Cluster, maps: &Api<ConfigMap>) {
    cluster.apiserver().kill();
    text_of(maps).await.expect_err("nobody is there to answer");
    cluster.apiserver().restart().await.expect("it starts again");
    assert_eq!(text_of(maps).await.expect("the same client finds it"), "hello");
}

async fn a_killed_etcd_keeps_its_data(cluster: &Cluster, maps: &Api<ConfigMap>) {
    cluster.etcd().restart().await.expect("it starts again");
    let text = until(SOON, "the server finds its store again", || async { text_of(maps).await.ok() }).await;
    assert_eq!(text, "hello");
}

#[tokio::test]
async fn the_controller_manager_collects_garbage_also_after_a_restart() {
    let builder = Cluster::builder().controller_manager(true);
    let Some(cluster) = cluster_or_skip(builder).await else { return };
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), "default");
    cluster.controller_manager().restart().await.expect("it starts again");
    let owner = maps.create(&PostParams::default(), &map("owner", None)).await.expect("it is new");
    let owned = map("owned", Some(&owner));
    maps.create(&PostParams::default(), &owned).await.expect("it is new");

    maps.delete("owner", &DeleteParams::default()).await.expect("it was there");

    until(SOON, "what the owner owned is gone", || async {
        maps.get_opt("owned").await.expect("the server answers").is_none().then_some(())
    })
    .await;
}

fn map(name: &str, owner: Option<&ConfigMap>) -> ConfigMap {
    let reference = owner.map(|owner| owner.owner_ref(&()).expect("a stored object can own"));
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        owner_references: reference.map(|reference| vec![reference]),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

async fn text_of(maps: &Api<ConfigMap>) -> kube::Result<String> {
    let map = maps.get("greeting").await?;
    Ok(map.data.and_then(|mut data| data.remove("text")).unwrap_or_default())
}
