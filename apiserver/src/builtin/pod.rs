//! What does the server fill in for a Pod, and for the template of one?

use serde_json::{Map, Value, json};

use super::quantity::{self, Quantity};
use super::read::{child, drop_zero, each, fill, fill_text, list, map, text, untimed};

/// rw-r--r--: the mode of files in volumes that the kubelet writes.
const FILE_MODE: u32 = 0o644;
/// How long a Pod stays on a node that is not ready or not reachable, unless it says otherwise.
const TOLERATED_SECONDS: u32 = 300;

pub fn default(pod: &mut Value) {
    let Some(spec) = child(pod, "spec") else { return };
    fill(spec, "enableServiceLinks", json!(true));
    let shares_ports = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for key in ["containers", "initContainers"] {
        for container in each(spec, key) {
            request_limits(container);
            if shares_ports {
                each(container, "ports").for_each(host_port);
            }
        }
    }
    default_spec(spec);
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        default_status(status);
    }
}

fn default_status(status: &mut Map<String, Value>) {
    untimed(status, &["lastProbeTime", "lastTransitionTime"]);
    for key in ["containerStatuses", "initContainerStatuses"] {
        for container in each(status, key) {
            for (key, zero) in [("image", json!("")), ("imageID", json!("")), ("lastState", json!({})), ("state", json!({}))] {
                fill(container, key, zero);
            }
            fill(container, "ready", json!(false));
            fill(container, "restartCount", json!(0));
        }
    }
}

/// What holds for the spec of templates, too.
pub fn default_spec(spec: &mut Map<String, Value>) {
    drop_zero(
        spec,
        &[
            "hostNetwork",
            "hostPID",
            "hostIPC",
            "nodeName",
            "hostname",
            "subdomain",
            "volumes",
            "initContainers",
            "ephemeralContainers",
            "imagePullSecrets",
            "hostAliases",
            "nodeSelector",
            "tolerations",
            "priorityClassName",
            "serviceAccountName",
            "serviceAccount",
            "topologySpreadConstraints",
        ],
    );
    fill_text(spec, "restartPolicy", "Always");
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "schedulerName", "default-scheduler");
    fill(spec, "terminationGracePeriodSeconds", json!(30));
    fill(spec, "securityContext", json!({}));
    let account = spec.get("serviceAccountName").or(spec.get("serviceAccount")).cloned();
    if let Some(account) = account {
        spec.insert("serviceAccount".to_owned(), account.clone());
        spec.insert("serviceAccountName".to_owned(), account);
    }
    for key in ["containers", "initContainers"] {
        each(spec, key).for_each(default_container);
    }
    each(spec, "volumes").for_each(default_volume);
    for toleration in each(spec, "tolerations") {
        drop_zero(toleration, &["key", "operator", "value", "effect"]);
    }
}

/// What is set once: status, tolerations and priority; the last two by admission plugins.
pub fn prepare_create(pod: &mut Value) {
    let class = quality(&pod["spec"]);
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
    let priority = priority(&pod["spec"]).unwrap_or_default();
    tolerate(pod);
    if let Some(spec) = child(pod, "spec") {
        // What was asked for stays, so that [`refused_priority`] can say no to it.
        fill(spec, "priority", json!(priority));
        fill(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    }
}

/// What the same plugins do at updates.
pub fn prepare_update(pod: &mut Value, old: &Value) {
    tolerate(pod);
    let Some(spec) = child(pod, "spec") else { return };
    for key in ["priority", "preemptionPolicy"] {
        fill(spec, key, old["spec"][key].clone());
        drop_null(spec, key);
    }
}

/// Two tolerations that every Pod has, at updates too: the admission plugin DefaultTolerationSeconds.
pub fn tolerate(pod: &mut Value) {
    let Some(spec) = child(pod, "spec") else { return };
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            matches!(text(toleration, "effect"), "" | "NoExecute")
                && (text(toleration, "key").is_empty() || toleration["key"] == key)
        };
        if !tolerations.iter().any(covers) {
            let seconds = TOLERATED_SECONDS;
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}));
        }
    }
}

fn drop_null(spec: &mut Map<String, Value>, key: &str) {
    if spec.get(key).is_some_and(Value::is_null) {
        spec.remove(key);
    }
}

/// Why the admission plugin Priority refuses a Pod, if it does.
pub fn refused_priority(pod: &Value) -> Option<String> {
    let Some(priority) = priority(&pod["spec"]) else {
        return Some(format!("no PriorityClass with name {} was found", text(&pod["spec"], "priorityClassName")));
    };
    let asked = pod["spec"]["priority"].as_i64().filter(|asked| *asked != priority)?;
    Some(format!(
        "the integer value of priority ({asked}) must not be provided in pod spec; priority admission controller computed {priority} \
         from the given PriorityClass name"
    ))
}

/// PriorityClasses are not served here: only the two that every cluster has are known.
fn priority(spec: &Value) -> Option<i64> {
    match text(spec, "priorityClassName") {
        "" => Some(0),
        "system-cluster-critical" => Some(2_000_000_000),
        "system-node-critical" => Some(2_000_001_000),
        _ => None,
    }
}

/// Guaranteed, Burstable or BestEffort, by what the containers ask for.
fn quality(spec: &Value) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let of = |container: &Value, part: &str, name: &str| {
        let quantity = Quantity::of(&container["resources"][part][name]);
        quantity.map_or(0, |quantity| quantity.nano)
    };
    let mut asks = false;
    let mut all_limited = true;
    for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
        for name in COUNTED {
            let (request, limit) = (of(container, "requests", name), of(container, "limits", name));
            asks |= request > 0 || limit > 0;
            all_limited &= limit > 0 && request == limit;
        }
    }
    match (asks, all_limited) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn default_container(container: &mut Map<String, Value>) {
    drop_zero(container, &["command", "args", "env", "envFrom", "ports", "volumeMounts", "volumeDevices", "workingDir"]);
    drop_zero(container, &["stdin", "stdinOnce", "tty", "image"]);
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    let policy = pull_policy(container.get("image").and_then(Value::as_str).unwrap_or_default());
    fill_text(container, "imagePullPolicy", policy);
    fill(container, "resources", json!({}));
    for part in ["limits", "requests"] {
        let quantities = container.get_mut("resources").and_then(|resources| resources.get_mut(part));
        if let Some(quantities) = quantities.and_then(Value::as_object_mut) {
            quantity::normalise(quantities);
        }
    }
    each(container, "ports").for_each(|port| fill_text(port, "protocol", "TCP"));
    for variable in each(container, "env") {
        drop_zero(variable, &["value"]);
        let source = variable.get_mut("valueFrom").and_then(Value::as_object_mut);
        if let Some(source) = source {
            default_field_ref(source);
        }
    }
    each(container, "volumeMounts").for_each(|mount| drop_zero(mount, &["readOnly", "subPath", "subPathExpr"]));
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(key).and_then(Value::as_object_mut) {
            default_probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        let hook = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(hook));
        if let Some(hook) = hook.and_then(Value::as_object_mut) {
            default_http(hook);
        }
    }
}

/// `latest`, said or unsaid, may be another image tomorrow.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let is_fixed = name.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if is_fixed { "IfNotPresent" } else { "Always" }
}

fn default_probe(probe: &mut Map<String, Value>) {
    drop_zero(probe, &["initialDelaySeconds"]);
    for (key, value) in [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)] {
        drop_zero(probe, &[key]);
        fill(probe, key, json!(value));
    }
    default_http(probe);
    if let Some(grpc) = probe.get_mut("grpc").and_then(Value::as_object_mut) {
        fill(grpc, "service", json!(""));
    }
}

fn default_http(action: &mut Map<String, Value>) {
    if let Some(get) = action.get_mut("httpGet").and_then(Value::as_object_mut) {
        fill_text(get, "path", "/");
        fill_text(get, "scheme", "HTTP");
    }
}

fn default_field_ref(parent: &mut Map<String, Value>) {
    if let Some(reference) = parent.get_mut("fieldRef").and_then(Value::as_object_mut) {
        fill_text(reference, "apiVersion", "v1");
    }
}

fn default_volume(volume: &mut Map<String, Value>) {
    if volume.len() < 2 {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(path) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        fill(path, "type", json!(""));
    }
    for key in ["configMap", "secret", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(key).and_then(Value::as_object_mut) else { continue };
        fill(source, "defaultMode", json!(FILE_MODE));
        each(source, "items").for_each(default_field_ref);
        for source in each(source, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
                fill(token, "expirationSeconds", json!(3600));
            }
            if let Some(downward) = source.get_mut("downwardAPI").and_then(Value::as_object_mut) {
                each(downward, "items").for_each(default_field_ref);
            }
        }
    }
}

/// Whoever sets a limit and no request asks for the limit.
fn request_limits(container: &mut Map<String, Value>) {
    let Some(resources) = container.get_mut("resources") else { return };
    let limits: Vec<(String, Value)> = map(resources, "limits").map(|(key, value)| (key.clone(), value.clone())).collect();
    if limits.is_empty() {
        return;
    }
    if let Some(requests) = child(resources, "requests") {
        for (key, value) in limits {
            requests.entry(key).or_insert(value);
        }
    }
}

fn host_port(port: &mut Map<String, Value>) {
    if let Some(number) = port.get("containerPort").cloned() {
        drop_zero(port, &["hostPort"]);
        fill(port, "hostPort", number);
    }
}
