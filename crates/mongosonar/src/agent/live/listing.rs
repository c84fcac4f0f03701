//! Lists the operations that run now for the page, as long as somebody looks there.

use sonar_view::now::{MAX_OPERATIONS, NowListing};

use super::LiveAgent;

impl LiveAgent<'_> {
    /// Begins a list if the page asks for one, and hands over the one that is complete. It never waits.
    pub(super) fn list_running(&mut self) {
        let now = self.instant();
        let board = &self.context.board.running;
        if self.page.asks_for_running() {
            board.want(now);
            let queries = self.queries.as_ref();
            self.running.begin(now, || queries?.ask_running(MAX_OPERATIONS));
        }
        if let Some(wire) = self.running.end(now) {
            let listing = NowListing {
                at: self.context.clock.now().time,
                wire: wire.0,
                threads: board.threads(now),
                servers: board.servers(now),
            };
            let servers = &self.servers;
            self.page.send_running(listing.snapshot(&|server| servers.name(server)));
        }
        self.page.flush_running();
        board.forget_unwanted(now);
    }
}
