//! The time zone of times in text. JSON and CSV have none: they hold nanoseconds since the Unix epoch.

use std::fmt;

use jiff::tz::{Offset, TimeZone};
use serde::Serialize;
use sonar_core::{Timestamp, UtcOffsets};
use ts_rs::TS;

/// A zone in JSON: its name, and its offsets at the first and at the last moment of the document.
#[derive(Serialize, Clone, Default, Debug, PartialEq, Eq, TS)]
pub struct ZoneObject {
    name: String,
    /// Seconds east of UTC.
    utc_offsets_s: [i32; 2],
}

impl ZoneObject {
    /// Of a document that covers the time between `ends`.
    pub fn new(zone: &Zone, ends: [Timestamp; 2]) -> Self {
        Self { name: zone.to_string(), utc_offsets_s: ends.map(|at| zone.offset_at(at)) }
    }
}

/// A time zone: UTC, a fixed offset, one by its IANA name, or that of the clock that wrote a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone(TimeRule);

#[derive(Clone, PartialEq, Eq, Debug)]
enum TimeRule {
    Zone(TimeZone),
    /// Offsets that change, as the log states them.
    Log(UtcOffsets),
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl Zone {
    /// UTC.
    pub const fn utc() -> Self {
        Self(TimeRule::Zone(TimeZone::UTC))
    }

    /// As the times of a log are written, each with the offset of the lines around it; UTC where they have none.
    pub fn of_log(offsets: &UtcOffsets) -> Self {
        match offsets.spans() {
            [] => Self::utc(),
            [first, rest @ ..] if rest.iter().all(|span| span.minutes == first.minutes) => {
                Self::fixed(i32::from(first.minutes) * 60)
            }
            _ => Self(TimeRule::Log(offsets.clone())),
        }
    }

    /// A fixed offset in seconds east of UTC; UTC where there is none such.
    pub fn fixed(seconds: i32) -> Self {
        Offset::from_seconds(seconds)
            .map_or(Self::utc(), |offset| Self(TimeRule::Zone(TimeZone::fixed(offset))))
    }

    /// The zone of this machine.
    pub fn local() -> Self {
        Self(TimeRule::Zone(TimeZone::system()))
    }

    /// By its name in the IANA database (`Europe/Berlin`), `UTC`, an offset like `+02:00`, or `local` for the
    /// zone of this machine.
    ///
    /// # Errors
    /// There is none of that name; the message says what is possible.
    pub fn named(name: &str) -> Result<Self, String> {
        if name.eq_ignore_ascii_case("local") {
            return Ok(Self::local());
        }
        if let Some(seconds) = offset(name) {
            return Ok(Self::fixed(seconds));
        }
        TimeZone::get(name).map(|zone| Self(TimeRule::Zone(zone))).map_err(|_| {
            format!("{name:?} is not a time zone: write one like Europe/Berlin, America/New_York, +02:00, UTC or local")
        })
    }

    /// `at` in this zone with milliseconds: `2026-05-01T12:00:00.120+02:00`, in UTC with a `Z`.
    pub fn show(&self, at: Timestamp) -> ZonedTime<'_> {
        ZonedTime { zone: self, at, length: 23 }
    }

    /// The same with microseconds.
    pub fn show_micros(&self, at: Timestamp) -> ZonedTime<'_> {
        ZonedTime { zone: self, at, length: 26 }
    }

    /// Whether it is UTC itself.
    pub fn is_utc(&self) -> bool {
        self.0 == TimeRule::Zone(TimeZone::UTC)
    }

    /// The same without milliseconds.
    pub fn show_seconds(&self, at: Timestamp) -> ZonedTime<'_> {
        ZonedTime { zone: self, at, length: 19 }
    }

    /// The offset at a point in time, in seconds east of UTC.
    pub fn offset_at(&self, at: Timestamp) -> i32 {
        match &self.0 {
            TimeRule::Zone(zone) => instant(at).map_or(0, |instant| zone.to_offset(instant).seconds()),
            TimeRule::Log(offsets) => offsets.at(at).map_or(0, |minutes| i32::from(minutes) * 60),
        }
    }

    /// The point at which clocks in this zone show these seconds since 1970-01-01T00:00:00; of two such points
    /// the earlier.
    pub fn at_local(&self, seconds: i64) -> Option<i64> {
        match &self.0 {
            TimeRule::Zone(zone) => {
                let civil = jiff::Timestamp::from_second(seconds).ok()?;
                let civil = Offset::UTC.to_datetime(civil);
                let found = zone.to_ambiguous_timestamp(civil).compatible().ok()?;
                Some(found.as_second())
            }
            TimeRule::Log(offsets) => {
                let candidates = offsets.spans().iter().map(|span| seconds - i64::from(span.minutes) * 60);
                let shows = |at: &i64| {
                    let at = Timestamp::from_unix(u64::try_from(*at).unwrap_or(0), 0);
                    i64::from(self.offset_at(at)) + (at.unix_ns() / 1_000_000_000) as i64 == seconds
                };
                candidates.clone().filter(shows).min().or_else(|| candidates.min())
            }
        }
    }

    /// What a clock in this zone shows, in milliseconds since it showed 1970-01-01T00:00:00.
    pub fn clock(&self, at: Timestamp) -> i64 {
        at.unix_ms() + i64::from(self.offset_at(at)) * 1_000
    }

    /// When a clock in this zone shows these milliseconds since 1970-01-01T00:00:00; of two such points the earlier, and not
    /// before 1970.
    pub fn at_clock(&self, ms: i64) -> Timestamp {
        let at = self.at_local(ms.div_euclid(1_000));
        let ms = at.map_or(ms, |s| s.saturating_mul(1_000).saturating_add(ms.rem_euclid(1_000)));
        Timestamp::from_unix_ms(ms)
    }
}

/// The zone as it stands behind "times are in".
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimeRule::Zone(zone) = &self.0 else { return f.write_str("the log's own time") };
        match (zone.iana_name(), zone.to_fixed_offset()) {
            (Some(name), _) => f.write_str(name),
            (None, Ok(offset)) if offset.seconds() != 0 => write_offset(offset.seconds(), f),
            _ => f.write_str("UTC"),
        }
    }
}

/// A point in time in a zone.
#[derive(Copy, Clone, Debug)]
pub struct ZonedTime<'a> {
    zone: &'a Zone,
    at: Timestamp,
    /// Characters of `2026-05-01T12:00:00.120000000` that are shown.
    length: usize,
}

impl fmt::Display for ZonedTime<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.zone.offset_at(self.at);
        // Civil time at an offset equals UTC shifted by the offset.
        let moved = i128::from(self.at.unix_ns()) + i128::from(offset) * 1_000_000_000;
        let moved = Timestamp::from_unix_ns(u64::try_from(moved.max(0)).unwrap_or(u64::MAX)).to_string();
        f.write_str(moved.get(..self.length).unwrap_or(&moved))?;
        if offset == 0 { f.write_str("Z") } else { write_offset(offset, f) }
    }
}

fn write_offset(seconds: i32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let minutes = seconds.unsigned_abs() / 60;
    write!(f, "{}{:02}:{:02}", if seconds < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
}

fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_nanosecond(i128::from(at.unix_ns())).ok()
}

/// `+02:00`, `-0530`, `+2` in seconds east of UTC.
fn offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let digits: String = rest.chars().filter(|c| *c != ':').collect();
    if digits.is_empty() || digits.len() > 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) =
        if digits.len() <= 2 { (digits.as_str(), "0") } else { digits.split_at(digits.len() - 2) };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours <= 18 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_each_kind_of_zone() {
        // date -u -d @1795221584
        let at = Timestamp::from_unix(1_795_221_584, 36_396_700);
        let shown = |name: &str| Zone::named(name).unwrap().show(at).to_string();
        assert_eq!(shown("UTC"), "2026-11-21T00:39:44.036Z");
        assert_eq!(shown("Europe/Berlin"), "2026-11-21T01:39:44.036+01:00");
        assert_eq!(shown("America/New_York"), "2026-11-20T19:39:44.036-05:00");
        assert_eq!(shown("-05:30"), "2026-11-20T19:09:44.036-05:30");
        // In summer Berlin is two hours ahead.
        let summer = Timestamp::from_unix(1_795_221_584 - 150 * 86_400, 0);
        assert_eq!(
            Zone::named("Europe/Berlin").unwrap().show_seconds(summer).to_string(),
            "2026-06-24T02:39:44+02:00"
        );
        assert_eq!(Zone::fixed(7_200).to_string(), "+02:00");
        assert!(Zone::named("Mars/Olympus").unwrap_err().contains("Europe/Berlin"));
    }

    #[test]
    fn a_log_is_shown_with_the_offset_of_each_of_its_lines() {
        let mut offsets = UtcOffsets::default();
        assert_eq!(Zone::of_log(&offsets), Zone::utc());
        // The end of daylight saving time in Berlin in 2026: October 25th, 01:00 UTC.
        let change = 1_792_890_000;
        for (seconds, minutes) in
            [(change - 7_200, 120), (change - 1, 120), (change, 60), (change + 3_600, 60)]
        {
            offsets.record(Timestamp::from_unix(seconds, 0), minutes);
        }
        let zone = Zone::of_log(&offsets);
        let shown = |seconds| zone.show_seconds(Timestamp::from_unix(seconds, 0)).to_string();
        assert_eq!(shown(change - 1), "2026-10-25T02:59:59+02:00");
        assert_eq!(shown(change), "2026-10-25T02:00:00+01:00");
        // 02:30 comes twice, 01:30 once.
        let local = change as i64 + 7_200;
        assert_eq!(zone.at_local(local + 1_800 - 3_600), Some(change as i64 - 1_800));
        assert_eq!(zone.at_local(local - 1_800 - 3_600), Some(change as i64 - 5_400));
        assert_eq!(zone.at_local(local), Some(change as i64 + 3_600));
        let mut fixed = UtcOffsets::default();
        fixed.record(Timestamp::from_unix(change, 0), 330);
        assert_eq!(Zone::of_log(&fixed).to_string(), "+05:30");
    }

    #[test]
    fn a_clock_of_a_zone_is_turned_back_into_a_point_in_time() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        // 2026-11-21T01:39:44 on a clock in Berlin.
        assert_eq!(berlin.at_local(1_795_221_584 + 3_600), Some(1_795_221_584));
        assert_eq!(Zone::utc().at_local(5), Some(5));
    }
}
