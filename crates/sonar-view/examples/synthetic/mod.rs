//! A made-up workload, the same in every run: a small shop. It feeds the demonstration of the live
//! view, and the tests of what it shows.
#![allow(dead_code)]

use std::sync::Arc;

use sonar_core::operation::{ErrorCodes, InFlightOperations, Statement};
use sonar_core::testing;
use sonar_core::time::NS_PER_S;
use sonar_core::window::WindowSettings;
use sonar_core::{
    Application, Class, Endpoint, Operation, Outcome, Role, ShapeId, ShapeInfo, Timestamp, Window,
};

/// One kind of operation of the workload.
struct Kind {
    shape: Arc<ShapeInfo>,
    class: Class,
    app: usize,
    per_second: u64,
    median_us: u64,
    docs: Option<u64>,
    affected: Option<u64>,
    reply_bytes: u64,
    /// Every how many calls one fails, and with which code.
    fails: Option<(u64, i32)>,
}

/// The workload and where its dice stand.
pub struct Workload {
    kinds: Vec<Kind>,
    apps: Vec<Arc<Application>>,
    dice: u64,
    calls: u64,
}

pub fn app(name: &str, driver: &str, version: &str) -> Arc<Application> {
    let (name, driver, driver_version) = (name.into(), driver.into(), version.into());
    Arc::new(Application { name, driver, driver_version, joined_late: false })
}

pub fn shape(id: u64, command: &str, namespace: &str, typed: &str, plain: &str) -> Arc<ShapeInfo> {
    let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    Arc::new(ShapeInfo {
        id: ShapeId(id),
        command: command.into(),
        database: database.into(),
        collection: collection.into(),
        typed: typed.into(),
        plain: plain.into(),
        cut: false,
        statements: [].into(),
    })
}

pub fn server() -> Endpoint {
    testing::SERVER
}

/// A plain operation to change at will.
pub fn operation<'a>(shape: &'a Arc<ShapeInfo>, app: &'a Arc<Application>, end: Timestamp) -> Operation<'a> {
    Operation {
        start: end.minus_ns(1_200_000),
        end,
        latency_ns: Some(1_200_000),
        transfer_ns: Some(30_000),
        client: Endpoint::v4([10, 0, 0, 9], 51_234),
        command: &shape.command,
        request_id: 4_294_967_295,
        request_bytes: 120,
        response_bytes: 3_400,
        docs_returned: Some(12),
        ..testing::operation(shape, app)
    }
}

impl Workload {
    pub fn new() -> Self {
        let kind = |id: u64, command, namespace, typed, plain, per_second, median_us| Kind {
            shape: shape(id.wrapping_mul(0x9e37_79b9_7f4a_7c15), command, namespace, typed, plain),
            class: Class::User,
            app: id as usize % 3,
            per_second,
            median_us,
            docs: None,
            affected: None,
            reply_bytes: 240,
            fails: None,
        };
        let kinds = vec![
            Kind {
                docs: Some(20),
                reply_bytes: 18_000,
                ..kind(
                    1,
                    "find",
                    "shop.orders",
                    "{filter: {customer: ?objectId, status: {$in: ?array<?string>}}, sort: {placed: -1}, limit: ?number}",
                    "{filter: {customer: ?, status: {$in: ?}}, sort: {placed: ?}, limit: ?}",
                    420,
                    900,
                )
            },
            Kind {
                docs: Some(1),
                reply_bytes: 1_100,
                ..kind(
                    2,
                    "find",
                    "shop.customers",
                    "{filter: {_id: ?objectId}}",
                    "{filter: {_id: ?}}",
                    900,
                    180,
                )
            },
            Kind {
                docs: Some(50),
                reply_bytes: 52_000,
                ..kind(
                    3,
                    "aggregate",
                    "shop.orders",
                    "{pipeline: [{$match: {placed: {$gte: ?date, $lt: ?date}}}, {$group: {_id: \"$region\", total: {$sum: \"$amount\"}}}, {$sort: {total: -1}}]}",
                    "{pipeline: [{$match: {placed: {$gte: ?, $lt: ?}}}, {$group: {_id: ?, total: {$sum: ?}}}, {$sort: {total: ?}}]}",
                    6,
                    180_000,
                )
            },
            Kind {
                affected: Some(1),
                ..kind(
                    4,
                    "update",
                    "shop.carts",
                    "{q: {_id: ?objectId}, u: {$set: {items: ?array<?object>, touched: ?date}}, upsert: true}",
                    "{q: {_id: ?}, u: {$set: {items: ?, touched: ?}}, upsert: ?}",
                    260,
                    650,
                )
            },
            Kind {
                affected: Some(1),
                fails: Some((40, 11_000)),
                ..kind(5, "insert", "shop.payments", "{documents: ?}", "{documents: ?}", 75, 1_400)
            },
            Kind {
                docs: Some(1),
                affected: Some(1),
                fails: Some((90, 112)),
                ..kind(
                    6,
                    "findAndModify",
                    "shop.stock",
                    "{query: {sku: ?string, left: {$gte: ?number}}, update: {$inc: {left: ?number}}, new: true}",
                    "{query: {sku: ?, left: {$gte: ?}}, update: {$inc: {left: ?}}, new: ?}",
                    120,
                    2_300,
                )
            },
            Kind {
                docs: Some(1),
                ..kind(
                    7,
                    "count",
                    "shop.sessions",
                    "{query: {expires: {$gt: ?date}}}",
                    "{query: {expires: {$gt: ?}}}",
                    12,
                    24_000,
                )
            },
            Kind {
                affected: Some(3),
                ..kind(
                    8,
                    "delete",
                    "shop.sessions",
                    "{q: {expires: {$lte: ?date}}, limit: 0}",
                    "{q: {expires: {$lte: ?}}, limit: ?}",
                    4,
                    8_000,
                )
            },
            Kind {
                docs: Some(101),
                reply_bytes: 96_000,
                ..kind(
                    9,
                    "find",
                    "catalog.products",
                    "{filter: {$or: [{name: ?regex}, {tags: ?string}], price: {$gte: ?number, $lte: ?number}}}",
                    "{filter: {$or: [{name: ?}, {tags: ?}], price: {$gte: ?, $lte: ?}}}",
                    22,
                    38_000,
                )
            },
            Kind {
                class: Class::Monitoring,
                app: 3,
                ..kind(10, "hello", "admin", "{hello: ?number}", "{hello: ?}", 6, 90)
            },
        ];
        let apps = vec![
            app("web-shop", "nodejs", "6.3.0"),
            app("checkout", "mongo-java-driver|sync", "4.11.1"),
            app("nightly-report", "PyMongo", "4.6.1"),
            Arc::new(Application::joined_late()),
        ];
        Self { kinds, apps, dice: 0x2545_f491_4f6c_dd1d, calls: 0 }
    }

    fn roll(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice
    }

    /// The window of second `second`.
    pub fn window(&mut self, second: u64) -> Window {
        let start = Timestamp::from_unix(1_777_629_600 + second, 0);
        let mut window = Window::new(start, WindowSettings::default());
        for at in 0..self.kinds.len() {
            let busy = 70 + self.roll() % 60;
            let calls = (self.kinds[at].per_second * busy / 100).max(1);
            for n in 0..calls {
                // A few times the median for most, and a long tail for one in fifty.
                let spread = 40 + self.roll() % 140;
                let tail = if self.roll().is_multiple_of(50) { 2 + self.roll() % 12 } else { 1 };
                let latency_ns = self.kinds[at].median_us * 10 * spread * tail;
                let client = (self.roll() % 5) as u8;
                self.calls += 1;
                let kind = &self.kinds[at];
                let failed = kind.fails.filter(|(every, _)| self.calls.is_multiple_of(*every));
                let codes = [(failed.map_or(0, |(_, code)| code), 1)];
                let end = start.plus_ns(n * NS_PER_S / calls);
                window.record(&Operation {
                    latency_ns: Some(latency_ns),
                    client: Endpoint::v4([10, 0, 1, 11 + client], 40_000),
                    class: kind.class,
                    response_bytes: kind.reply_bytes,
                    docs_returned: kind.docs,
                    docs_affected: kind.affected,
                    outcome: if failed.is_some() {
                        Outcome::Failed(ErrorCodes { codes: &codes })
                    } else {
                        Outcome::Ok
                    },
                    statements: &[] as &[Statement],
                    ..operation(&kind.shape, &self.apps[kind.app], end)
                });
            }
        }
        window.end = start.plus_ns(NS_PER_S);
        window.coverage.frames = self.calls % 977 + 6_000;
        window.coverage.frames_decoded = window.coverage.frames;
        window.in_flight.push(InFlightOperations {
            server: server(),
            role: Role::Served,
            class: Class::User,
            shape: self.kinds[2].shape.clone(),
            count: 2,
            oldest_ns: (second + 1) * 700_000_000,
            oldest: Vec::new(),
        });
        window
    }
}
