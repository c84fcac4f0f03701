//! What is refused, and how that is said and counted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName, ORIGIN, RETRY_AFTER,
    SET_COOKIE, TRANSFER_ENCODING, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Request, StatusCode};
use sonar_core::testing::MemoryHistory;
use sonar_serve::{AccessToken, PageLimits, PageRefusal, RequestRate};

use crate::support::{Answer, POLICY, TestHistory, TestPage, at, get, post};

const DOCUMENTS: [&str; 7] = [
    "/api/v1/status",
    "/api/v1/queries",
    "/api/v1/queries/intervals",
    "/api/v1/timeline",
    "/api/v1/what-changed",
    "/api/v1/incident",
    "/api/v1/different",
];
const APP: &str = "/";

fn empty(request: axum::http::request::Builder) -> Request<Body> {
    request.body(Body::empty()).unwrap()
}

/// The status and the reason of a refusal.
fn refused(answer: &Answer) -> (StatusCode, String) {
    (answer.status, answer.json()["reason"].as_str().unwrap().to_owned())
}

fn expected(status: u16, reason: &str) -> (StatusCode, String) {
    (StatusCode::from_u16(status).unwrap(), reason.to_owned())
}

#[test]
fn documents_need_a_token_and_the_page_itself_needs_none() {
    let page = TestPage::of_an_hour();
    for path in DOCUMENTS {
        let answer = page.ask(empty(get(path)));
        assert_eq!(refused(&answer), expected(401, "access"), "{path}");
        assert_eq!(answer.headers[WWW_AUTHENTICATE], "Bearer");
        assert!(answer.text.contains("mongosonar open"));
        let other = AccessToken::random().unwrap().text();
        let wrong = page.ask(empty(get(path).header(AUTHORIZATION, format!("Bearer {other}"))));
        assert_eq!(refused(&wrong), expected(401, "access"), "{path}");
        assert_eq!(page.read(path).status, StatusCode::OK, "{path}");
    }
    assert_eq!(page.ask(empty(get(APP))).status, StatusCode::OK);
    assert_eq!(page.page.refused().get(PageRefusal::Access), 2 * DOCUMENTS.len() as u64);
}

#[test]
fn a_link_opens_a_session_once() {
    let page = TestPage::of_an_hour();
    let link = || format!("Bearer {}", page.token.link_code(at(3_599)).unwrap());
    let session = |bearer: &str| page.ask(empty(post("/api/v1/session").header(AUTHORIZATION, bearer)));
    let first = link();
    let opened = session(&first);
    assert_eq!(opened.status, StatusCode::NO_CONTENT);
    let cookie = opened.headers[SET_COOKIE].to_str().unwrap();
    for part in ["HttpOnly", "SameSite=Strict"] {
        assert!(cookie.split("; ").any(|one| one == part), "{cookie}");
    }
    let pair = cookie.split_once(';').unwrap().0;
    let read = |token: &str| page.ask(empty(get("/api/v1/status").header(COOKIE, token)));
    assert_eq!(read(pair).status, StatusCode::OK);
    assert_eq!(refused(&read(&format!("{pair}0"))), expected(401, "access"));
    assert!(session(&first).text.contains("has been used"));
    // Another page may not do it, even with a link.
    let foreign = post("/api/v1/session").header(AUTHORIZATION, link()).header(ORIGIN, "http://evil.example");
    assert_eq!(refused(&page.ask(empty(foreign))), expected(403, "origin"));
    page.page.access().replace(Some(AccessToken::random().unwrap()));
    assert_eq!(refused(&read(pair)), expected(401, "access"));
}

#[test]
fn requests_for_other_hosts_and_of_other_pages_are_refused() {
    let page = TestPage::of_an_hour();
    let bearer = format!("Bearer {}", page.token.text());
    for path in DOCUMENTS.iter().chain(&[APP, "/api/v1/session", "/nothing"]) {
        let rebound = Request::get(*path).header(HOST, "evil.example:8517").header(AUTHORIZATION, &bearer);
        let answer = page.ask(empty(rebound));
        assert_eq!(refused(&answer), expected(421, "host"), "{path}");
        let proxied = Request::get(*path).header(HOST, "db1.example").header(AUTHORIZATION, &bearer);
        assert_ne!(page.ask(empty(proxied)).status, StatusCode::MISDIRECTED_REQUEST, "{path}");
    }
    let site = HeaderName::from_static("sec-fetch-site");
    for path in DOCUMENTS {
        for (name, value) in [(ORIGIN, "http://127.0.0.1:3000"), (site.clone(), "same-site")] {
            let foreign = get(path).header(AUTHORIZATION, &bearer).header(name, value);
            assert_eq!(refused(&page.ask(empty(foreign))), expected(403, "origin"), "{path}");
        }
    }
    // A link in a chat leads to the page, which says nothing without a session.
    assert_eq!(page.ask(empty(get(APP).header(site, "cross-site"))).status, StatusCode::OK);
}

#[test]
fn bodies_other_methods_and_other_addresses_are_refused() {
    let page = TestPage::of_an_hour();
    for (name, value) in [(CONTENT_LENGTH, "5"), (TRANSFER_ENCODING, "chunked")] {
        let with_body = post("/api/v1/session").header(name, value).body(Body::from("12345")).unwrap();
        assert_eq!(refused(&page.ask(with_body)), expected(413, "body"));
    }
    let without = post("/api/v1/session").header(CONTENT_LENGTH, "0");
    assert_eq!(refused(&page.ask(empty(without))), expected(401, "access"));
    assert_eq!(refused(&page.ask(empty(post("/api/v1/status")))), expected(405, "address"));
    assert_eq!(refused(&page.ask(empty(get("/api/v1/session")))), expected(405, "address"));
    for path in ["/api/v1", "/api/v1/status/", "/../etc/passwd", "/%2e%2e/etc/passwd", "//app/..", "//"] {
        assert_eq!(refused(&page.read(path)), expected(404, "address"), "{path}");
    }
}

#[test]
fn every_answer_tells_the_browser_what_it_may_do() {
    let page = TestPage::of_an_hour();
    let app = page.ask(empty(get(APP)));
    assert_eq!(app.headers[CONTENT_SECURITY_POLICY], POLICY, "that of the app");
    let answers =
        [page.read("/nothing"), page.ask(empty(get("/api/v1/status"))), page.read("/api/v1/status")];
    for answer in &answers {
        let policy = answer.headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert_eq!(policy, "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    }
    for answer in answers.iter().chain([&app]) {
        assert_eq!(answer.headers[X_CONTENT_TYPE_OPTIONS], HeaderValue::from_static("nosniff"));
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")));
    }
}

#[test]
fn what_would_take_too_much_is_refused_with_what_to_narrow() {
    let limited = |limits: PageLimits| TestPage::new(TestHistory::hour(), limits);
    let usual = PageLimits::default;
    let page = limited(PageLimits { span_ns: 60_000_000_000, ..usual() });
    let long = page.read("/api/v1/timeline?from=-30m");
    assert_eq!(refused(&long), expected(400, "too_much"));
    assert_eq!(long.json()["parameter"], "from");
    assert_eq!(page.read("/api/v1/timeline?from=-1m").status, StatusCode::OK);
    let few = limited(PageLimits { windows: 5, ..usual() });
    assert_eq!(refused(&few.read("/api/v1/timeline")), expected(400, "too_much"));
    let short = limited(PageLimits { answer_bytes: 100, ..usual() });
    assert_eq!(refused(&short.read("/api/v1/queries")), expected(400, "too_much"));
    assert!(short.read("/api/v1/queries").text.contains("limit"));
    let intervals = limited(usual()).read("/api/v1/queries/intervals?from=2023-01-01T00:00:00Z&width=10");
    assert_eq!(refused(&intervals), expected(400, "too_much"));
    assert_eq!(few.page.refused().get(PageRefusal::TooMuch), 1);
}

#[test]
fn too_many_requests_are_refused_until_there_is_time() {
    let limited = |limits: PageLimits| TestPage::new(TestHistory::hour(), limits);
    let usual = PageLimits::default;
    let full = limited(PageLimits { answers: 0, waiting: 0, ..usual() });
    let busy = full.read("/api/v1/status");
    assert_eq!(refused(&busy), expected(503, "busy"));
    assert_eq!(busy.headers[RETRY_AFTER], "1");
    let waiting = limited(PageLimits { answers: 0, waiting: 1, answer_time: Duration::ZERO, ..usual() });
    assert_eq!(refused(&waiting.read("/api/v1/status")), expected(503, "late"));
    // Its place is free again.
    assert_eq!(refused(&waiting.read("/api/v1/status")), expected(503, "late"));
    let once = limited(PageLimits { rate: RequestRate { per_second: 0, burst: 1 }, ..usual() });
    assert_eq!(once.read("/api/v1/status").status, StatusCode::OK);
    assert_eq!(refused(&once.read("/api/v1/status")), expected(429, "rate"));
    // Who may not read takes nothing from those who may.
    let once = limited(PageLimits { rate: RequestRate { per_second: 0, burst: 1 }, ..usual() });
    assert_eq!(refused(&once.ask(empty(get("/api/v1/status")))), expected(401, "access"));
    assert_eq!(refused(&once.ask(empty(post("/api/v1/session")))), expected(401, "access"));
    assert_eq!(refused(&once.ask(empty(post("/api/v1/session")))), expected(429, "rate"));
    assert_eq!(once.read("/api/v1/status").status, StatusCode::OK);
}

#[test]
fn a_history_that_cannot_be_read_is_no_empty_one() {
    let stored = MemoryHistory { is_broken: true, ..MemoryHistory::default() };
    let broken = TestHistory { stored: Arc::new(stored), ..TestHistory::default() };
    let page = TestPage::new(broken, PageLimits::default());
    for path in DOCUMENTS {
        assert_eq!(refused(&page.read(path)), expected(500, "failed"), "{path}");
    }
}
