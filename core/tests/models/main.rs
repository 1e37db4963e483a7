//! All that can happen in small clusters: searched to the end, with the same code that runs in production.
//!
//! Each model has clocks of a few ticks, a budget of faults, and properties that must always hold, or be reached sometimes: a fault
//! that is never reached proves nothing. docs/fencing.md says what each of them shows, and why they suffice together.
mod host;
mod life;
mod promise;
mod release;
