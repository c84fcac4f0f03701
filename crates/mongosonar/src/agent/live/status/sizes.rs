//! Which collections to measure next: a few in each window, to spare a server with many collections.

use sonar_core::Timestamp;
use sonar_core::history::{SeriesMetric, index_name, metrics};
use sonar_core::time::NS_PER_S;
use sonar_mongo::server_status::{CollectionList, CollectionSize};

use super::samples::StatusSamples;

/// The most collections of a server that are measured.
pub const MAX_COLLECTIONS: usize = 400;
/// The most collections that are measured in a window.
const PER_WINDOW: usize = 20;
/// Each collection is measured, and the list of collections read again, every five minutes: a little less, because a
/// round does not begin exactly on the second.
const EVERY_NS: u64 = 299 * NS_PER_S;

/// A collection, and when it was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListedCollection {
    name: (String, String),
    asked: Option<Timestamp>,
}

/// The collections of a server, and when each is due.
#[derive(Clone, Debug, Default)]
pub struct SizeSchedule {
    collections: Vec<ListedCollection>,
    listed: Option<Timestamp>,
    /// Collections that are not measured because there are too many.
    pub left_out: u64,
}

impl SizeSchedule {
    /// Whether the list of collections is old.
    pub fn wants_list(&self, now: Timestamp) -> bool {
        is_due(self.listed, now)
    }

    /// How many collections are measured.
    pub fn len(&self) -> usize {
        self.collections.len()
    }

    /// Notes that the list was asked for, with or without success.
    pub fn asked_for_list(&mut self, now: Timestamp) {
        self.listed = Some(now);
    }

    /// Replaces the list. Collections that were in it keep their times.
    pub fn set(&mut self, list: CollectionList) {
        let known = std::mem::take(&mut self.collections);
        let known: std::collections::BTreeMap<_, _> =
            known.into_iter().map(|one| (one.name, one.asked)).collect();
        let listed = |name| ListedCollection { asked: known.get(&name).copied().flatten(), name };
        self.collections = list.names.into_iter().map(listed).take(MAX_COLLECTIONS).collect();
        self.left_out = list.left_out;
    }

    /// The collections to measure now, those first that were not measured for longest.
    pub fn due(&mut self, now: Timestamp) -> Vec<(String, String)> {
        let mut due: Vec<_> = self.collections.iter_mut().filter(|one| is_due(one.asked, now)).collect();
        due.sort_by_key(|one| one.asked);
        due.into_iter()
            .take(PER_WINDOW)
            .map(|one| {
                one.asked = Some(now);
                one.name.clone()
            })
            .collect()
    }
}

/// A clock that was set back makes everything due.
fn is_due(asked: Option<Timestamp>, now: Timestamp) -> bool {
    asked.is_none_or(|asked| now.since(asked) >= EVERY_NS || asked > now)
}

/// Adds the sizes of a collection and its indexes.
pub fn add(samples: &mut StatusSamples<'_>, namespace: &str, size: &CollectionSize) {
    let mut sample = |metric: SeriesMetric, name: &str, value: u64| samples.add(metric, name, value as f64);
    sample(metrics::COLLECTION_DOCUMENTS, namespace, size.documents);
    sample(metrics::COLLECTION_SIZE, namespace, size.size);
    sample(metrics::COLLECTION_STORAGE, namespace, size.storage);
    if let Some(reusable) = size.reusable {
        sample(metrics::COLLECTION_REUSABLE, namespace, reusable);
    }
    for (index, bytes) in &size.indexes {
        sample(metrics::INDEX_SIZE, &index_name(namespace, index), *bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sonar_core::Endpoint;
    use sonar_core::history::{HistoryWindow, Resolution};

    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_unix(1_795_296_000 + second, 0)
    }

    fn list(count: usize) -> CollectionList {
        let names = (0..count).map(|number| ("shop".to_owned(), format!("c{number:04}"))).collect();
        CollectionList { names, left_out: 7, refused: 0 }
    }

    #[test]
    fn each_collection_is_measured_every_five_minutes_a_few_in_each_window() {
        let mut schedule = SizeSchedule::default();
        assert!(schedule.wants_list(at(0)));
        schedule.asked_for_list(at(0));
        schedule.set(list(1_000));
        assert_eq!((schedule.len(), schedule.left_out), (MAX_COLLECTIONS, 7));
        let mut asked: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for window in 0..90 {
            let due = schedule.due(at(window * 10));
            assert!(due.len() <= PER_WINDOW);
            due.into_iter().for_each(|(_, name)| asked.entry(name).or_default().push(window * 10));
        }
        assert_eq!(asked.len(), MAX_COLLECTIONS);
        for times in asked.values() {
            assert!(times.len() == 3 && times.windows(2).all(|pair| pair[1] - pair[0] == 300), "{times:?}");
        }
        assert!(!schedule.wants_list(at(290)) && schedule.wants_list(at(300)));
    }

    #[test]
    fn a_new_list_keeps_the_times_and_new_collections_come_first() {
        let mut schedule = SizeSchedule::default();
        schedule.set(list(2));
        assert_eq!(schedule.due(at(0)).len(), 2);
        schedule.set(list(3));
        assert_eq!(schedule.due(at(10)), [("shop".to_owned(), "c0002".to_owned())]);
        assert_eq!(schedule.due(at(20)), []);
        assert_eq!(schedule.due(Timestamp::from_unix(1_795_000_000, 0)).len(), 3, "the clock was set back");
    }

    #[test]
    fn sizes_are_series_of_the_collection_and_of_each_index() {
        let server = Endpoint::v4([0; 4], 5);
        let mut window = HistoryWindow::new(at(3), Resolution::TenSeconds);
        let size = CollectionSize {
            documents: 10,
            size: 4_000,
            storage: 8_192,
            reusable: None,
            indexes: [("user_1".to_owned(), 512)].into(),
        };
        let mut samples = StatusSamples { window: &mut window, server, at: at(3) };
        add(&mut samples, "shop.carts", &size);
        let found: Vec<_> =
            window.series.iter().map(|(key, value)| (&*key.name, &*key.metric, value.last)).collect();
        assert_eq!(
            found,
            [
                ("shop.carts", "collection.documents", 10.0),
                ("shop.carts", "collection.size_bytes", 4_000.0),
                ("shop.carts", "collection.storage_bytes", 8_192.0),
                ("shop.carts user_1", "index.size_bytes", 512.0),
            ]
        );
    }
}
