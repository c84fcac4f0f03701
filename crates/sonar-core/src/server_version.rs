//! Versions of servers.

/// A version of a server; all 0 if it is unknown.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ServerVersion {
    /// The 4 of 4.2.9.
    pub major: u32,
    /// The 2 of 4.2.9.
    pub minor: u32,
    /// The 9 of 4.2.9.
    pub patch: u32,
}

impl ServerVersion {
    /// The version `major.minor.patch`.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// The version that `buildInfo` states like `4.4.2-rc0`; a part that is not a number is 0.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        Self { major: next(), minor: next(), patch: next() }
    }

    /// Whether it is known.
    pub fn is_known(self) -> bool {
        self != Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        for (text, major, minor, patch) in [
            ("4.4.2", 4, 4, 2),
            ("8.1.0-rc3-12-gabc", 8, 1, 0),
            ("6.0.4-3", 6, 0, 4),
            ("", 0, 0, 0),
            ("x.1", 0, 1, 0),
        ] {
            assert_eq!(ServerVersion::parse(text), ServerVersion { major, minor, patch }, "{text}");
        }
        assert!(ServerVersion::parse("4.10.0") > ServerVersion::new(4, 9, 12));
        assert!(ServerVersion::parse("4.4.2-rc0").is_known() && !ServerVersion::parse("latest").is_known());
    }
}
