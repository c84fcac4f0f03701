//! Points in time.

use std::fmt;

/// Nanoseconds per second.
pub const NS_PER_S: u64 = 1_000_000_000;
/// Nanoseconds per millisecond.
pub const NS_PER_MS: u64 = 1_000_000;

/// A point in time: nanoseconds since the Unix epoch, on `CLOCK_REALTIME` or on the clock of a capture file.
/// The range ends in the year 2554.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From nanoseconds since the Unix epoch.
    pub const fn from_unix_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// From milliseconds since the Unix epoch, as servers write times; the epoch itself for earlier times. Saturates.
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(if ms > 0 { (ms as u64).saturating_mul(NS_PER_MS) } else { 0 })
    }

    /// From seconds and nanoseconds since the Unix epoch, as in kernel structures and capture files; saturates.
    pub const fn from_unix(seconds: u64, nanos: u32) -> Self {
        Self(seconds.saturating_mul(NS_PER_S).saturating_add(nanos as u64))
    }

    /// Whole milliseconds since the Unix epoch.
    pub const fn unix_ms(self) -> i64 {
        // The range has fewer of them than an `i64` counts.
        (self.0 / NS_PER_MS) as i64
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn unix_ns(self) -> u64 {
        self.0
    }

    /// Whether it is a time. The epoch itself stands for an unknown one: no server or capture is that old.
    pub const fn is_known(self) -> bool {
        self.0 != 0
    }

    /// Nanoseconds from `earlier` to this time; 0 if `earlier` is later (clocks step back).
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This time plus `ns` nanoseconds; saturates.
    pub const fn plus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// This time less `ns` nanoseconds; not before the epoch.
    pub const fn minus_ns(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    /// The last multiple of `width_ns` that is not after this time; `width_ns` must not be 0.
    pub const fn floor_to(self, width_ns: u64) -> Self {
        Self(self.0 - self.0 % width_ns)
    }
}

/// RFC 3339 in UTC with all nine decimals, for example `2026-05-01T10:00:00.120000000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0 / NS_PER_S, self.0 % NS_PER_S);
        let (days, of_day) = ((seconds / 86_400) as i64, seconds % 86_400);
        // Days to a civil date: shift the epoch to 0000-03-01, so that the leap day is the last day of a year.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanos:09}Z",
            of_day / 3_600,
            of_day / 60 % 60,
            of_day % 60
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_reads_as_rfc_3339() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, 7, "2000-02-29T00:00:00.000000007Z"),
            (1_795_221_584, 36_396_700, "2026-11-21T00:39:44.036396700Z"),
            (4_107_542_399, 999_999_999, "2100-02-28T23:59:59.999999999Z"),
        ] {
            assert_eq!(Timestamp::from_unix(seconds, nanos).to_string(), text);
        }
    }

    #[test]
    fn milliseconds_are_whole_and_those_before_the_epoch_are_none() {
        let time = Timestamp::from_unix_ms(1_795_221_584_036);
        assert_eq!(time, Timestamp::from_unix(1_795_221_584, 36_000_000));
        assert_eq!(time.plus_ns(999_999).unix_ms(), 1_795_221_584_036);
        assert_eq!([-1, i64::MIN].map(Timestamp::from_unix_ms), [Timestamp::default(); 2]);
        assert_eq!(Timestamp::from_unix_ms(i64::MAX), Timestamp::from_unix_ns(u64::MAX));
        assert_eq!(Timestamp::from_unix_ns(u64::MAX).unix_ms(), 18_446_744_073_709);
    }

    #[test]
    fn windows_start_on_multiples_of_their_width() {
        let t = Timestamp::from_unix(17, 5);
        assert_eq!(t.floor_to(10 * NS_PER_S), Timestamp::from_unix(10, 0));
        assert_eq!(Timestamp::from_unix(3, 0).since(t), 0);
        assert_eq!(
            (t.minus_ns(5), t.minus_ns(u64::MAX)),
            (Timestamp::from_unix(17, 0), Timestamp::default())
        );
    }
}
