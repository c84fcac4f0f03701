//! Numbers as bytes: what blobs consist of.

use super::blob::BlobError;

/// The largest count that is read. Sums of any number of windows that fits on a disk do not overflow.
pub(super) const MAX_COUNT: u64 = 1 << 48;

/// Bytes that are being written.
#[derive(Default)]
pub(super) struct BlobWriter(pub Vec<u8>);

impl BlobWriter {
    pub fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// LEB128.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A count that the reader will add up.
    pub fn count(&mut self, value: u64) {
        self.varint(value.min(MAX_COUNT));
    }

    /// A count that is usually the same as another one.
    pub fn near(&mut self, value: u64, other: u64) {
        self.zigzag(value.min(MAX_COUNT).wrapping_sub(other.min(MAX_COUNT)) as i64);
    }

    /// A signed number, small if it is near 0.
    pub fn zigzag(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// A 128-bit number as two.
    pub fn wide(&mut self, value: u128) {
        self.varint(value as u64);
        self.varint((value >> 64) as u64);
    }

    /// A floating-point number: whole numbers and thousandths are short.
    pub fn float(&mut self, value: f64) {
        for (tag, scale) in [(0, 1.0), (1, 1_000.0)] {
            let scaled = (value * scale).round() as i64;
            // Also false for -0, infinity and NaN.
            if scaled.unsigned_abs() < 1 << 52 && (scaled as f64 / scale).to_bits() == value.to_bits() {
                return self.varint((((scaled << 1) ^ (scaled >> 63)) as u64) << 2 | tag);
            }
        }
        self.varint(2);
        self.bytes(&value.to_bits().to_le_bytes());
    }

    /// Another sequence of bytes with its length.
    pub fn section(&mut self, other: &Self) {
        self.varint(other.0.len() as u64);
        self.bytes(&other.0);
    }
}

/// Bytes that are being read. Every read fails at their end.
pub(super) struct BlobReader<'a>(pub &'a [u8]);

type Read<T> = Result<T, BlobError>;

impl<'a> BlobReader<'a> {
    pub fn byte(&mut self) -> Read<u8> {
        let (first, rest) = self.0.split_first().ok_or(BlobError::Cut)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn bytes(&mut self, len: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BlobError::Cut)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `len` numbers without consuming them; `None` if one of them is longer than a byte.
    pub fn single_bytes(&self, len: usize) -> Option<&'a [u8]> {
        self.0.get(..len).filter(|bytes| bytes.iter().all(|byte| *byte < 0x80))
    }

    /// What follows the next `len` bytes.
    pub fn after(&self, len: usize) -> Self {
        Self(self.0.get(len..).unwrap_or_default())
    }

    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(BlobError::Cut)?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    pub fn varint(&mut self) -> Read<u64> {
        match self.0 {
            // Most are small.
            [byte, rest @ ..] if *byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Read<u64> {
        let mut value = 0u64;
        for (at, byte) in self.0.iter().enumerate() {
            let bits = u64::from(byte & 0x7f);
            if at == 9 && *byte > 1 {
                return Err(BlobError::Impossible("a number of more than 64 bits"));
            }
            value |= bits << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(BlobError::Cut)
    }

    pub fn zigzag(&mut self) -> Read<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub fn wide(&mut self) -> Read<u128> {
        Ok(u128::from(self.varint()?) | u128::from(self.count()?) << 64)
    }

    pub fn float(&mut self) -> Read<f64> {
        let value = self.varint()?;
        let scaled = (value >> 3) as i64 ^ -((value >> 2 & 1) as i64);
        match value & 3 {
            0 => Ok(scaled as f64),
            1 => Ok(scaled as f64 / 1_000.0),
            2 => Ok(f64::from_bits(u64::from_le_bytes(self.array()?))),
            _ => Err(BlobError::Impossible("a kind of number")),
        }
    }

    /// A count or a sum that will be added up.
    pub fn count(&mut self) -> Read<u64> {
        let value = self.varint()?;
        if value > MAX_COUNT {
            return Err(BlobError::Impossible("a count"));
        }
        Ok(value)
    }

    /// A count as [`BlobWriter::near`] writes it.
    pub fn near(&mut self, other: u64) -> Read<u64> {
        let value = other.wrapping_add(self.zigzag()? as u64);
        if value > MAX_COUNT { Err(BlobError::Impossible("a count")) } else { Ok(value) }
    }

    /// The number of elements that follow, each of at least one byte.
    pub fn len(&mut self) -> Read<usize> {
        let len = self.varint()?;
        if len > self.0.len() as u64 {
            return Err(BlobError::Cut);
        }
        Ok(len as usize)
    }

    pub fn section(&mut self) -> Read<Self> {
        let len = self.len()?;
        Ok(Self(self.bytes(len)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_survive(unsigned in any::<u64>(), signed in any::<i64>(), wide in any::<u64>(), float in any::<f64>()) {
            let wide = u128::from(wide) << 30;
            let mut out = BlobWriter::default();
            out.varint(unsigned);
            out.zigzag(signed);
            out.wide(wide);
            for value in [float, float.trunc(), (float * 1e3).trunc() / 1e3, signed as f64, signed as f64 / 1e6] {
                out.float(value);
            }
            let mut read = BlobReader(&out.0);
            prop_assert_eq!((read.varint().unwrap(), read.zigzag().unwrap(), read.wide().unwrap()), (unsigned, signed, wide));
            for value in [float, float.trunc(), (float * 1e3).trunc() / 1e3, signed as f64, signed as f64 / 1e6] {
                prop_assert_eq!(read.float().unwrap().to_bits(), value.to_bits());
            }
            prop_assert_eq!(read.varint(), Err(BlobError::Cut));
        }
    }

    #[test]
    fn floats_that_are_no_fractions_are_short_and_exact() {
        for (value, bytes) in
            [(0.0, 1), (-0.0, 9), (7.0, 1), (0.25, 2), (12.345, 3), (1e300, 9), (f64::NAN, 9)]
        {
            let mut out = BlobWriter::default();
            out.float(value);
            assert_eq!(out.0.len(), bytes, "{value}");
            assert_eq!(BlobReader(&out.0).float().unwrap().to_bits(), value.to_bits());
        }
    }
}
