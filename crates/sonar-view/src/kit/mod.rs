//! What all views are made of.

mod about;
mod escape;
mod fit;
mod hidden;
pub mod json;
mod table;
mod units;
mod zone;

pub use about::About;
pub use escape::{Escaped, escape, is_safe};
pub use fit::{Fitting, fit, fold, push_fit, push_padded, width, wrap};
pub(crate) use hidden::HiddenObject;
pub use hidden::{Hidden, Part, Reader, Reason};
pub use table::{Head, Laid, lay, table};
pub use units::{Brief, Count, Nanos, Size, UNKNOWN, mean_ns, or_unknown};
pub use zone::{Shown, Zone};
