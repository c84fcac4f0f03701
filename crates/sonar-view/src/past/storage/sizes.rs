//! How large collections and indexes are, and how much they grew.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use sonar_core::Endpoint;
use sonar_core::history::{HistoryWindow, SeriesMetric, SeriesSubject, SeriesValue, metrics};
use ts_rs::TS;

use super::left_out::LeftOutNames;
use crate::kit::server_address;

/// The most collections and indexes that are shown by name; all others are added up.
const MAX_SHOWN: usize = 100;
/// The most that have a size of their own while windows are read.
const MAX_SUMS: usize = 4_096;

/// A collection or an index.
#[derive(Clone, Debug, Serialize, TS)]
pub struct StoredSizeJson {
    /// `collection` or `index`; null for all others.
    pub subject: Option<&'static str>,
    /// `db.collection`, for an index with its name behind it; null for all others.
    pub name: Option<String>,
    /// The port of its server; null if it is not known.
    pub server: Option<u16>,
    /// The address of its server with the port, if the port alone is not its name; else missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub address: Option<String>,
    /// Bytes of its file at the end.
    pub bytes: f64,
    /// By how many bytes the file grew within the span; less than 0 if it shrank.
    pub grown_bytes: f64,
    /// Bytes in the file that can be reused; null for an index, and if the server does not say it.
    pub reusable_bytes: Option<f64>,
    /// Documents; null for an index.
    pub documents: Option<f64>,
}

/// The size of a collection or an index in the windows of a span.
#[derive(Copy, Clone, Default)]
struct SizeSum {
    /// Bytes in the first window that has them.
    first: Option<f64>,
    last: f64,
    reusable: Option<f64>,
    documents: Option<f64>,
}

impl SizeSum {
    fn grown(&self) -> f64 {
        self.first.map_or(0.0, |first| self.last - first)
    }

    /// Takes the value of a metric in a window later than all before.
    fn take(&mut self, metric: &str, value: &SeriesValue) {
        let is = |one: SeriesMetric| one.name == metric;
        if is(metrics::COLLECTION_STORAGE) || is(metrics::INDEX_SIZE) {
            self.first.get_or_insert(value.mean().unwrap_or(value.last));
            self.last = value.last;
        } else if is(metrics::COLLECTION_REUSABLE) {
            self.reusable = Some(value.last);
        } else if is(metrics::COLLECTION_DOCUMENTS) {
            self.documents = Some(value.last);
        }
    }
}

/// What a size is of.
type SizeKey = (SeriesSubject, Endpoint, Box<str>);

/// Sizes in all windows, which come by time.
#[derive(Default)]
pub(super) struct SizeSums {
    sums: BTreeMap<SizeKey, SizeSum>,
    /// Names without a place.
    left_out: LeftOutNames,
}

impl SizeSums {
    pub fn add(&mut self, window: &HistoryWindow) {
        for (key, value) in &window.series {
            if !matches!(key.subject, SeriesSubject::Collection | SeriesSubject::Index) {
                continue;
            }
            let of = (key.subject, key.server, key.name.clone());
            if self.sums.len() < MAX_SUMS || self.sums.contains_key(&of) {
                self.sums.entry(of).or_default().take(&key.metric, value);
            } else {
                self.left_out.add(&key.name);
            }
        }
    }

    /// How many had no place.
    pub fn left_out(&self) -> usize {
        self.left_out.count()
    }

    /// The largest, and all others.
    pub fn finish(self) -> Vec<StoredSizeJson> {
        let mut all: Vec<_> = self.sums.into_iter().collect();
        all.sort_by_key(|(_, sum)| Reverse(sum.last as u64));
        let others = all.split_off(all.len().min(MAX_SHOWN));
        let mut shown: Vec<_> = all.into_iter().map(|(key, sum)| StoredSizeJson::new(key, &sum)).collect();
        if !others.is_empty() {
            shown.push(StoredSizeJson {
                subject: None,
                name: None,
                server: None,
                address: None,
                bytes: others.iter().map(|(_, sum)| sum.last).sum(),
                grown_bytes: others.iter().map(|(_, sum)| sum.grown()).sum(),
                reusable_bytes: None,
                documents: None,
            });
        }
        shown
    }
}

impl StoredSizeJson {
    fn new(key: SizeKey, sum: &SizeSum) -> Self {
        let (subject, server, name) = key;
        Self {
            subject: Some(subject.name()),
            name: Some(name.into()),
            server: (server.port != 0).then_some(server.port),
            address: server_address(server),
            bytes: sum.last,
            grown_bytes: sum.grown(),
            reusable_bytes: sum.reusable,
            documents: sum.documents,
        }
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::Timestamp;
    use sonar_core::history::Resolution;

    use super::*;

    #[test]
    fn the_largest_have_their_growth_and_all_others_are_added_up() {
        let mut sums = SizeSums::default();
        let server = Endpoint::v4([0; 4], 27_017);
        let count = MAX_SHOWN + 20;
        for second in [0, 10] {
            let at = Timestamp::from_unix(1_000 + second, 0);
            let mut window = HistoryWindow::new(at, Resolution::TenSeconds);
            for number in 0..count {
                let key = metrics::COLLECTION_STORAGE.key(server, &format!("shop.c{number:03}"));
                window.sample(&key, at, (1_000 + number as u64 + second) as f64, 10.0);
            }
            window.sample(&metrics::COLLECTION_DOCUMENTS.key(server, "shop.c119"), at, 7.0, 10.0);
            sums.add(&window);
        }
        let shown = sums.finish();
        assert_eq!(shown.len(), MAX_SHOWN + 1);
        let first = &shown[0];
        assert_eq!((first.name.as_deref(), first.subject), (Some("shop.c119"), Some("collection")));
        assert_eq!((first.bytes, first.grown_bytes, first.documents), (1_129.0, 10.0, Some(7.0)));
        let others = &shown[MAX_SHOWN];
        assert_eq!((&others.name, others.grown_bytes), (&None, 200.0));
        assert_eq!(others.bytes, (0..20).map(|number| f64::from(1_010 + number)).sum::<f64>());
    }
}
