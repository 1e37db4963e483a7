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

fn exists(root: &Path, (file, test): &(&str, &str)) -> bool {
    let Ok(source) = std::fs::read_to_string(root.join(format!("{file}.rs"))) else { return false };
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let is_test = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    let is_it = |line: &str| line.trim_start_matches("async ").starts_with(&format!("fn {test}("));
    lines.windows(2).any(|two| is_test(two[0]) && is_it(two[1]))
}
