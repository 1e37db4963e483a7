//! Do the documents speak of tests that exist?

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn every_test_that_the_documents_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the package is two folders below the root");
    let page = |name: &str| std::fs::read_to_string(root.join("docs").join(name)).expect("the page exists");
    let pages = ["reference-bugs.md", "security.md"].map(page).concat();
    let named: BTreeSet<(&str, &str)> = pages.split('`').filter_map(|word| word.split_once(".rs::")).collect();
    assert!(named.len() > 40, "only {} tests are named", named.len());
    let missing: Vec<String> =
        named.into_iter().filter(|named| !exists(root, named)).map(|(file, test)| format!("{file}.rs::{test}")).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Neither does an alert wait for a metric that nobody exports, nor is one exported that nobody can look up.
#[test]
fn every_metric_is_documented_and_alerts_rest_on_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the package is two folders below the root");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|why| panic!("{path}: {why}"));
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let prefixes = ["resus_", "mapi_", "nodehealthcheck_", "process_"];
    let metrics = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !is_part(c)).filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
        words.filter(|word| !word.ends_with('_')).map(str::to_owned).collect()
    };
    let documented: BTreeSet<String> = metrics(&read("docs/operating.md"));
    let alerts = metrics(&read("deploy/alerts.yaml"));
    let unknown: Vec<&String> = alerts.difference(&documented).collect();
    assert!(alerts.len() > 4 && unknown.is_empty(), "{unknown:?}");
    // As they are registered, without the units and ends that the format adds.
    let code =
        ["telemetry", "gates", "machines", "remediations", "process"].map(|file| read(&format!("driver/src/{file}.rs"))).concat();
    let registered: Vec<&str> = code.split('"').filter(|text| !text.is_empty() && text.chars().all(is_part)).collect();
    let is_registered = |metric: &&String| {
        let plain = metric.strip_suffix("_total").or(metric.strip_suffix("_info")).unwrap_or(metric);
        let plain = [plain, plain.strip_suffix("_seconds").unwrap_or(plain)];
        registered.iter().any(|own| own.len() > 4 && plain.iter().any(|plain| plain.ends_with(own)))
    };
    let invented: Vec<&String> = documented.iter().filter(|metric| !is_registered(metric)).collect();
    assert!(invented.is_empty(), "nobody exports {invented:?}");
}

fn exists(root: &Path, (file, test): &(&str, &str)) -> bool {
    let Ok(source) = std::fs::read_to_string(root.join(format!("{file}.rs"))) else { return false };
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let is_test = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    let is_it = |line: &str| line.trim_start_matches("async ").starts_with(&format!("fn {test}("));
    lines.windows(2).any(|two| is_test(two[0]) && is_it(two[1]))
}
