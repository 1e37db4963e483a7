//! How does a story run against real Kubernetes parts, and how does it break them?
//!
//! A story starts a [`Cluster`] (etcd, kube-apiserver and, where it matters, kube-controller-manager), starts the
//! program under test as a [`Process`], puts a [`Proxy`] between the two where requests must be lost or late, and
//! waits for what should come true with [`until`]. Nothing outlives the test, however the test ends.

mod audit;
mod birth;
mod cluster;
mod kubeconfig;
mod parts;
mod port;
mod process;
mod proxy;
mod rights;
mod rule;
mod skip;
mod until;
mod upstream;

pub use audit::AuditEntry;
pub use cluster::{Builder, Cluster};
pub use parts::Part;
pub use process::{Process, Said, run};
pub use proxy::{Proxy, Request};
pub use rights::{Exercised, exercised, rights_file};
pub use rule::{Action, Asked, Draft, Rule};
pub use skip::{cluster_api, cluster_or_skip, previous_or_skip, skip};
pub use until::{holds_for, until};
pub use upstream::Upstream;
