//! A page of a history in memory, and who asks it.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, HOST};
use axum::http::request::Builder;
use axum::http::{HeaderMap, HeaderName, Request, StatusCode};
use sonar_core::history::{CollectorKind, HistoryReader, HistoryWindow, Resolution, metrics};
use sonar_core::testing::MemoryHistory;
use sonar_core::{Endpoint, Operation, RunningOperation, RunningOperations, Timestamp};
use sonar_serve::{
    AccessToken, AllowedHosts, PageAccess, PageApp, PageDoor, PageHistory, PageLimits, PagePath, PageProblem,
    PageRefusal, PageSite, ServedPage, router, serve,
};
use sonar_view::agent::{AgentStatus, CollectorState, CollectorStatus};
use sonar_view::disk::BenchReport;
use sonar_view::now::{ListedOperations, MAX_OPERATIONS, NowListing};
use sonar_view::past::storage::{DiskTests, KeptDiskTest};
use tower::ServiceExt;

use crate::synthetic::{app, operation, shape};

/// 2023-11-14T22:00:00Z: the start of an hour.
const START: u64 = 1_699_999_200;
const WIDTH_S: u64 = 10;
const MS: u64 = 1_000_000;

pub fn at(second: u64) -> Timestamp {
    Timestamp::from_unix(START + second, 0)
}

/// What a page has of a history in memory.
#[derive(Default)]
pub struct TestHistory {
    pub stored: Arc<MemoryHistory>,
    pub agent: Option<AgentStatus>,
    pub disk_tests: DiskTests,
    pub listed: ListedOperations,
    /// How often it was opened.
    pub opened: Arc<AtomicUsize>,
}

impl TestHistory {
    /// Half an hour in which queries take 3 ms, and half an hour in which they take 40 ms.
    pub fn hour() -> Self {
        let windows = (0..3_600)
            .step_by(WIDTH_S as usize)
            .map(|second| window(second, if second < 1_800 { 3 } else { 40 }));
        let stored = MemoryHistory { windows: windows.collect(), ..MemoryHistory::default() };
        Self { stored: Arc::new(stored), ..Self::default() }
    }

    /// The same with an agent, which has listed an operation that runs.
    pub fn running() -> Self {
        let (shape, app) = (shape(1, "find", "shop.orders", "{}", "{}"), app("api", "rust", "3"));
        let ended = operation(&shape, &app, at(3_590));
        let one = RunningOperation {
            server: ended.server,
            client: ended.client,
            request_id: 7,
            role: ended.role,
            class: ended.class,
            command: "find".into(),
            shape: shape.clone(),
            app: app.clone(),
            start: at(3_590),
        };
        let mut wire = RunningOperations::default();
        wire.add(one, MAX_OPERATIONS);
        let listing = NowListing { at: at(3_600), wire: Some(wire), ..NowListing::default() };
        let listed = ListedOperations::Listed(Arc::new(listing.snapshot(&|server| server)));
        let queries = CollectorStatus {
            state: CollectorState::Working,
            ..CollectorStatus::new(CollectorKind::Queries)
        };
        let agent = Some(AgentStatus { collectors: vec![queries], ..AgentStatus::default() });
        Self { agent, listed, ..Self::hour() }
    }

    /// The same, whose last windows have a disk that was tested, and a file.
    pub fn storing() -> Self {
        let mut windows: Vec<HistoryWindow> =
            (0..3_600).step_by(WIDTH_S as usize).map(|second| window(second, 3)).collect();
        for window in windows.iter_mut().rev().take(2) {
            let (time, server) = (window.window.start, Endpoint::v4([0; 4], 27_017));
            window.observe(CollectorKind::Machine, WIDTH_S * 1_000 * MS);
            window.observe(CollectorKind::Files, WIDTH_S * 1_000 * MS);
            window.sample(&metrics::DISK_BUSY.key(Endpoint::default(), "vda"), time, 30.0, 10.0);
            let file = "/data/index-1-2.wt";
            window.sample(&metrics::FILE_READS.key(server, file), time, 7.0, 10.0);
            window.sample(&metrics::FILE_READ_TIME.key(server, file), time, 1.0, 70.0);
        }
        let stored = MemoryHistory { windows, ..MemoryHistory::default() };
        let bytes = include_bytes!("../../../../fixtures/disk-bench.json");
        let run = BenchReport::read(bytes).unwrap();
        let kept = vec![KeptDiskTest { file: "disk-bench.json".to_owned(), run }];
        let disk_tests = DiskTests { kept, problems: vec!["broken".to_owned()] };
        Self { stored: Arc::new(stored), disk_tests, ..Self::default() }
    }
}

fn window(second: u64, latency_ms: u64) -> HistoryWindow {
    let mut window = HistoryWindow::new(at(second), Resolution::TenSeconds);
    window.observe(CollectorKind::Queries, WIDTH_S * 1_000 * MS);
    let (shape, app) = (shape(1, "find", "shop.orders", "{}", "{}"), app("api", "rust", "3"));
    for number in 0..50 {
        let latency_ns = Some((latency_ms * 1_000 + number % 7 * 100) * 1_000);
        let operation = operation(&shape, &app, at(second).plus_ns(number * MS));
        window.window.record(&Operation { latency_ns, ..operation });
    }
    window
}

impl PageHistory for TestHistory {
    fn open(&self) -> Result<Box<dyn HistoryReader>, PageProblem> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Arc::clone(&self.stored)))
    }

    fn name(&self) -> &str {
        "memory"
    }

    fn now(&self) -> Timestamp {
        at(3_600)
    }

    fn agent(&self) -> Result<Option<AgentStatus>, String> {
        Ok(self.agent.clone())
    }

    fn running(&self) -> ListedOperations {
        self.listed.clone()
    }

    fn disk_tests(&self) -> DiskTests {
        self.disk_tests.clone()
    }
}

/// What the app of [`TestPage`] may do.
pub const POLICY: &str = "default-src 'none'; connect-src 'self'; frame-ancestors 'none'";

/// A page, and the token that opens it.
pub struct TestPage {
    pub page: Arc<ServedPage>,
    pub token: AccessToken,
}

/// What was answered.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
    /// Empty if it is compressed.
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl TestPage {
    pub fn new(history: TestHistory, limits: PageLimits) -> Self {
        Self::at(site(""), history, limits)
    }

    pub fn at(site: PageSite, history: TestHistory, limits: PageLimits) -> Self {
        let token = AccessToken::random().unwrap();
        let access = PageAccess::new(token.clone(), at(0));
        let app = PageApp::new("<!doctype html>", POLICY).unwrap();
        let page = ServedPage::new(Box::new(history), app, PageDoor { access, site }, limits);
        Self { page: Arc::new(page), token }
    }

    pub fn of_an_hour() -> Self {
        Self::new(TestHistory::hour(), PageLimits::default())
    }

    /// The answer to a request.
    pub fn ask(&self, request: Request<Body>) -> Answer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (head, body) = router(&self.page).oneshot(request).await.unwrap().into_parts();
            let bytes = to_bytes(body, usize::MAX).await.unwrap().to_vec();
            let is_packed = head.headers.contains_key(CONTENT_ENCODING);
            let text = if is_packed { String::new() } else { String::from_utf8(bytes.clone()).unwrap() };
            Answer { status: head.status, headers: head.headers, bytes, text }
        })
    }

    /// The answer to who has the token.
    pub fn read(&self, path: &str) -> Answer {
        self.read_with(path, &[])
    }

    /// The same to a request with these headers.
    pub fn read_with(&self, path: &str, headers: &[(HeaderName, &str)]) -> Answer {
        let bearer = format!("Bearer {}", self.token.text());
        let mut request = get(path).header(AUTHORIZATION, bearer);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        self.ask(request.body(Body::empty()).unwrap())
    }
}

/// A page below this path.
pub fn site(path: &str) -> PageSite {
    let hosts = AllowedHosts::new(["db1.example".to_owned()]);
    PageSite { hosts, path: PagePath::parse(path).unwrap(), tls: None }
}

/// A request of this machine.
pub fn get(path: &str) -> Builder {
    Request::get(path).header(HOST, "127.0.0.1:8517")
}

/// The same, which changes something.
pub fn post(path: &str) -> Builder {
    Request::post(path).header(HOST, "127.0.0.1:8517")
}

/// A page that is served until it is dropped.
pub struct RunningPage {
    pub test: TestPage,
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl RunningPage {
    pub fn new(limits: PageLimits) -> Self {
        Self::at(site(""), limits)
    }

    pub fn at(site: PageSite, limits: PageLimits) -> Self {
        let test = TestPage::at(site, TestHistory::hour(), limits);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (page, flag) = (test.page.clone(), stop.clone());
        let thread = Some(std::thread::spawn(move || serve(listener, &page, &flag)));
        Self { test, address, stop, thread }
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    /// A request with the token.
    pub fn request(&self, path: &str, more: &str) -> String {
        let (host, token) = (self.address, self.test.token.text());
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
    }

    /// Waits until that many were refused for this reason.
    pub fn wait_for(&self, kind: PageRefusal, count: u64) {
        while self.test.page.refused().get(kind) < count {
            std::thread::yield_now();
        }
        assert_eq!(self.test.page.refused().get(kind), count);
    }
}

impl Drop for RunningPage {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap().unwrap();
        }
    }
}

/// What comes until the end of a connection.
pub fn rest_of(mut stream: impl Read) -> String {
    let mut text = String::new();
    // A connection that is reset has ended, too.
    let _ = stream.read_to_string(&mut text);
    text
}
