//! How is another cluster reached?
//!
//! By a kubeconfig that whoever may write a Secret has written. It may not have programs run here, files read, or requests sent
//! to where only we can send them; and nothing of what it says, good or bad, is repeated: readers of statuses, events and
//! logs are not readers of Secrets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, ensure};
use http::{HeaderValue, Uri};
use kube::client::AuthError;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use kube::{Client, Config};
use resus_core::mhc::facts::{Access, ClusterKey};
use secrecy::ExposeSecret as _;

use crate::connect::{CONNECT_WITHIN, Trust};
use crate::proxy;

/// Of the address of a server: no real one is nearly as long, and each request is longer by it.
const SERVER_MAX: usize = 2048;

/// One client for each cluster, made when it is needed and kept while its kubeconfig stays the same.
#[derive(Clone)]
pub struct Clusters {
    trust: Trust,
    clients: Arc<Mutex<BTreeMap<ClusterKey, (Access, Client)>>>,
}

impl Clusters {
    pub fn new(trust: Trust) -> Clusters {
        Clusters { trust, clients: Arc::default() }
    }

    pub async fn client(&self, cluster: &ClusterKey, access: &Access) -> Result<Client> {
        let known = self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(cluster).cloned();
        if let Some((_, client)) = known.filter(|(own, _)| own == access) {
            return Ok(client);
        }
        let client = connect(access, self.trust).await?;
        self.keep(cluster, access, client.clone());
        Ok(client)
    }

    pub fn keep(&self, cluster: &ClusterKey, access: &Access, client: Client) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster.clone(), (access.clone(), client));
    }

    /// Keeps nothing of clusters that nobody asks about any more.
    pub fn retain(&self, is_wanted: impl Fn(&ClusterKey) -> bool) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).retain(|cluster, _| is_wanted(cluster));
    }
}

/// How far kubeconfigs of others are followed where our own API server is there.
pub fn trust(own: &Uri, allow_insecure: bool) -> Trust {
    let host = host(own);
    let is_loopback = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    match (allow_insecure, is_loopback) {
        (true, _) => Trust::Anything,
        (false, true) => Trust::RemoteOrLoopback,
        (false, false) => Trust::Remote,
    }
}

/// An address of IPv6 without its brackets.
fn host(server: &Uri) -> &str {
    server.host().unwrap_or_default().trim_matches(['[', ']'])
}

async fn connect(Access(text): &Access, trust: Trust) -> Result<Client> {
    let mut kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| anyhow!(unreadable(&error)))?;
    keep_current(&mut kubeconfig);
    kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref()).try_for_each(harmless_user)?;
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|cluster| cluster.cluster.as_mut()) {
        harmless_cluster(cluster, trust)?;
    }
    proxy::ask_us(&mut kubeconfig);
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = patient(config.map_err(|error| anyhow!(unusable(&error)))?);
    let client = proxy::client(config, trust).ok();
    client.context("no client can be made from the kubeconfig: look at its certificates, its key and the name of its server")
}

/// What no current context leads to is never used, and may be as it likes. What is empty is not set, as for kubectl.
fn keep_current(kubeconfig: &mut Kubeconfig) {
    let current = kubeconfig.contexts.iter().find(|context| Some(&context.name) == kubeconfig.current_context.as_ref());
    if let Some(context) = current.and_then(|context| context.context.clone()) {
        kubeconfig.clusters.retain(|cluster| cluster.name == context.cluster);
        kubeconfig.auth_infos.retain(|user| Some(&user.name) == context.user.as_ref());
    }
    let unset = |text: &mut Option<String>| *text = text.take().filter(|text| !text.is_empty());
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|user| user.auth_info.as_mut()) {
        [&mut user.token_file, &mut user.client_certificate, &mut user.client_key, &mut user.client_certificate_data]
            .into_iter()
            .for_each(unset);
    }
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|cluster| cluster.cluster.as_mut()) {
        [&mut cluster.certificate_authority, &mut cluster.certificate_authority_data].into_iter().for_each(unset);
    }
}

/// Whoever may write a Secret must not be able to have programs run here, or files read.
fn harmless_user(user: &AuthInfo) -> Result<()> {
    ensure!(
        user.exec.is_none() && user.auth_provider.is_none(),
        "the kubeconfig wants a program to be run: write a token or a certificate into it"
    );
    let files = [&user.token_file, &user.client_certificate, &user.client_key];
    ensure!(files.iter().all(|file| file.is_none()), "the kubeconfig names files: write what is in them into it");
    let token = user.token.as_ref().is_none_or(|token| HeaderValue::from_str(token.expose_secret()).is_ok());
    ensure!(token, "the token of the kubeconfig has characters that no token has: look for a line break in it");
    Ok(())
}

/// Or who we are shown to anybody on the way, or requests sent where they cannot send them themselves.
fn harmless_cluster(cluster: &mut Cluster, trust: Trust) -> Result<()> {
    const FLAG: &str = "is refused without --allow-insecure-workload-clusters";
    ensure!(cluster.certificate_authority.is_none(), "the kubeconfig names files: write certificate-authority-data into it");
    let is_secure = trust != Trust::Anything;
    let skips = cluster.insecure_skip_tls_verify == Some(true);
    ensure!(!(is_secure && skips), "the kubeconfig says insecure-skip-tls-verify, which {FLAG}");
    let has_proxy = cluster.proxy_url.as_ref().is_some_and(|proxy| !proxy.is_empty());
    ensure!(!(is_secure && has_proxy), "the kubeconfig names a proxy-url, which {FLAG}");
    let Some(server) = &mut cluster.server else { return Ok(()) };
    ensure!(server.len() <= SERVER_MAX, "the server of the kubeconfig has an address of more than {SERVER_MAX} bytes");
    let mut address: Uri = server.parse().ok().context("the server of the kubeconfig is no URL")?;
    if address.scheme().is_none() {
        ensure!(!is_secure, "the server of the kubeconfig has no scheme, which {FLAG}: write https:// in front of it");
        // As programs written in Go read it.
        *server = format!("https://{server}");
        address = server.parse().ok().context("the server of the kubeconfig is no URL")?;
    }
    match address.scheme_str() {
        Some("https") => {}
        Some("http") => ensure!(!is_secure, "the server of the kubeconfig begins with http://, which {FLAG}"),
        Some(_) | None => anyhow::bail!("the server of the kubeconfig does not begin with https://"),
    }
    let has_user = address.authority().is_some_and(|authority| authority.as_str().contains('@'));
    ensure!(!has_user, "the server of the kubeconfig has a user in its address: write it under users");
    match host(&address).parse().ok().and_then(|address| trust.refusal(address)) {
        Some(refusal) => Err(anyhow!("the server of the kubeconfig cannot be asked: {refusal}")),
        None => Ok(()),
    }
}

/// Nothing of what stands in it is repeated: parsers show what they stumble over; where it stands has to do.
pub fn unreadable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, file) => format!("{}: {error}", file.display()),
        KubeconfigError::FindPath => "there is none".into(),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is no kubeconfig: look at line {}, column {}", at.line(), at.column()),
            None => "it is no kubeconfig".into(),
        },
        _ => "it is no kubeconfig: it has several documents of different kinds".into(),
    }
}

pub fn unusable(error: &KubeconfigError) -> String {
    let load = match error {
        KubeconfigError::LoadCertificateAuthority(load)
        | KubeconfigError::LoadClientCertificate(load)
        | KubeconfigError::LoadClientKey(load) => Some(load),
        _ => None,
    };
    if let Some(LoadDataError::ReadFile(error, file)) = load {
        return format!("the kubeconfig names the file {}: {error}", file.display());
    }
    let why = match error {
        KubeconfigError::CurrentContextNotSet => "the kubeconfig has no current-context",
        KubeconfigError::LoadContext(_) => "the kubeconfig has no context of the name that is its current-context",
        KubeconfigError::LoadClusterOfContext(_) => "the kubeconfig has no cluster of the name that its context gives",
        KubeconfigError::MissingClusterUrl => "the kubeconfig names no server",
        KubeconfigError::ParseClusterUrl(_) => "the server of the kubeconfig is no URL",
        KubeconfigError::ParseProxyUrl(_) => "the proxy-url of the kubeconfig is no URL",
        KubeconfigError::LoadCertificateAuthority(_) | KubeconfigError::ParseCertificates(_) => {
            "the certificate-authority-data of the kubeconfig is no certificate in base64"
        }
        KubeconfigError::LoadClientCertificate(_) => "the client-certificate-data of the kubeconfig is no certificate in base64",
        KubeconfigError::LoadClientKey(_) => "the client-key-data of the kubeconfig is no key in base64",
        _ => "the kubeconfig cannot be used",
    };
    why.to_owned()
}

/// What a program that was run for credentials printed may be those.
pub fn unauthenticated(error: anyhow::Error) -> anyhow::Error {
    let is_of_program = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<AuthError>();
        matches!(cause, Some(AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_) | AuthError::AuthExec(_)))
    };
    match error.chain().any(is_of_program) {
        true => {
            anyhow!("the program that the kubeconfig names for credentials failed, or printed no credentials: run it by hand")
        }
        false => error,
    }
}

/// A retry inside the client would hide that the server is away, and a write that is repeated behind our back could arrive
/// after we gave up the leadership.
pub fn patient(mut config: Config) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_WITHIN);
    config.read_timeout = None;
    config.write_timeout = None;
    config
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;

    use super::*;
    use crate::connect;

    /// Stands in every text of a kubeconfig, and must not stand in anything that comes out.
    const CANARY: &str = "canary";

    fn kubeconfig(server: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "canary-c",
            "contexts": [{"name": "canary-c", "context": {"cluster": "canary-k", "user": "canary-u", "namespace": "canary-n"}}],
            "clusters": [{"name": "canary-k", "cluster": {"server": format!("{server}/canary-path"), "tls-server-name": "canary.example"}}],
            "users": [{"name": "canary-u", "user": {"token": "canary-token"}}],
        })
    }

    /// Every way to put something else into one place, or to add a field that should not be there.
    fn broken(server: &str) -> Vec<Value> {
        let whole = kubeconfig(server);
        let added = [
            ("/clusters/0/cluster", "certificate-authority-data"),
            ("/clusters/0/cluster", "certificate-authority"),
            ("/clusters/0/cluster", "insecure-skip-tls-verify"),
            ("/clusters/0/cluster", "proxy-url"),
            ("/clusters/0/cluster", "extensions"),
            ("/users/0/user", "client-certificate-data"),
            ("/users/0/user", "client-key-data"),
            ("/users/0/user", "client-certificate"),
            ("/users/0/user", "tokenFile"),
            ("/users/0/user", "username"),
            ("/users/0/user", "password"),
            ("/users/0/user", "exec"),
            ("/users/0/user", "auth-provider"),
            ("/users/0/user", "as"),
            ("/users/0/user", "as-groups"),
            ("/users/0/user", "as-user-extra"),
            ("", "preferences"),
        ];
        let mut all = vec![whole.clone()];
        for bad in bad_values() {
            for (parent, field) in added {
                let mut one = whole.clone();
                one.pointer_mut(parent).expect("it is there")[field] = bad.clone();
                all.push(one);
            }
            for place in leaves(&whole, "") {
                let mut one = whole.clone();
                *one.pointer_mut(&place).expect("it is there") = bad.clone();
                all.push(one);
            }
        }
        all
    }

    fn bad_values() -> Vec<Value> {
        let pem = "-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\ncanary\n";
        let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
        vec![
            json!("canary \n line"),
            json!("canary\u{7f}%zz://canary:canary@canary:99999"),
            json!("http://user:canary@127.0.0.1:1"),
            json!("ftp://canary.invalid"),
            json!(base64),
            json!(base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "canary")),
            json!({"canary": "canary", "command": "canary", "name": "canary", "apiVersion": "canary"}),
            json!(["canary", {"canary": []}]),
            json!(true),
            json!(3.5),
            json!("canary".repeat(20_000)),
        ]
    }

    fn leaves(value: &Value, path: &str) -> Vec<String> {
        let below: Vec<String> = match value {
            Value::Object(fields) => fields.iter().flat_map(|(key, value)| leaves(value, &format!("{path}/{key}"))).collect(),
            Value::Array(items) => {
                items.iter().enumerate().flat_map(|(n, value)| leaves(value, &format!("{path}/{n}"))).collect()
            }
            _ => Vec::new(),
        };
        below.into_iter().chain([path.to_owned()]).filter(|path| !path.is_empty()).collect()
    }

    /// Everything that is said when this is to be used.
    async fn said(text: &str, trust: Trust, server: &str) -> String {
        match connect(&Access(text.into()), trust).await {
            Err(error) => format!("{error:#} {error:?}"),
            // Only where it leads to us: nobody is to be asked for the addresses of canaries.
            Ok(client) if text.contains(server) => {
                let request = Request::get("/api/v1/nodes").body(Body::empty()).expect("it is a request");
                match tokio::time::timeout(Duration::from_secs(5), client.send(request)).await.expect("it is refused at once") {
                    Ok(_) => "answered".into(),
                    Err(error) => connect::why(&error),
                }
            }
            Ok(_) => String::new(),
        }
    }

    #[tokio::test]
    async fn nothing_of_a_kubeconfig_is_repeated() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has ports");
        let server = format!("https://{}", listener.local_addr().expect("it is bound"));
        let hanging_up = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
        let mut texts: Vec<String> = broken(&server).iter().map(Value::to_string).collect();
        let yaml = "apiVersion: v1\nkind: Config\nusers:\n- name: canary\n  user:\n    password: canary-password\n";
        texts.push(format!("{yaml}   token: canary-token\n"));
        texts.push(format!("{yaml}    token: \"canary\n"));
        texts.push(format!("{yaml}    token: *canary\n"));
        texts.push(format!("{yaml}    password: canary-again\n"));
        texts.push(format!("{yaml}    token: !canary canary\n---\nkind: canary\n---\nkind: Canary\n"));
        texts.push("canary".into());
        texts.push("canary: [canary".into());
        let mut refused = 0;
        for text in &texts {
            for trust in [Trust::RemoteOrLoopback, Trust::Anything] {
                let said = said(text, trust, &server).await;
                assert!(!said.to_lowercase().contains(CANARY), "{said} of {text}");
                refused += usize::from(!said.is_empty());
            }
        }
        assert!(refused > texts.len(), "most of them are told why");
        hanging_up.abort();
    }

    async fn refusal(cluster: Value, trust: Trust) -> String {
        let mut one = kubeconfig("https://127.0.0.1:1");
        one["clusters"][0]["cluster"] = cluster;
        match connect(&Access(one.to_string().into()), trust).await {
            Ok(_) => String::new(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[tokio::test]
    async fn what_is_not_safe_is_refused_unless_it_is_allowed() {
        let to = |server: &str| json!({"server": server});
        for (cluster, says) in [
            (json!({"server": "https://10.0.0.1:6443", "insecure-skip-tls-verify": true}), "insecure-skip-tls-verify"),
            (json!({"server": "https://10.0.0.1:6443", "proxy-url": "http://10.0.0.2:3128"}), "proxy-url"),
            (to("http://10.0.0.1:6443"), "http://"),
            (to("10.0.0.1:6443"), "has no scheme"),
            (to("https://127.0.0.1:6443"), "this host"),
            (to("https://127.8.9.10"), "this host"),
            (to("https://0.0.0.0:6443"), "this host"),
            (to("https://[::1]:6443"), "this host"),
            (to("https://[::ffff:127.0.0.1]:6443"), "this host"),
            (to("https://169.254.169.254"), "link-local"),
            (to("https://[::ffff:a9fe:a9fe]"), "link-local"),
            (to("https://[fe80::1]:6443"), "link-local"),
        ] {
            let refused = refusal(cluster.clone(), Trust::Remote).await;
            assert!(refused.contains(says) && refused.contains("--allow-insecure-workload-clusters"), "{cluster}: {refused:?}");
            assert_eq!(refusal(cluster, Trust::Anything).await, "");
        }
        assert_eq!(refusal(to("https://10.0.0.1:6443/prefix"), Trust::Remote).await, "");
        // Where our own API server is on this host, theirs may be, too; the metadata of a cloud never is.
        assert_eq!(refusal(to("https://127.0.0.1:6443"), Trust::RemoteOrLoopback).await, "");
        assert_ne!(refusal(to("https://169.254.169.254"), Trust::RemoteOrLoopback).await, "");
        for never in ["ftp://10.0.0.1", "https://user:password@10.0.0.1"] {
            assert_ne!(refusal(to(never), Trust::Anything).await, "", "{never}");
        }
    }

    /// Whoever may write a Secret would have programs run here otherwise, and files read.
    #[tokio::test]
    async fn programs_and_files_are_refused_whatever_is_allowed() {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "interactiveMode": "Never"});
        let users = [
            ("exec", exec, "a program"),
            ("auth-provider", json!({"name": "gcp", "config": {"cmd-path": "true"}}), "a program"),
            ("tokenFile", json!("/etc/passwd"), "files"),
            ("client-certificate", json!("/etc/passwd"), "files"),
            ("client-key", json!("/etc/passwd"), "files"),
        ];
        for trust in [Trust::Remote, Trust::Anything] {
            for (field, value, says) in &users {
                let mut one = kubeconfig("https://10.0.0.1");
                one["users"][0]["user"][field] = value.clone();
                let refused = connect(&Access(one.to_string().into()), trust).await.err().expect("it is refused");
                assert!(refused.to_string().contains(says), "{field}: {refused}");
                // What no current context leads to is never used.
                one["users"][0]["name"] = json!("another");
                one["users"].as_array_mut().expect("it is a list").push(json!({"name": "canary-u", "user": {"token": "canary"}}));
                assert!(connect(&Access(one.to_string().into()), trust).await.is_ok(), "{field}");
            }
            let mut one = kubeconfig("https://10.0.0.1");
            one["clusters"][0]["cluster"]["certificate-authority"] = json!("/etc/passwd");
            let refused = connect(&Access(one.to_string().into()), trust).await.err().expect("it is refused");
            assert!(refused.to_string().contains("files"), "{refused}");
        }
    }

    /// What a name leads to is known only when it is looked up, and may be another address each time.
    #[tokio::test]
    async fn a_name_that_leads_to_this_host_is_refused_when_it_is_dialled() {
        let access = Access(kubeconfig("https://localhost:1").to_string().into());
        for (trust, says) in [(Trust::Remote, "this host"), (Trust::RemoteOrLoopback, "connection refused")] {
            let client = connect(&access, trust).await.expect("it is a name like any other");
            let request = Request::get("/api/v1/nodes").body(Body::empty()).expect("it is a request");
            let said = connect::why(&client.send(request).await.expect_err("nobody is there"));
            assert!(said.contains(says), "{trust:?}: {said}");
        }
    }

    #[test]
    fn loopback_is_trusted_where_our_own_server_is() {
        for (own, expected) in [
            ("https://127.0.0.1:6443", Trust::RemoteOrLoopback),
            ("https://[::1]:6443", Trust::RemoteOrLoopback),
            ("http://localhost:8080", Trust::RemoteOrLoopback),
            ("https://10.96.0.1", Trust::Remote),
            ("https://localhost.example.com", Trust::Remote),
        ] {
            assert_eq!(trust(&Uri::from_static(own), false), expected, "{own}");
            assert_eq!(trust(&Uri::from_static(own), true), Trust::Anything);
        }
    }
}
