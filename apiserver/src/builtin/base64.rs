//! Bytes as text, as JSON carries them in Secrets and certificate requests.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            match place <= chunk.len() {
                true => text.push(char::from(ALPHABET[(bits >> (18 - 6 * place)) as usize & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

/// None where the text is not base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(decoded_len(text));
    let letters: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    if !letters.len().is_multiple_of(4) {
        return None;
    }
    for chunk in letters.chunks(4) {
        let padding = chunk.iter().rev().take_while(|letter| **letter == b'=').count();
        let mut bits = 0u32;
        for letter in &chunk[..4 - padding] {
            bits = bits << 6 | u32::try_from(ALPHABET.iter().position(|known| known == letter)?).ok()?;
        }
        bits <<= 6 * padding;
        bytes.extend(&bits.to_be_bytes()[1..4 - padding.min(3)]);
    }
    Some(bytes)
}

pub fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|letter| *letter == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        for (plain, coded) in [("", ""), ("b", "Yg=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")] {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded).unwrap(), plain.as_bytes());
            assert_eq!(decoded_len(coded), plain.len());
        }
        for bad in ["***", "a", "====", "a=bc", "é"] {
            let _ = decode(bad);
        }
        assert_eq!(decode("***="), None);
    }
}
