//! What the main thread does until the agent ends, and how it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sonar_core::Endpoint;
use sonar_core::history::{CollectorKind, Event, EventKind};
use sonar_sys::Host;
use sonar_view::agent::AgentSummary;

use super::board::CollectorProblem;
use super::runner::CollectorThread;
use super::{INTERFACES_EVERY, LiveAgent, NAP, STATUS_EVERY};
use crate::agent::status_file;
use crate::agent::summed_store::summary;

impl LiveAgent<'_> {
    /// Collects until it is stopped.
    pub(super) fn collect(&mut self, stop: &AtomicBool, reload: &AtomicBool) {
        self.announce();
        self.announce_process_namespace();
        self.manager.ready();
        let host = Host::live().name().unwrap_or_default();
        let start =
            Event::new(self.now(), EventKind::AgentStart, Endpoint::default(), env!("CARGO_PKG_VERSION"));
        self.event(start.about(&host));
        let begun = self.instant();
        while !stop.load(Ordering::Relaxed)
            && self.restart_reason.is_none()
            && !self.plan.once.is_some_and(|once| self.is_due(Some(begun), once))
        {
            self.step(NAP);
            if reload.swap(false, Ordering::Relaxed) {
                self.manager.reloading();
                self.reload();
                self.manager.ready();
            }
            if self.is_due(self.stated, STATUS_EVERY) {
                self.write_status();
            }
            self.note_standstill();
            self.manager.works();
        }
        self.manager.stopping();
    }

    /// Takes windows that have come, and waits at most so long for one; then does what is due.
    pub(super) fn step(&mut self, wait: Duration) {
        self.take(wait);
        self.list_running();
        self.follow_helpers();
        self.follow_servers();
        let names_interfaces = self.queries.as_ref().is_some_and(|queries| !queries.interfaces().is_empty());
        if names_interfaces && self.is_due(self.network_seen, INTERFACES_EVERY) {
            self.follow_network();
        }
        self.ensure_capture_runs();
        self.restart_collectors();
        self.store(self.now());
    }

    /// Takes windows that have come, and waits for one.
    pub(super) fn take(&mut self, wait: Duration) {
        for part in self.parts.take(wait) {
            self.add(part);
        }
        let Some(queries) = &mut self.queries else { return };
        let mut taken = Vec::new();
        while let Some(one) = queries.take(Duration::ZERO, &self.servers) {
            taken.push(one);
        }
        let (texts, is_down) = queries.notices();
        let has_interface = queries.has_interface();
        self.context.board.lost(CollectorKind::Queries, queries.lost());
        for (part, has_packets) in taken {
            let end = part.window.window.end;
            self.add(part);
            let report = match (has_interface, has_packets) {
                (false, _) => None,
                (true, true) => self.context.board.data(CollectorKind::Queries, end),
                (true, false) => self.context.board.works(CollectorKind::Queries, end),
            };
            report.into_iter().for_each(|event| self.event(event));
        }
        for text in texts {
            eprintln!("mongosonar: queries: {text}");
        }
        if is_down {
            self.follow_network();
        }
    }

    /// Starts the capture again if it has ended or could not be started.
    pub(super) fn ensure_capture_runs(&mut self) {
        let Some(queries) = &mut self.queries else { return };
        let problems = [queries.failure(), queries.keep_running().err()];
        for problem in problems.into_iter().flatten() {
            self.fail(CollectorKind::Queries, &problem);
        }
    }

    /// Ends all collectors and stores what is open.
    pub(super) fn finish(mut self) -> AgentSummary {
        let threads: Vec<CollectorThread> = std::mem::take(&mut self.threads).into_values().collect();
        threads.iter().for_each(|thread| thread.stop.store(true, Ordering::Relaxed));
        if let Some(mut queries) = self.queries.take() {
            let (parts, why) = queries.finish(&self.servers);
            parts.into_iter().for_each(|part| self.add(part));
            if let Err(error) = why {
                self.fail(CollectorKind::Queries, &CollectorProblem::temporary(crate::exit::message(&error)));
            }
        }
        self.wait_for(&threads);
        let ends = self.lives.rest();
        ends.into_iter().for_each(|event| self.event(event));
        self.event(Event::new(self.now(), EventKind::AgentStop, Endpoint::default(), ""));
        self.store_rest();
        self.keep_servers();
        let pulse = self.pulse.clone();
        let waits = pulse.begin();
        status_file::remove(self.plan.folder);
        drop(waits);
        let mut summary = summary(&self.assembler);
        for one in self.context.board.failing() {
            summary.notes.push(one);
        }
        // The store closes its files.
        pulse.close(self);
        summary
    }
}
