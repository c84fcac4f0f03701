//! What a span is compared with.

use sonar_core::history::Span;

use crate::kit::Zone;

const MS_PER_DAY: i64 = 86_400_000;

/// What a span is compared with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ComparedTime {
    /// The same time of day, this many days earlier.
    DaysEarlier(i64),
    /// This span.
    Span(Span),
}

impl ComparedTime {
    /// The span to compare `span` with; days are those of a clock in `zone`.
    pub fn of(self, span: Span, zone: &Zone) -> Span {
        match self {
            Self::Span(other) => other,
            Self::DaysEarlier(days) => {
                let earlier_ms = days.saturating_mul(MS_PER_DAY);
                let from = zone.at_clock(zone.clock(span.from).saturating_sub(earlier_ms));
                Span { from, to: from.plus_ns(span.length_ns()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yesterday_is_the_same_time_on_the_clock() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        // 2026-03-29T12:00:00+02:00, some hours after clocks went forward.
        let from = sonar_core::Timestamp::from_unix(1_774_778_400, 0);
        let span = Span { from, to: from.plus_ns(600_000_000_000) };
        let before = ComparedTime::DaysEarlier(1).of(span, &zone);
        assert_eq!(zone.show_seconds(before.from).to_string(), "2026-03-28T12:00:00+01:00");
        assert_eq!(before.length_ns(), span.length_ns());
        assert_eq!(ComparedTime::Span(before).of(span, &zone), before);
    }
}
