//! How many bytes tables allocate.

/// The most bytes that a hash table allocates in which there are never more than `entries` entries of `bytes` each, of
/// which some are removed and others added: it has a power of two of places, a byte more for each, and fills seven of
/// eight. Places of removed entries count as filled until the table is cleaned up. A table that is more than half full
/// grows instead of being cleaned up (`hashbrown`).
pub const fn table_bytes(entries: usize, bytes: usize) -> usize {
    let mut places = 8;
    while places / 8 * 7 / 2 <= entries {
        places *= 2;
    }
    // The bytes of a group more, so that groups may be read at any place, and what aligns them.
    places * (bytes + 1) + 32
}

/// The most bytes that a list or a queue allocates in which there are never more than `entries` entries of `bytes` each:
/// it doubles its room, which is for four at least.
pub const fn list_bytes(entries: usize, bytes: usize) -> usize {
    let room = if entries < 4 { 4 } else { entries.next_power_of_two() };
    room * bytes
}

/// The most bytes that a `BTreeMap` with `entries` entries of `bytes` each allocates: nodes have places for eleven, at
/// least five of which are in use in all but the first one; nodes above them name twelve.
pub const fn tree_bytes(entries: usize, bytes: usize) -> usize {
    const PLACES: usize = 11;
    const FILLED: usize = 5;
    const HEAD: usize = 16;
    if entries == 0 {
        return 0;
    }
    let mut nodes = entries.div_ceil(FILLED);
    let mut total = nodes * (PLACES * bytes + HEAD);
    while nodes > 1 {
        nodes = nodes.div_ceil(FILLED + 1);
        total += nodes * (PLACES * bytes + HEAD + (PLACES + 1) * size_of::<usize>());
    }
    total
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use hashbrown::HashMap;

    use super::*;

    const ENTRY: usize = size_of::<(u64, [u8; 40])>();

    #[test]
    fn a_table_allocates_no_more_however_entries_come_and_go() {
        for most in [1, 3, 4, 7, 100, 1_791, 1_792, 7_000] {
            let mut table: HashMap<u64, [u8; 40], foldhash::quality::RandomState> = HashMap::default();
            for entry in 0..200_000 {
                if table.len() as u64 == most {
                    table.remove(&(entry - most));
                }
                table.insert(entry, [0; 40]);
                assert!(table.allocation_size() <= table_bytes(most as usize, ENTRY), "{most}: {entry}");
            }
        }
    }

    #[test]
    fn a_list_allocates_no_more() {
        for most in [1, 3, 5, 100, 1_024] {
            let (mut list, mut queue) = (Vec::new(), VecDeque::new());
            for entry in 0..most {
                list.push(entry);
                queue.push_back(entry);
            }
            assert!(list.capacity().max(queue.capacity()) * 8 <= list_bytes(most as usize, size_of::<u64>()));
        }
    }
}
