//! What may things be called?

/// RFC 1035: as kinds (in lower case), plurals and versions are called. The rule that is broken, if any.
pub fn is_dns_label(name: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if name.len() > 63 {
        broken.push("must be no more than 63 bytes".to_owned());
    }
    let inside = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-';
    let fits = name.starts_with(|one: char| one.is_ascii_lowercase()) && name.chars().all(inside) && !name.ends_with('-');
    if !fits {
        broken.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    broken
}

/// RFC 1123: as groups and most objects are called.
pub fn is_dns_subdomain(name: &str) -> Vec<String> {
    let mut broken = Vec::new();
    if name.len() > 253 {
        broken.push("must be no more than 253 bytes".to_owned());
    }
    if !name.split('.').all(is_label) {
        broken.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    broken
}

/// Lower case letters and digits, dashes in between.
pub fn is_label(part: &str) -> bool {
    let inside = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '-';
    !part.is_empty() && part.chars().all(inside) && !part.starts_with('-') && !part.ends_with('-')
}
