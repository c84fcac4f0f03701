//! The series of many windows side by side.

use std::cmp::Ordering;

use crate::history::{HistoryWindow, SeriesKey, SeriesValue};

/// What windows have of each series, by key. `add` gets the values of a series by time, each with the number of its window.
///
/// All windows have nearly the same series in the same order, so that they are walked side by side: to look each up by its
/// key would compare names some ten times as often. The worst case, names that are others in each window, takes a comparison
/// for each name and window.
pub(super) fn columns<'a, T: Default>(
    windows: impl Iterator<Item = &'a HistoryWindow>,
    wants: impl Fn(&SeriesKey) -> bool,
    mut add: impl FnMut(usize, &mut T, &SeriesValue),
) -> Vec<(&'a SeriesKey, T)> {
    let mut all: Vec<(&SeriesKey, T)> = Vec::new();
    for (number, window) in windows.enumerate() {
        let mut at = 0;
        for (key, value) in window.series.iter().filter(|(key, _)| wants(key)) {
            let mut is_known = false;
            while let Some((known, _)) = all.get(at) {
                match (*known).cmp(key) {
                    Ordering::Less => at += 1,
                    order => {
                        is_known = order == Ordering::Equal;
                        break;
                    }
                }
            }
            if !is_known {
                all.insert(at, (key, T::default()));
            }
            add(number, &mut all[at].1, value);
            at += 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::history::{Resolution, SeriesSubject};
    use crate::{Endpoint, Timestamp};

    proptest! {
        #[test]
        fn columns_are_those_of_a_map(
            windows in proptest::collection::vec(proptest::collection::btree_set((0u8..4, 0u8..4), 0..12), 0..8),
        ) {
            let windows: Vec<HistoryWindow> = windows
                .iter()
                .enumerate()
                .map(|(second, keys)| {
                    let at = Timestamp::from_unix(second as u64 * 10, 0);
                    let mut window = HistoryWindow::new(at, Resolution::TenSeconds);
                    for (name, metric) in keys {
                        let key = SeriesKey {
                            subject: if *metric == 3 { SeriesSubject::Machine } else { SeriesSubject::Device },
                            server: Endpoint::default(),
                            name: name.to_string().into(),
                            metric: metric.to_string().into(),
                        };
                        window.sample(&key, at, f64::from(*name), 10.0);
                    }
                    window
                })
                .collect();
            let wants = |key: &SeriesKey| *key.name != *"2";
            let mut expected: BTreeMap<&SeriesKey, Vec<usize>> = BTreeMap::new();
            for (number, window) in windows.iter().enumerate() {
                for key in window.series.keys().filter(|key| wants(key)) {
                    expected.entry(key).or_default().push(number);
                }
            }
            let found = columns(windows.iter(), wants, |number, all: &mut Vec<usize>, _| all.push(number));
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
