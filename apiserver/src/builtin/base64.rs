//! Bytes as text, as JSON carries them in Secrets and certificate requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// None where the text is not base64; lines may be broken.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let letters: String = text.chars().filter(|letter| !matches!(letter, '\n' | '\r')).collect();
    STANDARD.decode(letters).ok()
}

pub fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|letter| *letter == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}
