//! The arithmetic of shape ids: a Merkle hash over 64-bit words.
//!
//! It is not cryptographic. It is fixed, the same on every platform, and quick enough for every element of every
//! query. All input bytes are read as little-endian words.

use sonar_core::shape::RULES_VERSION;

use crate::bson::Key;

/// Odd constants with well spread bits: the fractional parts of square roots of primes.
const SALT: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// The beginning of every id.
pub const SEED: u64 = mix(SALT[3], RULES_VERSION as u64);

/// Mixes two words, whose order matters: the two halves of their 128-bit product, folded.
#[inline]
pub const fn mix(a: u64, b: u64) -> u64 {
    let product = ((a ^ SALT[0]) as u128).wrapping_mul((b.rotate_left(23) ^ SALT[1]) as u128);
    (product as u64) ^ ((product >> 64) as u64) ^ SALT[2]
}

/// A constant of the rules, by number.
pub const fn tag(number: u64) -> u64 {
    mix(SEED, number)
}

/// Hash of a key as it is.
#[inline]
pub fn key(key: &Key<'_>) -> u64 {
    let first = mix(key.word, key.bytes.len() as u64);
    if key.bytes.len() <= 8 { first } else { words(first, &key.bytes[8..]) }
}

/// Hash of bytes; equal to [`key()`] of the same bytes.
pub fn bytes(bytes: &[u8]) -> u64 {
    key(&Key::new(bytes))
}

#[inline]
fn words(mut hash: u64, rest: &[u8]) -> u64 {
    let mut chunks = rest.chunks_exact(8);
    for chunk in &mut chunks {
        hash = mix(hash, chunk.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word)));
    }
    mix(hash, crate::bson::word_of(chunks.remainder()))
}

/// Hash of a path in which numbers and object ids stand for any other: `users.507f….3` gives the same as
/// `users.<id>.<n>`.
#[inline]
pub fn path(path: &Key<'_>) -> u64 {
    if may_hold_variable_parts(path) && path.bytes.split(|&byte| byte == b'.').any(is_variable) {
        bytes(&normalised(path.bytes))
    } else {
        key(path)
    }
}

/// Whether a path may have a part that is a number or an object id. Cheap; only a yes can be wrong.
#[inline]
fn may_hold_variable_parts(path: &Key<'_>) -> bool {
    let first = path.word as u8;
    if first.is_ascii_digit() || path.bytes.len() >= 24 {
        return true;
    }
    const LOW: u64 = 0x0101_0101_0101_0101;
    let dots = path.word ^ (LOW * b'.' as u64);
    let has_dot = dots.wrapping_sub(LOW) & !dots & 0x8080_8080_8080_8080 != 0;
    has_dot || (path.bytes.len() > 8 && path.bytes[8..].contains(&b'.'))
}

/// Whether a part of a path is a number or an object id.
fn is_variable(part: &[u8]) -> bool {
    is_number(part) || is_object_id(part)
}

fn is_number(part: &[u8]) -> bool {
    !part.is_empty() && part.iter().all(u8::is_ascii_digit)
}

fn is_object_id(part: &[u8]) -> bool {
    part.len() == 24 && part.iter().all(u8::is_ascii_hexdigit)
}

/// The path with its variable parts as `<n>` and `<id>`.
pub fn normalised(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (i, part) in path.split(|&byte| byte == b'.').enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        if is_number(part) {
            out.extend_from_slice(b"<n>");
        } else if is_object_id(part) {
            out.extend_from_slice(b"<id>");
        } else {
            out.extend_from_slice(part);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stands_for_any_number_and_any_object_id() {
        let of = |text: &str| path(&Key::new(text.as_bytes()));
        assert_eq!(of("users.507f1f77bcf86cd799439011.3"), of("users.507f191e810c19729de860ea.12"));
        assert_eq!(of("a.0"), of("a.17"));
        assert_eq!(of("0"), of("1"));
        assert_eq!(of("507f1f77bcf86cd799439011"), of("507f191e810c19729de860ea"));
        assert_ne!(of("a.b0"), of("a.b1"));
        assert_ne!(of("a.b"), of("ab"));
        assert_ne!(of("a."), of("a"));
        assert_eq!(normalised(b"users.507f1f77bcf86cd799439011.3.x"), b"users.<id>.<n>.x");
    }

    #[test]
    fn the_id_of_known_bytes_never_changes() {
        // Computed once. A change of these changes every id, and needs a new RULES_VERSION.
        assert_eq!(bytes(b""), mix(0, 0));
        assert_eq!(bytes(b"country"), mix(u64::from_le_bytes(*b"country\0"), 7));
        assert_ne!(bytes(b"abcdefgh"), bytes(b"abcdefgh\0"));
    }
}
