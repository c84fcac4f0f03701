//! What a person or a program sees of mongosonar: text for terminals, JSON for programs, which the web pages draw too.
//!
//! | command | text | JSON |
//! | --- | --- | --- |
//! | `queries` | [`queries::text`], live [`queries::live`] | [`queries::json`], CSV [`queries::csv`] |
//! | `queries --each` | [`queries::each`] | [`queries::each`] |
//! | `report`, `logs report`, `profiler report` | [`digest::text`] | [`digest::json`], CSV [`digest::csv`] |
//! | `what-changed` | [`changes`] | [`changes`] |
//! | `timeline` | [`timeline`] | [`timeline`] |
//! | `why` | [`why`] | [`why`] |
//! | `compare` | [`compare`] | [`compare`] |
//! | `profiler status`, `tail`, `impact` | [`profiler`], a module each | the same module |
//! | `disk bench`, `check`, `stat`, ... | [`disk`], a module each | the same module |
//! | `stacks` | [`stacks`] | [`stacks`], formats of other tools |
//! | `io report`, `compare`, `live`, `reorder` | [`files`], a module each | the same module |
//! | `ftdc report`, `compare`, `export` | [`ftdc`] | [`ftdc`] |
//! | `agent --status`, `--replay`, `--check-config` | [`agent`] | [`agent`] |
//! | `doctor` | [`doctor`] | [`doctor`] |
//!
//! What a history says about a span of time is found in [`past`], for commands and the web alike; what runs this second, in
//! [`now`].
//!
//! All of them are made of the parts in [`kit`]: tables, units, escaping, time zones, the head of JSON documents.
//!
//! The crate has no threads, clocks, sockets or files: time, keys, sizes and windows are arguments, and output goes to a
//! writer that the caller gives, so that tests reach everything a person can see. Names that come from outside reach
//! a terminal through [`kit::escape`] only.
#![forbid(unsafe_code)]

pub mod agent;
pub mod changes;
pub mod compare;
pub mod current_op;
pub mod digest;
pub mod disk;
pub mod doctor;
pub mod explain;
pub mod files;
pub mod ftdc;
pub mod incident;
pub mod kit;
pub mod now;
pub mod page;
pub mod past;
pub mod problem;
pub mod profiler;
pub mod queries;
pub mod series;
mod shown_part;
pub mod stacks;
pub mod timeline;
#[cfg(test)]
mod typescript;
pub mod why;
