//! How does Kubernetes write what we decide on, and what we decide?
//!
//! Shapes only, no IO: objects become facts ([`observe`]), lists and watches become inputs ([`feed`]),
//! effects become requests ([`encode`]) and responses become inputs again ([`answer`]). How a source is followed, without
//! sockets and timers, is in [`watcher`].

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
pub mod watcher;
