//! Version and cipher suite of a TLS connection.

use std::fmt;

/// What the server chose when the connection began, by the numbers of the protocol (RFC 8446, section 4.1.3); both are 0
/// if that was not seen.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsSuite {
    /// The version: 0x0303 is TLS 1.2.
    pub version: u16,
    /// The cipher suite, as IANA has registered it.
    pub cipher: u16,
}

/// The suites that servers choose today, by number. Source: the TLS Cipher Suites registry of IANA.
const NAMES: &[(u16, &str)] = &[
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x003d, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x006b, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x009e, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009f, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccaa, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

impl TlsSuite {
    /// The suite in the fields of a ServerHello, whose version field says 1.2 where it means 1.3.
    pub const fn of_server_hello(version: u16, cipher: u16) -> Self {
        Self { version: if cipher >> 8 == 0x13 { 0x0304 } else { version }, cipher }
    }

    /// Whether it was seen.
    pub const fn is_known(self) -> bool {
        self.version != 0
    }

    /// The name of the version; `None` if it is unknown or none that exists.
    pub const fn version_name(self) -> Option<&'static str> {
        match self.version {
            0x0301 => Some("TLSv1.0"),
            0x0302 => Some("TLSv1.1"),
            0x0303 => Some("TLSv1.2"),
            0x0304 => Some("TLSv1.3"),
            _ => None,
        }
    }

    /// The name of the cipher suite, or its number; `None` if it is unknown.
    pub fn cipher_name(self) -> Option<String> {
        let named = NAMES.iter().find(|(number, _)| *number == self.cipher);
        let name = || named.map_or_else(|| format!("{:#06x}", self.cipher), |(_, name)| (*name).to_owned());
        self.is_known().then(name)
    }
}

impl fmt::Display for TlsSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.version_name(), self.cipher_name()) {
            (Some(version), Some(cipher)) => write!(f, "{version} {cipher}"),
            _ => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_their_names_and_others_their_numbers() {
        let shown = |version, cipher| TlsSuite::of_server_hello(version, cipher).to_string();
        assert_eq!(shown(0x0303, 0x1302), "TLSv1.3 TLS_AES_256_GCM_SHA384");
        assert_eq!(shown(0x0303, 0xc02f), "TLSv1.2 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
        assert_eq!(shown(0x0302, 0x00ff), "TLSv1.1 0x00ff");
        assert_eq!(shown(0x7f12, 0x002f), "unknown");
        assert_eq!(TlsSuite::default().to_string(), "unknown");
        assert_eq!(TlsSuite::default().cipher_name(), None);
        assert!(NAMES.is_sorted_by_key(|(number, _)| number));
    }
}
