//! Is a number within the limits of its schema?

use serde_json::Number;

use crate::structural::rules::Rules;
use crate::structural::validate::Verdict;

pub fn check(number: &Number, rules: &Rules, path: &str) -> Verdict {
    let mut verdict = Verdict { passed: 1, ..Verdict::default() };
    let range = Range::of(rules);
    if let Some(fault) = range.fault("Checked", number.as_f64().unwrap_or_default(), path) {
        verdict.bare(fault);
    }
    match number.as_i64() {
        Some(whole) => whole_number(&mut verdict, whole, rules, &range, path),
        None => fraction(&mut verdict, number.as_f64().unwrap_or_default(), rules, &range, path),
    }
    verdict
}

/// As Go prints a float: whole ones without a fraction.
pub fn printed(number: &Number) -> String {
    number.as_f64().map_or_else(|| number.to_string(), |float| float.to_string())
}

/// What the type and format of a schema can hold.
struct Range<'a> {
    kind: &'a str,
    format: &'a str,
}

impl Range<'_> {
    fn of(rules: &Rules) -> Range<'_> {
        let [kind] = rules.types.as_slice() else { return Range { kind: "", format: "" } };
        Range { kind, format: rules.format.as_deref().unwrap_or_default() }
    }

    fn fault(&self, what: &str, value: f64, path: &str) -> Option<String> {
        let holds = match (self.kind, self.format) {
            ("integer", "int32") => value.fract() == 0.0 && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX),
            ("integer", _) => value.fract() == 0.0 && value.abs() <= i64::MAX as f64,
            ("number", "float") => value.abs() <= f64::from(f32::MAX),
            (_, _) => true,
        };
        let said = match self.format {
            "" => format!("{what} value must be of type {} (default format) in {path}", self.kind),
            format => format!("{what} value must be of type {} with format {format} in {path}", self.kind),
        };
        (!holds).then_some(said)
    }
}

/// Whole values are compared with whole limits, as the API server does, even where the limit is a fraction.
fn whole_number(verdict: &mut Verdict, value: i64, rules: &Rules, range: &Range, path: &str) {
    if let Some(factor) = rules.multiple_of {
        match range.fault("MultipleOf", factor, path) {
            Some(fault) => {
                verdict.bare(fault);
                multiple(verdict, value as f64, factor, path);
            }
            None if factor as i64 <= 0 => not_positive(verdict, &(factor as i64).to_string(), path),
            None if value % (factor as i64) != 0 => {
                verdict.invalid(path, value, format!("{path} in body should be a multiple of {}", factor as i64));
            }
            None => {}
        }
    }
    if let Some(least) = rules.minimum {
        let fault = range.fault("Minimum boundary", least, path);
        let limit = if fault.is_some() { least.to_string() } else { (least as i64).to_string() };
        let whole = least as i64;
        let below = if rules.exclusive_minimum { value <= whole } else { value < whole };
        let below_fraction = if rules.exclusive_minimum { value as f64 <= least } else { (value as f64) < least };
        fault.clone().into_iter().for_each(|fault| verdict.bare(fault));
        if if fault.is_some() { below_fraction } else { below } {
            verdict.invalid(path, value, too_small(path, &limit, rules));
        }
    }
    if let Some(most) = rules.maximum {
        let fault = range.fault("Maximum boundary", most, path);
        let limit = if fault.is_some() { most.to_string() } else { (most as i64).to_string() };
        let whole = most as i64;
        let above = if rules.exclusive_maximum { value >= whole } else { value > whole };
        let above_fraction = if rules.exclusive_maximum { value as f64 >= most } else { (value as f64) > most };
        fault.clone().into_iter().for_each(|fault| verdict.bare(fault));
        if if fault.is_some() { above_fraction } else { above } {
            verdict.invalid(path, value, too_large(path, &limit, rules));
        }
    }
}

fn fraction(verdict: &mut Verdict, value: f64, rules: &Rules, range: &Range, path: &str) {
    if let Some(factor) = rules.multiple_of {
        range.fault("MultipleOf", factor, path).into_iter().for_each(|fault| verdict.bare(fault));
        multiple(verdict, value, factor, path);
    }
    if let Some(least) = rules.minimum {
        range.fault("Minimum boundary", least, path).into_iter().for_each(|fault| verdict.bare(fault));
        if if rules.exclusive_minimum { value <= least } else { value < least } {
            verdict.invalid(path, value, too_small(path, &least.to_string(), rules));
        }
    }
    if let Some(most) = rules.maximum {
        range.fault("Maximum boundary", most, path).into_iter().for_each(|fault| verdict.bare(fault));
        if if rules.exclusive_maximum { value >= most } else { value > most } {
            verdict.invalid(path, value, too_large(path, &most.to_string(), rules));
        }
    }
}

fn multiple(verdict: &mut Verdict, value: f64, factor: f64, path: &str) {
    let times = if factor < 1.0 { 1.0 / factor * value } else { value / factor };
    if factor <= 0.0 {
        not_positive(verdict, &factor.to_string(), path);
    } else if (times - times.round()).abs() > times.abs().max(1.0) * f64::EPSILON {
        verdict.invalid(path, value, format!("{path} in body should be a multiple of {factor}"));
    }
}

fn not_positive(verdict: &mut Verdict, factor: &str, path: &str) {
    verdict.invalid(path, factor, format!("factor MultipleOf declared for {path} must be positive: {factor}"));
}

fn too_small(path: &str, limit: &str, rules: &Rules) -> String {
    let or_equal = if rules.exclusive_minimum { "" } else { " or equal to" };
    format!("{path} in body should be greater than{or_equal} {limit}")
}

fn too_large(path: &str, limit: &str, rules: &Rules) -> String {
    let or_equal = if rules.exclusive_maximum { "" } else { " or equal to" };
    format!("{path} in body should be less than{or_equal} {limit}")
}
