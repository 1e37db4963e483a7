//! What is decided about machines, on facts alone.

mod audit;
mod clusters;
mod etcd;
mod facts;
mod identity;
mod model;
mod openshift;
mod overlap;
mod owner;
mod pause;
mod table;
mod template;
