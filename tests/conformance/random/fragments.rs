//! Which kinds are written, and with what?
//!
//! A kind has a body that is just valid, and fragments: parts of an object, good and bad, from which creations, updates
//! and all four kinds of patches are made.

use serde_json::Value;

pub struct Kind {
    /// As `/apis/apps/v1`.
    pub root: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    pub body: &'static str,
    pub good: &'static [&'static str],
    pub bad: &'static [&'static str],
    /// Of the status subresource; empty if there is none.
    pub status: &'static [&'static str],
}

impl Kind {
    pub fn api_version(&self) -> &'static str {
        self.root.trim_start_matches("/apis/").trim_start_matches("/api/")
    }
}

pub fn parse(fragment: &str) -> Value {
    serde_json::from_str(fragment).unwrap_or_else(|error| panic!("{fragment}: {error}"))
}

/// Good for every kind.
pub const METADATA: &[&str] = &[
    r#"{"metadata":{"labels":{"color":"red"}}}"#,
    r#"{"metadata":{"labels":{"color":"blue"}}}"#,
    r#"{"metadata":{"labels":{"color":null}}}"#,
    r#"{"metadata":{"annotations":{"x.io/note":"one"}}}"#,
    r#"{"metadata":{"annotations":{"x.io/note":"two","x.io/more":"y"}}}"#,
    r#"{"metadata":{"annotations":null}}"#,
    r#"{"metadata":{"finalizers":["x.io/hold"]}}"#,
    r#"{"metadata":{"finalizers":["x.io/hold","x.io/more"]}}"#,
    r#"{"metadata":{"finalizers":null}}"#,
    r#"{"metadata":{"finalizers":null}}"#,
    r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-1"}]}}"#,
];

/// Bad for every kind.
pub const BAD_METADATA: &[&str] = &[
    r#"{"metadata":{"labels":{"bad key":"x"}}}"#,
    r#"{"metadata":{"labels":{"good":"bad value"}}}"#,
    r#"{"metadata":{"labels":{"number":5}}}"#,
    r#"{"metadata":{"finalizers":["plain"]}}"#,
    r#"{"metadata":{"name":"another"}}"#,
    r#"{"metadata":{"namespace":"default"}}"#,
    r#"{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"","name":"","uid":""}]}}"#,
    r#"{"metadata":"text"}"#,
    r#"{"unknown":{"field":1}}"#,
    r#"{"metadata":{"unknown":"x"}}"#,
];

pub const KINDS: &[Kind] = &[
    Kind {
        root: "/api/v1",
        plural: "configmaps",
        kind: "ConfigMap",
        namespaced: true,
        body: r#"{"data":{"k":"v"}}"#,
        good: &[
            r#"{"data":{"k":"w"}}"#,
            r#"{"data":{"l":"x","m":"y"}}"#,
            r#"{"data":{"k":null}}"#,
            r#"{"data":null}"#,
            r#"{"binaryData":{"b":"eA=="}}"#,
            r#"{"immutable":true}"#,
        ],
        bad: &[
            r#"{"data":{"bad key":"x"}}"#,
            r#"{"data":{"k":5}}"#,
            r#"{"data":"text"}"#,
            r#"{"data":{"both":"x"},"binaryData":{"both":"eA=="}}"#,
            r#"{"binaryData":{"b":"no base64"}}"#,
            r#"{"immutable":"yes"}"#,
        ],
        status: &[],
    },
    Kind {
        root: "/api/v1",
        plural: "secrets",
        kind: "Secret",
        namespaced: true,
        body: r#"{"data":{"k":"eA=="}}"#,
        good: &[
            r#"{"stringData":{"s":"hello"}}"#,
            // A null here would be kept or not by how Kubernetes' storage encodes empty bytes; ConfigMaps have it.
            r#"{"data":{"l":"eQ=="}}"#,
            r#"{"immutable":false}"#,
        ],
        bad: &[r#"{"type":"another"}"#, r#"{"data":{"k":"?"}}"#, r#"{"data":{"bad key":"eA=="}}"#, r#"{"stringData":[]}"#],
        status: &[],
    },
    Kind {
        root: "/api/v1",
        plural: "serviceaccounts",
        kind: "ServiceAccount",
        namespaced: true,
        body: "{}",
        good: &[
            r#"{"automountServiceAccountToken":false}"#,
            r#"{"imagePullSecrets":[{"name":"p"}]}"#,
            r#"{"secrets":[{"name":"s"},{"name":"t"}]}"#,
        ],
        bad: &[r#"{"secrets":"s"}"#, r#"{"automountServiceAccountToken":"no"}"#],
        status: &[],
    },
    Kind {
        root: "/api/v1",
        plural: "nodes",
        kind: "Node",
        namespaced: false,
        body: "{}",
        good: &[
            r#"{"spec":{"unschedulable":true}}"#,
            r#"{"spec":{"unschedulable":null}}"#,
            r#"{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}"#,
            r#"{"spec":{"taints":[{"key":"b","value":"v","effect":"NoExecute"},{"key":"a","effect":"NoSchedule"}]}}"#,
            r#"{"spec":{"taints":null}}"#,
            r#"{"spec":{"providerID":"x://1"}}"#,
        ],
        bad: &[
            r#"{"spec":{"taints":[{"key":"a","effect":"Sometimes"}]}}"#,
            r#"{"spec":{"taints":[{"key":"","effect":"NoSchedule"}]}}"#,
            r#"{"spec":{"taints":[{"key":"a","effect":"NoSchedule"},{"key":"a","effect":"NoSchedule"}]}}"#,
            r#"{"spec":{"taints":{"key":"a"}}}"#,
            r#"{"spec":{"unschedulable":"yes"}}"#,
            r#"{"spec":{"providerID":"y://2"}}"#,
            r#"{"spec":{"podCIDR":"nonsense"}}"#,
        ],
        status: &[
            r#"{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Up","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}"#,
            r#"{"status":{"conditions":[{"type":"Ready","status":"Unknown"},{"type":"DiskPressure","status":"False"}]}}"#,
            r#"{"status":{"capacity":{"cpu":"4","memory":"8Gi"},"allocatable":{"cpu":"3500m"}}}"#,
            r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#,
            r#"{"status":{"phase":"Running"}}"#,
            r#"{"status":{"capacity":{"cpu":"lots"}}}"#,
            r#"{"status":{"conditions":"Ready"}}"#,
            r#"{"spec":{"unschedulable":true}}"#,
        ],
    },
    Kind {
        root: "/apis/coordination.k8s.io/v1",
        plural: "leases",
        kind: "Lease",
        namespaced: true,
        body: r#"{"spec":{"holderIdentity":"one","leaseDurationSeconds":15}}"#,
        good: &[
            r#"{"spec":{"holderIdentity":"two","leaseTransitions":1}}"#,
            r#"{"spec":{"renewTime":"2020-01-01T00:00:05.25Z"}}"#,
            r#"{"spec":{"renewTime":"2020-01-01T00:00:10.000001Z","acquireTime":"2020-01-01T00:00:00.000000Z"}}"#,
            r#"{"spec":{"holderIdentity":null}}"#,
            r#"{"spec":null}"#,
        ],
        bad: &[
            r#"{"spec":{"leaseDurationSeconds":0}}"#,
            r#"{"spec":{"leaseTransitions":-1}}"#,
            r#"{"spec":{"renewTime":"yesterday"}}"#,
            r#"{"spec":{"leaseDurationSeconds":"15"}}"#,
        ],
        status: &[],
    },
    Kind {
        root: "/api/v1",
        plural: "pods",
        kind: "Pod",
        namespaced: true,
        body: r#"{"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
        good: &[
            r#"{"spec":{"containers":[{"name":"c","image":"j"}]}}"#,
            r#"{"spec":{"nodeName":"n"}}"#,
            // No tolerations: the server completes them after it has noted who set them, so to set them again is a write
            // or none by the second in which that happens.
            r#"{"spec":{"activeDeadlineSeconds":100}}"#,
        ],
        bad: &[
            r#"{"spec":{"containers":[]}}"#,
            r#"{"spec":{"containers":[{"name":"Bad","image":"i"}]}}"#,
            r#"{"spec":{"containers":[{"name":"d","image":"i"}]}}"#,
            r#"{"spec":{"restartPolicy":"Sometimes"}}"#,
            r#"{"spec":{"terminationGracePeriodSeconds":-5}}"#,
            r#"{"spec":{"nodeName":5}}"#,
        ],
        status: &[
            r#"{"status":{"phase":"Running"}}"#,
            r#"{"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}"#,
            r#"{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Gone"},{"type":"x.io/Other","status":"True"}]}}"#,
            r#"{"status":{"message":"m","reason":"r"}}"#,
            r#"{"status":{"phase":5}}"#,
        ],
    },
    Kind {
        root: "/apis/apps/v1",
        plural: "deployments",
        kind: "Deployment",
        namespaced: true,
        body: r#"{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
        good: &[
            r#"{"spec":{"replicas":3}}"#,
            r#"{"spec":{"replicas":0,"paused":true}}"#,
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}"#,
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"k"}]}}}}"#,
            r#"{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}"#,
            r#"{"spec":{"template":{"metadata":{"labels":{"more":"x"}}}}}"#,
        ],
        bad: &[
            r#"{"spec":{"replicas":-1}}"#,
            r#"{"spec":{"replicas":"many"}}"#,
            r#"{"spec":{"selector":{"matchLabels":{"c":"d"}}}}"#,
            r#"{"spec":{"template":{"metadata":{"labels":{"a":"z"}}}}}"#,
            r#"{"spec":{"strategy":{"type":"Hope"}}}"#,
            r#"{"spec":{"template":{"spec":{"containers":null}}}}"#,
            r#"{"spec":{"minReadySeconds":-1}}"#,
        ],
        status: &[
            r#"{"status":{"replicas":2,"observedGeneration":1}}"#,
            r#"{"status":{"conditions":[{"type":"Available","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z","lastUpdateTime":"2020-01-01T00:00:00Z"}]}}"#,
            r#"{"status":{"replicas":-1}}"#,
            r#"{"status":{"readyReplicas":5,"replicas":1}}"#,
            r#"{"status":{"replicas":"x"}}"#,
        ],
    },
    Kind {
        root: "/apis/policy/v1",
        plural: "poddisruptionbudgets",
        kind: "PodDisruptionBudget",
        namespaced: true,
        body: r#"{"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}}"#,
        good: &[
            r#"{"spec":{"minAvailable":"50%"}}"#,
            r#"{"spec":{"minAvailable":null,"maxUnavailable":1}}"#,
            r#"{"spec":{"maxUnavailable":null,"minAvailable":2}}"#,
            r#"{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}"#,
        ],
        bad: &[
            r#"{"spec":{"minAvailable":1,"maxUnavailable":1}}"#,
            r#"{"spec":{"minAvailable":-1}}"#,
            r#"{"spec":{"minAvailable":"150%"}}"#,
            r#"{"spec":{"unhealthyPodEvictionPolicy":"Maybe"}}"#,
        ],
        status: &[
            r#"{"status":{"observedGeneration":1,"disruptionsAllowed":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}}"#,
            r#"{"status":{"disruptionsAllowed":0}}"#,
            r#"{"status":{"disruptionsAllowed":-1}}"#,
        ],
    },
    Kind {
        root: "/apis/rbac.authorization.k8s.io/v1",
        plural: "roles",
        kind: "Role",
        namespaced: true,
        body: r#"{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}"#,
        good: &[
            r#"{"rules":[{"apiGroups":["","apps"],"resources":["*"],"verbs":["*"]}]}"#,
            // No `[]`: it is noted, then stored as null, so to set it again is a write or none by the second.
            r#"{"rules":null}"#,
        ],
        bad: &[
            r#"{"rules":[{"apiGroups":[""],"resources":["pods"]}]}"#,
            r#"{"rules":[{"verbs":["get"]}]}"#,
            r#"{"rules":{"verbs":["get"]}}"#,
        ],
        status: &[],
    },
    Kind {
        root: "/apis/random.test/v1",
        plural: "gadgets",
        kind: "Gadget",
        namespaced: true,
        body: r#"{"spec":{"low":1}}"#,
        good: &[
            r#"{"spec":{"low":2,"high":5}}"#,
            r#"{"spec":{"color":"blue"}}"#,
            r#"{"spec":{"color":null}}"#,
            r#"{"spec":{"parts":[{"id":"a","n":1}]}}"#,
            r#"{"spec":{"parts":[{"id":"b"},{"id":"a","n":2}]}}"#,
            r#"{"spec":{"tags":["x","y"]}}"#,
            r#"{"spec":{"free":{"any":[1,{"thing":true}]}}}"#,
            r#"{"spec":{"port":"http"}}"#,
            r#"{"spec":{"fixed":"one"}}"#,
            r#"{"spec":null}"#,
        ],
        bad: &[
            r#"{"spec":{"low":9,"high":3}}"#,
            r#"{"spec":{"color":"green"}}"#,
            r#"{"spec":{"low":-1}}"#,
            r#"{"spec":{"low":"x"}}"#,
            r#"{"spec":{"parts":[{"id":"a"},{"id":"a"}]}}"#,
            r#"{"spec":{"parts":[{"n":1}]}}"#,
            r#"{"spec":{"tags":["x","x"]}}"#,
            r#"{"spec":{"fixed":"two"}}"#,
            r#"{"spec":{"what":"x"}}"#,
            r#"{"spec":{"port":true}}"#,
            r#"{"spec":[]}"#,
        ],
        status: &[
            r#"{"status":{"phase":"Running","count":3}}"#,
            r#"{"status":{"count":1}}"#,
            r#"{"status":{"phase":"Dreaming"}}"#,
            r#"{"status":{"what":"x","phase":"New"}}"#,
            r#"{"status":{"count":"x"}}"#,
            r#"{"spec":{"low":7}}"#,
        ],
    },
];

/// The CRD of the Gadgets above.
pub const CRD: &str = r#"{
  "metadata": {"name": "gadgets.random.test"},
  "spec": {
    "group": "random.test", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
      "type": "object",
      "properties": {
        "spec": {
          "type": "object", "default": {},
          "x-kubernetes-validations": [{"rule": "!has(self.high) || !has(self.low) || self.low <= self.high", "message": "low is above high"}],
          "properties": {
            "low": {"type": "integer", "minimum": 0},
            "high": {"type": "integer"},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "fixed": {"type": "string", "maxLength": 10, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "it is fixed"}]},
            "parts": {
              "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
              "items": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "n": {"type": "integer", "default": 7}}}
            },
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 5, "items": {"type": "string", "maxLength": 10}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true}
          }
        },
        "status": {"type": "object", "properties": {
          "phase": {"type": "string", "enum": ["New", "Running"]},
          "count": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "it does not fall"}]}
        }}
      }
    }}}]
  }
}"#;
