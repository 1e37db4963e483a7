//! `resus check`: is what you wrote what the cluster would keep?

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use resus_core::facts::{CHECK_KIND, Invalid};
use resus_core::mhc::facts::{Dialect, Flavour, MACHINE_CHECK_KIND};
use resus_driver::connect::Trust;
use resus_driver::proxy;
use resus_k8s::{names, observe};
use serde_json::{Value, json};

use crate::cmd::controller::configuration;

/// Look at checks before they act: would the cluster keep every field of these files, and is what they use still wise?
///
/// Without a file, the MachineHealthChecks in the cluster that still use the annotation
/// machine.openshift.io/remediation-strategy are listed. Nothing is changed.
#[derive(Args)]
pub struct Check {
    /// Files with NodeHealthChecks and MachineHealthChecks; - for standard input. Other kinds in them are passed over.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print the MachineHealthChecks that use the annotation in the form with a template, and the template.
    #[arg(long)]
    rewrite: bool,

    /// File with the cluster's address and credentials; see `resus controller --help`.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use, instead of its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl Check {
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.check())
    }

    async fn check(self) -> Result<()> {
        let Check { files, rewrite, kubeconfig, context } = self;
        let mut checks = Vec::new();
        for file in &files {
            checks.extend(read(file)?);
        }
        if rewrite && !files.is_empty() {
            return print_rewritten(&checks);
        }
        let config = configuration(kubeconfig, context).await?;
        let namespace = config.default_namespace.clone();
        let server = Server { client: proxy::client(config, Trust::Anything)?, namespace };
        match (files.is_empty(), rewrite) {
            (true, true) => print_rewritten(&server.annotated().await?),
            (true, false) => server.list_annotated().await,
            (false, _) => server.try_all(&checks).await,
        }
    }
}

/// The checks in a file.
fn read(file: &PathBuf) -> Result<Vec<Value>> {
    let text = match file.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        _ => std::fs::read_to_string(file),
    };
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?;
    let lists = |document: Value| match document["items"].as_array() {
        Some(items) => items.clone(),
        None => vec![document],
    };
    let is_check = |document: &Value| [CHECK_KIND, MACHINE_CHECK_KIND].iter().any(|kind| document["kind"] == *kind);
    let checks: Vec<Value> = documents.into_iter().flat_map(lists).filter(is_check).collect();
    ensure!(!checks.is_empty(), "{} has no {CHECK_KIND} and no {MACHINE_CHECK_KIND}", file.display());
    Ok(checks)
}

struct Server {
    client: Client,
    /// For objects that name none.
    namespace: String,
}

impl Server {
    async fn try_all(&self, checks: &[Value]) -> Result<()> {
        let mut refused = 0;
        for check in checks {
            let name = display(check);
            let problems = self.try_one(check).await?;
            match problems.is_empty() {
                true => println!("{name}: every field is kept"),
                false => refused += 1,
            }
            problems.iter().for_each(|problem| println!("{name}: {problem}"));
            if is_annotated(check) {
                println!("{name}: {DEPRECATED}");
            }
        }
        ensure!(refused == 0, "{refused} of {} would not do what they say", checks.len());
        Ok(())
    }

    /// What the cluster would refuse or drop; it is asked, but nothing is stored.
    async fn try_one(&self, check: &Value) -> Result<Vec<String>> {
        let api_version = check["apiVersion"].as_str().context("a check has no apiVersion")?;
        let name = check["metadata"]["name"].as_str().context("a check has no metadata.name")?;
        let collection = match check["kind"] == CHECK_KIND {
            true => names::CHECK_PLURAL.to_owned(),
            false => {
                let namespace = check["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
                format!("namespaces/{namespace}/{}", names::MACHINE_CHECKS)
            }
        };
        // As a new object first, since that names all unknown fields at once; as a change of the one that is there after.
        let query = "dryRun=All&fieldValidation=Strict&fieldManager=resus-check";
        let request = |method: Method, path: String, kind: &str| {
            let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
            request.body(check.to_string().into_bytes()).with_context(|| format!("{} has a name that is none", display(check)))
        };
        let collection = format!("/apis/{api_version}/{collection}");
        let (mut code, mut answer) =
            self.ask(request(Method::POST, format!("{collection}?{query}"), "application/json")?).await?;
        if code == StatusCode::CONFLICT {
            let path = format!("{collection}/{name}?{query}&force=true");
            (code, answer) = self.ask(request(Method::PATCH, path, "application/apply-patch+yaml")?).await?;
        }
        let message = answer["message"].as_str().unwrap_or_default();
        Ok(match code {
            code if code.is_success() => unusable(&answer).into_iter().collect(),
            StatusCode::NOT_FOUND if message.contains("namespaces") => vec![format!("{message}: create the namespace first")],
            StatusCode::NOT_FOUND => vec![format!("the API server does not know {api_version}: install its CRD")],
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => bail!("{message}"),
            _ if message.contains("unknown field") => unknown_fields(message).map(dropped).collect(),
            _ => vec![message.to_owned()],
        })
    }

    async fn list_annotated(&self) -> Result<()> {
        let annotated = self.annotated().await?;
        annotated.iter().for_each(|check| println!("{}: {DEPRECATED}", display(check)));
        if annotated.is_empty() {
            println!("no MachineHealthCheck uses the annotation {}", names::POWER_CYCLE_STRATEGY.0);
        }
        Ok(())
    }

    /// Where there is no such API there are none.
    async fn annotated(&self) -> Result<Vec<Value>> {
        let path = format!("/apis/{}/{}", Dialect::OpenShift.api_version(), names::MACHINE_CHECKS);
        let (code, answer) = self.ask(Request::get(path).body(Vec::new())?).await?;
        match code {
            StatusCode::NOT_FOUND => return Ok(Vec::new()),
            code => ensure!(code.is_success(), "{}", answer["message"].as_str().unwrap_or("the API server refuses")),
        }
        let items = answer["items"].as_array().cloned().unwrap_or_default().into_iter();
        // Items of a list name neither.
        let whole = items.map(|mut item| {
            item["apiVersion"] = json!(Dialect::OpenShift.api_version());
            item["kind"] = json!(MACHINE_CHECK_KIND);
            item
        });
        Ok(whole.filter(is_annotated).collect())
    }

    async fn ask(&self, request: Request<Vec<u8>>) -> Result<(StatusCode, Value)> {
        let (head, body) =
            self.client.send(request.map(Body::from)).await.context("the API server does not answer")?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok((head.status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// What the definition that is installed accepts, but we would not use.
fn unusable(check: &Value) -> Option<String> {
    let json = check.to_string();
    let policy = match Flavour::ALL
        .iter()
        .flat_map(|flavour| flavour.dialects())
        .find(|dialect| check["apiVersion"] == dialect.api_version())
    {
        Some(dialect) => observe::machine_check(json.as_bytes(), *dialect).map(|check| check.policy.err()),
        None => observe::check(json.as_bytes()).map(|check| check.policy.err()),
    };
    match policy {
        Ok(invalid) => invalid.map(|Invalid(why)| format!("it would not be used: {why}")),
        Err(error) => Some(format!("it cannot be read: {error}")),
    }
}

const DEPRECATED: &str = "the annotation machine.openshift.io/remediation-strategy is deprecated: `resus check --rewrite` prints the form with a template";

fn is_annotated(check: &Value) -> bool {
    let (annotation, value) = names::POWER_CYCLE_STRATEGY;
    check["kind"] == MACHINE_CHECK_KIND && check["metadata"]["annotations"][annotation] == value
}

fn display(check: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &check["metadata"];
    let namespace = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {namespace}{}", text(&check["kind"]), text(&metadata["name"]))
}

/// The server names each in quotes.
fn unknown_fields(message: &str) -> impl Iterator<Item = &str> {
    message.split("unknown field \"").skip(1).filter_map(|rest| rest.split('"').next())
}

/// A dry run must never act for real because a definition drops the word.
fn dropped(field: &str) -> String {
    let annotations = [names::MODE, names::TOPOLOGY_KEY, names::REPEAT, names::NODE_STARTUP_TIMEOUT];
    let of_field = |annotation: &&str| annotation.rsplit('/').next() == field.strip_prefix("spec.");
    let instead = match annotations.into_iter().find(of_field) {
        Some(annotation) => format!("write it as the annotation {annotation}"),
        None if field == "spec.externalRemediationTemplate" => "write remediationTemplate".to_owned(),
        None => "correct its name, or install a newer definition".to_owned(),
    };
    format!("{field} would be dropped, as the definition that is installed does not have it: {instead}")
}

fn print_rewritten(checks: &[Value]) -> Result<()> {
    let mut found = false;
    for check in checks.iter().filter(|check| is_annotated(check)) {
        found = true;
        for object in rewritten(check) {
            println!("---\n{}", serde_saphyr::to_string(&object)?.trim_end());
        }
    }
    if !found {
        eprintln!("nothing to rewrite: no MachineHealthCheck uses the annotation {}", names::POWER_CYCLE_STRATEGY.0);
    }
    Ok(())
}

/// The template that stands for the annotation, and the check that refers to it.
fn rewritten(check: &Value) -> [Value; 2] {
    let (name, namespace) = (&check["metadata"]["name"], &check["metadata"]["namespace"]);
    let (api_version, kind) = ("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3RemediationTemplate");
    let mut metadata = json!({"name": name});
    if !namespace.is_null() {
        metadata["namespace"] = namespace.clone();
    }
    // As the annotation has it: one power-cycle, and as long as OpenShift's actuator waits for the node.
    let strategy = json!({"type": "Reboot", "retryLimit": 1, "timeout": "20m0s"});
    let template = json!({
        "apiVersion": api_version, "kind": kind, "metadata": metadata,
        "spec": {"template": {"spec": {"strategy": strategy}}},
    });
    let mut check = check.clone();
    check["spec"]["remediationTemplate"] = json!({"apiVersion": api_version, "kind": kind, "name": name});
    if let Some(check) = check.as_object_mut() {
        check.remove("status");
    }
    if let Some(metadata) = check["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"] {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(names::POWER_CYCLE_STRATEGY.0);
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    [template, check]
}
