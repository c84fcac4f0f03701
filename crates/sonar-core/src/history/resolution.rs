//! The widths of windows.

use crate::time::NS_PER_S;

/// The width of a window. Each is a multiple of the one before, and divides a day.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resolution {
    /// 10 seconds.
    TenSeconds,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl Resolution {
    /// All resolutions, the finest first.
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::Minute, Self::Hour];

    /// Width of a window in nanoseconds.
    pub const fn width_ns(self) -> u64 {
        match self {
            Self::TenSeconds => 10 * NS_PER_S,
            Self::Minute => 60 * NS_PER_S,
            Self::Hour => 3_600 * NS_PER_S,
        }
    }

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TenSeconds => "10s",
            Self::Minute => "1min",
            Self::Hour => "1h",
        }
    }

    /// The next coarser resolution.
    pub const fn coarser(self) -> Option<Self> {
        match self {
            Self::TenSeconds => Some(Self::Minute),
            Self::Minute => Some(Self::Hour),
            Self::Hour => None,
        }
    }

    /// The number of days that windows are kept by default.
    pub const fn default_days(self) -> u32 {
        match self {
            Self::TenSeconds => 2,
            Self::Minute => 30,
            Self::Hour => 400,
        }
    }
}
