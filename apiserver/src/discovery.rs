//! Which kinds does the server have? `/api`, `/apis`, the lists of each group, and the aggregated form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::resource::Resource;

/// The content type that goes with the aggregated form.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Kubernetes' own groups in its own order; clients that look for a kind by its short name take the first. Other groups
/// follow by name.
const GROUPS: [&str; 12] = [
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

/// The document at a discovery path (`/api`, `/apis`, `/api/v1`, `/apis/GROUP`, `/apis/GROUP/VERSION`), or nothing if it
/// is none. `aggregated`: the client asked for `APIGroupDiscoveryList` at `/api` or `/apis`.
pub fn document(path: &str, aggregated: bool, resources: &[&Resource]) -> Option<Value> {
    let mut resources = resources.to_vec();
    resources.sort_by_key(|one| (rank(&one.group), priority(&one.version), &one.plural));
    let path = path.trim_matches('/');
    match (path.split('/').collect::<Vec<_>>().as_slice(), aggregated) {
        (["api"], false) => Some(core_versions(&resources)),
        (["apis"], false) => Some(group_list(&resources)),
        (["api"], true) => Some(aggregated_list(&resources, true)),
        (["apis"], true) => Some(aggregated_list(&resources, false)),
        (["api", version], _) => resource_list(&resources, "", version),
        (["apis", name], _) => {
            let mut group = group(&resources, name)?;
            (group["kind"], group["apiVersion"]) = (json!("APIGroup"), json!("v1"));
            Some(group)
        }
        (["apis", group, version], _) if !group.is_empty() => resource_list(&resources, group, version),
        _ => None,
    }
}

/// Sorts versions as Kubernetes does: stable before beta before alpha, then the higher one, then by name.
pub fn priority(version: &str) -> impl Ord + use<> {
    let (stage, major, minor) = parse(version).unwrap_or((3, 0, 0));
    (stage, std::cmp::Reverse((major, minor)), version.to_owned())
}

/// `v1beta2` is (1, 1, 2): stage, major, minor.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().ok()?;
    let (stage, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
        (Some(minor), _) => (1, minor),
        (_, Some(minor)) => (2, minor),
        (None, None) => return rest.is_empty().then_some((0, major, 0)),
    };
    let minor = minor.parse().ok().filter(|_| !minor.starts_with('+'))?;
    Some((stage, major, minor))
}

fn rank(group: &str) -> (usize, &str) {
    (GROUPS.iter().position(|one| *one == group).unwrap_or(GROUPS.len()), group)
}

fn core_versions(resources: &[&Resource]) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": versions(resources, ""),
        // No address: a client that came here knows one.
        "serverAddressByClientCIDRs": [],
    })
}

fn group_list(resources: &[&Resource]) -> Value {
    let groups = names(resources).into_iter().filter(|name| !name.is_empty());
    let groups: Vec<Value> = groups.filter_map(|name| group(resources, name)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group(resources: &[&Resource], name: &str) -> Option<Value> {
    let entry = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions(resources, name).iter().map(entry).collect();
    let preferred = versions.first()?.clone();
    Some(json!({"name": name, "versions": versions, "preferredVersion": preferred}))
}

fn resource_list(resources: &[&Resource], group: &str, version: &str) -> Option<Value> {
    let here = resources.iter().filter(|one| one.group == group && one.version == version);
    let entries: Vec<Value> = here.flat_map(|one| entries(one)).collect();
    if entries.is_empty() {
        return None;
    }
    // The oldest list of all has no apiVersion.
    Some(match group {
        "" => json!({"kind": "APIResourceList", "groupVersion": version, "resources": entries}),
        group => json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": format!("{group}/{version}"), "resources": entries,
        }),
    })
}

/// A resource and its subresources, as they stand in the list of their version.
fn entries(resource: &Resource) -> Vec<Value> {
    let own = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs, "storageVersionHash": version_hash(resource),
    });
    let subresources = resource.subresources.iter().map(|(name, entry)| {
        let mut shown = json!({
            "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            "kind": entry["kind"].as_str().unwrap_or(&resource.kind), "verbs": entry["verbs"],
        });
        for key in ["group", "version"] {
            if entry[key].is_string() {
                shown[key] = entry[key].clone();
            }
        }
        shown
    });
    std::iter::once(with_names(own, resource)).chain(subresources).collect()
}

/// Changes when the kind is stored in another version; opaque to clients.
fn version_hash(resource: &Resource) -> String {
    let stored = resource.custom.as_ref().map_or(&resource.version, |custom| &custom.storage_version);
    let text = format!("{}/{stored}/{}", resource.group, resource.kind);
    // FNV-1a.
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    STANDARD.encode(hash.to_be_bytes())
}

fn with_names(mut entry: Value, resource: &Resource) -> Value {
    for (key, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !names.is_empty() {
            entry[key] = json!(names);
        }
    }
    entry
}

fn aggregated_list(resources: &[&Resource], core: bool) -> Value {
    let groups = names(resources).into_iter().filter(|name| name.is_empty() == core);
    let items: Vec<Value> = groups.map(|name| aggregated_group(resources, name)).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_group(resources: &[&Resource], group: &str) -> Value {
    let versions = versions(resources, group).into_iter().map(|version| {
        let here = resources.iter().filter(|one| one.group == group && one.version == version);
        let here: Vec<Value> = here.map(|one| aggregated_resource(one)).collect();
        json!({"version": version, "resources": here, "freshness": "Current"})
    });
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
}

fn aggregated_resource(resource: &Resource) -> Value {
    // Built-in kinds leave the group and version to be that of the list.
    let (group, version) = match resource.custom {
        Some(_) => (resource.group.as_str(), resource.version.as_str()),
        None => ("", ""),
    };
    let own_kind = json!({"group": group, "version": version, "kind": resource.kind});
    let subresources = resource.subresources.iter().map(|(name, entry)| {
        let mut kind = own_kind.clone();
        for key in ["group", "version", "kind"] {
            if entry[key].is_string() {
                kind[key] = entry[key].clone();
            }
        }
        json!({"subresource": name, "responseKind": kind, "verbs": entry["verbs"]})
    });
    let subresources: Vec<Value> = subresources.collect();
    let mut entry = json!({
        "resource": resource.plural, "singularResource": resource.singular, "responseKind": own_kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" }, "verbs": resource.verbs,
    });
    if !subresources.is_empty() {
        entry["subresources"] = json!(subresources);
    }
    with_names(entry, resource)
}

/// Of sorted resources.
fn names<'a>(resources: &[&'a Resource]) -> Vec<&'a str> {
    let mut names: Vec<&str> = resources.iter().map(|one| one.group.as_str()).collect();
    names.dedup();
    names
}

/// Of sorted resources.
fn versions<'a>(resources: &[&'a Resource], group: &str) -> Vec<&'a str> {
    let here = resources.iter().filter(|one| one.group == group);
    let mut versions: Vec<&str> = here.map(|one| one.version.as_str()).collect();
    versions.dedup();
    versions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Custom, builtin_source, read_all};

    const CUSTOM_VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

    fn widget(version: &str) -> Resource {
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]});
        let status = json!({"kind": "Widget", "verbs": ["get", "patch", "update"]});
        Resource {
            group: "resus.dev".to_owned(),
            version: version.to_owned(),
            plural: "widgets".to_owned(),
            singular: "widget".to_owned(),
            kind: "Widget".to_owned(),
            short_names: vec!["wd".to_owned()],
            namespaced: true,
            verbs: CUSTOM_VERBS.map(str::to_owned).to_vec(),
            subresources: vec![("status".to_owned(), status), ("scale".to_owned(), scale)],
            custom: Some(Custom::default().into()),
            ..Resource::default()
        }
    }

    fn ask(path: &str, aggregated: bool) -> Option<Value> {
        let mut all = read_all(builtin_source());
        all.extend(["v1alpha1", "v2alpha1", "v1", "v1beta2"].map(widget));
        document(path, aggregated, &all.iter().collect::<Vec<_>>())
    }

    #[test]
    fn versions_are_sorted_by_priority() {
        let mut versions = ["foo10", "v1", "v1alpha1", "v11alpha2", "v2", "v10", "v3beta1", "v12beta1", "foo1", "v11beta2"];
        versions.sort_by_key(|version| priority(version));
        let expected = ["v10", "v2", "v1", "v12beta1", "v11beta2", "v3beta1", "v11alpha2", "v1alpha1", "foo1", "foo10"];
        assert_eq!(versions, expected);
    }

    #[test]
    fn groups_stand_in_the_order_of_kubernetes_and_custom_ones_last() {
        let groups = ask("/apis", false).unwrap();
        let names: Vec<&str> = groups["groups"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!((names.len(), names[0], names[1], names[11]), (12, "apps", "events.k8s.io", "resus.dev"));
        let group = ask("/apis/resus.dev", false).unwrap();
        assert_eq!((&group["kind"], &group["preferredVersion"]["version"]), (&json!("APIGroup"), &json!("v1")));
        assert_eq!(group["versions"][3], json!({"groupVersion": "resus.dev/v1alpha1", "version": "v1alpha1"}));
        assert_eq!(ask("/api", false).unwrap()["versions"], json!(["v1"]));
    }

    #[test]
    fn lists_of_resources_are_those_of_a_real_server() {
        let apps = ask("/apis/apps/v1", false).unwrap();
        assert_eq!((&apps["apiVersion"], &apps["groupVersion"]), (&json!("v1"), &json!("apps/v1")));
        let scale = json!({
            "name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
        });
        assert!(apps["resources"].as_array().unwrap().contains(&scale));
        let core = ask("/api/v1", false).unwrap();
        assert_eq!(core["apiVersion"], Value::Null);
        let custom = json!({
            "name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": CUSTOM_VERBS,
            "shortNames": ["wd"], "storageVersionHash": "uk55Flts0aI=",
        });
        assert_eq!(ask("/apis/resus.dev/v1", false).unwrap()["resources"][0], custom);
        for path in ["/apis/none", "/apis/apps/v2", "/api/v2", "/apis//v1", "/", "/apis/apps/v1/deployments", "/healthz"] {
            assert_eq!(ask(path, false), None, "{path}");
        }
    }

    #[test]
    fn the_aggregated_form_has_everything_in_one_answer() {
        let core = ask("/api", true).unwrap();
        let pods = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
        let pods = pods.iter().find(|one| one["resource"] == "pods").unwrap();
        let evict = json!({
            "subresource": "eviction", "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "verbs": ["create"],
        });
        assert!(pods["subresources"].as_array().unwrap().contains(&evict));
        assert_eq!(pods["responseKind"], json!({"group": "", "version": "", "kind": "Pod"}));
        let others = ask("/apis", true).unwrap();
        let custom = others["items"].as_array().unwrap().last().unwrap();
        assert_eq!(custom["metadata"], json!({"name": "resus.dev"}));
        let expected = json!({
            "resource": "widgets", "responseKind": {"group": "resus.dev", "version": "v1", "kind": "Widget"},
            "scope": "Namespaced", "singularResource": "widget", "verbs": CUSTOM_VERBS, "shortNames": ["wd"],
            "subresources": [
                {"subresource": "status", "responseKind": {"group": "resus.dev", "version": "v1", "kind": "Widget"},
                 "verbs": ["get", "patch", "update"]},
                {"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                 "verbs": ["get", "patch", "update"]},
            ],
        });
        assert_eq!(custom["versions"][0]["resources"], json!([expected]));
    }
}
