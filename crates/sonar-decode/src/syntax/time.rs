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
        for at in 0..3 {
            millis = millis * 10 + if at < length { i64::from(after[at] - b'0') } else { 0 };
        }
        rest = &after[length..];
    }
    let offset = match rest {
        [] | [b'Z'] => 0,
        [sign @ (b'+' | b'-'), rest @ ..] => {
            let (hours, minutes) = match rest {
                [_, _, _, _] => (&rest[..2], &rest[2..]),
                [_, _, b':', _, _] => (&rest[..2], &rest[3..]),
                [_, _] => (rest, b"0".as_slice()),
                _ => return None,
            };
            let minutes = digits(hours)? * 60 + digits(minutes)?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset * 60;
    Some(seconds * 1_000 + millis)
}

#[cfg(test)]
mod tests {
    use super::*;

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
