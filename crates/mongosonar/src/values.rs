//! Types of values that several commands take.

use std::time::Duration;

use clap::ValueEnum;
use sonar_core::Class;
use sonar_view::queries::Classes;

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
    /// The classes asked for; users' alone where none was.
    pub fn classes(asked: &[Self]) -> Classes {
        let class = |one: &Self| match one {
            Self::User => Some(Class::User),
            Self::Internal => Some(Class::Internal),
            Self::Monitoring => Some(Class::Monitoring),
            Self::Replication => Some(Class::Replication),
            Self::Waiting => Some(Class::Waiting),
            Self::All => None,
        };
        if asked.contains(&Self::All) {
            Classes::ALL
        } else if asked.is_empty() {
            Classes::USER
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

/// The longest time that a flag takes: ten years.
const LONGEST: Duration = Duration::from_secs(87_600 * 3_600);

/// `500ms`, `10s`, `2m`, `1h`, or a plain number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let wrong = || format!("{text:?} is no time: write it like 500ms, 10s, 2m or 1h");
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
    // Times are counted in nanoseconds since 1970, in 64 bits.
    if duration > LONGEST {
        return Err(format!("{text} is too long: at most 87600h"));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_a_wrong_one_is_explained() {
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
}
