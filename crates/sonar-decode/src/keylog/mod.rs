//! Decrypts captured TLS connections with the secrets of a key log, as clients write it for debugging.
//!
//! This is not [`tls`](crate::tls), which is about reading plaintext inside programs. Here the bytes of both directions
//! come from packets: `TlsSession` cuts them into records, follows the handshake as far as its keys depend on it, and
//! gives the plaintext in order. The ciphers are those of the crates `ring` and, for CBC, `aes`.
//!
//! TLS 1.2 (RFC 5246, 5288, 7366, 7905) with AES-GCM, ChaCha20-Poly1305 and AES-CBC, and 1.3 (RFC 8446) with the first
//! two; the format of key logs is RFC 9850.

mod cbc_suite;
mod cipher;
mod handshake;
mod record;
mod search;
mod secrets;
mod session;
mod side;

pub use secrets::{KeyLog, KeyLogReader, KeyLogSource};
pub(crate) use session::{TlsContext, TlsFailure, TlsInput, TlsPiece, TlsSession};
