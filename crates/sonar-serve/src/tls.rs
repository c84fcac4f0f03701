//! TLS: the certificate of a page, and connections that are encrypted with it.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;

/// The most bytes of an answer that a connection holds in encrypted form until they are taken.
const MAX_UNSENT: usize = 32 << 10;

/// Why a certificate and its key cannot be used. Nothing of the key is in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageTlsError {
    /// There is no certificate.
    #[error(
        "it has no certificate in PEM (-----BEGIN CERTIFICATE-----): write that of the page first, then those of the \
         authorities between"
    )]
    NoCertificate,
    /// One cannot be read.
    #[error("its certificate is damaged: {0}")]
    DamagedCertificate(String),
    /// There is no key.
    #[error("it has no private key in PEM (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
    /// The key takes a password, which nobody is here to type.
    #[error("its key is encrypted with a password: write one without, for its owner only, by `openssl pkey`")]
    EncryptedKey,
    /// The key cannot be read.
    #[error("its key is damaged")]
    DamagedKey,
    /// The key is of another kind.
    #[error(
        "its key is of a kind that is not supported: take RSA of 2,048 bits or more, ECDSA (P-256, P-384) or Ed25519"
    )]
    UnsupportedKey,
    /// The key is not that of the certificate.
    #[error("its key is not that of the first certificate")]
    Mismatch,
    /// Anything else.
    #[error("they cannot be used: {0}")]
    Other(String),
}

impl PageTlsError {
    /// Whether it is about the file with the key.
    pub const fn is_about_key(&self) -> bool {
        !matches!(self, Self::NoCertificate | Self::DamagedCertificate(_))
    }
}

/// The certificate of a page, and its key.
#[derive(Clone)]
pub struct PageTls(TlsAcceptor);

impl fmt::Debug for PageTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageTls")
    }
}

impl PageTls {
    /// Reads certificates, that of the page first, and the key, in PEM.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, PageTlsError> {
        let read = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let cut = |_| PageTlsError::DamagedCertificate("its PEM is cut, or was changed".to_owned());
        let chain = read.map_err(cut)?;
        if chain.is_empty() {
            return Err(PageTlsError::NoCertificate);
        }
        let key = read_key(key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|error| match error {
            Error::InconsistentKeys(_) => PageTlsError::Mismatch,
            Error::InvalidCertificate(why) => PageTlsError::DamagedCertificate(why.to_string()),
            // What the library says of a key that it does not know.
            Error::General(_) => PageTlsError::UnsupportedKey,
            other => PageTlsError::Other(other.to_string()),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Agrees with a client on how a connection is encrypted.
    ///
    /// # Errors
    /// The client speaks no TLS, none that is supported, or does not trust the certificate; or the connection ended.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        self.0.accept_with(stream, |connection| connection.set_buffer_limit(Some(MAX_UNSENT))).await
    }
}

fn read_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, PageTlsError> {
    const ENCRYPTED: &[u8] = b"ENCRYPTED";
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        // As a kind of key, or as a property of one.
        _ if text.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) => PageTlsError::EncryptedKey,
        PemError::NoItemsFound => PageTlsError::NoKey,
        _ => PageTlsError::DamagedKey,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../../fixtures/page-tls/certificate.pem");
    const KEY: &[u8] = include_bytes!("../../../fixtures/page-tls/key.pem");
    const OTHER_KEY: &[u8] = include_bytes!("../../../fixtures/page-tls/other-key.pem");

    fn section(kind: &str, body: &str) -> Vec<u8> {
        format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n").into_bytes()
    }

    #[test]
    fn a_certificate_and_its_key_are_taken_from_two_files_or_from_one() {
        assert!(PageTls::from_pem(CERTIFICATE, KEY).is_ok());
        let both = [CERTIFICATE, KEY].concat();
        assert!(PageTls::from_pem(&both, &both).is_ok());
        let chain = [&b"a comment\n"[..], CERTIFICATE, CERTIFICATE].concat();
        assert!(PageTls::from_pem(&chain, KEY).is_ok());
        assert_eq!(format!("{:?}", PageTls::from_pem(CERTIFICATE, KEY).unwrap()), "PageTls");
    }

    #[test]
    fn what_is_wrong_with_the_files_is_said_without_the_key() {
        let cut = &CERTIFICATE[..CERTIFICATE.len() - 40];
        let no_certificate = section("CERTIFICATE", "AAAA");
        let of_key = |key: &[u8]| PageTls::from_pem(CERTIFICATE, key).unwrap_err();
        let of_certificate = |text: &[u8]| PageTls::from_pem(text, KEY).unwrap_err();
        for wrong in [&b""[..], b"no PEM", KEY] {
            assert_eq!(of_certificate(wrong), PageTlsError::NoCertificate);
        }
        for wrong in [cut, &no_certificate] {
            assert!(matches!(of_certificate(wrong), PageTlsError::DamagedCertificate(_)));
        }
        for wrong in [&b""[..], b"no PEM", CERTIFICATE] {
            assert_eq!(of_key(wrong), PageTlsError::NoKey);
        }
        let encrypted = section("ENCRYPTED PRIVATE KEY", "AAAA");
        let older = section("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA");
        for wrong in [encrypted, older] {
            assert_eq!(of_key(&wrong), PageTlsError::EncryptedKey);
        }
        assert_eq!(of_key(&KEY[..KEY.len() - 40]), PageTlsError::DamagedKey);
        assert_eq!(of_key(&section("PRIVATE KEY", "AAAA")), PageTlsError::UnsupportedKey);
        assert_eq!(of_key(OTHER_KEY), PageTlsError::Mismatch);
        assert!(of_key(OTHER_KEY).is_about_key() && !of_certificate(cut).is_about_key());
    }
}
