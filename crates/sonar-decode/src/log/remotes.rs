//! Which application has which client address and port: read from a server's log, for connections whose handshake was
//! not captured.
//!
//! Only a few kinds of lines matter, and they are few in a busy log, so all others are skipped without being parsed: a
//! connection was accepted, a client identified itself (since 3.4), a connection ended, the server started or exits.
//! Which connections end from a given time on is collected, too, with the port of the server, where a line states it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;
use memchr::memmem;
use sonar_core::{Application, Endpoint, Timestamp, held};

use super::server_port::{json_message, server_port, text_message};
use crate::EndedClient;
use crate::identity::MAX_APPLICATIONS;
use crate::message::{ClientDocument, MAX_NAME};
use crate::syntax::{json, shell, time};

/// The most connections that are known at once, and of which a log may say that they end.
pub const MAX_CONNECTIONS: usize = 100_000;
/// Times in logs are cut to milliseconds: a line was written at most this many nanoseconds later.
const CUT_NS: u64 = 999_999;

/// A log that has been read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogEnd {
    /// When the first and the last line with a time were written; `None` where no line began like those of a server's log.
    pub span: Option<(Timestamp, Timestamp)>,
    /// Connections that ended at the given time or later, at most [`MAX_CONNECTIONS`]; none if no time was given.
    pub ended: Vec<EndedClient>,
    /// Connections whose end did not fit.
    pub left_out: u64,
}

/// Collects the clients of connections, from lines in the order of the log.
#[derive(Default)]
pub struct Remotes {
    /// Lines at this time or later name no client: they say which connections end.
    until: Option<Timestamp>,
    /// Clients of connections that are open, of the log that is being read; collected only with `until`.
    open: HashSet<Endpoint, RandomState>,
    /// The port of the server, once the log that is being read has stated it.
    server_port: Option<u16>,
    known: HashMap<Endpoint, Arc<Application>, RandomState>,
    /// Each application that a client has, once.
    apps: HashSet<Arc<Application>, RandomState>,
    /// [`MAX_CONNECTIONS`] is divided by this; 0: by 1.
    share: usize,
    refused: u64,
    /// Of the log that is being read.
    end: LogEnd,
}

/// What a line reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum RemoteEvent {
    Accepted,
    Metadata,
    Ended,
    /// No connection is open: the server started, or exits.
    AllEnded,
}

impl Remotes {
    /// Ready for the first line. Up to `until` lines name clients, and from then on they say which connections end;
    /// `None`: all name clients.
    pub fn new(until: Option<Timestamp>) -> Self {
        Self { until, ..Self::default() }
    }

    /// The same, with room for a share of the connections.
    pub fn share(self, share: usize) -> Self {
        Self { share, ..self }
    }

    /// The most bytes that it takes with such a share.
    pub const fn max_memory(share: usize) -> usize {
        // Three texts, in which three bytes may replace one, with what the allocator adds.
        const APPLICATION: usize =
            size_of::<Application>() + 2 * size_of::<usize>() + 3 * (3 * MAX_NAME + 16);
        held::table_bytes(most(share), size_of::<(Endpoint, Arc<Application>)>())
            + held::table_bytes(MAX_APPLICATIONS, size_of::<Arc<Application>>())
            + MAX_APPLICATIONS * APPLICATION
    }

    /// One value for each application; `None` if the clients have too many.
    fn shared(&mut self, app: Application) -> Option<Arc<Application>> {
        if let Some(known) = self.apps.get(&app) {
            return Some(known.clone());
        }
        if self.apps.len() >= MAX_APPLICATIONS {
            // Those of connections that have ended.
            self.apps.retain(|app| Arc::strong_count(app) > 1);
        }
        (self.apps.len() < MAX_APPLICATIONS).then(|| {
            let shared = Arc::new(app);
            self.apps.insert(shared.clone());
            shared
        })
    }

    /// Reads one line, with or without its line feed. Lines of other programs, and lines that are cut, are skipped.
    pub fn line(&mut self, line: &[u8]) {
        let time = time_of(line);
        if let Some(time) = time {
            self.end.span = Some((self.end.span.map_or(time, |(first, _)| first), time));
        }
        self.read(line, time);
        if self.until.is_some() {
            // After the connections to a server that was at another port before.
            self.note_port(line);
        }
    }

    /// Reads which clients a line that was written at `time` names, and which connections end.
    fn read(&mut self, line: &[u8], time: Option<Timestamp>) {
        let Some((event, at, address)) = event(line) else { return };
        self.follow_end(event, address.map(Endpoint::from), time);
        if self.until.is_some_and(|until| time.is_none_or(|time| time >= until)) {
            return;
        }
        let Some(client) = address.map(Endpoint::from) else {
            self.known.clear();
            return;
        };
        if event != RemoteEvent::Metadata {
            // A new connection from the same port may be of another client.
            self.known.remove(&client);
            return;
        }
        let mut reader = ClientDocument::default();
        // Old servers write the machine's name with quotes in it; the part before that is enough.
        let _ = match line.first() {
            Some(b'{') => json::walk(line, at, &mut reader).ok(),
            _ => shell::walk(line, at, &mut reader).ok(),
        };
        self.known.remove(&client);
        let has_room = self.known.len() < most(self.share);
        match has_room.then(|| self.shared(Application::from(&reader))).flatten() {
            Some(app) => drop(self.known.insert(client, app)),
            None => self.refused += 1,
        }
    }

    /// Notes the port of the server, if the line states it. It is that of earlier lines, too, up to another one.
    fn note_port(&mut self, line: &[u8]) {
        let Some(port) = server_port(line) else { return };
        if self.server_port.is_none() {
            self.end.ended.iter_mut().for_each(|one| one.server_port = Some(port));
        }
        self.server_port = Some(port);
    }

    /// Notes which connections a line opens or ends.
    fn follow_end(&mut self, event: RemoteEvent, client: Option<Endpoint>, time: Option<Timestamp>) {
        let Some((until, time)) = self.until.zip(time) else { return };
        let mut ended = Vec::new();
        match (event, client) {
            (RemoteEvent::Accepted | RemoteEvent::Metadata, Some(client)) => {
                if self.open.len() < MAX_CONNECTIONS {
                    self.open.insert(client);
                } else if event == RemoteEvent::Accepted {
                    // If the server exits, this one is not among those that end.
                    self.end.left_out += 1;
                }
            }
            (_, Some(client)) => {
                self.open.remove(&client);
                ended.push(client);
            }
            (_, None) => ended.extend(self.open.drain()),
        }
        let at = time.plus_ns(CUT_NS);
        if at >= until {
            let room = MAX_CONNECTIONS.saturating_sub(self.end.ended.len());
            self.end.left_out += ended.len().saturating_sub(room) as u64;
            let server_port = self.server_port;
            let ended = ended.into_iter().take(room);
            let ended = ended.map(|client| EndedClient { client, server_port, host: None, at });
            self.end.ended.extend(ended);
        }
    }

    /// Ends the log that was read, and gives what it said: the next line is that of another log, and may be of another
    /// server. Its clients stay known.
    pub fn end_of_log(&mut self) -> LogEnd {
        self.open.clear();
        self.server_port = None;
        std::mem::take(&mut self.end)
    }

    /// The clients of connections that are open at the end of the log.
    pub fn into_known(self) -> impl Iterator<Item = (Endpoint, Application)> {
        self.known.into_iter().map(|(client, app)| (client, Application::clone(&app)))
    }

    /// Connections whose application is known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no client is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Connections that did not fit.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// The most connections of a share.
const fn most(share: usize) -> usize {
    MAX_CONNECTIONS / if share == 0 { 1 } else { share }
}

/// What a server writes into an existing log when it starts.
const RESTARTED: &[u8] = b"***** SERVER RESTARTED *****";

/// The connection that has ended, of a line that says so and was written at `time`; `None` for other lines, and for a
/// connection through a Unix socket. The server is whichever the log is of.
pub fn ended_client(line: &[u8], time: Timestamp) -> Option<EndedClient> {
    let (event, _, address) = event(line)?;
    let client = address.filter(|_| event == RemoteEvent::Ended).map(Endpoint::from)?;
    Some(EndedClient { client, server_port: None, host: None, at: time.plus_ns(CUT_NS) })
}

/// The event that a line reports, where its document begins, and the address of the client. A server that started or
/// exits has no address.
fn event(line: &[u8]) -> Option<(RemoteEvent, usize, Option<SocketAddr>)> {
    match line.first() {
        Some(b'{') => json_event(line),
        _ => text_event(line),
    }
}

/// The same of a line of 4.4 and later.
fn json_event(line: &[u8]) -> Option<(RemoteEvent, usize, Option<SocketAddr>)> {
    let (message, attributes) = json_message(line)?;
    let event = match message {
        b"MongoDB starting" | b"Now exiting" | b"Shutting down" | RESTARTED => {
            return Some((RemoteEvent::AllEnded, 0, None));
        }
        b"Connection accepted" => RemoteEvent::Accepted,
        b"client metadata" => RemoteEvent::Metadata,
        b"Connection ended" => RemoteEvent::Ended,
        _ => return None,
    };
    let rest = &line[attributes..];
    let remote = &rest[memmem::find(rest, b"\"remote\":\"")? + 10..];
    let address = address(&remote[..memchr::memchr(b'"', remote)?])?;
    let document = match event {
        RemoteEvent::Metadata => attributes + memmem::find(rest, b"\"doc\":{")? + 6,
        _ => 0,
    };
    Some((event, document, Some(address)))
}

/// The same of a line of 4.2 and earlier: `… [conn12] received client metadata from 10.0.0.9:51234 conn12: {…}`.
fn text_event(line: &[u8]) -> Option<(RemoteEvent, usize, Option<SocketAddr>)> {
    let message = text_message(line)?;
    let is_start_or_exit: [&[u8]; 5] =
        [b"MongoDB starting : ", RESTARTED, b"dbexit: ", b"now exiting", b"shutting down with code:"];
    if is_start_or_exit.iter().any(|words| message.starts_with(words)) {
        return Some((RemoteEvent::AllEnded, 0, None));
    }
    let (event, rest) = [
        (RemoteEvent::Metadata, &b"received client metadata from "[..]),
        (RemoteEvent::Accepted, b"connection accepted from "),
        (RemoteEvent::Ended, b"end connection "),
    ]
    .into_iter()
    .find_map(|(event, words)| Some((event, message.strip_prefix(words)?)))?;
    let end = memchr::memchr(b' ', rest).unwrap_or(rest.trim_ascii_end().len());
    let address = address(&rest[..end])?;
    let document = match event {
        RemoteEvent::Metadata => memchr::memchr(b'{', line)?,
        _ => 0,
    };
    Some((event, document, Some(address)))
}

/// An address; `None` for a Unix socket.
fn address(text: &[u8]) -> Option<SocketAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn time_of(line: &[u8]) -> Option<Timestamp> {
    const DATE: &[u8] = b"\"$date\":\"";
    let text = match line.first()? {
        b'{' => {
            let from = memmem::find(line, DATE)? + DATE.len();
            let rest = &line[from..];
            &rest[..memchr::memchr(b'"', rest)?]
        }
        _ => &line[..memchr::memchr(b' ', line)?],
    };
    time::iso(text).map(Timestamp::from_unix_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(lines: &[&str], until: Option<u64>) -> Vec<String> {
        let mut remotes = Remotes::new(until.map(|seconds| Timestamp::from_unix(seconds, 0)));
        lines.iter().for_each(|line| remotes.line(line.as_bytes()));
        let mut known: Vec<_> = remotes
            .into_known()
            .map(|(client, app)| format!("{client} {} {} {}", app.name, app.driver, app.driver_version))
            .collect();
        known.sort();
        known
    }

    fn json_line(second: u32, message: &str, attributes: &str) -> String {
        format!(
            "{{\"t\":{{\"$date\":\"2024-05-01T10:00:{second:02}.000+00:00\"}},\"s\":\"I\",\"c\":\"NETWORK\",\"id\":1,\
             \"ctx\":\"conn7\",\"msg\":\"{message}\",\"attr\":{{{attributes}}}}}"
        )
    }

    const METADATA: &str = "\"remote\":\"10.0.0.9:51234\",\"client\":\"conn7\",\"doc\":{\"application\":{\"name\":\
        \"shop\"},\"driver\":{\"name\":\"PyMongo\",\"version\":\"4.7.3\"},\"os\":{\"type\":\"Linux\",\"name\":\"x\"}}";

    #[test]
    fn a_client_is_known_until_its_connection_ends_or_its_port_is_used_again() {
        let metadata = json_line(1, "client metadata", METADATA);
        let shop = ["10.0.0.9:51234 shop PyMongo 4.7.3"];
        assert_eq!(known(&[&metadata], None), shop);
        for message in ["Connection ended", "Connection accepted"] {
            let later = json_line(2, message, "\"remote\":\"10.0.0.9:51234\",\"connectionCount\":3");
            assert_eq!(known(&[&metadata, &later], None), [""; 0]);
            assert_eq!(known(&[&later, &metadata], None), shop);
            let other = json_line(2, message, "\"remote\":\"10.0.0.9:51235\"");
            assert_eq!(known(&[&metadata, &other], None), shop);
        }
        // 2024-05-01T10:00:00Z.
        let at = 1_714_557_600;
        assert_eq!(known(&[&metadata], Some(at + 1)), [""; 0], "said later than the capture began");
        assert_eq!(known(&[&metadata], Some(at + 2)), shop);
    }

    #[test]
    fn no_connection_outlives_its_server() {
        let metadata = json_line(1, "client metadata", METADATA);
        let restarted = "{\"t\":{\"$date\":\"2024-05-01T10:00:02.000+00:00\"},\"s\":\"I\",\"c\":\"CONTROL\",\"id\":20698,\
                         \"ctx\":\"-\",\"msg\":\"***** SERVER RESTARTED *****\"}";
        let text = |message: &str| format!("2018-05-01T10:00:01.000+0000 I CONTROL  [main] {message}");
        for start in [
            restarted.to_owned(),
            json_line(2, "MongoDB starting", "\"pid\":1,\"port\":27017"),
            text("***** SERVER RESTARTED *****"),
            text("MongoDB starting : pid=1 port=27017 dbpath=/data/db 64-bit host=a"),
        ] {
            assert_eq!(known(&[&metadata, &start], None), [""; 0], "{start}");
            assert_eq!(known(&[&start, &metadata], None).len(), 1, "{start}");
        }
        let query = json_line(
            2,
            "Slow query",
            "\"command\":{\"find\":\"c\",\"filter\":{\"msg\":\"MongoDB starting\"}}",
        );
        assert_eq!(known(&[&metadata, &query], None).len(), 1);
        // 2024-05-01T10:00:02Z: it started after the capture began.
        assert_eq!(known(&[&metadata, restarted], Some(1_714_557_602)).len(), 1);
    }

    /// Ports of the clients whose connections end from 10:00:02 on, with the second.
    fn ended(lines: &[String]) -> Vec<(u16, u64)> {
        let mut remotes = Remotes::new(Some(Timestamp::from_unix(1_714_557_602, 0)));
        lines.iter().for_each(|line| remotes.line(line.as_bytes()));
        let mut ended: Vec<_> = remotes
            .end_of_log()
            .ended
            .into_iter()
            .map(|one| (one.client.port, one.at.unix_ns() / 1_000_000_000 - 1_714_557_600))
            .collect();
        ended.sort_unstable();
        assert_eq!(remotes.end_of_log(), LogEnd::default());
        ended
    }

    #[test]
    fn ends_of_connections_in_the_time_of_a_capture_are_collected() {
        let line = |second, message: &str, port: u16| {
            json_line(second, message, &format!("\"remote\":\"10.0.0.9:{port}\""))
        };
        let text = |second: u32, message: &str| {
            format!("2024-05-01T10:00:0{second}.000+0000 I NETWORK  [conn7] {message}")
        };
        let accepted = |port| line(1, "Connection accepted", port);
        // Before the capture, within it, and one that was open before the log began.
        let ends = [(1, 1), (3, 2), (4, 3)].map(|(second, port)| line(second, "Connection ended", port));
        let all: Vec<_> = [accepted(1), accepted(2)].into_iter().chain(ends).collect();
        assert_eq!(ended(&all), [(2, 3), (3, 4)]);
        let of_text = [
            text(1, "connection accepted from 10.0.0.9:5 #7 (1 connection now open)"),
            text(3, "end connection 10.0.0.9:5 (0 connections now open)"),
        ];
        assert_eq!(ended(&of_text), [(5, 3)]);
        // A server that exits or starts again has none of those that were open.
        for exit in [
            json_line(5, "Shutting down", "\"exitCode\":0"),
            json_line(5, "MongoDB starting", "\"pid\":1,\"port\":27017"),
            text(5, "dbexit:  rc: 0"),
            text(5, "***** SERVER RESTARTED *****"),
            text(5, "shutting down with code:0"),
        ] {
            let lines = [accepted(1), accepted(2), line(3, "Connection ended", 1), exit.clone(), accepted(4)];
            assert_eq!(ended(&lines), [(1, 3), (2, 5)], "{exit}");
        }
    }

    #[test]
    fn lines_of_4_2_and_earlier_are_read_too() {
        let text = |message: &str| format!("2018-05-01T10:00:01.000+0000 I NETWORK  [conn7] {message}");
        let metadata = text(
            "received client metadata from 10.0.0.9:51234 conn7: { driver: { name: \"nodejs\", version: \"3.1\" }, \
             os: { type: \"Linux\" }, application: { name: \"web\" } }",
        );
        let web = ["10.0.0.9:51234 web nodejs 3.1"];
        assert_eq!(known(&[&metadata], None), web);
        assert_eq!(
            known(&[&metadata, &text("end connection 10.0.0.9:51234 (2 connections now open)")], None),
            [""; 0]
        );
        assert_eq!(
            known(&[&metadata, &text("connection accepted from 10.0.0.9:51234 #9 (1 ...)")], None),
            [""; 0]
        );
        assert_eq!(known(&[&metadata, &text("end connection 10.0.0.8:51234 (2 ...)")], None), web);
    }

    #[test]
    fn there_is_room_for_a_share_of_the_connections_and_for_applications_of_open_ones() {
        let line = |message: &str, client: usize, app: usize| {
            let document = format!(
                "\"remote\":\"10.{}.{}.9:{}\",\"doc\":{{\"application\":{{\"name\":\"{app}\"}}}}",
                client / 62_500,
                client / 250 % 250,
                1 + client % 250
            );
            json_line(1, message, &document)
        };
        let mut remotes = Remotes::new(None).share(100);
        for client in 0..1_007 {
            remotes.line(line("client metadata", client, 1).as_bytes());
        }
        assert_eq!((remotes.len(), remotes.apps.len(), remotes.refused()), (1_000, 1, 7));
        let mut remotes = Remotes::new(None);
        for app in 0..2 * MAX_APPLICATIONS {
            remotes.line(line("client metadata", app, app).as_bytes());
            remotes.line(line("Connection ended", app, app).as_bytes());
        }
        assert_eq!((remotes.len(), remotes.refused()), (0, 0), "they gave way");
        for app in 0..MAX_APPLICATIONS + 3 {
            remotes.line(line("client metadata", app, app).as_bytes());
        }
        assert_eq!((remotes.len(), remotes.refused()), (MAX_APPLICATIONS, 3));
        assert!(Remotes::max_memory(100) < Remotes::max_memory(0));
    }

    #[test]
    fn the_span_is_that_of_the_lines_with_a_time() {
        let mut remotes = Remotes::new(Some(Timestamp::from_unix(0, 0)));
        for line in ["# mongosonar", "", "2026/05/01 nginx", "{\"a\": 1}"] {
            remotes.line(line.as_bytes());
        }
        assert_eq!(remotes.end_of_log().span, None, "not a log");
        for second in [1, 2, 4] {
            remotes.line(json_line(second, "Slow query", "").as_bytes());
        }
        // 2024-05-01T10:00:00Z.
        let at = |second: u64| Timestamp::from_unix(1_714_557_600 + second, 0);
        assert_eq!(remotes.end_of_log().span, Some((at(1), at(4))));
        assert_eq!(remotes.end_of_log().span, None, "that of the next log");
    }

    /// What one log after another says of ends from 10:00:02 on.
    fn ends(logs: &[&[String]]) -> Vec<LogEnd> {
        let mut remotes = Remotes::new(Some(Timestamp::from_unix(1_714_557_602, 0)));
        let end = |lines: &&[String]| {
            lines.iter().for_each(|line| remotes.line(line.as_bytes()));
            remotes.end_of_log()
        };
        logs.iter().map(end).collect()
    }

    #[test]
    fn an_end_has_the_port_of_its_server_where_the_log_states_it_and_the_end_of_its_millisecond() {
        let ended = |second| json_line(second, "Connection ended", "\"remote\":\"10.0.0.9:5\"");
        let port =
            |second, port: u16| json_line(second, "Process Details", &format!("\"pid\":1,\"port\":{port}"));
        // After a rotation the port may come late, and a server may start at another one.
        let first = [ended(2), ended(3), port(4, 27_017), ended(5), port(6, 27_018), ended(7)];
        let ends = ends(&[&first, &[ended(8)]]);
        let at = |second: u64, server_port| EndedClient {
            client: Endpoint::v4([10, 0, 0, 9], 5),
            server_port,
            host: None,
            at: Timestamp::from_unix(1_714_557_600 + second, 999_999),
        };
        let [one, other] = [Some(27_017), Some(27_018)];
        assert_eq!(ends[0].ended, [at(2, one), at(3, one), at(5, one), at(7, other)]);
        assert_eq!(ends[1].ended, [at(8, None)], "it may be of another server");
        assert_eq!(ends.iter().map(|end| end.left_out).sum::<u64>(), 0);
    }

    #[test]
    fn each_log_has_room_for_the_ends_of_so_many_connections_and_counts_the_rest() {
        let line = |second, message: &str, client: usize| {
            let address = format!("10.0.{}.9:{}", client / 60_000, 1 + client % 60_000);
            json_line(second, message, &format!("\"remote\":\"{address}\""))
        };
        let many = |message: &str| -> Vec<_> {
            (0..MAX_CONNECTIONS + 3).map(|client| line(3, message, client)).collect()
        };
        let exit = json_line(4, "Shutting down", "\"exitCode\":0");
        let exits = [many("Connection accepted"), vec![exit]].concat();
        for end in ends(&[&many("Connection ended"), &exits, &many("Connection ended")]) {
            assert_eq!((end.ended.len(), end.left_out), (MAX_CONNECTIONS, 3));
        }
    }

    #[test]
    fn a_line_alone_says_which_connection_has_ended() {
        let time = Timestamp::from_unix(1_714_557_603, 0);
        let client = |line: &str| ended_client(line.as_bytes(), time).map(|one| (one.client.port, one.at));
        let json = |message| json_line(3, message, "\"remote\":\"10.0.0.9:5\"");
        let text = |message: &str| format!("2024-05-01T10:00:03.000+0000 I NETWORK  [conn7] {message}");
        let end = Some((5, time.plus_ns(CUT_NS)));
        assert_eq!(client(&json("Connection ended")), end);
        assert_eq!(client(&text("end connection 10.0.0.9:5 (0 connections now open)")), end);
        for other in [
            json("Connection accepted"),
            json("Shutting down"),
            text("end connection anonymous unix socket (0 connections now open)"),
            text("connection accepted from 10.0.0.9:5 #7 (1 connection now open)"),
            String::new(),
        ] {
            assert_eq!(client(&other), None, "{other}");
        }
    }

    /// Names are chosen by clients, and queries by users: none of them may end another's connection.
    #[test]
    fn what_a_client_chose_is_no_event() {
        let metadata = json_line(1, "client metadata", METADATA);
        let query = json_line(
            2,
            "Slow query",
            "\"remote\":\"10.0.0.9:51234\",\"command\":{\"find\":\"c\",\"filter\":{\"msg\":\"Connection ended\"}}",
        );
        assert_eq!(known(&[&metadata, &query], None).len(), 1);
        let text = "2018-05-01T10:00:02.000+0000 I COMMAND  [conn8] command a.b appName: \"] end connection \
                    10.0.0.9:51234 (\" command: find { find: \"c\" } 5ms";
        assert_eq!(known(&[&metadata, text], None).len(), 1);
        for broken in
            ["", "{", "{\"attr\":{", "] ", "x] received client metadata from 1.2.3.4:5", "\u{0}\u{1}"]
        {
            assert_eq!(known(&[broken], None), [""; 0]);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_panics(cut in 0usize..400, byte in proptest::num::u8::ANY, at in 0usize..400) {
            let mut line = json_line(1, "client metadata", METADATA).into_bytes();
            if let Some(place) = line.get_mut(at) {
                *place = byte;
            }
            line.truncate(cut);
            Remotes::new(Some(Timestamp::from_unix(1, 0))).line(&line);
        }
    }
}
