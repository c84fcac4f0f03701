//! Serves a history over HTTP.
//!
//! | question | module |
//! | --- | --- |
//! | who may ask | `access` with the `token`, `hosts` |
//! | where a page is reached | `site` |
//! | how much, and what was refused | `limits`, `reading`; what is not made twice: `recent` |
//! | what is asked | `parameters` |
//! | what is answered | `documents`: those of [`sonar_view::past`], as `--json` has them; `problem` |
//! | in which form it is sent | `answer` |
//! | how programs ask, in OpenAPI | `openapi` |
//! | when something new is there | `live`, `newest` |
//! | addresses, and what every request has to pass | `router` |
//! | connections | `server`, `tls` |
//!
//! HTTP and its runtime stay in this crate: [`serve`] blocks. It opens no file and no socket: whoever calls it hands in the
//! listening socket, a [`PageHistory`] and, for TLS, the content of the files.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod documents;
mod hex;
mod hosts;
mod limits;
mod live;
mod newest;
mod openapi;
mod page;
mod parameters;
mod prepare;
mod problem;
mod reading;
mod recent;
mod router;
mod server;
mod site;
mod tls;
mod token;

pub use access::{AccessDenied, PageAccess, SessionCookie};
pub use hosts::AllowedHosts;
pub use limits::{PageLimits, PageRefusal, RefusalCounts, RequestRate};
pub use page::{PageApp, PageDoor, PageHistory, ServedPage};
pub use problem::PageProblem;
pub use router::router;
pub use server::serve;
pub use site::{PagePath, PageSite, PageUrl};
pub use tls::{PageTls, PageTlsError};
pub use token::{AccessToken, LINK_LIFETIME_NS, NoRandomBytes, SESSION_LIFETIME_NS};
