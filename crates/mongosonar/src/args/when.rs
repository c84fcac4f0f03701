//! Points and spans of time as people write them: one syntax for all commands.
//!
//! A time without an offset is read from a clock in the zone in which times are shown, so that it is resolved only
//! when that zone is known.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_core::time::NS_PER_MS;
use sonar_decode::log::Bound;
use sonar_decode::syntax::time;
use sonar_view::kit::Zone;
use sonar_view::past::ComparedTime;

use crate::exit::UsageError;

/// Examples of points in time, for errors and help.
pub const TIME_EXAMPLES: &str =
    "14:05, 2026-05-01T10:00, 2026-05-01T10:00:00Z, \"yesterday 14:00\", \"monday 9:30\", -2h or now";
/// Examples of spans, for errors and help.
pub const SPAN_EXAMPLES: &str = "14:00+10m, 14:00..14:10, \"yesterday 14:00+1h\", yesterday or 2026-05-01";

const MS_PER_DAY: i64 = 86_400_000;
const DAY_NS: u64 = 86_400_000_000_000;
/// The longest length and the largest distance from now: ten years.
const LONGEST_NS: u64 = 3_650 * DAY_NS;

/// A point in time as the user wrote it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct When {
    moment: Moment,
    /// How exactly it was written: a minute for `14:05`, a day for `yesterday`; 0 for a distance from now.
    precision_ns: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Moment {
    /// With an offset.
    At(Timestamp),
    /// What a clock shows, in milliseconds since it showed 1970-01-01T00:00:00.
    Clock(i64),
    /// A time of a day that is found from the current date: the day, and milliseconds since its midnight.
    OfDay(NamedDay, i64),
    /// This many nanoseconds before now.
    Ago(u64),
}

/// A day, found from the current date.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum NamedDay {
    /// Today, or yesterday if that time of today is still to come.
    Latest,
    /// This many days ago.
    Ago(i64),
    /// The latest such day; 0 is Monday.
    Weekday(i64),
}

/// The zone in which times are shown and read.
#[derive(Args, Debug, Default, Clone)]
pub struct ZoneArgs {
    /// Show times in UTC [default: as the clock of a log has them, else UTC]
    #[arg(long, conflicts_with = "timezone", help_heading = "How to show it")]
    pub utc: bool,
    /// Show times in this zone: Europe/Berlin, +02:00, or local for this machine
    #[arg(long, value_name = "ZONE", value_parser = Zone::named, help_heading = "How to show it")]
    pub timezone: Option<Zone>,
}

impl ZoneArgs {
    /// The zone that was asked for.
    pub fn asked(&self) -> Option<Zone> {
        if self.utc { Some(Zone::utc()) } else { self.timezone.clone() }
    }
}

/// The current time.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(since.as_secs(), since.subsec_nanos())
}

impl When {
    /// How exactly the time was written, in nanoseconds: a minute for `14:05`, a second for `14:05:10`.
    pub const fn precision_ns(self) -> u64 {
        self.precision_ns
    }

    /// The point in time; without an offset it is read from a clock in `zone`.
    pub fn in_zone(self, zone: &Zone) -> Timestamp {
        self.resolve(zone, now())
    }

    /// The same, seen from `now`.
    fn resolve(self, zone: &Zone, now: Timestamp) -> Timestamp {
        match self.moment {
            Moment::At(at) => at,
            Moment::Ago(ns) => now.minus_ns(ns),
            Moment::Clock(ms) => zone.at_clock(ms),
            Moment::OfDay(day, ms) => {
                let today = zone.clock(now).div_euclid(MS_PER_DAY);
                let at = |day: i64| zone.at_clock(day * MS_PER_DAY + ms);
                match day {
                    NamedDay::Latest if at(today) > now => at(today - 1),
                    NamedDay::Latest => at(today),
                    NamedDay::Ago(days) => at(today - days),
                    // 1970-01-01 was a Thursday.
                    NamedDay::Weekday(weekday) => match (today + 3 - weekday).rem_euclid(7) {
                        0 if at(today) > now => at(today - 7),
                        days => at(today - days),
                    },
                }
            }
        }
    }

    /// The end of a span that begins at `from`: a time of day without a day is the first one after it.
    fn after(self, from: Timestamp, zone: &Zone, now: Timestamp) -> Timestamp {
        let Moment::OfDay(NamedDay::Latest, ms) = self.moment else { return self.resolve(zone, now) };
        let day = zone.clock(from).div_euclid(MS_PER_DAY);
        let same_day = zone.at_clock(day * MS_PER_DAY + ms);
        if same_day > from { same_day } else { zone.at_clock((day + 1) * MS_PER_DAY + ms) }
    }

    /// As a bound of a log: without an offset, and without a zone that was asked for, it is read from the log's own
    /// clock.
    pub fn bound(self, asked: Option<&Zone>) -> Bound {
        match (self.moment, asked) {
            (Moment::Clock(ms), None) => Bound::Clock(ms),
            (Moment::OfDay(..), None) => {
                let here = Zone::local();
                Bound::Clock(here.clock(self.in_zone(&here)))
            }
            (_, zone) => Bound::At(self.in_zone(zone.unwrap_or(&Zone::utc()))),
        }
    }

    /// The same as the end of a span: a time of day without a day is the first one after `from`.
    pub fn bound_after(self, from: Option<Self>, asked: Option<&Zone>) -> Bound {
        let (Moment::OfDay(NamedDay::Latest, _), Some(from)) = (self.moment, from) else {
            return self.bound(asked);
        };
        let here = Zone::local();
        let zone = asked.unwrap_or(&here);
        let now = now();
        let at = self.after(from.resolve(zone, now), zone, now);
        if asked.is_some() { Bound::At(at) } else { Bound::Clock(zone.clock(at)) }
    }
}

/// Both ends of a range; a `to` that is a time of day without a day is the first one after `from`.
pub fn ends(from: Option<When>, to: Option<When>, zone: &Zone) -> (Option<Timestamp>, Option<Timestamp>) {
    let now = now();
    let from = from.map(|from| from.resolve(zone, now));
    let to = to.map(|to| match from {
        Some(from) => to.after(from, zone, now),
        None => to.resolve(zone, now),
    });
    (from, to)
}

/// The point in time of a bound, whose clock is in `zone`.
pub fn bound_in_zone(bound: Bound, zone: &Zone) -> Timestamp {
    match bound {
        Bound::At(at) => at,
        Bound::Clock(ms) => zone.at_clock(ms),
    }
}

/// A point in time.
///
/// # Errors
/// It is none; the message gives examples.
pub fn parse_time(text: &str) -> Result<When, String> {
    moment(text.trim()).ok_or_else(|| format!("{text:?} is no time: write it like {TIME_EXAMPLES}"))
}

fn moment(text: &str) -> Option<When> {
    let lower = text.to_ascii_lowercase();
    let ago = |ns| Some(When { moment: Moment::Ago(ns), precision_ns: 0 });
    if lower == "now" {
        return ago(0);
    }
    if let Some(rest) = lower.strip_prefix('-').or_else(|| lower.strip_suffix("ago")) {
        return ago(length(rest.trim())?);
    }
    let (first, rest) = lower.split_once(' ').unwrap_or((&lower, ""));
    if let Some(day) = day(first) {
        let (ms, precision_ns) = if rest.is_empty() { (0, DAY_NS) } else { of_day(rest.trim())? };
        return Some(When { moment: Moment::OfDay(day, ms), precision_ns });
    }
    if let Some((ms, precision_ns)) = of_day(&lower) {
        return Some(When { moment: Moment::OfDay(NamedDay::Latest, ms), precision_ns });
    }
    date(text)
}

/// `2026-05-01`, `2026-05-01T10:00`, `2026-05-01 10:00:00.5`, with or without an offset.
fn date(text: &str) -> Option<When> {
    let (whole, precision_ns) = match text.len() {
        10 => (format!("{text}T00:00:00"), DAY_NS),
        16 => (format!("{text}:00"), 60_000 * NS_PER_MS),
        _ => (text.to_owned(), 1_000 * NS_PER_MS),
    };
    let (ms, offset) = time::iso_with_offset(whole.as_bytes()).filter(|(ms, _)| *ms >= 0)?;
    let moment = match offset {
        Some(_) => Moment::At(Timestamp::from_unix_ns(u64::try_from(ms).ok()?.saturating_mul(NS_PER_MS))),
        None => Moment::Clock(ms),
    };
    Some(When { moment, precision_ns })
}

/// `today`, `yesterday`, or the English name of a weekday, also with three letters.
fn day(word: &str) -> Option<NamedDay> {
    const WEEKDAYS: [&str; 7] =
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    match word {
        "today" => Some(NamedDay::Ago(0)),
        "yesterday" => Some(NamedDay::Ago(1)),
        _ => {
            let at = WEEKDAYS.iter().position(|name| *name == word || name.get(..3) == Some(word))?;
            Some(NamedDay::Weekday(at as i64))
        }
    }
}

/// `14:05`, `14:05:10` or `14:05:10.5` in milliseconds since midnight, with its precision in nanoseconds.
fn of_day(text: &str) -> Option<(i64, u64)> {
    let mut parts = text.split(':');
    let (hour, minute, second) = (number(parts.next()?, 23)?, parts.next()?, parts.next());
    if parts.next().is_some() || minute.len() != 2 {
        return None;
    }
    let minutes = (hour * 60 + number(minute, 59)?) * 60_000;
    let Some(second) = second else { return Some((minutes, 60_000 * NS_PER_MS)) };
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if second.len() != 2 || !is_fraction {
        return None;
    }
    let millis: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some((minutes + number(second, 59)? * 1_000 + millis, 1_000 * NS_PER_MS))
}

/// A number of one or two digits, at most `most`.
fn number(text: &str, most: i64) -> Option<i64> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= most)
}

/// A length in nanoseconds: `10m`, `1h30m`, `2 hours`, `90 s`, `1.5h`, `3d`, `1 week`.
fn length(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = 0.0f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let seconds = match &rest[..letters] {
            "ms" => 0.001,
            "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            "w" | "week" | "weeks" => 604_800.0,
            _ => return None,
        };
        total += number * seconds * 1e9;
        rest = rest[letters..].trim_start();
    }
    (total >= 1.0 && total <= LONGEST_NS as f64).then_some(total as u64)
}

/// A span of time as the user wrote it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WrittenSpan {
    from: When,
    end: SpanEnd,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum SpanEnd {
    At(When),
    /// This many nanoseconds after its start.
    After(u64),
}

impl WrittenSpan {
    /// From one point in time to another.
    pub const fn new(from: When, to: When) -> Self {
        Self { from, end: SpanEnd::At(to) }
    }

    /// The `ns` nanoseconds from a point in time on.
    pub const fn lasting(from: When, ns: u64) -> Self {
        Self { from, end: SpanEnd::After(ns) }
    }

    /// The span; times without an offset are read from a clock in `zone`.
    ///
    /// # Errors
    /// It ends before it begins.
    pub fn in_zone(self, zone: &Zone) -> Result<Span, UsageError> {
        self.resolve(zone, now())
    }

    fn resolve(self, zone: &Zone, now: Timestamp) -> Result<Span, UsageError> {
        let from = self.from.resolve(zone, now);
        let to = match self.end {
            SpanEnd::At(to) => to.after(from, zone, now),
            SpanEnd::After(ns) => from.plus_ns(ns),
        };
        if to <= from {
            let (from, to) = (zone.show_seconds(from), zone.show_seconds(to));
            return Err(UsageError(format!("a span must end after it begins, and {to} is not after {from}")));
        }
        Ok(Span { from, to })
    }
}

/// A span: a time with a length or an end, or a day.
///
/// # Errors
/// It is none; the message gives examples.
pub fn parse_span(text: &str) -> Result<WrittenSpan, String> {
    span(text.trim()).ok_or_else(|| format!("{text:?} is no span of time: write it like {SPAN_EXAMPLES}"))
}

/// Whether `text` is written as a span; other text may be the name of a file.
pub fn is_span(text: &str) -> bool {
    span(text.trim()).is_some()
}

fn span(text: &str) -> Option<WrittenSpan> {
    if let Some((from, to)) = text.split_once("..") {
        return Some(WrittenSpan::new(moment(from.trim())?, moment(to.trim())?));
    }
    if let Some((from, more)) = text.rsplit_once('+')
        && let Some(ns) = length(&more.to_ascii_lowercase())
    {
        return Some(WrittenSpan::lasting(moment(from.trim())?, ns));
    }
    let from = moment(text)?;
    (from.precision_ns == DAY_NS).then(|| WrittenSpan::lasting(from, DAY_NS))
}

/// What a span is compared with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Against {
    /// The same time of day, this many days earlier.
    DaysEarlier(i64),
    /// This span.
    Span(WrittenSpan),
}

impl Against {
    /// With its times read from a clock in `zone`.
    ///
    /// # Errors
    /// It ends before it begins.
    pub fn in_zone(self, zone: &Zone) -> Result<ComparedTime, UsageError> {
        match self {
            Self::Span(written) => written.in_zone(zone).map(ComparedTime::Span),
            Self::DaysEarlier(days) => Ok(ComparedTime::DaysEarlier(days)),
        }
    }
}

/// `yesterday`, `last-week`, or a span.
///
/// # Errors
/// It is none of these; the message gives examples.
pub fn parse_against(text: &str) -> Result<Against, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "yesterday" => Ok(Against::DaysEarlier(1)),
        "last-week" | "last week" => Ok(Against::DaysEarlier(7)),
        _ => parse_span(text).map(Against::Span).map_err(|_| {
            format!(
                "{text:?} is nothing to compare with: write yesterday, last-week, or a span like 13:00+1h"
            )
        }),
    }
}

/// `--from` and `--to`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WrittenEnds {
    /// The beginning.
    pub from: Option<When>,
    /// The end.
    pub to: Option<When>,
}

impl WrittenEnds {
    /// Whether neither was given.
    pub const fn are_open(self) -> bool {
        self.from.is_none() && self.to.is_none()
    }

    /// That the end is a time of the day after the beginning and, at `now`, still to come, in words; `None` if it is not.
    pub fn note(&self, span: Span, zone: &Zone, now: Timestamp) -> Option<String> {
        let Moment::OfDay(NamedDay::Latest, _) = self.to?.moment else { return None };
        let day = |at: Timestamp| zone.clock(at).div_euclid(MS_PER_DAY);
        let is_later = self.from.is_some() && day(span.to) > day(span.from) && span.to > now;
        is_later.then(|| {
            let (from, to) = (zone.show_seconds(span.from), zone.show_seconds(span.to));
            format!("--to is the first such time after {from}: {to}, which is still to come")
        })
    }

    /// The span between them; an end that was not given is that of what is stored.
    ///
    /// # Errors
    /// It ends before it begins.
    pub fn in_zone(self, zone: &Zone, stored: Span) -> Result<Span, UsageError> {
        Ok(match (self.from, self.to) {
            (Some(from), Some(to)) => WrittenSpan::new(from, to).in_zone(zone)?,
            (from, to) => {
                let is_until = to.is_some();
                let from = from.map_or(stored.from, |from| from.in_zone(zone));
                let to = to.map_or(stored.to, |to| to.in_zone(zone));
                if to <= from {
                    let show = |at| zone.show_seconds(at);
                    let covers = format!("{} to {}", show(stored.from), show(stored.to));
                    let what = match is_until {
                        true => format!("before {}", show(to)),
                        false => format!("after {} yet", show(from)),
                    };
                    return Err(UsageError(format!("nothing is stored {what}; the history covers {covers}")));
                }
                Span { from, to }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-05-06T12:30:00Z, a Wednesday (`date -u -d @1778070600`).
    const NOW: Timestamp = Timestamp::from_unix(1_778_070_600, 0);

    fn at(text: &str, zone: &str) -> String {
        let zone = Zone::named(zone).unwrap();
        zone.show_seconds(parse_time(text).unwrap().resolve(&zone, NOW)).to_string()
    }

    fn between(text: &str) -> (String, String) {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let span = parse_span(text).unwrap().resolve(&zone, NOW).unwrap();
        (zone.show_seconds(span.from).to_string(), zone.show_seconds(span.to).to_string())
    }

    #[test]
    fn a_span_of_which_nothing_is_stored_yet_is_told_so() {
        let zone = Zone::utc();
        let stored = Span { from: Timestamp::from_unix(1_000, 0), to: Timestamp::from_unix(2_000, 0) };
        let parse = |text: &str| Some(parse_time(text).unwrap());
        let span = |from, to| WrittenEnds { from, to }.in_zone(&zone, stored);
        let error = |from, to| span(from, to).unwrap_err().to_string();
        // The end of the history, and twenty seconds of it that are not stored yet.
        let late = error(parse("1970-01-01T00:33:40Z"), None);
        assert!(late.contains("nothing is stored after 1970-01-01T00:33:40Z yet"), "{late}");
        assert!(late.contains("the history covers 1970-01-01T00:16:40Z to 1970-01-01T00:33:20Z"), "{late}");
        let early = error(None, parse("1970-01-01T00:10:00Z"));
        assert!(early.contains("nothing is stored before 1970-01-01T00:10:00Z"), "{early}");
        let within = span(parse("1970-01-01T00:33:00Z"), None).unwrap();
        assert_eq!(within.length_ns(), 20_000_000_000);
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, expected) in [
            ("2026-05-01T10:00:00Z", "2026-05-01T12:00:00+02:00"),
            ("2026-05-01T12:00:00+02:00", "2026-05-01T12:00:00+02:00"),
            ("2026-05-01T12:00", "2026-05-01T12:00:00+02:00"),
            ("2026-05-01 12:00:10", "2026-05-01T12:00:10+02:00"),
            ("2026-05-01", "2026-05-01T00:00:00+02:00"),
            ("14:05", "2026-05-06T14:05:00+02:00"),
            ("9:30", "2026-05-06T09:30:00+02:00"),
            ("14:29:59.250", "2026-05-06T14:29:59+02:00"),
            // In Berlin it is 14:30, so that 15:00 was last yesterday.
            ("15:00", "2026-05-05T15:00:00+02:00"),
            ("today 15:00", "2026-05-06T15:00:00+02:00"),
            ("yesterday 14:00", "2026-05-05T14:00:00+02:00"),
            ("Yesterday", "2026-05-05T00:00:00+02:00"),
            ("monday 9:30", "2026-05-04T09:30:00+02:00"),
            ("wed 14:00", "2026-05-06T14:00:00+02:00"),
            ("wednesday 15:00", "2026-04-29T15:00:00+02:00"),
            ("thu", "2026-04-30T00:00:00+02:00"),
            ("-2h", "2026-05-06T12:30:00+02:00"),
            ("2h ago", "2026-05-06T12:30:00+02:00"),
            ("1h30m ago", "2026-05-06T13:00:00+02:00"),
            ("2 days ago", "2026-05-04T14:30:00+02:00"),
            ("-1.5h", "2026-05-06T13:00:00+02:00"),
            ("now", "2026-05-06T14:30:00+02:00"),
        ] {
            assert_eq!(at(text, "Europe/Berlin"), expected, "{text}");
        }
        assert_eq!(at("14:05", "UTC"), "2026-05-05T14:05:00Z", "still to come in UTC");
        // 02:30 does not exist on that day.
        assert_eq!(at("2026-03-29T02:30", "Europe/Berlin"), "2026-03-29T03:30:00+02:00");
    }

    #[test]
    fn a_wrong_time_is_answered_with_examples() {
        for wrong in [
            "",
            "abc",
            "1x",
            "-5",
            "25:00",
            "14:60",
            "14:5",
            "1:2:3:4",
            "ago",
            "-",
            "2026-13-01",
            "14",
            "yesterday 99:00",
            "99999999999999999999d ago",
            "14:05:",
            "::",
            "monday tuesday",
        ] {
            let error = parse_time(wrong).unwrap_err();
            assert!(error.contains("like 14:05"), "{wrong:?}: {error}");
        }
        for wrong in
            ["", "14:00", "14:00+", "14:00..", "..", "mongod.log", "2026-05-01T10:00:00+02:00", "now+x"]
        {
            let error = parse_span(wrong).unwrap_err();
            assert!(error.contains("like 14:00+10m"), "{wrong:?}: {error}");
            assert!(!is_span(wrong));
        }
        assert!(parse_against("tomorrow").unwrap_err().contains("13:00+1h"));
    }

    #[test]
    fn spans_have_an_end_or_a_length() {
        let shown = |from: &str, to: &str| (format!("2026-05-{from}+02:00"), format!("2026-05-{to}+02:00"));
        for (text, expected) in [
            ("14:00+10m", shown("06T14:00:00", "06T14:10:00")),
            ("14:00..14:10", shown("06T14:00:00", "06T14:10:00")),
            ("yesterday 14:00+1h", shown("05T14:00:00", "05T15:00:00")),
            ("yesterday 14:00 .. 15:00", shown("05T14:00:00", "05T15:00:00")),
            // The end is on the next day.
            ("yesterday 23:00..01:00", shown("05T23:00:00", "06T01:00:00")),
            ("yesterday", shown("05T00:00:00", "06T00:00:00")),
            ("2026-05-01", shown("01T00:00:00", "02T00:00:00")),
            ("2026-05-01T10:00:00+02:00+90s", shown("01T10:00:00", "01T10:01:30")),
            ("-2h..now", shown("06T12:30:00", "06T14:30:00")),
        ] {
            assert_eq!(between(text), expected, "{text}");
        }
        let backwards = parse_span("now..-2h").unwrap().resolve(&Zone::utc(), NOW).unwrap_err();
        assert!(backwards.0.contains("must end after it begins"));
    }

    #[test]
    fn an_end_on_the_next_day_that_is_still_to_come_is_told() {
        let zone = Zone::utc();
        let note = |from: &str, to: &str| {
            let ends = WrittenEnds { from: parse_time(from).ok(), to: parse_time(to).ok() };
            let span = WrittenSpan::new(ends.from.unwrap(), ends.to.unwrap()).resolve(&zone, NOW).unwrap();
            ends.note(span, &zone, NOW)
        };
        let said = "--to is the first such time after 2026-05-06T05:00:00Z: 2026-05-07T04:00:00Z, which is still to come";
        assert_eq!(note("05:00", "04:00").as_deref(), Some(said));
        // It is over, is of the same day, or was written with its day.
        for (from, to) in [("yesterday 23:00", "01:00"), ("05:00", "14:00"), ("05:00", "2026-05-07T04:00")] {
            assert_eq!(note(from, to), None, "{from} to {to}");
        }
    }

    #[test]
    fn yesterday_is_the_same_time_on_the_clock() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        // Clocks went forward on the 29th of March 2026.
        let span = parse_span("2026-03-29T12:00+10m").unwrap().in_zone(&zone).unwrap();
        let before = parse_against("yesterday").unwrap().in_zone(&zone).unwrap().of(span, &zone);
        assert_eq!(zone.show_seconds(before.from).to_string(), "2026-03-28T12:00:00+01:00");
        assert_eq!(before.length_ns(), span.length_ns());
        let week = parse_against("last-week").unwrap().in_zone(&zone).unwrap().of(span, &zone);
        assert_eq!(zone.show_seconds(week.from).to_string(), "2026-03-22T12:00:00+01:00");
    }

    #[test]
    fn the_clock_of_a_log_is_kept_where_no_zone_was_asked_for() {
        let noon = parse_time("2026-05-01T12:00").unwrap();
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(noon.bound(None), Bound::Clock(1_777_636_800_000));
        assert_eq!(noon.bound(Some(&berlin)), Bound::At(Timestamp::from_unix(1_777_629_600, 0)));
        assert_eq!(bound_in_zone(noon.bound(None), &berlin), Timestamp::from_unix(1_777_629_600, 0));
        assert_eq!(noon.precision_ns(), 60_000_000_000);
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_makes_it_panic(text in "\\PC{0,30}") {
            let zone = Zone::named("America/New_York").unwrap();
            if let Ok(when) = parse_time(&text) {
                when.resolve(&zone, NOW);
            }
            if let Ok(span) = parse_span(&text) {
                let _ = span.resolve(&zone, NOW);
            }
            let _ = parse_against(&text);
        }

        #[test]
        fn a_time_of_day_is_the_last_one_before_now(hour in 0i64..24, minute in 0i64..60, offset in -12i32..=12) {
            let zone = Zone::fixed(offset * 3_600);
            let when = parse_time(&format!("{hour}:{minute:02}")).unwrap().resolve(&zone, NOW);
            prop_assert!(when <= NOW && NOW.since(when) < DAY_NS);
            prop_assert_eq!(zone.clock(when).rem_euclid(MS_PER_DAY), (hour * 60 + minute) * 60_000);
        }

        #[test]
        fn what_a_zone_shows_is_read_back(seconds in 0u64..4_000_000_000, zone in 0usize..3) {
            let zone = Zone::named(["UTC", "Europe/Berlin", "-05:30"][zone]).unwrap();
            let at = Timestamp::from_unix(seconds, 0);
            let shown = zone.show_seconds(at).to_string();
            prop_assert_eq!(parse_time(&shown).unwrap().resolve(&Zone::utc(), NOW), at, "{}", shown);
        }

        #[test]
        fn lengths_add_up(hours in 0u64..100, minutes in 1u64..60) {
            let written = [format!("{hours}h{minutes}m"), format!("{hours} hours {minutes} min")];
            for text in written {
                prop_assert_eq!(length(&text), Some((hours * 60 + minutes) * 60_000_000_000), "{}", text);
            }
        }
    }
}
