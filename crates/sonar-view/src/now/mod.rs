//! Operations that run now: what each waits for, and who held it before, for the page of a running agent.
//!
//! [`NowListing`] joins what the sources list: requests without a reply yet, what threads of servers do, and what servers
//! say of themselves. A [`NowSnapshot`] is the result; it goes from the agent to its page, and the page makes a
//! [`NowReport`] of it. No value of a query is in any of them.

mod listing;
mod operation;
mod report;

pub use listing::{NowListing, NowSnapshot, SeenThread, ServerOperations};
pub use operation::{MAX_OPERATIONS, NowBlocker, NowOperation, NowThread};
pub use report::{ListedOperations, NowReport, NowSourceJson};
