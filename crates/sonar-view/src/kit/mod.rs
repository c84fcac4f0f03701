//! What all views are made of.

mod about;
mod bars;
mod csv;
mod escape;
mod fit;
mod hidden;
pub mod json;
mod losses;
mod server;
mod table;
mod units;
mod zone;

pub use about::About;
pub use bars::{bar, sparkline};
pub(crate) use csv::CsvLine;
pub use escape::{Escaped, escape, is_safe};
pub use fit::{Fitting, fit, fit_end, fold, push_fit, push_padded, width, wrap};
pub(crate) use hidden::HiddenObject;
pub use hidden::{Hidden, HiddenContext, HiddenPart, Reason};
pub use losses::{counted_in_words, in_words, losses};
pub use server::{server_address, server_name};
pub use sonar_core::words::plural;
pub use table::{Heading, LaidOutTable, TextTable};
pub(crate) use units::share;
pub use units::{
    Brief, ByteSize, Bytes, Count, Grouped, Nanos, Percent, Ratio, UNKNOWN, mean_ns, or_unknown, scaled,
};
pub use zone::{Zone, ZoneObject, ZonedTime};
