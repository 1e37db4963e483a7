//! The images of a Node are half of it, and heartbeats leave them alone: then they are not even parsed.

use serde_json::{Value, json};

/// Stands for the images while the rest of a Node is written; no text of an object contains it, as it would be escaped.
const PLACE: &str = "\"images\":\"\\u0000\"";

/// Splits the text of a stored Node into one without images, and the images.
pub fn split(json: &str) -> Option<(String, &str)> {
    let key = "\"images\":[";
    let begin = json.find(key)?;
    let list = begin + key.len() - 1;
    let end = list + length(&json.as_bytes()[list..])?;
    // With one of the commas beside it.
    let (from, to) = match (json[..begin].ends_with(','), json[end..].starts_with(',')) {
        (true, _) => (begin - 1, end),
        (false, true) => (begin, end + 1),
        (false, false) => (begin, end),
    };
    Some(([&json[..from], &json[to..]].concat(), &json[list..end]))
}

/// Keeps their place in a Node that is about to be written.
pub fn keep_place(node: &mut Value) {
    node["status"]["images"] = json!("\0");
}

/// The text of an object, in memory of just its size: what grows by doubling leaves holes behind.
pub fn text(object: &Value, images: Option<&str>) -> Box<str> {
    // Faster than by Display, which goes through a formatter.
    let text = serde_json::to_string(object).unwrap_or_default();
    match images.and_then(|images| text.split_once(PLACE).map(|(before, after)| [before, "\"images\":", images, after].concat()))
    {
        Some(whole) => whole.into(),
        None => text.as_str().into(),
    }
}

/// Of the list that the text begins with.
fn length(text: &[u8]) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'[' => depth += 1,
            b']' if depth == 1 => return Some(at + 1),
            b']' => depth -= 1,
            b'"' => at = end_of_string(text, at + 1)?,
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where the string ends that began before.
fn end_of_string(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_is_put_together_again() {
        for images in [json!([]), json!([{"names": ["a]\"[", "\\"], "sizeBytes": 1}]), json!([[], [[]]])] {
            for status in [json!({"images": images}), json!({"a": 1, "images": images}), json!({"images": images, "z": [1]})] {
                let node = json!({"metadata": {"annotations": {"x": "\"images\":[1]"}}, "status": status});
                let json = node.to_string();
                let (light, kept) = split(&json).expect("it has images");
                let mut light: Value = serde_json::from_str(&light).expect("it is JSON still");
                assert_eq!(light["status"].get("images"), None);
                keep_place(&mut light);
                assert_eq!(&*text(&light, Some(kept)), json);
            }
        }
        assert_eq!(split(&json!({"status": {"f:images": []}}).to_string()), None);
    }
}
