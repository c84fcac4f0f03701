//! A page at a socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sonar_serve::{PageLimits, PageRefusal};

use crate::support::{RunningPage, at, rest_of};

#[test]
fn a_page_is_served_until_it_is_stopped() {
    let running = RunningPage::new(PageLimits::default());
    let ask = |path: &str| {
        let mut stream = running.connect();
        stream.write_all(running.request(path, "Connection: close\r\n").as_bytes()).unwrap();
        rest_of(stream)
    };
    assert!(ask("/").starts_with("HTTP/1.1 200 OK\r\n"));
    let status = ask("/api/v1/status");
    assert!(status.starts_with("HTTP/1.1 200 OK\r\n") && status.contains("\"page_status\""), "{status}");
    let address = running.address;
    drop(running);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_long_answer_arrives_whole_and_its_length_is_known() {
    let running = RunningPage::new(PageLimits::default());
    let mut stream = running.connect();
    let path = "/api/v1/queries/intervals?from=2023-11-14T22:00:00Z&width=10";
    stream.write_all(running.request(path, "Connection: close\r\n").as_bytes()).unwrap();
    let answer = rest_of(stream);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(body.len() > 64 << 10, "it has several pieces: {} bytes", body.len());
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    let intervals = body.lines().map(serde_json::from_str::<serde_json::Value>);
    assert!(intervals.map(Result::unwrap).all(|interval| interval["kind"] == "interval"));
}

#[test]
fn one_connection_too_many_is_told_so() {
    let running = RunningPage::new(PageLimits { connections: 1, ..PageLimits::default() });
    let mut first = running.connect();
    first.write_all(running.request("/", "").as_bytes()).unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    assert!(rest_of(running.connect()).starts_with("HTTP/1.1 503 "));
    running.wait_for(PageRefusal::Connections, 1);
}

#[test]
fn a_client_that_takes_its_time_is_dropped() {
    let limits = PageLimits { head_time: Duration::from_millis(50), ..PageLimits::default() };
    let running = RunningPage::new(limits);
    // One that says nothing at all has nothing that could be refused.
    assert_eq!(rest_of(running.connect()), "");
    let mut slow = running.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ").unwrap();
    rest_of(slow);
    running.wait_for(PageRefusal::Slow, 1);
}

#[test]
fn a_head_that_is_too_long_is_refused_and_the_next_client_is_served() {
    let running = RunningPage::new(PageLimits::default());
    let mut stream = running.connect();
    let long = running.request("/", &format!("X-Long: {}\r\n", "x".repeat(100_000)));
    // It may be refused before it has been written.
    let _ = stream.write_all(long.as_bytes());
    let answer = rest_of(stream);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let mut next = running.connect();
    next.write_all(running.request("/", "Connection: close\r\n").as_bytes()).unwrap();
    assert!(rest_of(next).starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_newest_window_is_announced_to_viewers_until_the_token_changes() {
    let running = RunningPage::new(PageLimits { viewers: 1, ..PageLimits::default() });
    let mut viewer = running.connect();
    // Compressed, an announcement would wait for the next one.
    let asked = running.request("/api/v1/live", "Accept-Encoding: gzip\r\n");
    viewer.write_all(asked.as_bytes()).unwrap();
    let mut told = String::new();
    let mut bytes = [0; 512];
    while !told.contains("end_ns") {
        let length = viewer.read(&mut bytes).unwrap();
        assert_ne!(length, 0, "{told}");
        told.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
    assert!(told.starts_with("HTTP/1.1 200 OK\r\n") && told.contains("text/event-stream"), "{told}");
    let end = at(3_600).unix_ns();
    assert!(told.contains(&format!("event: window\ndata: {{\"end_ns\":{end}}}\n\n")), "{told}");
    let mut second = running.connect();
    let asked = running.request("/api/v1/live", "Connection: close\r\n");
    second.write_all(asked.as_bytes()).unwrap();
    assert!(rest_of(second).contains("too many pages follow"));
    running.test.page.access().replace(None);
    // What is left ends the answer.
    assert!(!rest_of(viewer).contains("event:"));
    running.wait_for(PageRefusal::Busy, 1);
}
