//! Does a string have the format that its schema names?

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use crate::structural::go_time::days_in;
use crate::structural::names::is_label;

/// Formats of strings that the API server knows, without their dashes. Others are ignored.
const OF_STRINGS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether a format means anything for these types.
pub fn is_checked(format: &str, types: &[String]) -> bool {
    let kind = match types {
        [one] => one.as_str(),
        _ => "",
    };
    match kind {
        "" | "string" => OF_STRINGS.contains(&format.replace('-', "").as_str()),
        "integer" => ["int32", "int64"].contains(&format),
        "number" => ["float", "double"].contains(&format),
        _ => false,
    }
}

/// Of isbn, creditcard, ssn and rgbcolor only the name is known here: no kind of a cluster has such fields.
pub fn holds(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && is_hex(text),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && (sloppy_ipv4(text) || text.parse::<Ipv6Addr>().is_ok()),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => is_uuid(text, None, ""),
        "uuid3" => is_uuid(text, Some('3'), ""),
        "uuid4" => is_uuid(text, Some('4'), "89ab"),
        "uuid5" => is_uuid(text, Some('5'), "89ab"),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            [3, 6].contains(&digits.len()) && is_hex(digits)
        }
        "byte" => is_base64(text),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "datetime" => is_date_time(text),
        "k8sshortname" => text.len() <= 63 && is_label(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_label),
        _ => true,
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|one| one.is_ascii_hexdigit())
}

/// An absolute path or a URI with a scheme, as Go's `url.ParseRequestURI` takes it.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|one| one.is_ascii_control()) {
        return false;
    }
    let has_scheme = |scheme: &str| {
        let inside = |one: char| one.is_ascii_alphanumeric() || "+-.".contains(one);
        scheme.starts_with(|one: char| one.is_ascii_alphabetic()) && scheme.chars().all(inside)
    };
    let rest = match text.split_once(':') {
        Some(("", _)) => return false,
        Some((scheme, rest)) if has_scheme(scheme) && !rest.starts_with('/') => return !rest.is_empty(),
        Some((scheme, rest)) if has_scheme(scheme) => rest,
        Some(_) | None => text,
    };
    let path = match rest.strip_prefix("//").filter(|_| rest.len() < text.len()) {
        None => rest,
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let host = rest[..end].rsplit('@').next().unwrap_or_default();
            if host.contains([' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}']) || !has_port(host) {
                return false;
            }
            return has_whole_escapes(&rest[end..]);
        }
    };
    path == "*" || (path.starts_with('/') && has_whole_escapes(path))
}

fn has_port(host: &str) -> bool {
    let after = host.rsplit(']').next().unwrap_or_default();
    after.split_once(':').is_none_or(|(_, port)| port.bytes().all(|one| one.is_ascii_digit()))
}

fn has_whole_escapes(text: &str) -> bool {
    let path = text.split('?').next().unwrap_or_default();
    path.split('%').skip(1).all(|after| after.get(..2).is_some_and(is_hex))
}

fn is_email(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>').and_then(|inside| inside.split_once('<')) {
        Some((_, address)) => address,
        None => text.trim(),
    };
    let is_atom = |part: &str| {
        let inside = |one: char| one.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(one) || !one.is_ascii();
        !part.is_empty() && part.chars().all(inside)
    };
    let dotted = |part: &str| part.split('.').all(is_atom);
    address.rsplit_once('@').is_some_and(|(local, domain)| {
        let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
        (is_quoted || dotted(local)) && dotted(domain)
    })
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let letter = r"[a-zA-Z0-9\p{S}\p{L}]";
    let inner = r"[a-zA-Z0-9\-\p{S}\p{L}]";
    let dotted = format!(r"({letter}(({inner}{{0,61}}{letter})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}}");
    Regex::new(&format!("^({letter}((-?{letter}{{0,62}})?)|{dotted})$")).expect("it is a constant, and tested")
});

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|part| part.len() <= 63) && HOSTNAME.is_match(text)
}

/// Go tolerates zeros in front here, as it once did everywhere.
fn sloppy_ipv4(text: &str) -> bool {
    let parts: Vec<String> = text.split('.').map(|part| part.trim_start_matches('0').to_owned()).collect();
    let filled = parts.iter().zip(text.split('.')).map(|(part, whole)| match (part.as_str(), whole) {
        ("", "") => "x",
        ("", _) => "0",
        (part, _) => part,
    });
    filled.collect::<Vec<_>>().join(".").parse::<Ipv4Addr>().is_ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits = Some(bits).filter(|bits| !bits.starts_with('+')).and_then(|bits| bits.parse::<u8>().ok());
    let most = if sloppy_ipv4(address) { 32 } else { 128 };
    let is_address = most == 32 || address.parse::<Ipv6Addr>().is_ok();
    is_address && bits.is_some_and(|bits| bits <= most)
}

fn is_mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ => ('.', 4),
    };
    let parts: Vec<&str> = text.split(separator).collect();
    [6, 8, 20].contains(&(parts.len() * width / 2)) && parts.iter().all(|part| part.len() == width && is_hex(part))
}

/// Dashes may be left out; `version` is the first digit of the third group, `variant` those that begin the fourth.
fn is_uuid(text: &str, version: Option<char>, variant: &str) -> bool {
    let mut rest = text;
    for (index, width) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        let Some(group) = rest.get(..width).filter(|group| is_hex(group)) else { return false };
        let first = group.chars().next().unwrap_or_default().to_ascii_lowercase();
        if index == 2 && version.is_some_and(|version| version != first) {
            return false;
        }
        if index == 3 && !variant.is_empty() && !variant.contains(first) {
            return false;
        }
        rest = &rest[width..];
        rest = if index < 4 { rest.strip_prefix('-').unwrap_or(rest) } else { rest };
    }
    rest.is_empty()
}

/// Not empty, with its padding.
fn is_base64(text: &str) -> bool {
    let bare = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let inside = |one: u8| one.is_ascii_alphanumeric() || one == b'+' || one == b'/';
    !bare.is_empty() && text.len().is_multiple_of(4) && bare.bytes().all(inside)
}

fn is_date(text: &str) -> bool {
    let number = |range: std::ops::Range<usize>| {
        let part = text.get(range)?;
        part.bytes().all(|one| one.is_ascii_digit()).then(|| part.parse::<u32>().ok())?
    };
    let dashes = text.len() == 10 && text.as_bytes()[4] == b'-' && text.as_bytes()[7] == b'-';
    let parts = (number(0..4), number(5..7), number(8..10));
    let (true, (Some(year), Some(month), Some(day))) = (dashes, parts) else { return false };
    (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month)
}

static TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").expect("it is a constant")
});

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && TIME.captures(time).is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

/// As Go writes durations, or in words: `3 days`.
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || in_words(text)
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut found = false;
    while !rest.is_empty() {
        let number = rest.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        let unit = after.find(|one: char| one.is_ascii_digit() || one == '.').unwrap_or(after.len());
        let is_number = digits.matches('.').count() <= 1 && digits.bytes().any(|one| one.is_ascii_digit());
        if !is_number || !["ns", "us", "µs", "μs", "ms", "s", "m", "h"].contains(&&after[..unit]) {
            return false;
        }
        found = true;
        rest = &after[unit..];
    }
    found
}

static IN_WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[0-9]+[\t\n\x0c\r ]*([A-Za-zµ]+)").expect("it is a constant"));

fn in_words(text: &str) -> bool {
    const SHORT: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const LONG: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    IN_WORDS.captures_iter(text).any(|found| {
        let unit = found[1].to_lowercase();
        SHORT.contains(&unit.as_str()) || LONG.iter().any(|long| unit.starts_with(long))
    })
}
