//! Dates as servers write them.

/// Days from the Unix epoch to a civil date.
pub const fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day ends one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes
        .iter()
        .try_fold(0i64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

/// Milliseconds since the Unix epoch of `2026-11-21T00:39:39.510+0000`, also with `Z`, with `+00:00`, and
/// with more or fewer decimals; `None` for anything else. Without an offset it is taken as UTC.
#[inline]
pub fn iso(text: &[u8]) -> Option<i64> {
    iso_with_offset(text).map(|(ms, _)| ms)
}

/// The same, with its offset from UTC in minutes; `None` if it has none.
#[inline]
pub fn iso_with_offset(text: &[u8]) -> Option<(i64, Option<i16>)> {
    let (year, month, day) = (digits(text.get(..4)?)?, digits(text.get(5..7)?)?, digits(text.get(8..10)?)?);
    let (hour, minute, second) =
        (digits(text.get(11..13)?)?, digits(text.get(14..16)?)?, digits(text.get(17..19)?)?);
    let marks = text[4] == b'-' && text[7] == b'-' && matches!(text[10], b'T' | b' ') && text[13] == b':';
    let valid =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !marks || text[16] != b':' || !valid {
        return None;
    }
    let mut rest = &text[19..];
    let mut millis = 0;
    if let Some((b'.', after)) = rest.split_first() {
        let length = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        for digit in after[..length].iter().copied().chain([b'0'; 3]).take(3) {
            millis = millis * 10 + i64::from(digit - b'0');
        }
        rest = &after[length..];
    }
    let offset = match rest {
        [] => None,
        [b'Z'] => Some(0),
        [sign @ (b'+' | b'-'), rest @ ..] => {
            let (hours, minutes) = match rest {
                [_, _, _, _] => (&rest[..2], &rest[2..]),
                [_, _, b':', _, _] => (&rest[..2], &rest[3..]),
                [_, _] => (rest, b"0".as_slice()),
                _ => return None,
            };
            let minutes = digits(hours)? * 60 + digits(minutes)?;
            Some(if *sign == b'-' { -minutes } else { minutes })
        }
        _ => return None,
    };
    let east = offset.unwrap_or(0);
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - east * 60;
    // At most 99:99 either way.
    Some((seconds * 1_000 + millis, offset.map(|minutes| minutes as i16)))
}

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const DAY_MS: i64 = 86_400_000;

/// The latest time that a date without a year can stand for: a day after `reference_ms`, or where that is not known (0),
/// the end of the century.
fn latest(reference_ms: i64) -> i64 {
    match reference_ms {
        0 => days(2100, 1, 1) * DAY_MS - 1,
        known => known.saturating_add(DAY_MS),
    }
}

/// The reference that puts dates without a year into `year`.
pub fn end_of_year(year: i64) -> i64 {
    days(year + 1, 1, 1) * DAY_MS - 1 - DAY_MS
}

/// Every date has each weekday within this many years, also 29 February, and across a year such as 2100 without one.
const YEARS_OF_WEEKDAYS: i64 = 40;

/// Milliseconds since the Unix epoch of `Mon Aug  5 20:21:43.100`, as 2.4 and earlier write it, and its length. It
/// has neither year nor time zone: it counts as UTC, in the last year in which the date has this weekday and is at
/// most a day after `reference_ms`. `None` if there is no such year.
pub fn ctime(text: &[u8], reference_ms: i64) -> Option<(i64, usize)> {
    let head = text.get(..19)?;
    let weekday = DAYS.iter().position(|name| *name == &head[..3])? as i64;
    if head[3] != b' ' || head[7] != b' ' || head[10] != b' ' {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == &head[4..7])? as i64 + 1;
    let day = if head[8] == b' ' { digits(&head[9..10])? } else { digits(&head[8..10])? };
    if head[13] != b':' || head[16] != b':' || !(1..=31).contains(&day) {
        return None;
    }
    let (hour, minute, second) = (digits(&head[11..13])?, digits(&head[14..16])?, digits(&head[17..19])?);
    let (millis, length) = match text.get(19..23) {
        Some([b'.', rest @ ..]) => (digits(rest)?, 23),
        _ => (0, 19),
    };
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let of_day = ((hour * 60 + minute) * 60 + second) * 1_000 + millis;
    let latest = latest(reference_ms);
    // Not before the real year.
    let newest = 1970 + latest.div_euclid(DAY_MS) / 365;
    let oldest = (newest - YEARS_OF_WEEKDAYS).max(1970);
    (oldest..=newest).rev().find_map(|year| {
        let date = days(year, month, day);
        let is_in_month = date < days(year + month / 12, month % 12 + 1, 1);
        let at = date * DAY_MS + of_day;
        // The first day of 1970 was a Thursday.
        let fits = is_in_month && (date + 3).rem_euclid(7) == weekday && at <= latest;
        fits.then_some((at, length))
    })
}

/// Milliseconds since the Unix epoch of `Nov  3 18:28:32`, as syslog writes it, and its length. It has neither year nor
/// time zone: it counts as UTC, in the last year in which it is at most a day after `reference_ms`.
pub fn syslog(text: &[u8], reference_ms: i64) -> Option<(i64, usize)> {
    const LENGTH: usize = 15;
    let head = text.get(..LENGTH)?;
    let month = MONTHS.iter().position(|name| *name == &head[..3])? as i64 + 1;
    let day = if head[4] == b' ' { digits(&head[5..6])? } else { digits(&head[4..6])? };
    let marks = [(3, b' '), (6, b' '), (9, b':'), (12, b':')];
    let (hour, minute, second) = (digits(&head[7..9])?, digits(&head[10..12])?, digits(&head[13..15])?);
    let valid = (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if marks.iter().any(|(at, mark)| head[*at] != *mark) || !valid {
        return None;
    }
    let of_day = ((hour * 60 + minute) * 60 + second) * 1_000;
    let latest = latest(reference_ms);
    let newest = 1970 + latest.div_euclid(DAY_MS) / 365;
    (newest - 8..=newest).rev().find_map(|year| {
        let date = days(year, month, day);
        let is_in_month = date < days(year + month / 12, month % 12 + 1, 1);
        let at = date * DAY_MS + of_day;
        (is_in_month && at <= latest).then_some((at, LENGTH))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_without_a_year_is_in_the_last_year_it_can_be_in() {
        let august = iso(b"2013-08-05T20:21:43.100Z").unwrap();
        let january = iso(b"2014-01-02T00:00:00Z").unwrap();
        assert_eq!(ctime(b"Mon Aug  5 20:21:43.100 [conn4]", august), Some((august, 23)));
        assert_eq!(ctime(b"Mon Aug  5 20:21:43.100", january), Some((august, 23)));
        assert_eq!(ctime(b"Thu Jan  2 00:00:00 [conn4]", january), Some((january, 19)));
        let december = iso(b"2013-12-31T23:59:59Z").unwrap();
        assert_eq!(ctime(b"Tue Dec 31 23:59:59", january), Some((december, 19)));
        assert_eq!(ctime(b"Mon Foo  5 20:21:43.100", january), None);
        // From `date -d`: the weekday tells which year it was, however late the file was copied.
        let copied = iso(b"2026-11-25T06:00:00Z").unwrap();
        for (text, year) in [
            ("Mon Aug  5 20:21:43", "2024-08-05T20:21:43Z"),
            ("Tue Aug  5 20:21:43", "2025-08-05T20:21:43Z"),
            ("Wed Aug  5 20:21:43", "2026-08-05T20:21:43Z"),
            ("Sun Aug  5 20:21:43", "2018-08-05T20:21:43Z"),
            ("Thu Nov 26 05:59:59", "2026-11-26T05:59:59Z"),
            ("Thu Nov 26 06:00:01", "2020-11-26T06:00:01Z"),
            ("Thu Dec 31 23:59:59", "2020-12-31T23:59:59Z"),
            ("Wed Feb 29 12:00:00", "2012-02-29T12:00:00Z"),
            ("Sun Feb 29 12:00:00", "2004-02-29T12:00:00Z"),
        ] {
            let expected = iso(year.as_bytes()).map(|at| (at, 19));
            assert_eq!(ctime(text.as_bytes(), copied), expected, "{text}");
        }
        // Where the reference is not known, it is still a date.
        assert!(ctime(b"Mon Aug  5 20:21:43.100 [conn4]", 0).is_some());
        for text in ["Mon Feb 30 12:00:00", "Tue Apr 31 12:00:00", "Xyz Aug  5 20:21:43"] {
            assert_eq!(ctime(text.as_bytes(), copied), None, "{text}");
        }
        assert_eq!(ctime(b"Mon Aug  5 20:21", january), None);
    }

    #[test]
    fn dates_of_every_version_are_read() {
        let expected = Some(1_795_221_579_510);
        for text in [
            "2026-11-21T00:39:39.510+0000",
            "2026-11-21T00:39:39.510Z",
            "2026-11-21T00:39:39.510+00:00",
            "2026-11-21T01:39:39.510+01:00",
            "2026-11-20T19:09:39.510-05:30",
            "2026-11-21T00:39:39.510999Z",
        ] {
            assert_eq!(iso(text.as_bytes()), expected, "{text}");
        }
        for (text, offset) in [
            ("2026-11-21T00:39:39.510Z", Some(0)),
            ("2026-11-21T00:39:39.510+0530", Some(330)),
            ("2026-11-21T00:39:39.510-08:00", Some(-480)),
            ("2026-11-21T00:39:39.510", None),
        ] {
            assert_eq!(iso_with_offset(text.as_bytes()).unwrap().1, offset, "{text}");
        }
        assert_eq!(iso(b"1970-01-01T00:00:00.000Z"), Some(0));
        assert_eq!(iso(b"2000-02-29T00:00:00.5Z"), Some(951_782_400_500));
        for text in [
            "",
            "2026-11-21",
            "2026-13-21T00:39:39.510Z",
            "2026-11-21T00:39:39.510+0",
            "x026-11-21T00:39:39Z",
        ] {
            assert_eq!(iso(text.as_bytes()), None, "{text}");
        }
    }
}
