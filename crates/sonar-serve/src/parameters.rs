//! The parameters of a request.

use std::fmt::Display;
use std::str::FromStr;

use sonar_core::Timestamp;
use sonar_core::history::Span;
use sonar_core::time::NS_PER_S;
use sonar_view::kit::Zone;
use sonar_view::past::HistoryView;

use crate::limits::{PageLimits, PageRefusal};
use crate::problem::PageProblem;

/// The most parameters of a request.
const MAX_PARAMETERS: usize = 32;

/// The parameters of a request that nobody has asked for yet.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<Parameter>);

#[derive(Debug)]
struct Parameter {
    name: String,
    value: String,
}

/// A time as it is written in a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AskedMoment {
    At(Timestamp),
    /// Nanoseconds before now.
    Ago(u64),
}

impl AskedMoment {
    fn parse(text: &str) -> Option<Self> {
        if let Some(ago) = text.strip_prefix('-') {
            let unit_at = ago.len().checked_sub(1).filter(|at| ago.is_char_boundary(*at))?;
            let (count, unit) = ago.split_at(unit_at);
            let seconds = match unit {
                "s" => 1,
                "m" => 60,
                "h" => 3_600,
                "d" => 86_400,
                _ => return None,
            };
            let count = Some(count).filter(|count| count.bytes().all(|digit| digit.is_ascii_digit()))?;
            return count.parse::<u64>().ok()?.checked_mul(seconds * NS_PER_S).map(Self::Ago);
        }
        let at: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(at.as_nanosecond()).ok().map(|ns| Self::At(Timestamp::from_unix_ns(ns)))
    }

    fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ns) => now.minus_ns(ns),
        }
    }
}

impl Parameters {
    /// Those of the query of an address.
    ///
    /// # Errors
    /// There are too many, or one is given twice.
    pub fn parse(query: Option<&str>) -> Result<Self, PageProblem> {
        let mut all: Vec<Parameter> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if all.iter().any(|one| one.name == name) {
                return Err(PageProblem::wrong(&name, format!("{name} is given twice")));
            }
            if all.len() == MAX_PARAMETERS {
                let words = format!("there are more than {MAX_PARAMETERS} parameters");
                return Err(PageProblem::new(PageRefusal::Question, words));
            }
            all.push(Parameter { name: name.into_owned(), value: value.into_owned() });
        }
        Ok(Self(all))
    }

    /// The value of a parameter, if it was given.
    pub fn text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|one| one.name == name)?;
        Some(self.0.swap_remove(at).value)
    }

    /// The value of a parameter that is a number of this range.
    ///
    /// # Errors
    /// It is none.
    pub fn number<T>(
        &mut self,
        name: &str,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<Option<T>, PageProblem>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse::<T>().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            PageProblem::wrong(name, format!("{name} is a number from {least} to {most}, not {text:?}"))
        })
    }

    /// The value of a parameter that is one of these names.
    ///
    /// # Errors
    /// It is none.
    pub fn one_of<T: Copy>(
        &mut self,
        parameter: &str,
        all: impl IntoIterator<Item = T>,
        name: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, PageProblem> {
        let Some(text) = self.text(parameter) else { return Ok(None) };
        let all: Vec<T> = all.into_iter().collect();
        let found = all.iter().copied().find(|one| name(*one) == text);
        found.map(Some).ok_or_else(|| {
            let names: Vec<_> = all.into_iter().map(name).collect();
            PageProblem::wrong(parameter, format!("{parameter} is one of {}, not {text:?}", names.join(" ")))
        })
    }

    /// The value of a parameter that is a time.
    ///
    /// # Errors
    /// It is none.
    pub fn time(&mut self, name: &str, now: Timestamp) -> Result<Option<Timestamp>, PageProblem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let moment = AskedMoment::parse(&text).ok_or_else(|| {
            let example = "2026-05-01T10:00:00Z, or -15m, -2h, -7d for a time before now";
            PageProblem::wrong(name, format!("{name} is a time like {example}, not {text:?}"))
        })?;
        Ok(Some(moment.at(now)))
    }

    /// The zone of times in sentences: UTC, if no other one is asked for.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn zone(&mut self) -> Result<Zone, PageProblem> {
        let Some(name) = self.text("zone") else { return Ok(Zone::utc()) };
        Zone::named(&name).map_err(|words| PageProblem::wrong("zone", words))
    }

    /// The span from `from` to `to`: the last hour without both of them, else to the ends of the history.
    ///
    /// # Errors
    /// A time is none, they are in the wrong order, or the span is too long.
    pub fn span(
        &mut self,
        history: &HistoryView<'_>,
        now: Timestamp,
        limits: &PageLimits,
    ) -> Result<Span, PageProblem> {
        let (from, to) = (self.time("from", now)?, self.time("to", now)?);
        let extent = history.extent();
        let span = match (from, to) {
            (None, None) => history.last_hour(),
            _ => Span { from: from.unwrap_or(extent.from), to: to.unwrap_or(extent.to) },
        };
        if to.is_some() && span.to <= span.from {
            return Err(PageProblem::wrong("to", "to is not later than from"));
        }
        if span.length_ns() > limits.span_ns {
            let day_ns = 86_400 * NS_PER_S;
            let (asked, most) = (span.length_ns().div_ceil(day_ns), limits.span_ns / day_ns);
            let words = format!(
                "{asked} days are too many for one answer: choose from and to at most {most} days apart"
            );
            return Err(PageProblem::new(PageRefusal::TooMuch, words).of_parameter("from"));
        }
        Ok(span)
    }

    /// Whether they ask for a range between two times that had ended before the end of the newest window, in nanoseconds since
    /// 1970. What is stored later does not belong to it.
    pub fn is_closed(&self, newest_end_ns: u64) -> bool {
        let at = |name: &str| {
            let found = self.0.iter().find(|one| one.name == name)?;
            match AskedMoment::parse(&found.value)? {
                AskedMoment::At(at) => Some(at.unix_ns()),
                // It moves with the time.
                AskedMoment::Ago(_) => None,
            }
        };
        at("from").is_some() && at("to").is_some_and(|to| to < newest_end_ns)
    }

    /// Refuses what is left: who misspelt a parameter would get an answer to another question.
    ///
    /// # Errors
    /// Something is left.
    pub fn finish(self) -> Result<(), PageProblem> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some(Parameter { name, .. }) => {
                let words = format!("there is no parameter {name:?} here; docs/page.md lists them");
                Err(PageProblem::wrong(&name, words))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Parameters {
        Parameters::parse(Some(query)).unwrap()
    }

    fn problem(problem: PageProblem) -> String {
        format!("{problem:?}")
    }

    #[test]
    fn parameters_are_taken_once_and_what_is_left_is_refused() {
        let mut parameters = parse("filter=a%26b+c&limit=5&fro=1");
        assert_eq!(parameters.text("filter").as_deref(), Some("a&b c"));
        assert_eq!(parameters.text("filter"), None);
        assert_eq!(parameters.number("limit", 1..=10_u32), Ok(Some(5)));
        assert!(problem(parameters.finish().unwrap_err()).contains("\"fro\""));
        assert_eq!(parse("").finish(), Ok(()));
        assert!(problem(Parameters::parse(Some("a=1&a=2")).unwrap_err()).contains("a is given twice"));
        let many: String = (0..=MAX_PARAMETERS).map(|at| format!("p{at}=&")).collect();
        assert!(Parameters::parse(Some(&many)).is_err());
        for wrong in ["0", "11", "-1", "x", ""] {
            let error = parse(&format!("limit={wrong}")).number("limit", 1..=10_u32).unwrap_err();
            assert!(problem(error).contains("from 1 to 10"), "{wrong}");
        }
    }

    #[test]
    fn times_are_exact_or_before_now() {
        let now = Timestamp::from_unix(1_700_000_000, 0);
        let time = |text: &str| parse(&format!("at={text}")).time("at", now).ok().flatten();
        assert_eq!(time("2023-11-14T22:13:20Z"), Some(now));
        assert_eq!(time("2023-11-14T23:13:20%2B01:00"), Some(now));
        let ago = |seconds: u64| Some(Timestamp::from_unix(1_700_000_000 - seconds, 0));
        assert_eq!([time("-5s"), time("-15m"), time("-2h"), time("-7d")], [5, 900, 7_200, 604_800].map(ago));
        assert_eq!(time("-99999d"), Some(Timestamp::from_unix_ns(0)), "before all time");
        for wrong in [
            "-99999999999999999d",
            "",
            "-",
            "-h",
            "-2",
            "-2y",
            "-+2h",
            "-2%C3%A9",
            "now",
            "14:05",
            "1960-01-01T00:00:00Z",
        ] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_range_is_closed_once_a_later_window_is_stored() {
        let end_ns = Timestamp::from_unix(1_700_000_000, 0).unix_ns();
        let is_closed = |query: &str| parse(query).is_closed(end_ns);
        assert!(is_closed("zone=UTC&from=2023-11-14T22:00:00Z&to=2023-11-14T22:13:19Z"));
        for open in [
            "",
            "from=2023-11-14T22:00:00Z",
            "to=2023-11-14T22:13:19Z",
            "from=2023-11-14T22:00:00Z&to=2023-11-14T22:13:20Z",
            "from=-2h&to=2023-11-14T22:13:19Z",
            "from=2023-11-14T22:00:00Z&to=-1h",
            "from=2023-11-14T22:00:00Z&to=now",
        ] {
            assert!(!is_closed(open), "{open}");
        }
    }

    #[test]
    fn zones_have_names() {
        assert_eq!(parse("").zone().unwrap(), Zone::utc());
        assert_eq!(parse("zone=%2B02:00").zone().unwrap(), Zone::fixed(7_200));
        assert!(problem(parse("zone=Nowhere").zone().unwrap_err()).contains("Nowhere"));
    }
}
