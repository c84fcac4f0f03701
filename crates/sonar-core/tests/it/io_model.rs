//! Compares the analysis with a model that keeps every access and computes each figure from all of them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sonar_core::Timestamp;
use sonar_core::files::{
    AccessKind, AccessPath, Analysis, FileRole, IoAccess, NEAR, ThreadRole, judge, verdict::Finding,
};

fn access() -> impl Strategy<Value = IoAccess> {
    let place = prop_oneof![3 => (0u64..40).prop_map(|n| n * 4096), 1 => 0u64..9 << 20, 1 => any::<u64>()];
    (0u64..1 << 34, 0u64..1 << 24, 0u32..3, 0u32..3, 0u8..6, place, 0u64..20_000, 0u16..10, 0u64..4).prop_map(
        |(start, latency_ns, thread, file, kind, offset, length, error, device)| {
            let kind = AccessKind::from_code(kind).unwrap();
            let (offset, asked) =
                if kind.is_sync() { (0, 0) } else { (offset, length.next_multiple_of(4096)) };
            let error = if error < 9 { 0 } else { 5 };
            IoAccess {
                start: Timestamp::from_unix_ns(start),
                latency_ns,
                thread,
                file,
                kind,
                offset,
                asked,
                given: if error == 0 { asked } else { 0 },
                error,
                device_bytes: [None, Some(0), Some(4096), Some(65_536)][device as usize],
            }
        },
    )
}

/// The expected figures of one direction of one file.
#[derive(Default, Debug, PartialEq)]
struct Model {
    count: u64,
    errors: u64,
    faults: u64,
    asked: u128,
    given: u128,
    device: u128,
    cached: u64,
    uncached: u64,
    contiguous: u64,
    near: u64,
    jumps: u64,
    back: u64,
    runs: Vec<u64>,
    blocks: BTreeSet<u64>,
    distances: BTreeMap<i128, u64>,
}

fn model(all: &[IoAccess], file: u32, reads: bool) -> Model {
    let mut model = Model::default();
    let flows = |a: &IoAccess| !a.kind.is_sync() && a.kind != AccessKind::PageIn;
    let wanted = |a: &&IoAccess| a.file == file && flows(a) && a.kind.is_read() == reads;
    for thread in all.iter().map(|a| a.thread).collect::<BTreeSet<_>>() {
        let mut before: Option<u64> = None;
        let mut run = 0;
        for a in all.iter().filter(wanted).filter(|a| a.thread == thread && a.error == 0) {
            let distance = before.map(|end| i128::from(a.offset) - i128::from(end));
            before = Some(a.offset.saturating_add(a.given));
            match distance {
                None => {}
                Some(0) => {
                    model.contiguous += 1;
                    *model.distances.entry(0).or_default() += 1;
                }
                Some(d) => {
                    model.near += u64::from(d > 0 && d <= i128::from(NEAR));
                    model.jumps += u64::from(d < 0 || d > i128::from(NEAR));
                    model.back += u64::from(d < 0);
                    let mut low = 1;
                    while low * 2 <= d.abs() {
                        low *= 2;
                    }
                    *model.distances.entry(low * d.signum()).or_default() += 1;
                }
            }
            if distance == Some(0) {
                run += 1;
            } else {
                model.runs.extend((run > 0).then_some(run));
                run = 1;
            }
        }
        model.runs.extend((run > 0).then_some(run));
    }
    for a in all.iter().filter(wanted) {
        model.count += 1;
        model.errors += u64::from(a.error != 0);
        model.faults += u64::from(a.kind == AccessKind::Fault);
        model.asked += u128::from(a.asked);
        model.given += u128::from(a.given);
        model.device += u128::from(a.device_bytes.unwrap_or(0));
        model.cached += u64::from(a.device_bytes == Some(0));
        model.uncached += u64::from(a.device_bytes.is_some_and(|bytes| bytes > 0));
        if a.given > 0 && a.offset < 1 << 32 {
            model.blocks.insert(a.offset / 4096);
        }
    }
    model
}

proptest! {
    #[test]
    fn every_figure_equals_the_model(all in proptest::collection::vec(access(), 0..300)) {
        let mut analysis = Analysis::new();
        all.iter().for_each(|access| analysis.record(access));
        analysis.finish();
        prop_assert_eq!(analysis.accesses(), all.len() as u64);
        for file in 0..3 {
            let Some(pattern) = analysis.file(file) else {
                prop_assert!(all.iter().all(|a| a.file != file));
                continue;
            };
            for reads in [true, false] {
                let want = model(&all, file, reads);
                let none = sonar_core::files::FileAccesses::default();
                let flow = if reads { &pattern.reads } else { pattern.writes.as_deref().unwrap_or(&none) };
                prop_assert_eq!(flow.count, want.count);
                prop_assert_eq!(flow.errors, want.errors);
                prop_assert_eq!(flow.faults, want.faults);
                prop_assert_eq!(u128::from(flow.asked), want.asked);
                prop_assert_eq!(u128::from(flow.given), want.given);
                prop_assert_eq!(u128::from(flow.device_bytes), want.device);
                prop_assert_eq!(flow.cached.count(), want.cached);
                prop_assert_eq!(flow.uncached.count(), want.uncached);
                prop_assert_eq!(flow.distances.contiguous(), want.contiguous);
                prop_assert_eq!(flow.distances.near(), want.near);
                prop_assert_eq!(flow.distances.jumps(), want.jumps);
                prop_assert_eq!(flow.distances.back(), want.back);
                prop_assert_eq!(flow.distances.buckets().collect::<BTreeMap<_, _>>(), want.distances);
                prop_assert_eq!(flow.runs.count(), want.runs.len() as u64);
                prop_assert_eq!(flow.runs.longest(), want.runs.iter().copied().max().unwrap_or(0));
                let mean = want.runs.iter().sum::<u64>() as f64 / want.runs.len() as f64;
                prop_assert!(flow.runs.mean().is_none_or(|have| (have - mean).abs() < 1e-9));
                if flow.blocks.granule_bytes() == 4096 {
                    prop_assert_eq!(flow.blocks.granules(), want.blocks.len() as u64);
                }
                prop_assert_eq!(flow.latency().count(), want.count);
            }
            let pages = all.iter().filter(|a| a.file == file && a.kind == AccessKind::PageIn);
            let brought = pattern.page_ins.as_ref().map_or((0, 0), |pages| (pages.count, pages.bytes));
            let want = pages.fold((0, 0), |sum, a| (sum.0 + 1, sum.1 + a.given));
            prop_assert_eq!(brought, want);
            prop_assert!(pattern.page_ins.as_ref().is_none_or(|pages| pages.wasted() <= pages.bytes));
            let syncs = all.iter().filter(|a| a.file == file && a.kind.is_sync()).count();
            prop_assert_eq!(pattern.syncs.count(), syncs as u64);
            let reads: u64 = pattern.slices.iter().map(|slice| slice.reads).sum();
            prop_assert_eq!(reads, pattern.reads.count);
            let phases: u64 = analysis.phases(file).iter().map(|phase| phase.total.reads).sum();
            prop_assert_eq!(phases, pattern.reads.count);
        }
        for (id, thread) in analysis.threads() {
            let reads = all.iter().filter(|a| a.thread == id && a.kind.is_read());
            prop_assert_eq!(thread.read_ns, reads.map(|a| a.latency_ns).sum::<u64>());
            prop_assert!(thread.read_share().is_none_or(|share| (0.0..=1.0).contains(&share)));
        }
    }

    /// No content of a damaged recording makes it panic.
    #[test]
    fn any_numbers_are_accepted(all in proptest::collection::vec(any::<[u64; 6]>(), 0..100)) {
        let mut analysis = Analysis::new();
        for [start, latency_ns, offset, given, asked, code] in all {
            analysis.record(&IoAccess {
                start: Timestamp::from_unix_ns(start),
                latency_ns,
                thread: (code >> 8) as u32 & 3,
                file: (code >> 16) as u32 & 3,
                kind: AccessKind::ALL[(code % 6) as usize],
                offset,
                asked,
                given,
                error: 0,
                device_bytes: (code & 0x80 != 0).then_some(asked),
            });
        }
        analysis.finish();
        let _ = judge(&analysis, |_| FileRole::Collection, |_| ThreadRole::Other);
    }
}

fn read(n: u64, thread: u32, file: u32, offset: u64) -> IoAccess {
    IoAccess {
        start: Timestamp::from_unix_ns(n * 1_000_000),
        latency_ns: 500_000,
        thread,
        file,
        kind: AccessKind::Read,
        offset,
        asked: 32_768,
        given: 32_768,
        error: 0,
        device_bytes: None,
    }
}

#[test]
fn memory_does_not_grow_with_the_accesses() {
    let mut analysis = Analysis::new();
    let mut random = 1u64;
    let mut half = 0;
    // Memory that grows with the accesses would also grow in the second half. A bench tests ten million.
    for n in 0..400_000u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut access =
            read(n, (random >> 40) as u32 % 64, (random >> 50) as u32 % 100, (random >> 20) % (8 << 30));
        access.latency_ns = (random >> 33) % 10_000_000;
        analysis.record(&access);
        if n == 200_000 {
            half = analysis.heap_bytes();
        }
    }
    assert!(analysis.heap_bytes() <= half + half / 10, "{half} then {}", analysis.heap_bytes());
    assert!(analysis.heap_bytes() < 64 << 20, "{}", analysis.heap_bytes());
}

#[test]
fn files_beyond_the_cap_are_counted() {
    let mut analysis = Analysis::new();
    for n in 0..20_000 {
        analysis.record(&read(u64::from(n), 1, n, 0));
    }
    assert_eq!(analysis.files().count(), 16_384);
    assert_eq!(analysis.files_other(), 20_000 - 16_384);
}

#[test]
fn the_verdict_names_the_access_path() {
    let role = |file| if file == 2 { FileRole::Index } else { FileRole::Collection };
    let name = |thread| ThreadRole::of(if thread == 7 { "IndexBu.ongod-0" } else { "conn3" });
    let mut pass = Analysis::new();
    let mut fetch = Analysis::new();
    let mut lonely = Analysis::new();
    for n in 0..4_000 {
        pass.record(&read(n, 7, 1, n * 32_768));
        let place = (n * 7_919 % 1_000) * 32_768;
        fetch.record(&read(n * 2, 7, 1, place));
        if n % 10 == 0 {
            fetch.record(&read(n * 2 + 1, 7, 2, n / 10 * 32_768));
        }
        lonely.record(&read(n, 7, 1, place));
    }
    let verdict = judge(&pass, role, name);
    assert_eq!((verdict.finding, verdict.blocks), (Finding::SequentialPass, 4_000));
    assert_eq!(verdict.thread_read_share.map(|share| (share * 100.0).round()), Some(50.0));
    assert_eq!((verdict.thread_role, verdict.role_threads), (ThreadRole::IndexBuild, 1));
    assert_eq!((verdict.role_share, verdict.depth, verdict.is_of_memory()), (Some(1.0), Some(1.0), None));
    let verdict = judge(&fetch, role, name);
    assert_eq!((verdict.finding, verdict.file), (Finding::IndexFetch { index: 2 }, Some(1)));
    assert_eq!((verdict.reads, verdict.blocks, verdict.amplification), (4_000, 1_000, Some(4.0)));
    // 32 KiB in 0.5 ms, read in order from the index: 1,000 blocks take half a second.
    assert_eq!(verdict.in_order_ns, Some(500_000_000));
    let verdict = judge(&lonely, role, name);
    assert_eq!((verdict.finding, verdict.in_order_ns), (Finding::RandomReads, None));
    assert_eq!(judge(&Analysis::new(), role, name).finding, Finding::TooFewReads);
    assert_eq!(AccessPath::of(Some(0.1)), AccessPath::Mixed);
}
