//! Where the plaintext of TLS connections can be read inside a program.
//!
//! A program hands plaintext to its TLS library by `SSL_read` and `SSL_write` (OpenSSL 1.1.1 and later). A probe there
//! costs 0.5 microseconds on an instruction that the kernel emulates, and 4 on any other, so [`ProbeSites`] finds such
//! instructions by disassembling these functions.

mod instructions;
mod probe_sites;

pub use probe_sites::{CallSites, ProbeSites, SitesError};
