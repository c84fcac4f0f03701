//! In which form answers are sent: compressed, and not again to who has them.

use std::io::Read;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, IF_NONE_MATCH, VARY,
};
use flate2::read::GzDecoder;
use sonar_core::testing::MemoryHistory;
use sonar_serve::PageLimits;

use crate::support::{Answer, TestHistory, TestPage};

/// A range that had ended when the last window was stored.
const CLOSED: &str = "from=2023-11-14T22:10:00Z&to=2023-11-14T22:50:00Z";

fn unpacked(answer: &Answer) -> String {
    assert_eq!(answer.headers[CONTENT_ENCODING], "gzip");
    assert_eq!(answer.headers[CONTENT_LENGTH].to_str().unwrap(), answer.bytes.len().to_string());
    let mut text = String::new();
    GzDecoder::new(&*answer.bytes).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn answers_are_compressed_for_who_takes_that() {
    let page = TestPage::of_an_hour();
    let timeline = format!("/api/v1/timeline?{CLOSED}");
    for path in [&*timeline, "/api/v1/queries/intervals?from=-30m", "/api/v1/openapi.json", "/"] {
        let plain = page.read(path);
        assert!(!plain.headers.contains_key(CONTENT_ENCODING), "{path}");
        let packed = page.read_with(path, &[(ACCEPT_ENCODING, "deflate, gzip, br")]);
        assert_eq!(unpacked(&packed), plain.text, "{path}");
        for answer in [&plain, &packed] {
            assert_eq!(answer.headers[VARY], "accept-encoding", "{path}");
        }
    }
    // What is refused is short.
    let refused = page.read_with("/api/v1/timeline?zone=Nowhere", &[(ACCEPT_ENCODING, "gzip")]);
    assert_eq!(refused.json()["reason"], "question");
}

#[test]
fn compression_lets_no_longer_answer_pass() {
    let limits = PageLimits { answer_bytes: 2_000, ..PageLimits::default() };
    let page = TestPage::new(TestHistory::hour(), limits);
    let long = page.read_with("/api/v1/timeline", &[(ACCEPT_ENCODING, "gzip")]);
    assert_eq!((long.status, &long.json()["reason"]), (StatusCode::BAD_REQUEST, &"too_much".into()));
}

#[test]
fn who_has_the_answer_about_a_closed_range_gets_it_once() {
    let page = TestPage::of_an_hour();
    for path in
        ["timeline", "queries", "queries/intervals", "what-changed", "incident", "waits", "series", "events"]
    {
        let path = format!("/api/v1/{path}?{CLOSED}");
        let answer = page.read(&path);
        let tag = answer.headers[ETAG].to_str().unwrap();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "a strong one: {tag}");
        assert_eq!(answer.headers[CACHE_CONTROL], "private, no-cache", "{path}");
        let again = page.read_with(&path, &[(IF_NONE_MATCH, tag)]);
        assert_eq!((again.status, again.bytes.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
        assert_eq!(again.headers[ETAG], tag);
        assert_eq!(again.headers[CACHE_CONTROL], "private, no-cache");
        let other = page.read_with(&path.replace("22:10", "22:20"), &[(IF_NONE_MATCH, tag)]);
        assert_eq!(other.status, StatusCode::OK, "{path}: another range");
        assert_ne!(other.headers[ETAG], tag);
        // The compressed form is the same answer in other bytes.
        let packed = page.read_with(&path, &[(ACCEPT_ENCODING, "gzip")]);
        assert_eq!(packed.headers[ETAG], format!("\"{}-gzip\"", tag.trim_matches('"')));
        let again = page.read_with(&path, &[(ACCEPT_ENCODING, "gzip"), (IF_NONE_MATCH, tag)]);
        assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{path}");
    }
}

#[test]
fn a_range_that_goes_on_is_not_kept_by_browsers() {
    let page = TestPage::of_an_hour();
    for path in ["status", "timeline", "timeline?from=-30m", "timeline?from=-30m&to=-10m", "shape?id=1f"] {
        let answer = page.read(&format!("/api/v1/{path}"));
        assert!(!answer.headers.contains_key(ETAG), "{path}");
        assert_eq!(answer.headers[CACHE_CONTROL], "no-store", "{path}");
    }
    let refused = page.read(&format!("/api/v1/timeline?{CLOSED}&zone=Nowhere"));
    assert!(!refused.headers.contains_key(ETAG));
}

#[test]
fn what_is_stored_late_of_a_closed_range_changes_its_answer() {
    let path = format!("/api/v1/queries?{CLOSED}");
    let tag = TestPage::of_an_hour().read(&path).headers[ETAG].clone();
    let tag = tag.to_str().unwrap();
    // The same history in another process.
    assert_eq!(
        TestPage::of_an_hour().read_with(&path, &[(IF_NONE_MATCH, tag)]).status,
        StatusCode::NOT_MODIFIED
    );
    let mut stored: MemoryHistory = (*TestHistory::hour().stored).clone();
    stored.windows.remove(90);
    let changed = TestHistory { stored: Arc::new(stored), ..TestHistory::default() };
    let answer = TestPage::new(changed, PageLimits::default()).read_with(&path, &[(IF_NONE_MATCH, tag)]);
    assert_eq!(answer.status, StatusCode::OK);
    assert_ne!(answer.headers[ETAG], tag);
}
