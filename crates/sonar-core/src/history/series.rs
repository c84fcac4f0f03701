//! Values over time that are not about queries: what the server, the machine and files did.

use std::borrow::Cow;

use crate::{Endpoint, Timestamp};

/// What a series is about.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SeriesSubject {
    /// The machine.
    Machine,
    /// A server: its internals.
    Server,
    /// A member of a replica set, as the server sees it.
    Member,
    /// The process of a server, as the kernel sees it.
    Process,
    /// The threads of a server that have one role.
    ThreadRole,
    /// A block device.
    Device,
    /// A mounted file system.
    FileSystem,
    /// A network interface.
    Interface,
    /// A collection.
    Collection,
    /// An index; its name is that of [`index_name`].
    Index,
    /// A file of a server.
    File,
}

impl SeriesSubject {
    /// All subjects, in display order.
    pub const ALL: [Self; 11] = [
        Self::Machine,
        Self::Server,
        Self::Member,
        Self::Process,
        Self::ThreadRole,
        Self::Device,
        Self::FileSystem,
        Self::Interface,
        Self::Collection,
        Self::Index,
        Self::File,
    ];

    /// The stable name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Server => "server",
            Self::Member => "member",
            Self::Process => "process",
            Self::ThreadRole => "thread_role",
            Self::Device => "device",
            Self::FileSystem => "file_system",
            Self::Interface => "interface",
            Self::Collection => "collection",
            Self::Index => "index",
            Self::File => "file",
        }
    }

    /// The subject with this stable name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Identifies a series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SeriesKey {
    /// What it is about.
    pub subject: SeriesSubject,
    /// The server; port 0 if it is not about one.
    pub server: Endpoint,
    /// Which device, file system, collection …; empty if there is only one.
    pub name: Box<str>,
    /// The stable name of the metric, with its unit where that is not obvious: `cache.fill_percent`.
    pub metric: Box<str>,
}

/// The name of the series of an index: `db.collection index`. Spaces and backslashes in the name of the collection are
/// escaped with a backslash.
pub fn index_name(namespace: &str, index: &str) -> String {
    let mut name = String::with_capacity(namespace.len() + index.len() + 1);
    for letter in namespace.chars() {
        if matches!(letter, ' ' | '\\') {
            name.push('\\');
        }
        name.push(letter);
    }
    name + " " + index
}

/// The collection, as `db.collection`, of a series of a collection or an index.
pub fn namespace_of(key: &SeriesKey) -> Cow<'_, str> {
    if key.subject != SeriesSubject::Index {
        return Cow::Borrowed(&key.name);
    }
    let mut namespace = String::new();
    let mut letters = key.name.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' => break,
            '\\' => namespace.extend(letters.next()),
            letter => namespace.push(letter),
        }
    }
    Cow::Owned(namespace)
}

/// The values of a series in a span of time. Rates count by the seconds that they speak for.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct SeriesValue {
    /// Seconds that the values speak for, in total.
    pub seconds: f64,
    /// Sum of each value times its seconds.
    pub weighted: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The last value.
    pub last: f64,
    /// The time of the last value; the epoch if there is no value.
    pub last_at: Timestamp,
}

impl SeriesValue {
    /// Adds a value that was measured at `at` and speaks for `seconds`. It leaves out one that is not finite.
    pub fn add(&mut self, at: Timestamp, value: f64, seconds: f64) {
        if value.is_finite() && seconds.is_finite() && seconds > 0.0 {
            let weighted = value * seconds;
            self.merge(&Self { seconds, weighted, min: value, max: value, last: value, last_at: at });
        }
    }

    /// Adds everything in `other`.
    pub fn merge(&mut self, other: &Self) {
        if other.seconds <= 0.0 {
            return;
        }
        if self.seconds <= 0.0 {
            *self = *other;
            return;
        }
        self.seconds += other.seconds;
        self.weighted += other.weighted;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        if other.last_at >= self.last_at {
            (self.last, self.last_at) = (other.last, other.last_at);
        }
    }

    /// The mean over time; `None` without a value.
    pub fn mean(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.weighted / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_are_not_split_in_the_wrong_place() {
        for (namespace, index, expected) in [
            ("shop.carts", "user_1", "shop.carts user_1"),
            ("shop.old carts", "user_1", "shop.old\\ carts user_1"),
            ("shop.old", "carts user_1", "shop.old carts user_1"),
            ("shop.a\\ b", "my index\\", "shop.a\\\\\\ b my index\\"),
            ("shop.c ", "", "shop.c\\  "),
        ] {
            let name = index_name(namespace, index);
            assert_eq!(name, expected);
            let key = |subject| SeriesKey {
                subject,
                server: Endpoint::default(),
                name: name.as_str().into(),
                metric: "index.size_bytes".into(),
            };
            assert_eq!(namespace_of(&key(SeriesSubject::Index)), namespace);
            assert_eq!(namespace_of(&key(SeriesSubject::Collection)), *name);
        }
    }
}
