//! What does a real API server say of its own kinds? Writes `apiserver/src/kinds.json`; with `--check` compares.
//!
//! Discovery entries, table columns and OpenAPI schemas, of the kinds that the embedded API serves.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use resus_harness::Cluster;
use serde_json::{Value, json};

const WANTED: [(&str, &[&str]); 12] = [
    ("api/v1", &["namespaces", "nodes", "pods", "events", "configmaps", "secrets", "serviceaccounts"]),
    ("apis/apps/v1", &["deployments", "daemonsets"]),
    ("apis/coordination.k8s.io/v1", &["leases"]),
    ("apis/storage.k8s.io/v1", &["volumeattachments"]),
    ("apis/certificates.k8s.io/v1", &["certificatesigningrequests"]),
    ("apis/policy/v1", &["poddisruptionbudgets"]),
    ("apis/rbac.authorization.k8s.io/v1", &["roles", "rolebindings", "clusterroles", "clusterrolebindings"]),
    ("apis/apiextensions.k8s.io/v1", &["customresourcedefinitions"]),
    ("apis/admissionregistration.k8s.io/v1", &["validatingadmissionpolicies", "validatingadmissionpolicybindings"]),
    ("apis/events.k8s.io/v1", &["events"]),
    (
        "apis/authorization.k8s.io/v1",
        &["selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews", "localsubjectaccessreviews"],
    ),
    ("apis/authentication.k8s.io/v1", &["tokenreviews", "selfsubjectreviews"]),
];

/// Subresources that only make sense with a kubelet behind them, or that nothing here asks for.
const UNSERVED: [&str; 8] = [
    "nodes/proxy",
    "pods/attach",
    "pods/exec",
    "pods/log",
    "pods/portforward",
    "pods/proxy",
    "pods/resize",
    "pods/ephemeralcontainers",
];

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apiserver/src/kinds.json");
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => bail!("only --check is understood, not {other:?}"),
    };
    let cluster = Cluster::start().await?;
    let found = ask(&cluster.admin()).await?;
    if !check {
        return std::fs::write(&path, found).with_context(|| format!("writing {}", path.display()));
    }
    let known = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    match known == found {
        true => Ok(()),
        false => bail!("kinds.json is not what the API server says: run `cargo run -p resus-harness --bin kinds`"),
    }
}

/// The whole file: one line for each group and each schema, so that a change shows where it is.
async fn ask(client: &kube::Client) -> anyhow::Result<String> {
    let mut schemas = BTreeMap::new();
    let mut groups = Vec::new();
    for (path, plurals) in WANTED {
        groups.push(group(client, path, plurals, &mut schemas).await?.to_string());
    }
    let schemas: Vec<String> = schemas.iter().map(|(name, schema)| format!("{}:{schema}", json!(name))).collect();
    Ok(format!("{{\"groups\":[\n{}\n],\"schemas\":{{\n{}\n}}}}\n", groups.join(",\n"), schemas.join(",\n")))
}

async fn group(
    client: &kube::Client,
    path: &str,
    plurals: &[&str],
    schemas: &mut BTreeMap<String, Value>,
) -> anyhow::Result<Value> {
    let discovered = get(client, &format!("/{path}"), "application/json").await?;
    let documented = get(client, &format!("/openapi/v3/{path}"), "application/json").await?;
    let group_version = discovered["groupVersion"].as_str().unwrap_or_default();
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let mut entries = Vec::new();
    for entry in discovered["resources"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        let plural = name.split('/').next().unwrap_or_default();
        if !plurals.contains(&plural) || UNSERVED.contains(&name) {
            continue;
        }
        let mut entry = entry.clone();
        if let Some(map) = entry.as_object_mut() {
            map.retain(|key, _| !["storageVersionHash", "responseKind"].contains(&key.as_str()));
        }
        if name == plural {
            let wanted = json!({"group": group, "version": version, "kind": entry["kind"]});
            let all = &documented["components"]["schemas"];
            if let Some(schema) = schema_of(&wanted, all) {
                close(&schema, all, schemas);
                entry["schema"] = json!(schema);
            }
            if entry["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("list"))) {
                let table = get(client, &format!("/{path}/{name}?limit=1"), TABLE).await?;
                entry["columns"] = table["columnDefinitions"].clone();
            }
        }
        entries.push(entry);
    }
    Ok(json!({"groupVersion": group_version, "resources": entries}))
}

async fn get(client: &kube::Client, path: &str, accept: &str) -> anyhow::Result<Value> {
    let request = http::Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new())?;
    client.request(request).await.with_context(|| format!("asking for {path}"))
}

fn schema_of(wanted: &Value, all: &Value) -> Option<String> {
    let is_it = |schema: &Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| kinds.contains(wanted))
    };
    all.as_object()?.iter().find(|(_, schema)| is_it(schema)).map(|(name, _)| name.clone())
}

/// The schema and all that it refers to.
fn close(name: &str, all: &Value, schemas: &mut BTreeMap<String, Value>) {
    if !schemas.contains_key(name) {
        schemas.insert(name.to_owned(), all[name].clone());
        follow(&all[name], all, schemas);
    }
}

fn follow(value: &Value, all: &Value, schemas: &mut BTreeMap<String, Value>) {
    if let Some(name) = value["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        close(name, all, schemas);
    }
    match value {
        Value::Object(map) => map.values().for_each(|inner| follow(inner, all, schemas)),
        Value::Array(items) => items.iter().for_each(|inner| follow(inner, all, schemas)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
