//! Ends of connections, on their way from the logs of servers to the capture.

use std::collections::{BTreeMap, VecDeque};

use sonar_decode::EndedClient;

/// The most that wait, of all servers. The capture takes them several times a second.
pub const MAX_WAITING: usize = 16_384;

/// Ends of connections that logs state, in the order of their lines. If there are too many, the servers that have the most
/// lose their oldest ones: one log leaves room for those of others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientEnds {
    /// Those that wait, at most [`MAX_WAITING`].
    pub waiting: VecDeque<EndedClient>,
    /// For how many there was no room.
    pub left_out: u64,
}

impl ClientEnds {
    /// Adds the next one. All are of one log, so the oldest gives way.
    pub fn add(&mut self, client: EndedClient) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.pop_front();
            self.left_out += 1;
        }
        self.waiting.push_back(client);
    }

    /// Adds what comes after them, of any servers.
    pub fn append(&mut self, mut later: Self) {
        let mut of_servers: BTreeMap<Option<u16>, usize> = BTreeMap::new();
        for client in self.waiting.iter().chain(&later.waiting) {
            *of_servers.entry(client.server_port).or_default() += 1;
        }
        let share = fair_share(of_servers.values().copied(), MAX_WAITING);
        of_servers.values_mut().for_each(|count| *count = count.saturating_sub(share));
        self.left_out += later.left_out + of_servers.values().sum::<usize>() as u64;
        let mut stays = |client: &EndedClient| match of_servers.get_mut(&client.server_port) {
            Some(surplus) if *surplus > 0 => {
                *surplus -= 1;
                false
            }
            _ => true,
        };
        // First the oldest. No room is made for those that give way.
        self.waiting.retain(&mut stays);
        later.waiting.retain(&mut stays);
        self.waiting.reserve_exact(later.waiting.len());
        self.waiting.extend(later.waiting);
    }

    /// Those so far; then there are none.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The bytes that it holds.
    pub fn memory(&self) -> usize {
        self.waiting.capacity() * size_of::<EndedClient>()
    }
}

/// The most that each of these may have, so that all of them fit into `room`: who has less than that leaves the rest to the
/// others.
fn fair_share(counts: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut counts: Vec<usize> = counts.collect();
    counts.sort_unstable();
    let mut left = room;
    for (at, count) in counts.iter().enumerate() {
        let share = left / (counts.len() - at);
        if *count > share {
            return share;
        }
        left -= count;
    }
    room
}

#[cfg(test)]
mod tests {
    use sonar_core::{Endpoint, Timestamp};

    use super::*;
    use crate::agent::memory::Holder;

    /// The number of the client is its port.
    fn client(number: u16, server_port: Option<u16>) -> EndedClient {
        let client = Endpoint::v4([10, 0, 0, 9], number);
        EndedClient { client, server_port, host: None, at: Timestamp::default() }
    }

    fn of_server(server_port: u16, numbers: std::ops::Range<u16>) -> ClientEnds {
        let waiting = numbers.map(|number| client(number, Some(server_port))).collect();
        ClientEnds { waiting, left_out: 0 }
    }

    #[test]
    fn the_oldest_give_way_and_are_counted() {
        let mut ends = ClientEnds::default();
        (0..MAX_WAITING as u16 + 2).for_each(|number| ends.add(client(number, None)));
        assert_eq!((ends.waiting.len(), ends.left_out), (MAX_WAITING, 2));
        let mut later = ClientEnds { left_out: 5, ..ClientEnds::default() };
        later.add(client(1, None));
        ends.append(later);
        assert_eq!((ends.waiting.len(), ends.left_out), (MAX_WAITING, 8));
        assert_eq!([&ends.waiting[0], &ends.waiting[MAX_WAITING - 1]], [&client(3, None), &client(1, None)]);
        assert_eq!((ends.take().left_out, ends), (8, ClientEnds::default()));
    }

    #[test]
    fn a_log_that_states_many_leaves_room_for_those_of_other_servers() {
        let most = MAX_WAITING as u16;
        let mut ends = of_server(1, 0..100);
        for round in 0..10 {
            ends.append(of_server(2, 0..most));
            ends.append(of_server(3, round * 10..round * 10 + 10));
        }
        let of = |port: u16| {
            let mine = ends.waiting.iter().filter(|one| one.server_port == Some(port));
            mine.map(|one| one.client.port).collect::<Vec<_>>()
        };
        assert_eq!((of(1), of(3)), ((0..100).collect(), (0..100).collect()));
        assert_eq!(of(2), (200..most).collect::<Vec<_>>(), "its newest");
        assert_eq!(ends.left_out, 10 * u64::from(most) + 200 - u64::from(most));
        // Two that both state many have half of it each.
        ends.append(of_server(4, 0..most));
        let count = |port| ends.waiting.iter().filter(|one| one.server_port == Some(port)).count();
        assert_eq!([1, 2, 3, 4].map(count), [100, 8_092, 100, 8_092]);
    }

    #[test]
    fn they_have_no_more_memory_than_their_holder() {
        let mut ends = ClientEnds::default();
        (0..MAX_WAITING as u16).for_each(|number| ends.add(client(number, None)));
        let of_a_log = ends.memory();
        for port in 0..64 {
            ends.append(of_server(port, 0..MAX_WAITING as u16));
        }
        // A log is read while others wait, and the capture has taken some before.
        let all = of_a_log + 2 * ends.memory();
        assert!(all <= Holder::ClientEnds.facts().bytes, "{of_a_log} and twice {}", ends.memory());
    }
}
