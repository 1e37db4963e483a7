//! Is this string a name, a label, a qualified key? And if not, in which words does Kubernetes say so?
//!
//! Each function returns what is wrong, or nothing. All are called on hot paths, so a good value costs no allocation.

pub const SUBDOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
    and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with \
    an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

pub fn subdomain(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        wrong.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !is_subdomain(name) {
        wrong.push(SUBDOMAIN.to_owned());
    }
    wrong
}

pub fn label(name: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > LABEL_MAX {
        wrong.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    match (is_label(name), is_subdomain(name)) {
        (true, _) => {}
        (false, true) => wrong.push("must not contain dots".to_owned()),
        (false, false) => wrong.push(LABEL.to_owned()),
    }
    wrong
}

/// What may stand in a path: the weakest of all rules, which RBAC uses.
pub fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    let bad = ['/', '%'].into_iter().filter(|bad| name.contains(*bad));
    bad.map(|bad| format!("may not contain '{bad}'")).collect()
}

/// Keys of labels and annotations, finalizers, keys of taints: `name` or `prefix/name`.
pub fn qualified(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let (prefix, name) = match key.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            let detail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {detail}")];
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if prefix.len() > SUBDOMAIN_MAX {
                wrong.push(format!("prefix part must be no more than {SUBDOMAIN_MAX} bytes"));
            }
            if !is_subdomain(prefix) {
                wrong.push(format!("prefix part {SUBDOMAIN}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        wrong.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_qualified_part(name) {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > LABEL_MAX {
        wrong.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !is_qualified_part(value) {
        wrong.push(LABEL_VALUE.to_owned());
    }
    wrong
}

/// Keys of ConfigMaps and Secrets, which become names of files.
pub fn config_key(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if key.len() > SUBDOMAIN_MAX {
        wrong.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if key.is_empty() || !key.bytes().all(|byte| is_word(byte) || matches!(byte, b'-' | b'_' | b'.')) {
        wrong.push(CONFIG_KEY.to_owned());
    }
    match key {
        "." | ".." => wrong.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

pub fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}

fn is_label(name: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    lower(*first) && lower(*last) && bytes.iter().all(|byte| lower(*byte) || *byte == b'-')
}

fn is_qualified_part(name: &str) -> bool {
    let bytes = name.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    is_word(*first) && is_word(*last) && bytes.iter().all(|byte| is_word(*byte) || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_says_what_the_real_server_says() {
        let none: [&str; 0] = [];
        assert_eq!(subdomain("a.b-c.1"), none);
        assert_eq!(subdomain("Abc"), [SUBDOMAIN]);
        assert_eq!(subdomain("a..b"), [SUBDOMAIN]);
        assert_eq!(subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(label("A_"), [LABEL]);
        assert_eq!(label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(path_segment("System: X"), none);
        assert_eq!(path_segment("x%y"), ["may not contain '%'"]);
        assert_eq!(path_segment(".."), ["may not be '..'"]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(config_key("."), ["must not be '.'"]);
        assert_eq!(config_key(""), [CONFIG_KEY]);
        assert_eq!(label_value(""), none);
        assert_eq!(label_value(&"_".repeat(64)), ["must be no more than 63 bytes", LABEL_VALUE]);
    }

    #[test]
    fn a_qualified_key_is_judged_part_by_part() {
        let part = format!("name part {QUALIFIED}");
        let empty = ["name part must be non-empty".to_owned(), part.clone()];
        assert_eq!(qualified(""), empty);
        assert_eq!(qualified("x/"), empty);
        assert_eq!(qualified("a b"), [part]);
        assert_eq!(qualified("/c"), ["prefix part must be non-empty"]);
        assert_eq!(qualified("A_/c"), [format!("prefix part {SUBDOMAIN}")]);
        assert_eq!(qualified(&format!("{}/x", "a".repeat(254))), ["prefix part must be no more than 253 bytes"]);
        assert_eq!(qualified(&format!("x/{}", "a".repeat(64))), ["name part must be no more than 63 bytes"]);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist of"));
    }
}
