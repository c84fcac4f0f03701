//! A window as bytes: what is written is read, and no bytes do harm.

use std::sync::Arc;

use crate::common::*;
use proptest::prelude::*;
use sonar_core::history::{HistoryWindow, Resolution, SeriesKey};
use sonar_core::operation::Application;
use sonar_core::time_split::{OTHER, RowSplit, TimePart, WaitTotal};
use sonar_core::{Class, Row, ShapeId, ShapeInfo, Subject};
use sonar_store::StoredWindow;
use sonar_store::format::{BlobError, Layout, NumberLookup, Numbering, blob_of, decode, encode};

/// Numbers in memory.
#[derive(Default)]
struct Memory {
    shapes: Vec<Arc<ShapeInfo>>,
    orders: Vec<ShapeId>,
    applications: Vec<Arc<Application>>,
    texts: Vec<Arc<str>>,
    series: Vec<Arc<SeriesKey>>,
    /// The maximum number of each kind.
    most: usize,
}

fn number<T>(all: &mut Vec<T>, most: usize, (is_same, new): (impl Fn(&T) -> bool, T)) -> Option<u32> {
    if let Some(at) = all.iter().position(is_same) {
        return Some(at as u32 + 1);
    }
    (all.len() < most).then(|| {
        all.push(new);
        all.len() as u32
    })
}

impl Numbering for Memory {
    fn shape(&mut self, shape: &Arc<ShapeInfo>) -> Option<u32> {
        if shape.id == ShapeId(0) {
            return None;
        }
        number(&mut self.shapes, self.most, (|known| known.id == shape.id, shape.clone()))
    }

    fn order(&mut self, order: ShapeId) -> Option<u32> {
        number(&mut self.orders, self.most, (|known| *known == order, order))
    }

    fn application(&mut self, application: &Arc<Application>) -> Option<u32> {
        number(&mut self.applications, self.most, (|known| known == application, application.clone()))
    }

    fn text(&mut self, text: &str) -> Option<u32> {
        number(&mut self.texts, self.most, (|known| &**known == text, text.into()))
    }

    fn series(&mut self, key: &SeriesKey) -> Option<u32> {
        number(&mut self.series, self.most, (|known| **known == *key, Arc::new(key.clone())))
    }

    fn layout(&self) -> u32 {
        1
    }
}

fn of<T: Clone>(all: &[T], number: u32) -> Option<T> {
    all.get((number as usize).checked_sub(1)?).cloned()
}

impl NumberLookup for Memory {
    fn shape(&self, number: u32) -> Option<Arc<ShapeInfo>> {
        of(&self.shapes, number)
    }

    fn order(&self, number: u32) -> Option<ShapeId> {
        of(&self.orders, number)
    }

    fn application(&self, number: u32) -> Option<Arc<Application>> {
        of(&self.applications, number)
    }

    fn text(&self, number: u32) -> Option<Arc<str>> {
        of(&self.texts, number)
    }

    fn series(&self, number: u32) -> Option<Arc<SeriesKey>> {
        of(&self.series, number)
    }

    fn layout(&self, number: u32) -> Option<Arc<Layout>> {
        (number == 1).then(|| Arc::new(Layout::parse(&Layout::current())))
    }
}

fn written(window: &HistoryWindow, memory: &mut Memory) -> Vec<u8> {
    encode(&StoredWindow::of(window), memory, 3).unwrap()
}

fn read(blob: &[u8], memory: &Memory) -> Result<HistoryWindow, BlobError> {
    let span = span(DAY, DAY + 10);
    let mut window = StoredWindow::spanning(span);
    decode(blob, span, memory, &mut window).map(|()| window.window)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_window_survives(seed in any::<u64>(), operations in 0u64..300) {
        let mut memory = Memory { most: usize::MAX, ..Memory::default() };
        let window = window(DAY, operations, &mut Random(seed));
        let blob = written(&window, &mut memory);
        prop_assert_eq!(comparable(&read(&blob, &memory).unwrap()), comparable(&window));
    }

    /// The checksum is right, and the content is anything.
    #[test]
    fn no_bytes_do_harm(seed in any::<u64>(), changes in 1usize..20) {
        let mut random = Random(seed);
        let mut memory = Memory { most: usize::MAX, ..Memory::default() };
        let window = window(DAY, random.below(30), &mut random);
        let blob = written(&window, &mut memory);
        let mut body = match blob[1] {
            0 => blob[6..].to_vec(),
            _ => zstd::bulk::decompress(&blob[6..], 1 << 24).unwrap(),
        };
        prop_assert!(read(&blob_of(&body), &memory).is_ok());
        for _ in 0..changes {
            let at = random.below(body.len() as u64) as usize;
            match random.below(3) {
                0 => body[at] = random.next() as u8,
                1 => body[at] ^= 1 << random.below(8),
                _ => body.truncate(at + 1),
            }
        }
        if let Ok(window) = read(&blob_of(&body), &memory) {
            let _ = comparable(&window);
        }
        let mut torn = blob;
        let at = random.below(torn.len() as u64) as usize;
        torn[at] ^= 1 << random.below(8);
        prop_assert!(read(&torn, &memory).is_err(), "the checksum notices every bit");
    }
}

#[test]
fn without_numbers_operations_are_counted_under_other() {
    let window = window(DAY, 300, &mut Random(1));
    let mut memory = Memory { most: 2, ..Memory::default() };
    let blob = written(&window, &mut memory);
    let read = read(&blob, &memory).unwrap();
    assert_eq!(calls(&read), calls(&window), "no operation is lost");
    let other = |window: &HistoryWindow| {
        window
            .window
            .shapes
            .iter()
            .filter(|row| row.key().shape == ShapeId(0))
            .map(|row| row.figures().calls)
            .sum::<u64>()
    };
    assert_eq!(other(&window), 0);
    assert!(other(&read) > 0);
    let folded = |window: &HistoryWindow| window.window.coverage.shapes_folded;
    assert!(folded(&read) - folded(&window) > 100, "and it is counted");
    for row in read.window.shapes.iter() {
        for observed in row.sources().filter_map(|source| row.observed_by(source)) {
            let shares: u64 = observed.apps.iter().map(|(_, share)| share.calls).sum();
            assert_eq!(shares + observed.apps.other.calls, observed.figures.calls);
            assert!(observed.apps.len() <= 2);
        }
    }
    let splits = |window: &HistoryWindow| {
        let mut all = RowSplit::default();
        window.window.shapes.iter().filter_map(|row| row.split.as_ref()).for_each(|split| all.merge(split));
        (all.operations, all.files.values().map(|file| file.bytes).sum::<u64>(), all.split)
    };
    assert_eq!(splits(&read), splits(&window));
    let named =
        |row: &Row| row.split.iter().flat_map(|split| split.files.keys().cloned()).collect::<Vec<_>>();
    assert!(
        read.window.shapes.iter().flat_map(named).all(|name| memory.texts.contains(&name) || *name == *OTHER)
    );
    let series = window.series.len() as u64;
    assert_eq!(read.series_left_out, window.series_left_out + series - 2);
    assert_eq!(read.series.len(), 2);
}

#[test]
fn parts_that_this_program_does_not_know_are_unexplained() {
    /// What a program with other names of parts wrote.
    struct Other<'a>(&'a Memory);
    impl NumberLookup for Other<'_> {
        fn shape(&self, number: u32) -> Option<Arc<ShapeInfo>> {
            self.0.shape(number)
        }
        fn order(&self, number: u32) -> Option<ShapeId> {
            self.0.order(number)
        }
        fn application(&self, number: u32) -> Option<Arc<Application>> {
            self.0.application(number)
        }
        fn text(&self, number: u32) -> Option<Arc<str>> {
            self.0.text(number)
        }
        fn series(&self, number: u32) -> Option<Arc<SeriesKey>> {
            self.0.series(number)
        }
        fn layout(&self, _: u32) -> Option<Arc<Layout>> {
            Some(Arc::new(Layout::parse(&Layout::current().replace("futex", "new_part"))))
        }
    }
    let mut memory = Memory { most: usize::MAX, ..Memory::default() };
    let mut window = HistoryWindow::new(at(DAY), Resolution::TenSeconds);
    let mut split = RowSplit { operations: 1, duration_ns: 100, ..RowSplit::default() };
    (split.split[TimePart::Cpu], split.split[TimePart::Futex]) = (30, 70);
    split.add_wait(TimePart::Futex, &"lock".into(), WaitTotal { waits: 1, wait_ns: 70 });
    let mut row = Row::new(Subject::Other, Class::User);
    row.split = Some(Box::new(split));
    window.window.shapes.add_owned(row);
    let blob = written(&window, &mut memory);
    let span = span(DAY, DAY + 10);
    let mut read = StoredWindow::spanning(span);
    decode(&blob, span, &Other(&memory), &mut read).unwrap();
    let read = read.window.window.shapes.rows()[0].split.clone().unwrap();
    assert_eq!((read.split[TimePart::Cpu], read.unexplained_ns(), read.waits.len()), (30, 70, 0));
}

#[test]
fn fifty_shapes_take_a_few_kilobytes() {
    let mut memory = Memory { most: usize::MAX, ..Memory::default() };
    let mut window = HistoryWindow::new(at(DAY), Resolution::TenSeconds);
    let mut random = Random(9);
    for _ in 0..3_000 {
        record(&mut window, at(DAY).plus_ns(random.below(10_000_000_000)), &mut random);
    }
    let (rows, bytes) = (window.window.shapes.len(), written(&window, &mut memory).len());
    assert!(rows > 50 && bytes < rows * 300, "{bytes} bytes for {rows} rows");
}
