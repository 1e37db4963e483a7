//! Agents among their peers: who lives, and who dies, when what is cut off?

mod clocks;
mod crowds;
mod hall;
mod heritage;
mod lateness;
mod outages;
mod properties;
mod release;
mod stops;
mod votes;
mod yard;
