//! Bytes as hexadecimal digits.

/// Two lower-case digits for each byte.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes that these digits, and nothing else, stand for.
pub(crate) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        for digit in digits {
            let value = char::from(*digit).to_digit(16)?;
            *byte = *byte << 4 | u8::try_from(value).ok()?;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_are_written_and_nothing_else_is() {
        let bytes = [0x00, 0x7f, 0xa5, 0xff];
        assert_eq!(encode(&bytes), "007fa5ff");
        assert_eq!(decode("007FA5ff"), Some(bytes));
        for wrong in ["007fa5f", "007fa5ff0", "007fa5fg", "+07fa5ff", "007fé5f"] {
            assert_eq!(decode::<4>(wrong), None, "{wrong}");
        }
    }
}
