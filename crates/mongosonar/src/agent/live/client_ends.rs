//! Ends of connections, on their way from the logs of servers to the capture.

use std::collections::VecDeque;

use sonar_decode::EndedClient;

/// The most that wait. The capture takes them several times a second.
pub const MAX_WAITING: usize = 16_384;

/// Ends of connections that logs state, in the order of their lines. The oldest give way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientEnds {
    /// Those that wait, at most [`MAX_WAITING`].
    pub waiting: VecDeque<EndedClient>,
    /// For how many there was no room.
    pub left_out: u64,
}

impl ClientEnds {
    /// Adds the next one.
    pub fn add(&mut self, client: EndedClient) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.left_out += 1;
        }
        self.waiting.push_back(client);
    }

    /// Adds what comes after them.
    pub fn append(&mut self, later: Self) {
        self.left_out += later.left_out;
        later.waiting.into_iter().for_each(|client| self.add(client));
    }

    /// Those so far; then there are none.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::{Endpoint, Timestamp};

    use super::*;

    #[test]
    fn the_oldest_give_way_and_are_counted() {
        let client = |port| EndedClient {
            client: Endpoint::v4([10, 0, 0, 9], port),
            server_port: None,
            host: None,
            at: Timestamp::default(),
        };
        let mut ends = ClientEnds::default();
        (0..MAX_WAITING as u16 + 2).for_each(|port| ends.add(client(port)));
        assert_eq!((ends.waiting.len(), ends.left_out), (MAX_WAITING, 2));
        let mut later = ClientEnds { left_out: 5, ..ClientEnds::default() };
        later.add(client(1));
        ends.append(later);
        assert_eq!((ends.waiting.len(), ends.left_out), (MAX_WAITING, 8));
        assert_eq!([&ends.waiting[0], &ends.waiting[MAX_WAITING - 1]], [&client(3), &client(1)]);
        assert_eq!((ends.take().left_out, ends), (8, ClientEnds::default()));
    }
}
