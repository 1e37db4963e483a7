//! How does Kubernetes write what we decide on, and what we decide?
//!
//! Shapes only, no IO: objects become facts ([`observe`]), lists and watches become inputs ([`feed`]),
//! effects become requests ([`encode`]) and responses become inputs again ([`answer`]).

pub mod answer;
pub mod crd;
pub mod encode;
pub mod feed;
pub mod limits;
pub mod names;
pub mod observe;
pub mod quantity;
pub mod rbac;
pub mod signal;
