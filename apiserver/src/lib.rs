//! An in-memory Kubernetes API, sans-IO: [`Server::handle`] takes a request and the time and returns an answer or a
//! [`Watch`]; nothing here opens a socket or reads a clock. It knows JSON and schemas, not what resus does with them.

mod access;
mod admission;
mod apply;
mod aside;
mod ask;
mod builtin;
mod cel;
mod crd;
mod delete;
mod discovery;
mod json;
mod openapi;
mod patch;
mod precondition;
mod present;
mod read;
mod refusal;
mod resource;
mod rng;
mod route;
mod rules;
mod schema;
mod select;
mod server;
mod store;
mod structural;
mod subresource;
mod table;
mod tend;
mod watch;
mod wire;
mod write;

pub use server::{Reply, Server};
pub use watch::{Followed, Watch};
