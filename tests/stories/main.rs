//! Whole stories: the real `resus controller` on a real kube-apiserver, broken on purpose.

mod check_command;
mod crash;
mod default_check;
mod escalation;
mod escalation_faults;
mod faults;
mod guards;
mod kinds;
mod leader;
mod load;
mod machines;
mod openshift;
mod outside;
mod quiet;
mod recovery;
mod rights;
mod rivals;
mod stage;
mod surroundings;
mod thin_path;
mod upgrades;
mod versions;
