//! MongoDB messages: headers, and bodies read in chunks of any size.
//!
//! Layouts: <https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/> and the
//! specifications of OP_MSG and OP_COMPRESSED beside it.

mod body;
mod client;
mod header;
mod name;
mod reply;
mod request;
mod statement_namespaces;
mod template;
mod values;

pub use body::{BodyError, MessageBody, MessageSource};
pub use client::ClientDocument;
pub use header::{HEADER, Header, MAX_MESSAGE, looks_like_message};
pub use name::{MAX_NAME, Name};
pub use reply::Reply;
pub use request::Request;
pub use statement_namespaces::StatementNamespaces;
pub use template::{SlotValues, Template, TemplateMatch, TemplatePlace, Templates};
pub use values::to_text;
