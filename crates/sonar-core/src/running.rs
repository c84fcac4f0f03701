//! Operations that run now, one by one: a request was seen, and no reply yet.

use std::sync::Arc;

use crate::{Application, Class, Endpoint, Role, ShapeInfo, Timestamp};

/// Server and client of a connection, and the id of a request on it.
pub type RequestKey = (Endpoint, Endpoint, u32);

/// An operation that has not ended.
#[derive(Clone, Debug)]
pub struct RunningOperation {
    /// The server's address.
    pub server: Endpoint,
    /// The client's end of the connection.
    pub client: Endpoint,
    /// `requestID` of the request.
    pub request_id: u32,
    /// See [`Operation::role`](crate::Operation::role).
    pub role: Role,
    /// Its purpose.
    pub class: Class,
    /// The command as sent; see [`Operation::command`](crate::Operation::command).
    pub command: Box<str>,
    /// Its shape.
    pub shape: Arc<ShapeInfo>,
    /// The client application.
    pub app: Arc<Application>,
    /// When its request had come.
    pub start: Timestamp,
}

impl RunningOperation {
    /// What identifies it.
    pub fn key(&self) -> RequestKey {
        (self.server, self.client, self.request_id)
    }
}

/// Operations that run, the oldest.
#[derive(Clone, Debug, Default)]
pub struct RunningOperations {
    /// The oldest first, once [`limit`](Self::limit) was called.
    pub operations: Vec<RunningOperation>,
    /// Younger ones that were left out.
    pub left_out: u64,
    /// Those that wait on purpose ([`Class::Waiting`]), which are not listed.
    pub waiting: u64,
}

impl RunningOperations {
    /// Adds an operation; keeps to twice `most`, and to the oldest.
    pub fn add(&mut self, operation: RunningOperation, most: usize) {
        if operation.class == Class::Waiting {
            self.waiting += 1;
            return;
        }
        self.operations.push(operation);
        if self.operations.len() >= 2 * most.max(1) {
            self.limit(most);
        }
    }

    /// Adds others, and keeps the oldest `most`.
    pub fn join(&mut self, other: Self, most: usize) {
        let Self { operations, left_out, waiting } = other;
        self.operations.extend(operations);
        self.left_out += left_out;
        self.waiting += waiting;
        self.limit(most);
    }

    /// Puts the oldest first, and leaves out what is beyond `most`.
    pub fn limit(&mut self, most: usize) {
        self.operations.sort_by_key(|one| one.start);
        self.left_out += self.operations.len().saturating_sub(most) as u64;
        self.operations.truncate(most);
    }

    /// The most bytes of a list with at most `most` operations, without shapes and applications, which are shared. Names of
    /// commands are short.
    pub const fn max_memory(most: usize) -> usize {
        2 * most * (size_of::<RunningOperation>() + MAX_COMMAND)
    }
}

/// Longer than each name of a command.
const MAX_COMMAND: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn running(number: u64, class: Class) -> RunningOperation {
        RunningOperation {
            server: Endpoint::v4([10, 0, 0, 1], 27_017),
            client: Endpoint::v4([10, 0, 0, 2], 40_000),
            request_id: number as u32,
            role: Role::Served,
            class,
            command: "find".into(),
            shape: Arc::default(),
            app: Arc::default(),
            start: Timestamp::from_unix(number, 0),
        }
    }

    #[test]
    fn the_oldest_stay_however_many_there_are_and_the_others_are_counted() {
        let mut found = RunningOperations::default();
        // In an order of their own.
        for number in (0..1_000).map(|number| number * 7 % 1_000) {
            found.add(running(number, Class::User), 10);
            found.add(running(number, Class::Waiting), 10);
            assert!(found.operations.len() < 20);
        }
        found.limit(10);
        let ids =
            |found: &RunningOperations| found.operations.iter().map(|one| one.request_id).collect::<Vec<_>>();
        assert_eq!(ids(&found), (0..10).collect::<Vec<_>>());
        assert_eq!((found.left_out, found.waiting), (990, 1_000));
        let mut other = RunningOperations { waiting: 1, ..RunningOperations::default() };
        other.add(running(3, Class::Internal), 10);
        other.add(running(5_000, Class::User), 10);
        found.join(other, 11);
        assert_eq!(ids(&found), [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((found.left_out, found.waiting), (991, 1_001));
    }
}
