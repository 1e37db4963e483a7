//! How is a source listed and watched?

use http::{Method, Request, header};
use resus_core::facts::{Name, ObjectKey, Served, Signal, Source};
use resus_core::input::{Fact, Gone, Input};
use resus_core::mhc::facts::{ClusterKey, Dialect, Place};
use resus_core::text::{NAME_MAX, Plain};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::encode::{Sendable, api_root, escape, leases};
use crate::limits::{self, TOKEN_MAX};
use crate::names::{self, Places};
use crate::observe::{self, ApiStatus, AtMost, Keep, NameOnly, Names};
use crate::signal;

/// The server ends a watch after this long. Each end is a moment of doubt, so we ask for a long one.
const WATCH_SECONDS: u32 = 3600;
/// Of definitions only the names matter; their schemas are megabytes.
const ONLY_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const ONLY_METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// `served` is how the API serves the kind of [`Source::Objects`]; the others are well known. `page` is where the page begins,
/// if it is not the first, and `limit` how many objects it may have.
pub fn list(source: &Source, served: Option<&Served>, places: &Places, page: Option<&str>, limit: u32) -> Sendable {
    let Row { path, only, form } = row(source, served, places);
    let page = page.map(|page| format!("&continue={}", escape(page))).unwrap_or_default();
    get(format!("{path}?limit={limit}{only}{page}"), form, ONLY_METADATA_LIST)
}

pub fn watch(source: &Source, served: Option<&Served>, places: &Places, version: &str) -> Sendable {
    let Row { path, only, form } = row(source, served, places);
    let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}", escape(version));
    get(format!("{path}?{query}{only}"), form, ONLY_METADATA)
}

/// What is asked for to hear of a source.
struct Row {
    path: String,
    /// The part of the query that leaves out what is of no use.
    only: String,
    form: Form,
}

/// How much of each object is asked for.
#[derive(Clone, Copy)]
enum Form {
    Whole,
    Metadata,
}

fn row(source: &Source, served: Option<&Served>, places: &Places) -> Row {
    let all = |path: String| Row { path, only: String::new(), form: Form::Whole };
    let named = |name: &str| format!("&fieldSelector=metadata.name%3D{}", escape(name));
    let of_machines = |dialect: &Dialect, plural: &str| all(format!("{}/{plural}", api_root(dialect.api_version())));
    let pods = |namespace: &str| all(format!("/api/v1/namespaces/{namespace}/pods"));
    match source {
        // Those of another cluster are asked for there.
        Source::Nodes | Source::RemoteNodes(_) => all("/api/v1/nodes".into()),
        Source::Checks => all(format!("{}/{}", api_root(names::CHECK_API_VERSION), names::CHECK_PLURAL)),
        Source::Kinds => Row { form: Form::Metadata, ..all("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into()) },
        Source::Objects(kind) => {
            let plural = served.map_or(&kind.kind, |served| &served.plural);
            all(format!("{}/{}", api_root(&kind.api_version), escape(plural)))
        }
        Source::NodeLeases => all(leases(&places.node_leases)),
        Source::Rivals(rival) => {
            Row { only: named(names::rival_lease(*rival)), ..all("/apis/coordination.k8s.io/v1/leases".into()) }
        }
        Source::OwnNamespace => Row { path: "/api/v1/namespaces".into(), only: named(&places.own), form: Form::Metadata },
        Source::Budgets => all(format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", names::OPENSHIFT_ETCD)),
        Source::Guards => pods(names::OPENSHIFT_ETCD),
        Source::Etcd | Source::RemoteEtcd(_) => {
            Row { only: format!("&labelSelector={}", escape(names::ETCD_PODS.1)), ..pods(names::ETCD_PODS.0) }
        }
        Source::MachineChecks(dialect) => of_machines(dialect, names::MACHINE_CHECKS),
        Source::Machines(dialect) => of_machines(dialect, names::MACHINES),
        Source::Clusters(dialect) => of_machines(dialect, names::CLUSTERS),
        Source::Access(cluster) => {
            let only = named(&format!("{}{}", cluster.name, names::KUBECONFIG.0));
            Row { only, ..all(format!("/api/v1/namespaces/{}/secrets", escape(&cluster.namespace))) }
        }
        Source::Signals(Signal::ClusterVersions) => all("/apis/config.openshift.io/v1/clusterversions".into()),
        Source::Signals(Signal::Kured) => {
            Row { path: "/apis/apps/v1/daemonsets".into(), only: named(signal::KURED_NAME), form: Form::Metadata }
        }
        Source::Signals(Signal::Plans) => all("/apis/upgrade.cattle.io/v1/plans".into()),
    }
}

fn get(uri: String, form: Form, only_metadata: &str) -> Sendable {
    let accept = match form {
        Form::Whole => "application/json",
        Form::Metadata => only_metadata,
    };
    let request = Request::builder()
        .method(Method::GET)
        .uri(uri)
        .header(header::ACCEPT, accept)
        // Watches of 1.37 are compressed event by event, which the client cannot read; and loopback is cheap.
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Vec::new());
    Ok(request?)
}

/// A page of a list.
pub struct Page {
    pub inputs: Vec<Input>,
    pub version: String,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// `keep`: see [`Keep`].
pub fn read_page(source: &Source, keep: &Keep, body: &[u8]) -> serde_json::Result<Page> {
    let page = match source {
        Source::RemoteNodes(_) | Source::RemoteEtcd(_) => page::<{ limits::REMOTE_PAGE }>(source, keep, body),
        _ => page::<{ limits::OWN_PAGE }>(source, keep, body),
    };
    page.map_err(|error| discreet(source, error))
}

fn page<const MAX: usize>(source: &Source, keep: &Keep, body: &[u8]) -> serde_json::Result<Page> {
    #[derive(Deserialize)]
    struct List<'a, const MAX: usize> {
        metadata: ListMeta,
        #[serde(borrow, default)]
        items: Option<AtMost<&'a RawValue, MAX>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ListMeta {
        #[serde(default)]
        resource_version: String,
        #[serde(default, rename = "continue")]
        next: String,
    }
    let List::<MAX> { metadata, items } = serde_json::from_slice(body)?;
    let AtMost { items, more } = items.unwrap_or_default();
    if more || metadata.next.len().max(metadata.resource_version.len()) > TOKEN_MAX {
        return Err(serde::de::Error::custom("it has more than was asked for"));
    }
    let inputs = items.iter().map(|item| seen(source, keep, item.get().as_bytes())).collect();
    Ok(Page { inputs, version: metadata.resource_version, next: Some(metadata.next).filter(|next| !next.is_empty()) })
}

/// What is wrong with the JSON of a Secret, or of somebody else's server, is said without repeating any of it.
fn discreet(source: &Source, error: serde_json::Error) -> serde_json::Error {
    match source {
        Source::Access(_) | Source::RemoteNodes(_) | Source::RemoteEtcd(_) => {
            let (line, column) = (error.line(), error.column());
            serde::de::Error::custom(format!("it is not what was asked for: look at line {line}, column {column}"))
        }
        _ => error,
    }
}

/// A line of a watch.
pub enum Line {
    /// What it says, and the version from which to go on after it.
    Input(Input, Option<String>),
    /// The version is too old: list again.
    Expired,
    Error(ApiStatus),
}

pub fn read_line(source: &Source, keep: &Keep, line: &[u8]) -> serde_json::Result<Line> {
    read(source, keep, line).map_err(|error| discreet(source, error))
}

fn read(source: &Source, keep: &Keep, line: &[u8]) -> serde_json::Result<Line> {
    // Nearly all lines are heartbeats of healthy nodes: read in one pass. Whatever is not, is read with more care.
    if matches!(source, Source::Nodes | Source::RemoteNodes(_))
        && let Some(node) = observe::changed_node(line, keep)
    {
        let version = node.version.0.to_string();
        let fact = match source {
            Source::RemoteNodes(cluster) => Fact::RemoteNode(cluster.clone(), node),
            _ => Fact::Node(node),
        };
        return Ok(Line::Input(Input::Seen(fact), Some(version)));
    }
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let event: Event = serde_json::from_slice(line)?;
    let json = event.object.get().as_bytes();
    Ok(match event.kind {
        "ADDED" | "MODIFIED" => {
            let input = seen(source, keep, json);
            let version = match &input {
                Input::Seen(Fact::Node(node) | Fact::RemoteNode(_, node)) => Some(node.version.0.to_string()),
                Input::Seen(Fact::Check(check)) => Some(check.version.0.to_string()),
                Input::Seen(Fact::MachineCheck(check)) => Some(check.version.0.to_string()),
                Input::Seen(Fact::Machine(machine)) => Some(machine.version.0.to_string()),
                Input::Seen(Fact::Object(object)) => Some(object.version.0.to_string()),
                _ => version_of(json),
            };
            Line::Input(input, version)
        }
        "DELETED" => Line::Input(gone(source, json)?, version_of(json)),
        "BOOKMARK" => Line::Input(Input::Heard(source.clone()), version_of(json)),
        _ => {
            let status: ApiStatus = serde_json::from_slice(json)?;
            match status.code {
                410 => Line::Expired,
                _ => Line::Error(status),
            }
        }
    })
}

fn seen(source: &Source, keep: &Keep, json: &[u8]) -> Input {
    let fact = match source {
        Source::Nodes => observe::node(json, keep).map(Fact::Node),
        Source::RemoteNodes(cluster) => observe::node(json, keep).map(|node| Fact::RemoteNode(cluster.clone(), node)),
        Source::Checks => observe::check(json).map(Fact::Check),
        Source::Kinds => observe::definition(json),
        Source::NodeLeases => observe::node_lease(json).map(Fact::NodeLease),
        Source::Etcd => observe::etcd(json).map(|(pod, says)| Fact::Etcd { pod, says }),
        Source::RemoteEtcd(cluster) => {
            observe::etcd(json).map(|(pod, says)| Fact::RemoteEtcd { cluster: cluster.clone(), pod, says })
        }
        Source::OwnNamespace => observe::own_namespace(json).map(Fact::OwnNamespace),
        Source::Budgets => observe::budget(json),
        Source::Guards => observe::guard(json),
        Source::Rivals(rival) => observe::rival(json, *rival),
        Source::MachineChecks(dialect) => observe::machine_check(json, *dialect).map(Fact::MachineCheck),
        Source::Machines(dialect) => observe::machine(json, *dialect).map(Fact::Machine),
        Source::Clusters(dialect) => observe::cluster(json, *dialect).map(|cluster| Fact::Cluster(*dialect, cluster)),
        Source::Access(_) => observe::access(json),
        Source::Objects(kind) => observe::object(json, kind).map(Fact::Object),
        Source::Signals(signal) => signal::signal(json, *signal),
    };
    match fact {
        Ok(fact) => Input::Seen(fact),
        Err(error) => {
            let error = if matches!(source, Source::Access(_)) { discreet(source, error) } else { error };
            let name = observe::name(json).unwrap_or_else(|_| "?".into());
            Input::Unreadable { source: source.clone(), name, why: Plain(&error.to_string()).to_string().into() }
        }
    }
}

/// Of what is gone only the name has to be readable.
fn gone(source: &Source, json: &[u8]) -> serde_json::Result<Input> {
    let NameOnly { metadata } = serde_json::from_slice(json)?;
    let name: Name = metadata.name.as_str().into();
    Ok(Input::Gone(match source {
        Source::Nodes => Gone::Node(name),
        Source::Checks => Gone::Check(name),
        Source::Kinds => Gone::Definition { name },
        Source::NodeLeases => Gone::NodeLease(name),
        Source::Etcd => Gone::Etcd { pod: metadata.full_name() },
        Source::OwnNamespace => Gone::OwnNamespace(name),
        Source::Budgets => Gone::Budget { name: metadata.full_name() },
        Source::Guards => Gone::Guard { pod: metadata.full_name() },
        Source::Rivals(rival) => Gone::Rival { rival: *rival, name: metadata.full_name() },
        Source::Objects(kind) => {
            let key = ObjectKey { kind: kind.clone(), namespace: metadata.namespace.map(Into::into), name };
            Gone::Object(key, metadata.uid.into())
        }
        Source::Signals(signal) => {
            let name = signal::full_name(&metadata.name, metadata.namespace.as_deref());
            Gone::Signal { signal: *signal, name }
        }
        Source::MachineChecks(dialect) => Gone::MachineCheck(*dialect, place(metadata, *dialect)),
        Source::Machines(dialect) => Gone::Machine(*dialect, place(metadata, *dialect)),
        Source::Clusters(dialect) => {
            let Place { namespace, name, .. } = place(metadata, *dialect);
            Gone::Cluster(*dialect, ClusterKey { namespace, name })
        }
        Source::Access(cluster) => Gone::Access(cluster.clone()),
        Source::RemoteNodes(cluster) => Gone::RemoteNode(cluster.clone(), name),
        Source::RemoteEtcd(cluster) => Gone::RemoteEtcd { cluster: cluster.clone(), pod: metadata.full_name() },
    }))
}

fn place(metadata: Names, dialect: Dialect) -> Place {
    let namespace = metadata.namespace.unwrap_or_default().into();
    Place { flavour: dialect.flavour(), namespace, name: metadata.name.into() }
}

fn version_of(json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct View {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        resource_version: String,
    }
    serde_json::from_slice::<View>(json)
        .ok()
        .map(|view| view.metadata.resource_version)
        .filter(|version| version.len() <= NAME_MAX)
}
