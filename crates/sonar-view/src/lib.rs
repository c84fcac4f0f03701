//! What a person sees of mongosonar.
//!
//! A [`Window`](sonar_core::Window) of raw counters goes in; a [`Report`] of derived figures is made of
//! it, and written as a table, JSON or CSV, or shown in the [live view](live).
//!
//! What is *absent* here: threads, clocks, sockets, files. Time, keys, sizes and windows are arguments,
//! and output goes to a writer or a terminal back end that the caller gives, so that everything a
//! person can see is reached by a test. Names that came over the wire never reach a terminal as they
//! are: see [`text`].
#![forbid(unsafe_code)]

mod about;
pub mod column;
pub mod csv;
pub mod digest;
pub mod disk;
pub mod each;
pub mod entry;
pub mod files;
pub mod hidden;
pub mod impact;
pub mod json;
pub mod layout;
pub mod live;
pub mod model;
pub mod profiler;
mod selection;
pub mod silence;
pub mod table;
pub mod text;
pub mod units;
pub mod zone;

pub use about::About;
pub use column::{Column, Sort};
pub use hidden::{Hidden, Reason};
pub use model::{By, Classes, Form, NamespaceFilter, Report, Selection};
pub use silence::{Origin, Silence};
pub use zone::Zone;
