//! The numbers that a day's file gives to shapes, applications and texts, so that each is stored once.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use sonar_core::history::{SeriesKey, metrics};
use sonar_core::operation::Application;
use sonar_core::{ShapeId, ShapeInfo};

use crate::format::Numbering;

/// The maximum number of shapes of a day; operations of further ones are counted under `other`.
pub const MAX_SHAPES: usize = 50_000;
/// The maximum number of ordered ids of a day; further ones are not stored.
const MAX_ORDERS: usize = 100_000;
/// The maximum number of applications of a day; further ones are counted under `other`.
const MAX_APPLICATIONS: usize = 10_000;
/// The maximum number of plans, hashes, wait classes and files of a day; further ones are counted with the others.
const MAX_TEXTS: usize = 20_000;
/// The maximum number of series of a day; further ones are counted as left out, except those that say what was not
/// observed.
const MAX_SERIES: usize = 20_000;

/// Numbers of one kind, from 1.
#[derive(Debug)]
pub(crate) struct Numbers<K> {
    known: HashMap<K, u32>,
    last: u32,
    most: usize,
    /// New keys that are not in the file yet.
    pub added: Vec<(u32, K)>,
}

impl<K: Hash + Eq + Clone> Numbers<K> {
    fn new(most: usize) -> Self {
        Self { known: HashMap::new(), last: 0, most, added: Vec::new() }
    }

    /// What the file has.
    pub fn load(&mut self, number: u32, key: K) {
        self.known.insert(key, number);
        self.last = self.last.max(number);
    }

    /// The number of `key`, a new one if there is room.
    fn number<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, own: impl FnOnce() -> K) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        match self.known.get(key) {
            Some(number) => Some(*number),
            None if self.known.len() >= self.most => None,
            None => self.add(own()),
        }
    }

    /// The number of `key`, a new one also if there is no room.
    fn number_always(&mut self, key: &K) -> Option<u32> {
        match self.known.get(key) {
            Some(number) => Some(*number),
            None => self.add(key.clone()),
        }
    }

    fn add(&mut self, key: K) -> Option<u32> {
        self.last = self.last.checked_add(1)?;
        self.known.insert(key.clone(), self.last);
        self.added.push((self.last, key));
        Some(self.last)
    }
}

/// All numbers of a file.
#[derive(Debug)]
pub(crate) struct Dictionary {
    /// The number of each shape, and whether the text that is stored was cut.
    shapes: HashMap<ShapeId, (u32, bool)>,
    last_shape: u32,
    /// Shapes that the file does not have yet, or only with a cut text.
    pub added_shapes: Vec<(u32, Arc<ShapeInfo>)>,
    pub orders: Numbers<ShapeId>,
    pub applications: Numbers<Arc<Application>>,
    pub texts: Numbers<Box<str>>,
    pub series: Numbers<SeriesKey>,
    pub layout: u32,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            shapes: HashMap::new(),
            last_shape: 0,
            added_shapes: Vec::new(),
            orders: Numbers::new(MAX_ORDERS),
            applications: Numbers::new(MAX_APPLICATIONS),
            texts: Numbers::new(MAX_TEXTS),
            series: Numbers::new(MAX_SERIES),
            layout: 1,
        }
    }
}

impl Dictionary {
    /// A shape that the file has.
    pub fn load_shape(&mut self, number: u32, id: ShapeId, cut: bool) {
        self.shapes.insert(id, (number, cut));
        self.last_shape = self.last_shape.max(number);
    }
}

impl Numbering for Dictionary {
    fn shape(&mut self, shape: &Arc<ShapeInfo>) -> Option<u32> {
        if shape.id == ShapeId(0) {
            return None;
        }
        let is_full = self.shapes.len() >= MAX_SHAPES;
        match self.shapes.entry(shape.id) {
            Entry::Occupied(mut known) => {
                let (number, was_cut) = *known.get();
                if was_cut && !shape.cut {
                    known.insert((number, false));
                    self.added_shapes.push((number, shape.clone()));
                }
                Some(number)
            }
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(place) => {
                self.last_shape = self.last_shape.checked_add(1)?;
                place.insert((self.last_shape, shape.cut));
                self.added_shapes.push((self.last_shape, shape.clone()));
                Some(self.last_shape)
            }
        }
    }

    fn order(&mut self, order: ShapeId) -> Option<u32> {
        self.orders.number(&order, || order)
    }

    fn application(&mut self, application: &Arc<Application>) -> Option<u32> {
        self.applications.number(application, || application.clone())
    }

    fn text(&mut self, text: &str) -> Option<u32> {
        self.texts.number(text, || text.into())
    }

    fn series(&mut self, key: &SeriesKey) -> Option<u32> {
        match metrics::is_loss(key) {
            true => self.series.number_always(key),
            false => self.series.number(key, || key.clone()),
        }
    }

    fn layout(&self) -> u32 {
        self.layout
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::Endpoint;

    use super::*;

    #[test]
    fn what_was_not_observed_has_a_number_where_no_other_series_has() {
        let server = Endpoint::v4([0; 4], 27_017);
        let mut day = Dictionary::default();
        let numbered = (0..MAX_SERIES + 3)
            .filter_map(|file| day.series(&metrics::FILE_READS.key(server, &file.to_string())));
        assert_eq!(numbered.count(), MAX_SERIES);
        let unread = day.series(&metrics::LOG_UNREAD.key(server, ""));
        assert!(unread.is_some());
        assert_eq!(day.series(&metrics::LOG_UNREAD.key(server, "")), unread);
        assert_eq!(day.series(&metrics::FILE_READS.key(server, "another")), None);
    }
}
