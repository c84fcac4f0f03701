//! Numbers for people: three significant digits and a unit, usually at most six characters, so that columns stay
//! narrow.

use std::fmt;

/// The share of `part` in `whole`, from 0 on; 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What stands where a figure is not known.
pub const UNKNOWN: &str = "-";

/// A duration in nanoseconds: `850ns`, `12.3µs`, `1.20ms`, `345ms`, `1.50s`, `5m12s`, `3h05m`, `2d04h`.
#[derive(Copy, Clone, Debug)]
pub struct Nanos(pub u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        match ns {
            0..1_000 => f.pad(&format!("{ns}ns")),
            1_000..999_500 => padded(f, ns as f64 / 1e3, "µs"),
            999_500..999_500_000 => padded(f, ns as f64 / 1e6, "ms"),
            999_500_000..59_950_000_000 => padded(f, ns as f64 / 1e9, "s"),
            _ => {
                let seconds = ns.saturating_add(500_000_000) / 1_000_000_000;
                let (large, small, units) = match seconds {
                    0..3_600 => (seconds / 60, seconds % 60, ("m", "s")),
                    3_600..86_400 => (seconds / 3_600, seconds / 60 % 60, ("h", "m")),
                    _ => (seconds / 86_400, seconds / 3_600 % 24, ("d", "h")),
                };
                f.pad(&format!("{large}{}{small:02}{}", units.0, units.1))
            }
        }
    }
}

/// A count, or a rate, with decimal prefixes: `0`, `0.051`, `3.40`, `123`, `3.40k`, `12.3M`.
#[derive(Copy, Clone, Debug)]
pub struct Count(pub f64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
        if !self.0.is_finite() {
            return f.pad(UNKNOWN);
        }
        let mut value = self.0.max(0.0);
        let mut prefix = 0;
        while value >= 999.5 && prefix + 1 < PREFIXES.len() {
            value /= 1_000.0;
            prefix += 1;
        }
        if prefix == 0 && value == value.trunc() {
            return f.pad(&format!("{value:.0}"));
        }
        if prefix == 0 && value < 0.0995 {
            return if value < 0.0005 { f.pad("<.001") } else { f.pad(&format!("{value:.3}")) };
        }
        padded(f, value, PREFIXES[prefix])
    }
}

/// A [`Count`] with two significant digits before a prefix, at most four characters: `0.1`, `3.4`, `123`, `3.4k`, `12k`.
#[derive(Copy, Clone, Debug)]
pub struct Brief(pub f64);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let long = Count(self.0).to_string();
        let unit = long.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        match long[..long.len() - unit.len()].parse::<f64>() {
            Err(_) if self.0.is_finite() => f.pad("0.0"),
            Err(_) => f.pad(UNKNOWN),
            Ok(number) if number == number.trunc() || number >= 9.95 => f.pad(&format!("{number:.0}{unit}")),
            Ok(number) => f.pad(&format!("{number:.1}{unit}")),
        }
    }
}

/// Three significant digits.
fn padded(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    f.pad(&format!("{value:.decimals$}{unit}"))
}

/// A configured size in bytes: in units of 1024 where it is a multiple of them (`16MiB`), else as [`Bytes`]
/// (`1.05MB`).
#[derive(Copy, Clone, Debug)]
pub struct ByteSize(pub u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >= 1 << shift && self.0.trailing_zeros() >= shift {
                return f.pad(&format!("{}{unit}", self.0 >> shift));
            }
        }
        f.pad(&Bytes(self.0 as f64).to_string())
    }
}

/// Bytes with decimal prefixes: `0B`, `3.40kB`, `12.3MB`.
#[derive(Copy, Clone, Debug)]
pub struct Bytes(pub f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}B", Count(self.0)))
    }
}

/// A share of 1 in per cent, with the decimals of the format: `{}` gives `12%`, `{:.1}` gives `12.3%`.
#[derive(Copy, Clone, Debug)]
pub struct Percent(pub f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(0);
        let text = format!("{:.decimals$}%", self.0 * 100.0);
        // Not "-0.0%".
        let is_zero = text.starts_with('-') && !text.contains(|c: char| matches!(c, '1'..='9'));
        f.write_str(if is_zero { &text[1..] } else { &text })
    }
}

/// A ratio or score with two decimals: `0.53`.
#[derive(Copy, Clone, Debug)]
pub struct Ratio(pub f64);

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

/// A whole number in full: `49,559`.
#[derive(Copy, Clone, Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// `Some` as its figure, `None` as [`UNKNOWN`].
pub fn or_unknown<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.to_string(), |value| value.to_string())
}

/// Mean duration in nanoseconds; `None` when there is none.
pub fn mean_ns(latency: &sonar_core::Histogram) -> Option<f64> {
    let count = latency.count();
    (count > 0).then(|| latency.sum_ns() as f64 / count as f64)
}

/// `count` scaled up from a sample of one connection in `sample`.
pub const fn scaled(count: u64, sample: u32) -> u64 {
    count.saturating_mul(sample as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_say_them() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_000, "1.00µs"),
            (12_340, "12.3µs"),
            (999_499, "999µs"),
            (999_500, "1.00ms"),
            (1_200_000, "1.20ms"),
            (345_000_000, "345ms"),
            (1_500_000_000, "1.50s"),
            (59_940_000_000, "59.9s"),
            (59_960_000_000, "1m00s"),
            (312_000_000_000, "5m12s"),
            (11_100_000_000_000, "3h05m"),
            (187_200_000_000_000, "2d04h"),
        ] {
            assert_eq!(Nanos(ns).to_string(), text, "{ns}");
        }
        assert!(Nanos(u64::MAX).to_string().ends_with('h'));
    }

    #[test]
    fn sizes_are_shown_as_they_were_chosen() {
        let shown = [1 << 20, 3 << 29, 1_000, 4_096, 5_000_000].map(|bytes| ByteSize(bytes).to_string());
        assert_eq!(shown, ["1MiB", "1536MiB", "1.00kB", "4KiB", "5.00MB"]);
    }

    #[test]
    fn counts_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0004, "<.001"),
            (0.0006, "0.001"),
            (0.0512, "0.051"),
            (0.0996, "0.10"),
            (3.4, "3.40"),
            (9.996, "10.0"),
            (123.0, "123"),
            (999.0, "999"),
            (999.6, "1.00k"),
            (3_400.0, "3.40k"),
            (99_960.0, "100k"),
            (12_345_678.0, "12.3M"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(Count(value).to_string(), text, "{value}");
        }
        assert_eq!(format!("{:>7}", Count(3_400.0)), "  3.40k");
    }

    #[test]
    fn shares_bytes_and_long_numbers() {
        let shown = [
            format!("{}", Percent(0.126)),
            format!("{:.1}", Percent(0.126)),
            format!("{:.1}", Percent(-0.0004)),
        ];
        assert_eq!(shown, ["13%", "12.6%", "0.0%"]);
        assert_eq!(Percent(-0.12).to_string(), "-12%");
        assert_eq!(Bytes(12_345_678.0).to_string(), "12.3MB");
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(|n| Grouped(n).to_string()),
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn brief_counts_have_four_characters_at_most() {
        for (value, text) in [
            (0.0, "0"),
            (0.0004, "0.0"),
            (0.0512, "0.1"),
            (3.44, "3.4"),
            (9.94, "9.9"),
            (9.96, "10"),
            (123.0, "123"),
            (999.6, "1k"),
            (3_440.0, "3.4k"),
            (99_960.0, "100k"),
            (12_345_678.0, "12M"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(Brief(value).to_string(), text, "{value}");
        }
        let mut value = 1e-6;
        while value < 1e20 {
            assert!(Brief(value).to_string().len() <= 4, "{value}");
            value *= 1.013;
        }
    }
}
