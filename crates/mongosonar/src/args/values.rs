//! Types of values that several commands take.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use sonar_core::Class;
use sonar_core::time_split::ConnectionSample;
use sonar_view::queries::{ClassSet, Form};

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClassArg {
    User,
    Internal,
    Monitoring,
    Replication,
    Waiting,
    All,
}

impl ClassArg {
    /// The classes asked for; without any, only `user`.
    pub fn classes(asked: &[Self]) -> ClassSet {
        let class = |one: &Self| match one {
            Self::User => Some(Class::User),
            Self::Internal => Some(Class::Internal),
            Self::Monitoring => Some(Class::Monitoring),
            Self::Replication => Some(Class::Replication),
            Self::Waiting => Some(Class::Waiting),
            Self::All => None,
        };
        if asked.contains(&Self::All) {
            ClassSet::ALL
        } else if asked.is_empty() {
            ClassSet::USER
        } else {
            asked.iter().filter_map(class).collect()
        }
    }
}

#[derive(ValueEnum, Copy, Clone, Debug, PartialEq, Eq)]
pub enum ShapeArg {
    Typed,
    Plain,
}

impl ShapeArg {
    /// The form that was asked for; without one, with the types of values.
    pub fn form(asked: Option<Self>) -> Form {
        match asked {
            Some(Self::Plain) => Form::Plain,
            Some(Self::Typed) | None => Form::Typed,
        }
    }
}

/// The values that are a number, a size or a time: a negative one is refused with what is accepted, instead of being
/// read as an option.
pub const NUMBERS: [&str; 14] = [
    "N",
    "1/N",
    "PORT",
    "TIME",
    "SIZE|TIME",
    "BYTES",
    "MS",
    "SECONDS",
    "MICROS",
    "KIB",
    "MIB",
    "PERCENT",
    "SHARE",
    "X.Y",
];

/// A parser of whole numbers in `range`. Its error gives the range and `example`, one of them.
pub fn number<N>(
    range: impl RangeBounds<N> + Clone + Send + Sync + 'static,
    example: N,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Copy + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| match (range.start_bound(), range.end_bound()) {
            (Bound::Included(low), Bound::Included(high)) => {
                format!("write a whole number from {low} to {high}, like {example}")
            }
            (Bound::Included(low), _) => format!("write a whole number, at least {low}, like {example}"),
            _ => format!("write a whole number, like {example}"),
        })
    }
}

/// The longest duration that a flag accepts: ten years.
const LONGEST: Duration = Duration::from_secs(87_600 * 3_600);

/// `500ms`, `10s`, `2m`, `1h`, or a plain number of seconds. The crate `humantime` takes neither a plain number nor
/// `1.5h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let wrong = || format!("{text:?} is not a duration: write it like 500ms, 10s, 2m or 1h");
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match text[digits..].trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let duration = Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())?;
    if duration < Duration::from_millis(10) {
        return Err(format!("{text} is too short: at least 10ms"));
    }
    // Times are 64-bit nanoseconds since 1970.
    if duration > LONGEST {
        return Err(format!("{text} is too long: at most 87600h"));
    }
    Ok(duration)
}

/// A number of at least 1 with a prefix, like `250000`, `500k`, `1.5G` or `2GiB`; `unit` is 1000 or 1024, what `k` means.
/// In the crate `bytesize` `k` is always 1000, and MongoDB's own options mean 1024.
///
/// # Errors
/// What is wrong with the text; `what` is what it should be.
pub fn parse_scaled(text: &str, unit: u64, what: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let wrong = || format!("{text:?} is no {what}: write it like 250000, 500k, 100M or 2G");
    let power = match text[digits..].trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b')
    {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let number: f64 = text[..digits].parse().map_err(|_| wrong())?;
    let value = number * (unit as f64).powi(power);
    if (1.0..1.8e19).contains(&value) { Ok(value as u64) } else { Err(wrong()) }
}

/// Reads which connections are followed: `1/N`.
pub fn parse_connections(text: &str) -> Result<ConnectionSample, String> {
    let every = text.trim().strip_prefix("1/").and_then(|every| every.trim().parse().ok());
    let every =
        every.ok_or_else(|| format!("{text:?} is not a sample: write it like 1/10, at most 1/65535"))?;
    Ok(ConnectionSample { every })
}

/// Reads the id of a shape, or its beginning: up to 16 hexadecimal digits.
pub fn parse_shape_id(text: &str) -> Result<String, String> {
    let id = text.trim().to_ascii_lowercase();
    if (1..=16).contains(&id.len()) && id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Ok(id);
    }
    Err(format!(
        "{text:?} is no id of a shape: write up to 16 digits from 0 to 9 and a to f, as `mongosonar queries --json` shows them"
    ))
}

/// An inclusive range of ports.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PortRange(pub u16, pub u16);

impl PortRange {
    /// Whether this is one of them.
    pub fn has(self, port: u16) -> bool {
        (self.0..=self.1).contains(&port)
    }
}

/// The only port, if it is a single one.
pub fn only_port(ports: &[PortRange]) -> Option<u16> {
    match ports {
        [PortRange(first, last)] if first == last => Some(*first),
        _ => None,
    }
}

/// `27017` or `27017-27020`.
pub fn parse_ports(text: &str) -> Result<PortRange, String> {
    let port = |text: &str| {
        text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| {
            format!("{text:?} is no port: write a number from 1 to 65535, or a range like 27017-27020")
        })
    };
    match text.split_once('-') {
        None => port(text).map(|port| PortRange(port, port)),
        Some((low, high)) => {
            let range = PortRange(port(low)?, port(high)?);
            if range.0 > range.1 {
                return Err(format!("the range {text} ends before it begins: write {}-{}", range.1, range.0));
            }
            Ok(range)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_named_by_the_beginning_of_its_id() {
        for (text, id) in [("1f2e3d4c5b6a7980", "1f2e3d4c5b6a7980"), ("1F2e", "1f2e"), (" 0 ", "0")] {
            assert_eq!(parse_shape_id(text).unwrap(), id);
        }
        for wrong in ["xyz", "", "find", "1f2e3d4c5b6a79801", "0x1f", "shop.orders"] {
            let said = parse_shape_id(wrong).unwrap_err();
            assert!(said.contains("16 digits from 0 to 9 and a to f"), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_number_outside_of_its_range_is_answered_with_the_range() {
        let rows = number(1_usize.., 20);
        assert_eq!((rows("1"), rows("500")), (Ok(1), Ok(500)));
        for wrong in ["0", "-5", "abc", "1.5", "", "99999999999999999999999"] {
            assert_eq!(rows(wrong).unwrap_err(), "write a whole number, at least 1, like 20", "{wrong}");
        }
        assert_eq!(number(2_u32..=64, 8)("65").unwrap_err(), "write a whole number from 2 to 64, like 8");
    }

    #[test]
    fn a_duration_has_a_unit_and_a_wrong_one_is_explained() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("87600h"), Ok(LONGEST));
        for long in ["87601h", "36028797018963968s", "1e300s", "99999999999999999999h"] {
            assert!(parse_duration(long).is_err(), "{long}");
        }
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        assert!(parse_duration("1ms").unwrap_err().contains("too short"));
        assert!(parse_duration("1x").unwrap_err().contains("500ms"));
    }

    #[test]
    fn ports_say_what_is_wrong_with_them() {
        assert_eq!(parse_ports("27017"), Ok(PortRange(27_017, 27_017)));
        assert_eq!(parse_ports("27017-27020"), Ok(PortRange(27_017, 27_020)));
        assert!(parse_ports("70000").unwrap_err().contains("1 to 65535"));
        assert!(parse_ports("0").is_err());
        assert!(parse_ports("20-10").unwrap_err().contains("10-20"));
        assert!(PortRange(5, 6).has(6) && !PortRange(5, 6).has(7));
    }
}
