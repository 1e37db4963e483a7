//! What does the server answer?

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::access::{self, Attributes, Rbac, User};
use crate::admission::{self, Attempt};
use crate::aside::Aside;
use crate::ask::Ask;
use crate::discovery;
use crate::openapi;
use crate::present::{Accept, present_one};
use crate::read;
use crate::refusal::Refusal;
use crate::resource::{self, Resource};
use crate::rng::Rng;
use crate::route::{self, Query, Route};
use crate::store::{Key, Store, Stored};
use crate::watch::{Followed, Watch};
use crate::write::{Done, text};

/// A whole Kubernetes API in memory.
pub struct Server {
    pub(crate) store: Store,
    /// Built-in kinds, then those of CRDs.
    pub(crate) resources: Vec<Arc<Resource>>,
    pub(crate) rng: Rng,
    /// With a token, who has none is anonymous; without, everybody is the admin.
    admin_token: Option<String>,
    /// Where tokens of service accounts come from; without it from the seed.
    secrets: Option<fn() -> String>,
    /// Of service accounts.
    pub(crate) tokens: BTreeMap<String, Token>,
    rbac: Option<(u64, Arc<RbacObjects>)>,
    policies: admission::Compiled,
    /// The version at which there was nothing left to tend.
    pub(crate) tended: u64,
    /// The last change of a definition that has been followed.
    pub(crate) definitions_settled: u64,
    /// A definition waits for its objects to go.
    pub(crate) ending_definitions: bool,
    /// A namespace waits for its time, or for its objects to go.
    pub(crate) ending_namespaces: bool,
    /// The version that it says it has.
    version: String,
}

pub struct Token {
    pub user: User,
    pub expires_at: Timestamp,
}

pub enum Reply {
    Answer(Response<Vec<u8>>),
    /// To be followed with [`Server::follow`]; its head is 200 with `application/json`.
    Watch(Watch),
}

/// As Kubernetes: larger bodies are refused.
const BODY_MAX: usize = 3 << 20;
/// The version that the embedded server behaves like.
const VERSION: (&str, &str, &str) = ("1", "36", "v1.36.4");

impl Server {
    /// `seed` draws uids and generated names. What every cluster has is there: namespaces and roles.
    pub fn new(seed: u64, now: Timestamp) -> Server {
        let mut server = Server {
            store: Store::default(),
            resources: resource::builtin().to_vec(),
            rng: Rng::new(seed),
            admin_token: None,
            secrets: None,
            tokens: BTreeMap::new(),
            rbac: None,
            policies: admission::Compiled::default(),
            tended: 0,
            definitions_settled: 0,
            ending_definitions: false,
            ending_namespaces: false,
            version: VERSION.2.to_owned(),
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            server.begin_with(now, "/api/v1/namespaces", &json!({"metadata": {"name": name}}));
        }
        for object in access::default_roles() {
            let plural = format!("{}s", text(&object, "kind").to_lowercase());
            server.begin_with(now, &format!("/apis/rbac.authorization.k8s.io/v1/{plural}"), &object);
        }
        server
    }

    /// From now on it says that it has this version, such as `v1.37.0`.
    pub fn upgrade(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }

    fn begin_with(&mut self, now: Timestamp, path: &str, object: &Value) {
        let request = Request::post(path).body(object.to_string().into_bytes()).expect("paths of our own are valid");
        match self.handle(now, request) {
            Reply::Answer(answer) if answer.status().is_success() => {}
            Reply::Answer(answer) => unreachable!("{path}: {}", String::from_utf8_lossy(answer.body())),
            Reply::Watch(_) => unreachable!("a creation is no watch"),
        }
    }

    /// From now on only this token is the admin's, who has none is `system:anonymous`, and tokens of service accounts end with
    /// what this says: something else each time, that nobody guesses.
    pub fn require_token(&mut self, token: &str, secrets: fn() -> String) {
        self.admin_token = Some(token.to_owned());
        self.secrets = Some(secrets);
    }

    pub(crate) fn secret(&mut self) -> String {
        match self.secrets {
            Some(secrets) => secrets(),
            None => self.rng.secret(),
        }
    }

    pub fn handle(&mut self, now: Timestamp, request: Request<Vec<u8>>) -> Reply {
        let (parts, body) = request.into_parts();
        let before = self.store.version();
        let answered = self.answer(now, &parts.method, &parts.uri, &parts.headers, body);
        if self.store.version() != before {
            self.settle(now);
        }
        match answered {
            Ok(reply) => reply,
            Err(refusal) if refusal.is_page() => {
                let mut answer = plain(&refusal.message);
                *answer.status_mut() = refusal.status();
                Reply::Answer(answer)
            }
            Err(refusal) => {
                let mut answer = json_answer(refusal.code, refusal.to_value().to_string().into_bytes());
                warn(&mut answer, &refusal.warnings);
                if let Some(seconds) = refusal.retry_after_seconds {
                    answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
                }
                Reply::Answer(answer)
            }
        }
    }

    /// What a watch has to say since it was asked last.
    pub fn follow(&self, now: Timestamp, watch: &mut Watch) -> Followed {
        let Resource { custom, group, plural, .. } = &*watch.resource;
        let is_served = custom.is_none() || self.resources.iter().any(|one| one.is(group, plural));
        watch.follow(&self.store, is_served, now)
    }

    /// Grows with every write: while it stays the same, no watch has anything new but bookmarks.
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    /// Forgets the history: watches from before get 410 Gone, as after a compaction.
    pub fn compact(&mut self) {
        self.store.compact();
    }

    fn answer(
        &mut self,
        now: Timestamp,
        method: &Method,
        uri: &http::Uri,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<Reply, Refusal> {
        let query = Query::parse(uri.query().unwrap_or_default());
        let user = self.authenticate(now, headers)?;
        let accept = Accept::parse(text_of(headers, header::ACCEPT.as_str()), &query);
        if body.len() > BODY_MAX {
            return Err(Refusal::too_large(BODY_MAX));
        }
        // The older form of a watch.
        let path = uri.path().replacen("/watch/", "/", 1);
        let is_watch = uri.path().starts_with("/api/v1/watch/")
            || (uri.path().starts_with("/apis/") && uri.path().split('/').nth(4) == Some("watch"));
        let (path, query) = if is_watch { (path.as_str(), query.with("watch", "true")) } else { (uri.path(), query) };
        let route = route::route(path, &self.resources).map_err(|_| self.nowhere(uri.path()))?;
        let Some(route) = route else {
            let attributes = Attributes { verb: &method.as_str().to_lowercase(), path: uri.path(), ..Attributes::default() };
            self.authorize(&user, &attributes, headers)?;
            return self.document(method, uri.path(), accept.is_ok_and(|accept| accept.aggregated)).map(Reply::Answer);
        };
        let verb = verb(method, &route, &query)?;
        let qualified = match route.subresource.is_empty() {
            true => route.resource.plural.clone(),
            false => format!("{}/{}", route.resource.plural, route.subresource),
        };
        // Whoever lists one name asks for that name.
        let attributes = Attributes {
            verb,
            group: &route.resource.group,
            resource: &qualified,
            namespace: &route.namespace,
            name: &route.name,
            path: "",
        };
        let user = self.authorize(&user, &attributes, headers)?;
        let dry_run = query.all("dryRun").any(|one| one == "All");
        let agent = text_of(headers, header::USER_AGENT.as_str()).split('/').next().unwrap_or_default();
        let ask = Ask {
            now,
            user,
            method: method.clone(),
            route,
            dry_run,
            query,
            accept: accept?,
            content_type: text_of(headers, header::CONTENT_TYPE.as_str()).to_owned(),
            agent: agent.to_owned(),
            body,
            aside: Aside::default(),
        };
        self.carry_out(verb, &ask)
    }

    fn carry_out(&mut self, verb: &str, ask: &Ask) -> Result<Reply, Refusal> {
        if !ask.resource().verbs.iter().any(|one| one == verb) && ask.route.subresource.is_empty() {
            return Err(Refusal::method_not_allowed());
        }
        if matches!(ask.resource().group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
            && ask.resource().custom.is_none()
        {
            return self.review(ask).map(|answer| Reply::Answer(finish(ask, 201, answer, &[])));
        }
        if !matches!(ask.route.subresource.as_str(), "" | "status") {
            let (code, body, warnings) = self.subresource(verb, ask)?;
            return Ok(Reply::Answer(finish(ask, code, body, &warnings)));
        }
        let (code, body, warnings) = match verb {
            "get" if read::check_version(&self.store, &ask.query).is_err() => {
                return Err(read::check_version(&self.store, &ask.query).err().unwrap_or_else(Refusal::no_such_path));
            }
            "get" => (200, self.show(ask, &read::get(&self.store, &ask.route)?.clone()), Vec::new()),
            "list" => (200, read::list(&self.store, &ask.route, &ask.query, ask.accept.form, ask.now)?.into_bytes(), Vec::new()),
            "watch" => return read::watch(&self.store, &ask.route, &ask.query, ask.accept.form, ask.now).map(Reply::Watch),
            "create" => self.shown(ask, Server::create)?,
            "update" => self.shown(ask, Server::update)?,
            "patch" => self.shown(ask, Server::patch)?,
            "delete" => self.delete(ask).map(|(code, body)| (code, body, Vec::new()))?,
            "deletecollection" => self.delete_collection(ask).map(|(code, body)| (code, body, Vec::new()))?,
            _ => return Err(Refusal::method_not_allowed()),
        };
        Ok(Reply::Answer(finish(ask, code, body, &warnings)))
    }

    fn shown(
        &mut self,
        ask: &Ask,
        write: impl Fn(&mut Server, &Ask) -> Result<Done, Refusal>,
    ) -> Result<(u16, Vec<u8>, Vec<String>), Refusal> {
        let Done { code, object, warnings } = write(self, ask)?;
        Ok((code, self.show(ask, &object), warnings))
    }

    /// An object in the form that the client wants.
    pub(crate) fn show(&self, ask: &Ask, stored: &Stored) -> Vec<u8> {
        present_one(ask.resource(), &stored.json, ask.accept.form, true, ask.now).into_bytes()
    }

    fn document(&self, method: &Method, path: &str, aggregated: bool) -> Result<Response<Vec<u8>>, Refusal> {
        if method != Method::GET {
            return Err(Refusal::method_not_allowed());
        }
        let path = path.trim_end_matches('/');
        let all: Vec<&Resource> = self.resources.iter().map(|one| &**one).collect();
        let document = match path {
            "/healthz" | "/readyz" | "/livez" => return Ok(plain("ok")),
            "/version" => return Ok(json_answer(200, version_text(&self.version).into_bytes())),
            "" => json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}),
            // Only kubectl's look at kinds that nobody serves still comes here; a document without any says so.
            "/openapi/v2" => {
                let mut answer = plain("");
                let kind = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
                answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
                return Ok(answer);
            }
            _ if path.starts_with("/openapi/") => {
                openapi::document(path, &all, resource::builtin_source()).ok_or_else(Refusal::no_such_path)?
            }
            _ => discovery::document(path, aggregated, &all).ok_or_else(|| self.nowhere(path))?,
        };
        let mut answer = json_answer(200, document.to_string().into_bytes());
        if aggregated && matches!(path, "/api" | "/apis") {
            answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(discovery::AGGREGATED));
        }
        Ok(answer)
    }

    /// A group that somebody serves says it in its own words.
    fn nowhere(&self, path: &str) -> Refusal {
        let mut segments = path.split('/').skip(1);
        let is_builtin = |group: &str| resource::builtin().iter().any(|one| one.group == group);
        match (segments.next(), segments.next(), segments.next()) {
            (Some("apis"), Some(group), None) if !self.resources.iter().any(|one| one.group == group) => Refusal::no_such_page(),
            (Some("apis"), Some(group), Some(version)) if !self.serves(group, version) && !is_builtin(group) => {
                Refusal::no_such_page()
            }
            _ => Refusal::no_such_path(),
        }
    }

    fn serves(&self, group: &str, version: &str) -> bool {
        self.resources.iter().any(|one| one.group == group && one.version == version)
    }

    fn authenticate(&self, now: Timestamp, headers: &HeaderMap) -> Result<User, Refusal> {
        let sent = text_of(headers, header::AUTHORIZATION.as_str()).strip_prefix("Bearer ");
        match (sent, &self.admin_token) {
            (Some(sent), Some(admin)) if sent == admin => Ok(User::admin()),
            (Some(sent), _) => match self.tokens.get(sent) {
                Some(token) if token.expires_at > now && self.has_account(&token.user) => Ok(token.user.clone()),
                _ => Err(Refusal::unauthorized()),
            },
            (None, None) => Ok(User::admin()),
            (None, Some(_)) => {
                let groups = vec!["system:unauthenticated".to_owned()];
                Ok(User { name: "system:anonymous".to_owned(), groups, ..User::default() })
            }
        }
    }

    /// A token is worth nothing without its account.
    fn has_account(&self, user: &User) -> bool {
        let accounts = self.kind("", "serviceaccounts");
        let Some((namespace, name)) = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
        else {
            return false;
        };
        let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
        let found = self.store.table(accounts.table()).and_then(|table| table.get(&key));
        found.is_some_and(|stored| stored.value()["metadata"]["uid"] == user.uid.as_str())
    }

    /// Who the request is made as: with impersonation somebody else.
    fn authorize(&mut self, user: &User, attributes: &Attributes, headers: &HeaderMap) -> Result<User, Refusal> {
        let name = text_of(headers, "Impersonate-User");
        if name.is_empty() && user.is_master() {
            return Ok(user.clone());
        }
        let rbac = self.rbac_objects();
        let mut user = user.clone();
        if !name.is_empty() {
            let groups = headers.get_all("Impersonate-Group").iter().filter_map(|value| value.to_str().ok());
            let groups: Vec<String> = groups.map(str::to_owned).collect();
            user = access::impersonate(rbac.view(), &user, name, &groups, attributes)?;
        }
        match access::allowed(rbac.view(), &user, attributes) {
            Some(_) => Ok(user),
            None => Err(access::forbidden(&user, attributes)),
        }
    }

    pub(crate) fn rbac_objects(&mut self) -> Arc<RbacObjects> {
        let kinds = ["roles", "clusterroles", "rolebindings", "clusterrolebindings"]
            .map(|plural| self.kind("rbac.authorization.k8s.io", plural));
        let version =
            kinds.iter().filter_map(|kind| self.store.table(kind.table())).map(|table| table.changed_at()).max().unwrap_or(0);
        if let Some((at, objects)) = &self.rbac
            && *at == version
        {
            return objects.clone();
        }
        let [roles, cluster_roles, role_bindings, cluster_role_bindings] = kinds.map(|kind| read::values(&self.store, &kind));
        let objects = Arc::new(RbacObjects { roles, cluster_roles, role_bindings, cluster_role_bindings });
        self.rbac = Some((version, objects.clone()));
        objects
    }

    /// A built-in kind, in its only version.
    pub(crate) fn kind(&self, group: &str, plural: &str) -> Arc<Resource> {
        let found = self.resources.iter().find(|one| one.is(group, plural));
        found.cloned().unwrap_or_else(|| unreachable!("{plural}.{group} is built in"))
    }

    pub(crate) fn namespace_object(&self, namespace: &str) -> Option<Value> {
        // Only policies look at it.
        if namespace.is_empty() || !self.has_policies() {
            return None;
        }
        let namespaces = self.kind("", "namespaces");
        let key = Key { namespace: String::new(), name: namespace.to_owned() };
        let stored = self.store.table(namespaces.table())?.get(&key)?;
        Some(crate::present::object_value(&namespaces, &stored.json))
    }

    pub(crate) fn has_policies(&self) -> bool {
        let policies = self.kind("admissionregistration.k8s.io", "validatingadmissionpolicies");
        self.store.table(policies.table()).is_some_and(|table| table.len() > 0)
    }

    pub(crate) fn admit_attempt(&mut self, attempt: &Attempt) -> Result<Vec<String>, Refusal> {
        let group = "admissionregistration.k8s.io";
        let (policies, bindings) =
            (self.kind(group, "validatingadmissionpolicies"), self.kind(group, "validatingadmissionpolicybindings"));
        let count = |kind: &Resource| self.store.table(kind.table()).map_or(0, crate::store::Table::len);
        if count(&policies) == 0 || count(&bindings) == 0 {
            return Ok(Vec::new());
        }
        let (store, resources) = (&self.store, &self.resources);
        let params = |api_version: &str, kind: &str| {
            let found = resources.iter().find(|one| one.kind == kind && one.api_version() == api_version)?;
            Some(read::values(store, found))
        };
        let stored = admission::Policies {
            policies: &read::values(store, &policies),
            bindings: &read::values(store, &bindings),
            params: &params,
            compiled: &self.policies,
        };
        admission::admit(&stored, attempt)
    }
}

/// The RBAC objects, parsed.
pub struct RbacObjects {
    roles: Vec<Value>,
    cluster_roles: Vec<Value>,
    role_bindings: Vec<Value>,
    cluster_role_bindings: Vec<Value>,
}

impl RbacObjects {
    pub fn view(&self) -> Rbac<'_> {
        Rbac {
            roles: &self.roles,
            cluster_roles: &self.cluster_roles,
            role_bindings: &self.role_bindings,
            cluster_role_bindings: &self.cluster_role_bindings,
        }
    }
}

fn verb(method: &Method, route: &Route, query: &Query) -> Result<&'static str, Refusal> {
    let is_one = !route.name.is_empty();
    match (method.as_str(), is_one) {
        ("GET" | "HEAD", _) if query.flag("watch") && route.subresource.is_empty() => Ok("watch"),
        ("GET" | "HEAD", true) => Ok("get"),
        ("GET" | "HEAD", false) => Ok("list"),
        ("POST", false) if route.resource.namespaced == route.namespace.is_empty() => Err(Refusal::method_not_allowed()),
        ("POST", false) => Ok("create"),
        ("POST", true) if !matches!(route.subresource.as_str(), "" | "status") => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("DELETE", true) if route.subresource.is_empty() => Ok("delete"),
        ("DELETE", false) => Ok("deletecollection"),
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn finish(ask: &Ask, code: u16, body: Vec<u8>, warnings: &[String]) -> Response<Vec<u8>> {
    let mut answer = match ask.accept.yaml {
        false => json_answer(code, body),
        true => {
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            let mut answer = json_answer(code, serde_saphyr::to_string(&value).unwrap_or_default().into_bytes());
            answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/yaml"));
            answer
        }
    };
    warn(&mut answer, warnings);
    if let Some(deprecated) = ask.resource().custom.as_ref().and_then(|custom| custom.deprecated.as_ref())
        && let Ok(value) = format!("299 - {deprecated:?}").parse()
    {
        answer.headers_mut().append(header::WARNING, value);
    }
    answer
}

fn warn(answer: &mut Response<Vec<u8>>, warnings: &[String]) {
    for warning in warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = text.parse() {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Printed with line breaks, as people look at it.
fn version_text(git: &str) -> String {
    let (major, minor, _) = VERSION;
    let version = json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major, "minCompatibilityMinor": minor,
        "gitVersion": git, "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "resus",
    });
    format!("{version:#}")
}

fn plain(text: &str) -> Response<Vec<u8>> {
    let mut answer = Response::new(text.as_bytes().to_vec());
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn json_answer(code: u16, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut answer = Response::new(body);
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
