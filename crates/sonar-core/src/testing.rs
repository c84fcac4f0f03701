//! Operations and a history that are made up, for tests, examples and benches; built only for tests or with the feature
//! `testing`.
//!
//! What an operation needs beside these values is set over them: `Operation { end, ..operation(&shape, &app) }`.

use std::fmt;
use std::sync::Arc;

use crate::history::{
    Event, HistoryError, HistoryReader, HistoryWriter, Resolution, SourcePositions, Span, StoreNotice,
};
use crate::operation::Opcode;
use crate::time_split::{ThreadOperation, TimeSplit, WireOperation};
use crate::{
    Application, Class, Endpoint, HistoryWindow, Operation, Outcome, Role, ShapeId, ShapeInfo, Timestamp,
};

/// The server of all operations.
pub const SERVER: Endpoint = Endpoint::v4([10, 0, 0, 1], 27_017);
/// Their client.
pub const CLIENT: Endpoint = Endpoint::v4([10, 0, 0, 2], 50_000);

/// A `find` of a user that has no time yet.
pub fn operation<'a>(shape: &'a Arc<ShapeInfo>, app: &'a Arc<Application>) -> Operation<'a> {
    Operation {
        start: Timestamp::default(),
        end: Timestamp::default(),
        latency_ns: None,
        transfer_ns: None,
        client: CLIENT,
        server: SERVER,
        role: Role::Served,
        class: Class::User,
        command: "find",
        shape,
        ordered_id: shape.id,
        statements: &[],
        statement_count: 1,
        app,
        opcode: Opcode::Msg,
        compressor: None,
        tls: None,
        request_id: 1,
        cursor_id: None,
        request_bytes: 100,
        response_bytes: 200,
        docs_returned: Some(1),
        docs_matched: None,
        docs_affected: None,
        outcome: Outcome::Ok,
        values: None,
    }
}

/// What the wire knows of an operation of 900 ns.
pub fn wire_operation(request_id: u32, start_ns: u64) -> WireOperation {
    WireOperation {
        server: SERVER,
        client: CLIENT,
        request_id,
        start: Timestamp::from_unix_ns(start_ns),
        end: Timestamp::from_unix_ns(start_ns + 900),
        latency_ns: Some(900),
        was_answered: true,
        role: Role::Served,
        class: Class::User,
        shape: Arc::new(ShapeInfo::default()),
        ordered_id: ShapeId(0),
        app: Arc::default(),
    }
}

/// An operation of 1,000 ns at its thread, which neither read files nor was woken.
pub fn thread_operation(request_id: u32, start_ns: u64) -> ThreadOperation {
    ThreadOperation {
        process: 1,
        thread: 2,
        thread_name: "conn3".into(),
        connection: Some((SERVER, CLIENT)),
        request_id,
        opcode: 2013,
        received_from: Timestamp::from_unix_ns(start_ns),
        start: Timestamp::from_unix_ns(start_ns),
        end: Timestamp::from_unix_ns(start_ns + 1_000),
        preempted: None,
        queued_before_ns: 0,
        duration_ns: 1_000,
        split: TimeSplit::default(),
        switches: 0,
        reads: 0,
        read_bytes: 0,
        write_bytes: 0,
        device_bytes: 0,
        faults: 0,
        request_bytes: 100,
        reply_bytes: 200,
        is_exhaust: false,
        is_unacknowledged: false,
        is_pipelined: false,
        files: Vec::new(),
        has_all_files: true,
        wakers: Vec::new(),
        has_all_wakers: true,
        woke_others: false,
    }
}

/// A history in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryHistory {
    /// Windows of ten seconds, of which coarser ones are made when they are read. Who reads needs them by time.
    pub windows: Vec<HistoryWindow>,
    /// Events.
    pub events: Vec<Event>,
    /// See [`HistoryWriter::positions`].
    pub positions: SourcePositions,
    /// It cannot be read.
    pub is_broken: bool,
    /// It cannot be written to.
    pub is_full: bool,
}

impl MemoryHistory {
    fn checked(&self) -> Result<(), HistoryError> {
        if self.is_broken { Err(HistoryError::new(fmt::Error)) } else { Ok(()) }
    }
}

impl HistoryWriter for MemoryHistory {
    fn append_with(
        &mut self,
        window: &HistoryWindow,
        events: &[Event],
        positions: &SourcePositions,
    ) -> Result<(), HistoryError> {
        if self.is_full {
            return Err(HistoryError::new(fmt::Error));
        }
        self.windows.push(window.clone());
        self.events.extend_from_slice(events);
        self.positions.extend(positions.clone());
        Ok(())
    }

    fn positions(&self) -> SourcePositions {
        self.positions.clone()
    }

    fn notices(&mut self) -> Vec<StoreNotice> {
        Vec::new()
    }
}

impl HistoryReader for MemoryHistory {
    fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), HistoryError> {
        self.checked()?;
        let mut open: Option<HistoryWindow> = None;
        for window in &self.windows {
            let own = HistoryWindow::new(window.window.start, resolution);
            if own.window.end <= span.from || own.window.start >= span.to {
                continue;
            }
            if open.as_ref().is_some_and(|open| open.window.start < own.window.start) {
                open.take().into_iter().for_each(&mut *visit);
            }
            open.get_or_insert(own).merge(window);
        }
        open.into_iter().for_each(visit);
        Ok(())
    }

    fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError> {
        self.checked()?;
        Ok(self.events.iter().filter(|event| span.contains(event.at)).cloned().collect())
    }

    fn extent(&self) -> Result<Option<Span>, HistoryError> {
        self.checked()?;
        let from = self.windows.iter().map(|window| window.window.start).min();
        let to = self.windows.iter().map(|window| window.window.end).max();
        Ok(from.zip(to).map(|(from, to)| Span { from, to }))
    }
}

/// A history that several readers share.
impl HistoryReader for Arc<MemoryHistory> {
    fn windows(
        &self,
        span: Span,
        resolution: Resolution,
        visit: &mut dyn FnMut(HistoryWindow),
    ) -> Result<(), HistoryError> {
        (**self).windows(span, resolution, visit)
    }

    fn events(&self, span: Span) -> Result<Vec<Event>, HistoryError> {
        (**self).events(span)
    }

    fn extent(&self) -> Result<Option<Span>, HistoryError> {
        (**self).extent()
    }
}
