//! Does an object fit its schema? Unknown fields, defaults, types, and what CRDs demand of values.

mod decode;
mod default;
mod embedded;
mod empty;
mod formats;
mod go_time;
mod lists;
mod names;
mod numbers;
mod pattern;
mod prune;
mod rules;
#[cfg(test)]
mod tests;
mod validate;

pub use decode::{decode, is_text_type};
pub use default::default;
pub use empty::drop_empty;
pub(crate) use names::{is_dns_label, is_dns_subdomain};
pub(crate) use pattern::compile as compile_pattern;
pub use prune::prune;
pub use rules::Rules;
pub(crate) use validate::fit;
pub use validate::{validate, validate_status};
