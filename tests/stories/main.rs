//! Whole stories: the real `resus controller` on a real kube-apiserver, broken on purpose.

mod crash;
mod faults;
mod kinds;
mod leader;
mod outside;
mod quiet;
mod stage;
mod thin_path;
