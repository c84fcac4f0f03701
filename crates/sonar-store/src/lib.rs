//! The history of an agent on disk: the only crate that knows SQL.
//!
//! [`SqliteHistory`] is the [`sonar_core::HistoryReader`] and [`sonar_core::HistoryWriter`] of a folder, with one SQLite file
//! for each day in UTC (`2026-11-21.db`). A file has windows of all three resolutions, the events of its day, and tables of the texts that
//! windows name by number, so that the text of a shape is there once. When a day is over, its file also has one window of
//! the whole day, for views of many days. No value of a query is stored.
//!
//! - Writing: `day_writer` writes one file, `writer` decides what to write, `outgoing` takes events to other days,
//!   `retention` and `space` decide what to remove.
//! - Reading: `day_file` reads one file, `plan` decides which windows hold what is asked for, `reader` joins the days,
//!   with the threads of `in_order`.
//! - A window is one blob: [`mod@format`] has its layout. The other rows have a checksum each: `checked_row`.
//! - Faults: `damage` sets files aside, `lock` lets one writer in, `schema` upgrades older files.
#![forbid(unsafe_code)]

mod checked_row;
mod damage;
mod day_file;
mod day_writer;
mod dictionary;
mod error;
pub mod format;
mod history;
mod in_order;
mod lock;
mod lookup;
mod outgoing;
mod plan;
mod reader;
mod retention;
mod schema;
mod settings;
mod space;
mod stored_window;
mod utc_day;
mod writer;

pub use error::StoreError;
pub use history::SqliteHistory;
pub use settings::StoreSettings;
pub use stored_window::StoredWindow;
