//! What the machine, a control group or a member of a replica set denied a server, in words.

use sonar_core::changes::{MachineCause, MachineChange, MachineFigure};

use crate::ftdc::units;
use crate::kit::{Count, Nanos, Percent};

/// `other processes took the processors: they use 1.92 of 2 processors, up from 0.31`.
pub(super) fn sentence(change: &MachineChange) -> String {
    let of = |what: &str| change.figures.iter().find(|figure| figure.what == what);
    let show = |figure: &MachineFigure| {
        [figure.before, figure.after].map(|value| units::show(value, figure.unit.name()))
    };
    let both = |what: &str| of(what).map(show).unwrap_or_default();
    match change.cause {
        MachineCause::Processors => {
            let count = of("processors").map_or(0.0, |figure| figure.after);
            // Only one of the two may have risen, as far as its digits show: it comes first.
            let rose = |figure: &MachineFigure| {
                let shown = [figure.before, figure.after].map(|value| Count(value).to_string());
                figure.after > figure.before && shown[0] != shown[1]
            };
            let before = |figure: &MachineFigure| match rose(figure) {
                true => format!("up from {}", Count(figure.before)),
                false => format!("{} before", Count(figure.before)),
            };
            let used = of("processors_of_others").map(|figure| {
                let after = Count(figure.after);
                format!("they use {after} of {} processors, {}", Count(count), before(figure))
            });
            let waiting = of("threads_of_others").map(|figure| {
                let after = Count(figure.after);
                format!("{after} of their threads run or wait to run, {}", before(figure))
            });
            let mut figures: Vec<String> = used.into_iter().chain(waiting).collect();
            let has_risen = |what: &str| of(what).is_some_and(&rose);
            if has_risen("threads_of_others") && !has_risen("processors_of_others") {
                figures.reverse();
            }
            format!("other processes took the processors: {}", figures.join("; "))
        }
        MachineCause::PageCache => {
            let lost =
                of("page_cache_bytes").map_or(0.0, |figure| 1.0 - figure.after / figure.before.max(1.0));
            let [before, after] = both("page_cache_bytes");
            format!(
                "the page cache shrank by {}, from {before} to {after}, so that files are read from the disk again",
                Percent(lost)
            )
        }
        MachineCause::Swap => {
            let [before, after] = both("swap_in_per_second");
            format!("the machine reads memory back from swap: pages come in at {after}, up from {before}")
        }
        MachineCause::Throttled => {
            let [before, after] = both("throttled_periods_percent");
            format!(
                "the control group of the server throttled it: it stopped threads in {after} of its periods, up from \
                 {before}"
            )
        }
        MachineCause::Lag => {
            let ms = |value: f64| match (value * 1e6) as u64 {
                0 => "0s".to_owned(),
                ns => Nanos(ns).to_string(),
            };
            let lag = of("lag_ms").map_or_else(String::new, |figure| {
                format!(": it is {} behind the primary, up from {}", ms(figure.after), ms(figure.before))
            });
            format!("the member {} stands still{lag}", change.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::internals::FigureUnit;

    use super::*;

    #[test]
    fn each_cause_is_named_with_its_figures() {
        let figure = |what, unit, before, after| MachineFigure { what, unit, before, after };
        let ratio = FigureUnit::Ratio;
        for (cause, figures, expected) in [
            (
                MachineCause::Processors,
                vec![
                    figure("processors_of_others", ratio, 0.25, 1.75),
                    figure("threads_of_others", ratio, 0.5, 8.5),
                    figure("processors", FigureUnit::Count, 2.0, 2.0),
                ],
                "other processes took the processors: they use 1.75 of 2 processors, up from 0.25; 8.50 of their \
                 threads run or wait to run, up from 0.50",
            ),
            (
                MachineCause::Processors,
                vec![
                    figure("processors_of_others", ratio, 1.979, 1.981),
                    figure("threads_of_others", ratio, 3.5, 4.75),
                    figure("processors", FigureUnit::Count, 2.0, 2.0),
                ],
                "other processes took the processors: 4.75 of their threads run or wait to run, up from 3.50; they use \
                 1.98 of 2 processors, 1.98 before",
            ),
            (
                MachineCause::PageCache,
                vec![figure("page_cache_bytes", FigureUnit::Bytes, 4e9, 1e9)],
                "the page cache shrank by 75%, from 4.00GB to 1.00GB, so that files are read from the disk again",
            ),
            (
                MachineCause::Swap,
                vec![figure("swap_in_per_second", FigureUnit::PerSecond, 0.0, 500.0)],
                "the machine reads memory back from swap: pages come in at 500/s, up from 0/s",
            ),
            (
                MachineCause::Throttled,
                vec![figure("throttled_periods_percent", FigureUnit::Percent, 0.0, 90.0)],
                "the control group of the server throttled it: it stopped threads in 90.0 % of its periods, up from \
                 0.0 %",
            ),
            (
                MachineCause::Lag,
                vec![figure("lag_ms", FigureUnit::Milliseconds, 0.0, 35e3)],
                "the member db2:27017 stands still: it is 35.0s behind the primary, up from 0s",
            ),
        ] {
            let name = if cause == MachineCause::Lag { "db2:27017" } else { "" };
            let change = MachineChange { cause, name: name.into(), others: Vec::new(), figures };
            assert_eq!(sentence(&change), expected);
        }
    }
}
