//! Which signs of upgrades and maintenance does the admin want to be looked for?

use std::collections::BTreeSet;

use clap::Args;
use resus_core::upgrade::{Detector, Detectors, MAINTENANCE_ANNOTATIONS, MAINTENANCE_TAINTS, Mark};

/// Nothing of a list.
const NONE: &str = "none";

#[derive(Args)]
pub struct Upgrades {
    /// While one of these sees an upgrade, no remediation is started: cluster-version, machine-config, kubelet-versions,
    /// server-version, kured, plans; and maintenance, which holds for single nodes. Comma-separated, all, or none.
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = detectors)]
    upgrade_detectors: BTreeSet<Detector>,

    /// Annotations of a Node that mean that it is under maintenance, as KEY or KEY=VALUE. Comma-separated, or none.
    #[arg(long, value_name = "LIST", default_value_t = MAINTENANCE_ANNOTATIONS.join(","))]
    maintenance_annotations: String,

    /// Taints of a Node that mean that it is under maintenance, as `KEY[=VALUE][:EFFECT]`. Comma-separated, or none.
    #[arg(long, value_name = "LIST", default_value_t = MAINTENANCE_TAINTS.join(","))]
    maintenance_taints: String,
}

impl Upgrades {
    pub fn detectors(self) -> Result<Detectors, String> {
        let Upgrades { upgrade_detectors, maintenance_annotations, maintenance_taints } = self;
        let named = |flag: &str, error: String| format!("--{flag}: {error}");
        Ok(Detectors {
            on: upgrade_detectors,
            annotations: marks(&maintenance_annotations, annotation).map_err(|error| named("maintenance-annotations", error))?,
            taints: marks(&maintenance_taints, taint).map_err(|error| named("maintenance-taints", error))?,
        })
    }
}

fn detectors(text: &str) -> Result<BTreeSet<Detector>, String> {
    match text {
        "all" => return Ok(Detector::ALL.into()),
        NONE => return Ok(BTreeSet::new()),
        _ => {}
    }
    let known = || Detector::ALL.map(Detector::name).join(", ");
    let detector = |name: &str| {
        let found = Detector::ALL.into_iter().find(|detector| detector.name() == name.trim());
        found.ok_or_else(|| format!("{name:?} is no detector: write all, none, or some of {}", known()))
    };
    text.split(',').map(detector).collect()
}

fn marks(text: &str, mark: impl Fn(&str) -> Result<Mark, String>) -> Result<Vec<Mark>, String> {
    match text {
        NONE => Ok(Vec::new()),
        list => list.split(',').map(|text| mark(text.trim())).collect(),
    }
}

fn annotation(text: &str) -> Result<Mark, String> {
    let (key, value) = split(text, '=');
    Ok(Mark { key: checked(text, key)?, value, effect: None })
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn taint(text: &str) -> Result<Mark, String> {
    let (rest, effect) = split(text, ':');
    let (key, value) = split(rest, '=');
    match &effect {
        Some(effect) if !EFFECTS.contains(&&**effect) => {
            Err(format!("{text:?}: {effect:?} is no effect of a taint: write {}", EFFECTS.join(" or ")))
        }
        Some(_) | None => Ok(Mark { key: checked(text, key)?, value, effect }),
    }
}

fn split(text: &str, at: char) -> (&str, Option<Box<str>>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after.into())))
}

/// A typing error here would silently protect nothing.
fn checked(text: &str, key: &str) -> Result<Box<str>, String> {
    let fits = |part: &str, max: usize| {
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (1..=max).contains(&part.len())
            && part.chars().all(inner)
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let is_key = match key.split_once('/') {
        Some((domain, name)) => fits(domain, 253) && fits(name, 63),
        None => fits(key, 63),
    };
    is_key.then(|| key.into()).ok_or_else(|| format!("{text:?}: {key:?} is no key of an annotation or a taint"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(detectors: &str, annotations: &str, taints: &str) -> Result<Detectors, String> {
        Upgrades {
            upgrade_detectors: super::detectors(detectors)?,
            maintenance_annotations: annotations.into(),
            maintenance_taints: taints.into(),
        }
        .detectors()
    }

    #[test]
    fn lists_say_what_is_looked_for() {
        let defaults = given("all", &MAINTENANCE_ANNOTATIONS.join(","), &MAINTENANCE_TAINTS.join(",")).unwrap();
        assert_eq!(defaults, Detectors::default(), "the flags' defaults are the code's");
        let few = given("kured, plans", "a.io/x=1,b", "k=v:NoExecute,k2:NoSchedule,k3=v").unwrap();
        assert_eq!(few.on, [Detector::Kured, Detector::Plans].into());
        assert_eq!(few.annotations[0], Mark { value: Some("1".into()), ..Mark::any("a.io/x") });
        assert_eq!(few.taints[0], Mark { key: "k".into(), value: Some("v".into()), effect: Some("NoExecute".into()) });
        assert_eq!(few.taints[1], Mark { effect: Some("NoSchedule".into()), ..Mark::any("k2") });
        let none = given("none", "none", "none").unwrap();
        assert!(none.on.is_empty() && none.annotations.is_empty() && none.taints.is_empty());
    }

    #[test]
    fn what_protects_nothing_is_an_error_that_names_the_flag() {
        for (detectors, annotations, taints, said) in [
            ("kurd", "none", "none", "is no detector"),
            ("", "none", "none", "is no detector"),
            ("all", "", "none", "--maintenance-annotations"),
            ("all", "a//b", "none", "--maintenance-annotations"),
            ("all", "none", "k:NoExcute", "--maintenance-taints"),
            ("all", "none", "a,,b", "--maintenance-taints"),
        ] {
            let error = given(detectors, annotations, taints).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
