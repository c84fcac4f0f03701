//! What the main thread does until the agent ends, and how it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sonar_core::Endpoint;
use sonar_core::history::{CollectorKind, Event, EventKind};
use sonar_view::agent::AgentSummary;

use super::board::CollectorProblem;
use super::{CollectorThread, INTERFACES_EVERY, LiveAgent, NAP, STATUS_EVERY, status_file};
use crate::agent::summed_store::summary;
use crate::args::when::now;

impl LiveAgent<'_> {
    /// Collects until it is stopped.
    pub(super) fn collect(&mut self, stop: &AtomicBool, reload: &AtomicBool) {
        let begun = Instant::now();
        let once = self.plan.once;
        let is_over = || once.is_some_and(|once| begun.elapsed() >= once);
        while !stop.load(Ordering::Relaxed) && self.restart_reason.is_none() && !is_over() {
            self.take(NAP);
            self.follow_helpers();
            self.follow_servers();
            let names_interfaces =
                self.queries.as_ref().is_some_and(|queries| !queries.interfaces().is_empty());
            if names_interfaces && self.network_seen.is_none_or(|seen| seen.elapsed() >= INTERFACES_EVERY) {
                self.follow_network();
            }
            self.keep_queries();
            self.keep_threads();
            self.store(now());
            if reload.swap(false, Ordering::Relaxed) {
                self.manager.reloading();
                self.reload();
                self.manager.ready();
            }
            if self.stated.is_none_or(|stated| stated.elapsed() >= STATUS_EVERY) {
                self.state();
            }
            self.note_standstill();
            self.manager.works();
        }
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
        self.board.lost(CollectorKind::Queries, queries.lost());
        for (part, has_packets) in taken {
            let end = part.window.window.end;
            self.add(part);
            let report = match (has_interface, has_packets) {
                (false, _) => None,
                (true, true) => self.board.data(CollectorKind::Queries, end),
                (true, false) => self.board.works(CollectorKind::Queries, end),
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
    pub(super) fn keep_queries(&mut self) {
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
        self.event(Event::new(now(), EventKind::AgentStop, Endpoint::default(), ""));
        self.store_rest();
        self.keep_servers();
        let pulse = self.pulse.clone();
        let waits = pulse.begin();
        status_file::remove(self.plan.folder);
        drop(waits);
        let mut summary = summary(&self.assembler);
        for one in self.board.failing() {
            summary.notes.push(one);
        }
        // The store closes its files.
        pulse.close(self);
        summary
    }
}
