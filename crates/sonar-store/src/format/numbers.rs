//! What blobs name by number.

use std::sync::Arc;

use sonar_core::history::SeriesKey;
use sonar_core::operation::Application;
use sonar_core::{ShapeId, ShapeInfo};

use super::layout::Layout;

/// Gives numbers to what blobs name by number. `None`: there are too many.
pub trait Numbering {
    /// The number of a shape, at least 1.
    fn shape(&mut self, shape: &Arc<ShapeInfo>) -> Option<u32>;
    /// The number of an ordered id.
    fn order(&mut self, order: ShapeId) -> Option<u32>;
    /// The number of an application.
    fn application(&mut self, application: &Arc<Application>) -> Option<u32>;
    /// The number of a text, at least 1: a plan, a `queryHash`, a wait class, a file.
    fn text(&mut self, text: &str) -> Option<u32>;
    /// The number of the key of a series.
    fn series(&mut self, key: &SeriesKey) -> Option<u32>;
    /// The number of [`Layout::current`].
    fn layout(&self) -> u32;
}

/// Finds what blobs name by number. `None`: there is nothing with this number.
pub trait NumberLookup {
    /// The shape with this number, which is not 0.
    fn shape(&self, number: u32) -> Option<Arc<ShapeInfo>>;
    /// The ordered id with this number.
    fn order(&self, number: u32) -> Option<ShapeId>;
    /// The application with this number.
    fn application(&self, number: u32) -> Option<Arc<Application>>;
    /// The text with this number.
    fn text(&self, number: u32) -> Option<Arc<str>>;
    /// The key of a series with this number.
    fn series(&self, number: u32) -> Option<Arc<SeriesKey>>;
    /// The layout with this number.
    fn layout(&self, number: u32) -> Option<Arc<Layout>>;
}
