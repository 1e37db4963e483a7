//! What can be asked of an object beside itself and its status? Scale, eviction, binding, tokens, approval, finalizing.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::access::selects;
use crate::access::{self, User};
use crate::ask::{Ask, media_type, seconds};
use crate::delete::DeleteOptions;
use crate::patch;
use crate::present::{Form, object_value};
use crate::read;
use crate::refusal::{Cause, Refusal};
use crate::resource::Resource;
use crate::rng;
use crate::route::Route;
use crate::server::{Server, Token};
use crate::table;
use crate::write::text;

type Answer = Result<(u16, Vec<u8>, Vec<String>), Refusal>;

/// Tokens that are remembered; the oldest go first.
const TOKENS_MAX: usize = 10_000;
const TOKEN_SECONDS: i64 = 3600;
const ISSUER: &str = "https://kubernetes.default.svc";

impl Server {
    pub(crate) fn subresource(&mut self, verb: &str, ask: &Ask) -> Answer {
        match (ask.route.subresource.as_str(), verb) {
            ("scale", "get" | "update" | "patch") => self.scale(verb, ask),
            ("approval" | "finalize", "get") => {
                let stored = read::get(&self.store, &ask.route)?.clone();
                Ok((200, self.show(ask, &stored), Vec::new()))
            }
            ("approval" | "finalize", "update") => {
                self.update(ask).map(|done| (done.code, self.show(ask, &done.object), done.warnings))
            }
            ("approval", "patch") => self.patch(ask).map(|done| (done.code, self.show(ask, &done.object), done.warnings)),
            ("eviction", "create") => self.evict(ask),
            ("binding", "create") => self.bind(ask),
            ("token", "create") => self.token(ask),
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    fn scale(&mut self, verb: &str, ask: &Ask) -> Answer {
        let resource = ask.route.resource.clone();
        let stored = read::get(&self.store, &ask.route)?.clone();
        let mut object = object_value(&resource, &stored.json);
        let paths = ScalePaths::of(&resource);
        let mut scale = paths.read(&object);
        match (verb, media_type(&ask.content_type)) {
            ("update", _) => scale = ask.parse_body_as("autoscaling/v1", "Scale")?.0,
            ("patch", "application/json-patch+json") => patch::json_patch(&mut scale, &ask.body)?,
            ("patch", _) => patch::merge_patch(&mut scale, &patch::parse(&ask.body).map_err(Refusal::bad_request)?),
            _ => return Ok((200, show_scale(ask, &scale), Vec::new())),
        }
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 && resource.custom.is_some() {
            let field = format!(".{}", paths.replicas.join("."));
            let cause = Cause::invalid(field, &json!(replicas), "should be a non-negative integer");
            return Err(Refusal::invalid(&resource, &ask.route.name, vec![cause]));
        }
        if replicas < 0 {
            let kind = Resource { group: "autoscaling".into(), kind: "Scale".into(), ..Resource::default() };
            let cause = Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
            return Err(Refusal::invalid(&kind, &ask.route.name, vec![cause]));
        }
        set(&mut object, &paths.replicas, json!(replicas));
        object["metadata"]["resourceVersion"] = match text(&scale["metadata"], "resourceVersion") {
            "" => object["metadata"]["resourceVersion"].take(),
            version => json!(version),
        };
        let (stored, warnings) = self.rewrite(ask, object)?;
        let scale = paths.read(&object_value(&resource, &stored.json));
        Ok((200, show_scale(ask, &scale), warnings))
    }

    /// A Pod may go if its disruption budget lets it.
    fn evict(&mut self, ask: &Ask) -> Answer {
        let (body, _) = ask.parse_body_as("policy/v1", "Eviction")?;
        let stored = read::get(&self.store, &ask.route)?.clone();
        let pod = object_value(ask.resource(), &stored.json);
        let is_over = matches!(text(&pod["status"], "phase"), "Failed" | "Succeeded" | "Pending") || stored.is_ending;
        if !is_over {
            self.spend_budget(ask, &pod)?;
        }
        let options = DeleteOptions::from_body(&body["deleteOptions"])?;
        self.delete_one(&ask.for_itself(), &options)?;
        Ok((201, success(201), Vec::new()))
    }

    fn spend_budget(&mut self, ask: &Ask, pod: &Value) -> Result<(), Refusal> {
        let budgets = self.kind("policy", "poddisruptionbudgets");
        let mut meant = read::values(&self.store, &budgets);
        meant.retain(|budget| {
            budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
                && selects(&budget["spec"]["selector"], &pod["metadata"]["labels"])
        });
        let budget = match meant.as_mut_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                return Err(Refusal::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let name = text(&budget["metadata"], "name").to_owned();
        let status = &budget["status"];
        let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
        if status["observedGeneration"].as_i64().unwrap_or(0) < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
            let message = format!("The disruption budget {name} is still being processed by the server.");
            return Err(budget_refusal("Cannot evict pod as it would violate the pod's disruption budget.", message));
        }
        if allowed <= 0 {
            let (wanted, healthy) =
                (status["desiredHealthy"].as_i64().unwrap_or(0), status["currentHealthy"].as_i64().unwrap_or(0));
            let message = format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently");
            return Err(budget_refusal("Cannot evict pod as it would violate the pod's disruption budget.", message));
        }
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        let pod_name = text(&pod["metadata"], "name").to_owned();
        budget["status"]["disruptedPods"][pod_name] = json!(ask.time());
        let namespace = ask.route.namespace.clone();
        let route =
            Route { api_version: budgets.api_version(), resource: budgets, namespace, name, subresource: "status".to_owned() };
        let changed = budget.clone();
        self.rewrite(&Ask { route, user: User::admin(), ..ask.again() }, changed).map(|_| ())
    }

    /// What the scheduler does.
    fn bind(&mut self, ask: &Ask) -> Answer {
        let (body, _) = ask.parse_body_as("v1", "Binding")?;
        let stored = read::get(&self.store, &ask.route)?.clone();
        let mut pod = object_value(ask.resource(), &stored.json);
        let (node, kind) = (text(&body["target"], "name"), text(&body["target"], "kind"));
        let mut wrong = Vec::new();
        if !matches!(kind, "" | "Node") {
            wrong.push(format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""));
        }
        if node.is_empty() {
            wrong.push("target.name: Required value".to_owned());
        }
        match wrong.as_slice() {
            [] => {}
            [one] => return Err(Refusal::plain(one)),
            many => return Err(Refusal::plain(format!("[{}]", many.join(", ")))),
        }
        let bound = text(&pod["spec"], "nodeName");
        if !bound.is_empty() {
            let detail = format!("pod {} is already assigned to node {bound:?}", ask.route.name);
            let by_kind = Resource { plural: "pods/binding".into(), ..Resource::default() };
            return Err(Refusal::conflict(&by_kind, &ask.route.name, &detail));
        }
        pod["spec"]["nodeName"] = json!(node);
        let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|one| one["type"] != "PodScheduled");
        let observed = pod["metadata"]["generation"].clone();
        conditions.push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": ask.time(), "observedGeneration": observed}));
        pod["status"]["conditions"] = json!(conditions);
        self.rewrite(ask, pod)?;
        Ok((201, success(201), Vec::new()))
    }

    fn token(&mut self, ask: &Ask) -> Answer {
        let (mut body, _) = ask.parse_body_as("authentication.k8s.io/v1", "TokenRequest")?;
        let stored = read::get(&self.store, &ask.route)?.clone();
        let account = stored.value();
        let lasts = body["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS);
        if lasts < 600 {
            let kind = Resource { group: "authentication.k8s.io".into(), kind: "TokenRequest".into(), ..Resource::default() };
            let cause =
                Cause::invalid("spec.expirationSeconds", &json!(lasts), "may not specify a duration less than 10 minutes");
            return Err(Refusal::invalid(&kind, "", vec![cause]));
        }
        let expires_at = ask.now + SignedDuration::from_secs(lasts.min(i64::from(u32::MAX)));
        let (namespace, name) = (&ask.route.namespace, &ask.route.name);
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: text(&account["metadata"], "uid").to_owned(),
            groups: groups.into(),
            extra: [("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={}", self.rng.uid())])].into(),
        };
        let claims = json!({"sub": user.name, "exp": expires_at.as_second(), "iat": ask.now.as_second(), "iss": ISSUER});
        let token = rng::token(&claims.to_string(), &self.secret());
        self.tokens.retain(|_, token| token.expires_at > ask.now);
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.pop_first();
        }
        self.tokens.insert(token.clone(), Token { user, expires_at });
        body["apiVersion"] = json!("authentication.k8s.io/v1");
        body["kind"] = json!("TokenRequest");
        body["metadata"] = json!({"name": name, "namespace": namespace, "creationTimestamp": ask.time()});
        body["spec"]["expirationSeconds"] = json!(lasts);
        if body["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
            body["spec"]["audiences"] = json!([ISSUER]);
        }
        body["status"] = json!({"token": token, "expirationTimestamp": seconds(expires_at)});
        Ok((201, body.to_string().into_bytes(), Vec::new()))
    }

    /// SubjectAccessReviews and their like, which are answered and not stored.
    pub(crate) fn review(&mut self, ask: &Ask) -> Result<Vec<u8>, Refusal> {
        let (mut posted, twice) = ask.parse_body()?;
        ask.check_shape(&mut posted, &twice)?;
        if ask.resource().plural == "tokenreviews" {
            return Ok(self.review_token(ask, posted).to_string().into_bytes());
        }
        if ask.resource().namespaced {
            posted["metadata"]["namespace"] = json!(ask.route.namespace);
        }
        let rbac = self.rbac_objects();
        Ok(access::review(rbac.view(), &ask.user, &posted)?.to_string().into_bytes())
    }

    fn review_token(&self, ask: &Ask, mut posted: Value) -> Value {
        let known = self.tokens.get(text(&posted["spec"], "token")).filter(|token| token.expires_at > ask.now);
        posted["status"] = match known {
            Some(Token { user, .. }) => {
                json!({"authenticated": true, "user": {"username": user.name, "uid": user.uid, "groups": user.groups}})
            }
            None => json!({"user": {}, "error": "[invalid bearer token]"}),
        };
        posted
    }
}

fn budget_refusal(message: &str, cause: String) -> Refusal {
    let cause = Cause { field: String::new(), reason: "DisruptionBudget", message: cause };
    Refusal { causes: vec![cause], retry_after_seconds: None, ..Refusal::too_many_requests(message, 0) }
}

fn success(code: u16) -> Vec<u8> {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}).to_string().into_bytes()
}

/// Where a kind keeps the numbers that a Scale shows.
struct ScalePaths {
    replicas: Vec<String>,
    current: Vec<String>,
    selector: Option<Vec<String>>,
}

impl ScalePaths {
    fn of(resource: &Resource) -> ScalePaths {
        let split = |path: &str| path.trim_start_matches('.').split('.').map(str::to_owned).collect::<Vec<_>>();
        let scale = resource.custom.as_ref().and_then(|custom| custom.scale.as_ref());
        let path = |key: &str| scale.and_then(|scale| scale[key].as_str());
        ScalePaths {
            replicas: split(path("specReplicasPath").unwrap_or(".spec.replicas")),
            current: split(path("statusReplicasPath").unwrap_or(".status.replicas")),
            selector: path("labelSelectorPath").map(split),
        }
    }

    fn read(&self, object: &Value) -> Value {
        let at = |path: &[String]| path.iter().try_fold(object, |value, key| value.get(key)).cloned().unwrap_or_default();
        let metadata = &object["metadata"];
        let mut kept = serde_json::Map::new();
        for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if !metadata[key].is_null() {
                kept.insert(key.to_owned(), metadata[key].clone());
            }
        }
        let mut status = json!({"replicas": at(&self.current).as_i64().unwrap_or(0)});
        let selector = match &self.selector {
            Some(path) => at(path).as_str().map(str::to_owned),
            None => selector_text(&object["spec"]["selector"]),
        };
        if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
            status["selector"] = json!(selector);
        }
        let spec = match at(&self.replicas).as_i64() {
            Some(replicas) if replicas != 0 => json!({"replicas": replicas}),
            _ => json!({}),
        };
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status})
    }
}

fn show_scale(ask: &Ask, scale: &Value) -> Vec<u8> {
    let Form::Table(include) = ask.accept.form else { return scale.to_string().into_bytes() };
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let columns = vec![
        column("Desired", "integer", ".spec.replicas"),
        column("Available", "integer", ".status.replicas"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let kind = Resource { columns, custom: Some(Arc::default()), ..Resource::default() };
    table::table(&kind, std::slice::from_ref(scale), None, include, true, ask.now).to_string().into_bytes()
}

fn selector_text(selector: &Value) -> Option<String> {
    let labels = selector["matchLabels"].as_object()?;
    Some(labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(","))
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut at = object;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[key.as_str()];
    }
    *at = value;
}
