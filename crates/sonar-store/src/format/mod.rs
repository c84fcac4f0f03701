//! The bytes of a window in a database.
//!
//! # Layout
//! Integers of fixed width are little-endian. *Varint* is LEB128 of at most ten bytes; *zigzag* is a varint of
//! `(n << 1) ^ (n >> 63)`; *wide* is two varints, the lower 64 bits first; *list* is a varint length and as many
//! elements; *section* is a varint length in bytes and as many bytes.
//!
//! ```text
//! blob    = u8 version (3), u8 packing (0 none, 1 zstd), u32 CRC-32C of version, packing and body as stored, body
//! body    = section addresses, section gaps, section counts, section main
//! addresses = (u8 length (4 or 16), bytes)*                 numbered from 0
//! main    = varint layout, u8 flags (1 rows are split by order, 2 a snapshot of operations in flight follows),
//!           varint sample, [zigzag time of the snapshot], varint observed ns of each collector,
//!           counters of coverage, counters of reading, types, rows by shape, rows by application,
//!           list of operations in flight, list of series, varint series left out
//! counters = list of (varint position, varint value), those above 0
//! types   = list of (u8 role and class, 6 varints), those with a count above 0
//! rows    = list of row
//! row     = u8 flags (bits 0-1 subject: 0 shape, 1 application, 2 other; bit 2 issued; bits 3-4 identity; bit 5 an
//!           order follows; bits 6-7 queryHash: 0 none, 1 several, 2 one follows), u8 class, endpoint,
//!           [varint shape or application], [varint order], list of varint ordered id, [varint text of the queryHash],
//!           u8 sources (a bit each; bit 7: a split follows), observed of each source, [split]
//! observed = varint calls, zigzag entries - calls, zigzag statements - calls, varint failed, unanswered,
//!           unacknowledged, unknown outcome, list of (zigzag code, varint errors), varint errors of other codes,
//!           histogram, varint transfer ns, varint request bytes, sum response bytes, sum returned, sum affected,
//!           zigzag first seen, zigzag last seen - first seen, u8 whether execution follows, [execution],
//!           shares of (varint application), shares of (varint address), varint in flight, varint oldest ns
//! histogram = varint durations of zero, varint buckets, wide sum, varint shortest, varint longest - shortest;
//!           in gaps: zigzag first index, then varint (index - index before - 1) for each other bucket;
//!           in counts: varint (count - 1) for each bucket
//! sum     = varint known, varint total
//! execution = list of (varint position, sum), varint collection scans, memory sorts, used disk, replanned,
//!           list of (varint text, varint calls, memory sorts), varint calls, memory sorts of other plans
//! shares  = list of (key, share), share of others
//! share   = varint calls, varint failed, varint ns; the last of a list as zigzag differences from what the shares
//!           before it and those of others leave of all operations
//! split   = varint operations, unread ns, duration ns, device bytes, list of (varint position, varint ns),
//!           list of (varint position, varint text or 0, varint waits, ns), list of (varint text or 0, varint reads,
//!           bytes, ns), list of (varint shape or 0, varint waits, ns)
//! in flight = endpoint, u8 role and class, varint shape, varint count, varint oldest ns
//! series  = varint key, u8 flags, [8 bytes seconds], [zigzag last at], float last, [8 bytes weighted], [float min],
//!           [float max]
//! flags of series = 1 seconds and 2 time differ from the series before; 4 weighted is not last × seconds;
//!           8 the smallest and 16 the largest differ from the last
//! endpoint = varint address, varint port
//! float   = varint ((zigzag whole number) << 2), (zigzag thousandths) << 2 | 1, or 2 and the 8 bytes
//! ```
//! Times are in nanoseconds since the start of the window, as zigzag. The position of a collector, a counter, a sum
//! of the execution or a part of a split is that in the list of names that the number of the layout stands for
//! ([`Layout`]). Texts of a split are wait classes and files; 0 stands for all without a number. Shapes (0:
//! `other`), ordered ids, applications, keys of series, texts and layouts are numbers in tables of the same file, so
//! that each is stored once. Roles, classes, identities, sources and types of commands are positions in the lists of
//! `sonar_core`; a change of those needs a new version. Version 1 is the same without splits, version 2 without
//! the last list of a split: the shapes that ended its waits.

mod blob;
mod bytes;
mod decode;
mod encode;
mod layout;
mod numbers;
mod split;

pub use blob::{BlobError, blob_of};
pub use decode::{ObservedNs, decode, decode_observed};
pub use encode::encode;
pub use layout::Layout;
pub use numbers::{NumberLookup, Numbering};
