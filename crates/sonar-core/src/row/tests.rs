use proptest::prelude::*;

use super::*;
use crate::RowTotals;
use crate::digest::{Digest, DigestSettings};
use crate::operation::ErrorCodes;
use crate::sum::Sum;
use crate::table::{GroupBy, MAX_GROUPS, MAX_ROWS, Table};
use crate::testing::operation;
use crate::{Execution, Operation, Outcome, Timestamp};

/// The properties in which the operations of a test differ.
#[derive(Clone, Debug)]
struct TestOperation {
    source: Source,
    shape: u64,
    order: u64,
    app: u8,
    client: u8,
    second: u64,
    ns: Option<u64>,
    code: Option<i32>,
    docs: Option<u64>,
    plan: u8,
    weight: u32,
}

fn plain(source: Source, shape: u64) -> TestOperation {
    let (code, docs) = (Some(11_000), Some(5));
    TestOperation {
        source,
        shape,
        order: shape,
        app: 1,
        client: 9,
        second: 7,
        ns: Some(250),
        code,
        docs,
        plan: 1,
        weight: 1,
    }
}

fn seen() -> impl Strategy<Value = TestOperation> {
    let whose = (0usize..3, 1u64..4, 0u64..12, 0u8..40, 0u8..40);
    let what = (0u64..5_000, proptest::option::of(0u64..1 << 40), proptest::option::of(0i32..50));
    let how = (proptest::option::of(0u64..1 << 40), 0u8..20, 0u32..3);
    (whose, what, how).prop_map(
        |((source, shape, order, app, client), (second, ns, code), (docs, plan, weight))| TestOperation {
            source: Source::ALL[source],
            shape,
            order,
            app,
            client,
            second,
            ns,
            code,
            docs,
            plan,
            weight,
        },
    )
}

/// Passes the operation to `take`.
fn with<R>(seen: &TestOperation, take: impl FnOnce(&Record<'_>) -> R) -> R {
    let shape = Arc::new(ShapeInfo { id: ShapeId(seen.shape), ..ShapeInfo::default() });
    let app = Arc::new(Application { name: format!("app {}", seen.app).into(), ..Application::default() });
    let codes: Vec<_> = seen.code.into_iter().map(|code| (code, 2)).collect();
    let plan = if seen.plan == 0 { String::new() } else { format!("IXSCAN {{ a{}: 1 }}", seen.plan) };
    let op = Operation {
        start: Timestamp::from_unix(seen.second, 0),
        end: Timestamp::from_unix(seen.second, 250),
        latency_ns: seen.ns,
        transfer_ns: Some(3),
        client: Endpoint::v4([10, 0, 0, seen.client], 40_000),
        ordered_id: ShapeId(seen.order),
        tls: seen
            .client
            .is_multiple_of(2)
            .then(|| crate::TlsSuite::of_server_hello(0x0303, seen.client as u16)),
        response_bytes: 40,
        docs_returned: seen.docs,
        outcome: if codes.is_empty() { Outcome::Ok } else { Outcome::Failed(ErrorCodes { codes: &codes }) },
        ..operation(&shape, &app)
    };
    let execution = Execution {
        keys_examined: seen.docs,
        plan: &plan,
        query_hash: if seen.plan < 15 { "0A1B" } else { "" },
        user: &plan,
        comment: &plan,
        weight: seen.weight,
        ..Execution::default()
    };
    match seen.source {
        Source::Wire => take(&Record::wire(&op)),
        source => take(&Record::server(source, &op, &execution)),
    }
}

fn table<'a>(by: GroupBy, all: impl IntoIterator<Item = &'a TestOperation>) -> Table {
    let mut table = Table::of_digest(by);
    for one in all {
        with(one, |record| table.record(record));
    }
    table
}

/// The rows in an order that does not depend on the order of recording.
fn sorted(table: &Table) -> Vec<Row> {
    let mut rows: Vec<_> = table.rows().to_vec();
    rows.iter_mut().for_each(|row| row.ordered_ids.sort_unstable());
    rows.sort_by_key(|row| format!("{:?}", row.subject));
    rows
}

fn merged(one: &Table, other: &Table) -> Table {
    let mut all = one.clone();
    all.merge(other);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn merging_rows_in_any_order_equals_recording_all(
        all in proptest::collection::vec(seen(), 0..300),
        cuts in (0usize..300, 0usize..300),
        by in 0usize..GroupBy::DIGEST.len(),
    ) {
        let by = GroupBy::DIGEST[by];
        let (low, high) = (cuts.0.min(cuts.1).min(all.len()), cuts.0.max(cuts.1).min(all.len()));
        let [a, b, c] = [&all[..low], &all[low..high], &all[high..]].map(|part| table(by, part));
        let whole = sorted(&table(by, &all));
        prop_assert_eq!(&sorted(&merged(&merged(&a, &b), &c)), &whole);
        prop_assert_eq!(&sorted(&merged(&a, &merged(&b, &c))), &whole);
        prop_assert_eq!(&sorted(&merged(&merged(&c, &b), &a)), &whole);
        for row in &whole {
            let observed: Vec<_> = row.sources().filter_map(|source| row.observed_by(source)).collect();
            prop_assert!(observed.iter().all(|one| one.apps.len() <= crate::figures::MAX_APPS_PER_ROW
                && one.figures.server().plans.len() <= crate::figures::MAX_PLANS
                && one.figures.errors.len() <= crate::figures::MAX_ERROR_CODES));
            if by != GroupBy::App {
                let counted = |one: &&&Observed| {
                    one.apps.iter().map(|(_, share)| share.calls).sum::<u64>() + one.apps.other.calls
                        == one.figures.calls
                };
                prop_assert_eq!(observed.iter().filter(counted).count(), observed.len());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn totals_are_the_sums_of_the_rows_source_by_source_and_as_shown(
        all in proptest::collection::vec(seen(), 0..200),
        by in 0usize..GroupBy::DIGEST.len(),
    ) {
        let mut digest = Digest::new(DigestSettings { by: GroupBy::DIGEST[by], ..DigestSettings::default() });
        all.iter().for_each(|one| with(one, |record| digest.record(record)));
        for source in Source::ALL {
            let of = |row: &Row| row.observed_by(source).map_or((0, 0, Sum::default()), |observed| {
                let figures = &observed.figures;
                (figures.calls, figures.latency.sum_ns(), figures.server().totals.sums.docs_examined)
            });
            let mut sum = (0, 0, Sum::default());
            for (calls, ns, docs) in digest.rows().iter().map(of) {
                (sum.0, sum.1) = (sum.0 + calls, sum.1 + ns);
                sum.2.merge(docs);
            }
            prop_assert_eq!(of(&digest.total), sum);
        }
        let totals = RowTotals::of(&digest);
        let rows = digest.rows();
        let all: u64 = rows.iter().map(|row| row.figures().calls).sum();
        prop_assert_eq!(totals.figures.calls + totals.beside, all);
        let by = digest.settings.by;
        if !matches!(by, GroupBy::Shape | GroupBy::Order | GroupBy::Namespace) {
            return Ok(());
        }
        let rows: Vec<&Row> = rows.iter().filter(|row| !totals.leaves_out(row, by)).collect();
        let ns: u128 = rows.iter().map(|row| row.figures().latency.sum_ns()).sum();
        prop_assert_eq!(totals.figures.latency.sum_ns(), ns);
        let shown = |name: &str, sums: &[(&str, Sum)]| {
            sums.iter().find(|(known, _)| *known == name).map(|(_, sum)| *sum).unwrap_or_default()
        };
        for name in ["keys_examined", "docs_examined", "returned", "affected"] {
            let mut sum = Sum::default();
            rows.iter().for_each(|row| sum.merge(shown(name, &row.sums())));
            prop_assert_eq!(shown(name, &totals.sums()), sum, "{}", name);
        }
        let scans: u64 = rows.iter().map(|row| row.server().totals.collection_scans).sum();
        prop_assert_eq!(totals.server().totals.collection_scans, scans);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn windows_record_operations_of_the_wire_like_those_of_other_sources(
        all in proptest::collection::vec(seen(), 0..200),
        by in 0usize..GroupBy::DIGEST.len(),
        of_digest: bool,
    ) {
        let empty = if of_digest { Table::of_digest } else { Table::of_window };
        let [mut one, mut other] = [(); 2].map(|()| empty(GroupBy::DIGEST[by]));
        for seen in &all {
            with(&TestOperation { source: Source::Wire, ..seen.clone() }, |record| {
                let expected = one.record(record);
                assert_eq!(other.record_wire(record.op, Record::bucket_of(record.op)), expected);
            });
        }
        prop_assert_eq!(sorted(&other), sorted(&one));
    }
}

#[test]
fn totals_name_the_sources_that_rows_show() {
    let mut digest = Digest::default();
    // The profile has more operations altogether, but fewer of the first shape.
    let logged = [Source::Log, Source::Log, Source::Profile].map(|source| plain(source, 1));
    let profiled = [2, 2, 2].map(|shape| plain(Source::Profile, shape));
    logged.iter().chain(&profiled).for_each(|one| with(one, |record| digest.record(record)));
    assert_eq!(digest.total.executed().unwrap().0, Source::Profile);
    let totals = RowTotals::of(&digest);
    assert_eq!(totals.server().totals.sums.keys_examined.get(), Some(2 * 5 + 3 * 5));
    assert_eq!((totals.counted_by, totals.executed_by.len()), (vec![Source::Profile], 2));
    with(&plain(Source::Wire, 3), |record| digest.record(record));
    let totals = RowTotals::of(&digest);
    assert_eq!((totals.figures.calls, totals.counted_by), (5, vec![Source::Wire, Source::Profile]));
}

#[test]
fn no_operation_counts_twice_in_totals() {
    // The profile knows the plan of each operation, the wire of none.
    let seen = |source, plan| TestOperation { plan, ..plain(source, 1) };
    for by in [GroupBy::Plan, GroupBy::App, GroupBy::User] {
        let mut digest = Digest::new(DigestSettings { by, ..DigestSettings::default() });
        let app = |app, one| TestOperation { app, ..one };
        let all = [
            seen(Source::Wire, 0),
            seen(Source::Wire, 0),
            app(2, seen(Source::Profile, 1)),
            app(3, seen(Source::Profile, 2)),
        ];
        all.iter().for_each(|one| with(one, |record| digest.record(record)));
        let totals = RowTotals::of(&digest);
        assert_eq!((totals.figures.calls, &*totals.counted_by), (2, &[Source::Wire][..]), "{by:?}");
        assert_eq!(totals.server().totals.sums.keys_examined.get(), Some(2 * 5), "{by:?}");
        let beside: Vec<_> = digest.rows().iter().map(|row| totals.leaves_out(row, by)).collect();
        let shown: u64 = digest.rows().iter().map(|row| row.figures().calls).sum();
        assert_eq!(totals.figures.calls + totals.beside, shown, "{by:?} {beside:?}");
    }
    // Of another time, they are other operations.
    let mut digest = Digest::new(DigestSettings { by: GroupBy::Plan, ..DigestSettings::default() });
    let later = TestOperation { second: 99, ..seen(Source::Profile, 1) };
    [seen(Source::Wire, 0), later].iter().for_each(|one| with(one, |record| digest.record(record)));
    let totals = RowTotals::of(&digest);
    assert_eq!((totals.figures.calls, totals.beside, totals.counted_by.len()), (2, 0, 2));
}

#[test]
fn figures_of_several_sources_stay_separate() {
    let all =
        [plain(Source::Log, 1), plain(Source::Wire, 1), plain(Source::Wire, 1), plain(Source::Profile, 2)];
    let table = table(GroupBy::Shape, &all);
    let [row, profiled] = table.rows() else { panic!("two shapes") };
    assert_eq!(row.sources().collect::<Vec<_>>(), [Source::Wire, Source::Log]);
    assert_eq!((row.figures().calls, row.observed_by(Source::Log).unwrap().figures.calls), (2, 1));
    assert_eq!(row.figures().server().totals.sums.keys_examined.get(), None, "the wire cannot know it");
    assert_eq!(row.server().totals.sums.keys_examined.get(), Some(5));
    assert_eq!(row.examined_per_returned(), Some(1.0), "of the log alone");
    assert_eq!(row.executed().unwrap().0, Source::Log);
    assert_eq!((profiled.figures().calls, profiled.observed_by(Source::Wire)), (1, None));
}

#[test]
fn a_full_table_folds_into_other_and_counts_it() {
    let mut table = Table::of_window(GroupBy::Shape);
    let mut record = |id| with(&plain(Source::Wire, id), |record| u64::from(table.record(record).1));
    let folded: u64 = (1..=MAX_ROWS as u64 + 5).map(&mut record).sum();
    assert_eq!((folded, record(1)), (5, 0));
    assert_eq!(table.len(), MAX_ROWS + 1);
    let other = table.rows().last().unwrap();
    assert_eq!((other.key().shape, &*other.shape().typed), (ShapeId(0), "other"));
    assert_eq!((other.figures().calls, other.figures().error_count()), (5, 10));
    assert_eq!(table.iter().map(|row| row.figures().calls).sum::<u64>(), MAX_ROWS as u64 + 6);
    assert_eq!(Table::of_window(GroupBy::Shape).merge(&table), 0, "these were folded before");
}

#[test]
fn too_many_clients_are_counted_under_other() {
    let (mut table, mut folded) = (Table::of_window(GroupBy::Client), 0);
    for n in 0..MAX_GROUPS as u32 + 3 {
        with(&plain(Source::Wire, 1), |record| {
            let op = Operation { client: Endpoint::v4(n.to_be_bytes(), 1), ..*record.op };
            folded += u64::from(table.record(&Record::wire(&op)).1);
        });
    }
    assert_eq!((table.len(), folded), (MAX_GROUPS + 1, 3));
}

#[test]
fn rows_of_a_server_with_two_names_are_added_up() {
    let all = [plain(Source::Wire, 1), plain(Source::Wire, 2), plain(Source::Wire, 1)];
    let mut tables = [Table::of_window(GroupBy::Shape), Table::of_window(GroupBy::Shape)];
    let two =
        [Endpoint::v4([127, 0, 0, 1], 27_017), Endpoint::v6(std::net::Ipv6Addr::LOCALHOST.octets(), 27_017)];
    for (at, one) in all.iter().enumerate() {
        with(one, |record| {
            for (table, server) in tables.iter_mut().zip([two[at / 2], two[0]]) {
                table.record(&Record::wire(&Operation { server, ..*record.op }));
            }
        });
    }
    let [mut two_names, one_name] = tables;
    assert_eq!((two_names.len(), one_name.len()), (3, 2));
    assert!(!two_names.rename_servers(&mut |server| server), "nothing is renamed");
    assert!(two_names.rename_servers(&mut |_| two[0]));
    assert_eq!(sorted(&two_names), sorted(&one_name));
}

#[test]
fn rows_are_split_by_order_only_when_asked() {
    for (by, rows) in [(GroupBy::Shape, 1), (GroupBy::Order, 2)] {
        let all = [5, 6].map(|order| TestOperation { order, ..plain(Source::Wire, 1) });
        assert_eq!(table(by, &all).len(), rows);
    }
}
