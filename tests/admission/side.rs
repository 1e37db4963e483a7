//! A server with everything that `deploy/crds` and `deploy/crds-machines` hold: ours in this process, or a real one.

use std::path::Path;

use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use resus_apiserver::{Reply, Server};
use resus_harness::{Cluster, cluster_or_skip};
use resus_k8s::crd;
use serde_json::{Value, json};

pub const CHECKS: &str = "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const POLICIES: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
];
/// Nothing here depends on the time; two runs of the same seed see the same.
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[expect(clippy::large_enum_variant, reason = "there is one of them")]
pub enum Side {
    Embedded(Server),
    /// The cluster ends with it.
    Real(Client, #[expect(dead_code, reason = "held, not used")] Cluster),
}

pub struct Answer {
    pub code: u16,
    pub body: Value,
}

impl Side {
    pub fn embedded() -> Side {
        Side::embedded_with(crd::all().into_iter().chain(crd::machines()).map(|crd| json!(crd)).collect())
    }

    pub fn embedded_with(definitions: Vec<Value>) -> Side {
        let mut server = Server::new(1, NOW);
        let definitions = definitions.into_iter().map(|crd| (DEFINITIONS, crd));
        for (path, object) in definitions.chain(POLICIES.into_iter().zip(crd::policy::deletion())) {
            let answer = ask(&mut server, &Method::POST, path, "application/json", &object);
            assert_eq!(answer.code, 201, "{}", answer.body);
        }
        while server.tend(NOW) {}
        Side::Embedded(server)
    }

    pub async fn real_or_skip() -> Option<Side> {
        let cluster = cluster_or_skip(Cluster::builder()).await?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the repository");
        for folder in ["deploy/crds", "deploy/crds-machines"] {
            cluster.apply_file(&root.join(folder)).await.expect("a real server takes what the repository ships");
        }
        let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"];
        cluster.kubectl(wait).await.expect("kubectl runs").ok().expect("the definitions are served");
        Some(Side::Real(cluster.admin(), cluster))
    }

    pub async fn ask(&mut self, method: Method, path: &str, kind: &str, body: &Value) -> Answer {
        self.send(request(&method, path, kind, body)).await
    }

    /// As somebody else.
    pub async fn ask_as(&mut self, user: &str, method: Method, path: &str, kind: &str, body: &Value) -> Answer {
        let mut request = request(&method, path, kind, body);
        request.headers_mut().insert("impersonate-user", user.parse().expect("users here are ASCII"));
        self.send(request).await
    }

    async fn send(&mut self, request: Request<Vec<u8>>) -> Answer {
        match self {
            Side::Embedded(server) => answered(server, request),
            Side::Real(client, _) => {
                let request = request.map(Body::from);
                let response = client.send(request).await.expect("the server answers");
                let code = response.status().as_u16();
                let bytes = response.into_body().collect_bytes().await.expect("an answer is whole");
                Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_default() }
            }
        }
    }

    /// As `kubectl create --dry-run=server` does.
    pub async fn try_create(&mut self, path: &str, object: &Value) -> Answer {
        let path = format!("{path}?dryRun=All&fieldValidation=Strict");
        self.ask(Method::POST, &path, "application/json", object).await
    }

    pub async fn create(&mut self, path: &str, object: &Value) -> Answer {
        self.ask(Method::POST, path, "application/json", object).await
    }

    pub async fn patch(&mut self, path: &str, patch: &Value) -> Answer {
        self.ask(Method::PATCH, path, "application/merge-patch+json", patch).await
    }
}

impl Answer {
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether a cause says this of this field.
    pub fn blames(&self, field: &str, says: &str) -> bool {
        let causes = self.body["details"]["causes"].as_array().into_iter().flatten();
        causes.into_iter().any(|cause| cause["field"] == field && cause["message"].as_str().is_some_and(|own| own.contains(says)))
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

fn ask(server: &mut Server, method: &Method, path: &str, kind: &str, body: &Value) -> Answer {
    answered(server, request(method, path, kind, body))
}

fn answered(server: &mut Server, request: Request<Vec<u8>>) -> Answer {
    match server.handle(NOW, request) {
        Reply::Answer(response) => {
            Answer { code: response.status().as_u16(), body: serde_json::from_slice(response.body()).unwrap_or_default() }
        }
        Reply::Watch(_) => unreachable!("nobody watches here"),
    }
}

fn request(method: &Method, path: &str, kind: &str, body: &Value) -> Request<Vec<u8>> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("accept", "application/json").header("content-type", kind);
    request.body(body).expect("paths here are well-formed")
}
