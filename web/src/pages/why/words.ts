// What the parts of the time are called, and the counts of what was not seen.

import { REST } from "../../parts/palette";

/** Parts in words, with their colours: what runs is green, disks are blue, locks are red. */
const PARTS: Record<string, [words: string, colour: string]> = {
  cpu: ["on a processor", "#2a9d63"],
  run_queue: ["waiting for a processor", "#b59a00"],
  yield: ["giving way to other threads", "#6b8e23"],
  file_read: ["waiting for reads of files", "#3b7dd8"],
  page_fault: ["waiting for pages of memory", "#1aa3b5"],
  file_write: ["waiting for writes to files", "#5566aa"],
  flush: ["waiting for flushes to disk", "#8a6fd1"],
  futex: ["waiting for a mutex, a ticket or a condition", "#d64545"],
  poll: ["waiting for a lock, replication or another server", "#c0428a"],
  backoff: ["pausing for a busy page (WiredTiger)", "#e07b39"],
  sleep: ["pausing after a write conflict", "#cc77aa"],
  send: ["waiting for the client to take the reply", "#a0622d"],
  other_server: ["waiting for a socket of another server", "#7a5195"],
  other: ["waiting in other system calls", REST],
  not_yet_read: ["not yet read by the server", "#b9a27c"],
  unexplained: ["unexplained: events were lost", "#c3c8cf"],
};

/** What a part is called, and its colour. */
export const partOf = (name: string): [words: string, colour: string] => PARTS[name] ?? [name, REST];

/** Counts of operations and events that the figures leave out or estimate, in words as in the text report. */
const LIMITS: Record<string, string> = {
  without_wire: "Operations of the server's threads that were not seen on the wire",
  without_thread: "Operations on the wire that no traced thread executed",
  continued: "Parts of replies that no request asked for",
  pipelined: "Operations that cannot be divided, because several requests came at once",
  answered_elsewhere:
    "Operations that cannot be divided, because another thread sent the reply: the server uses a thread pool",
  foreign_replies: "Operations that cannot be divided, because their thread serves several requests at once",
  switches_missed: "Context switches that the kernel did not report; their times come from the scheduler",
  waits_without_class: "Long waits without a class, because there were too many; those with one stand for them",
};
/** Counts of what was lost. */
const LOSSES: Record<string, string> = {
  ring_full: "Operations lost because the kernel's ring buffer was full",
  threads_full: "Events lost because the table of threads was full",
  unreadable: "Message headers that could not be read",
  programs_skipped: "Events skipped by the kernel",
  blockers_turned_away: "Waits whose blocker was not kept, because there were too many",
  packets_dropped: "Packets dropped by the kernel",
  encrypted_unread: "Connections encrypted with TLS that could not be read",
  encrypted_unmapped: "Reads and writes of TLS sessions whose connection is unknown",
  encrypted_lost: "Parts of encrypted connections lost in the kernel",
};
/** The one count that is neither a limit nor a loss. */
const JOINED = "joined";

/** What was not seen: what the figures leave out or estimate, and what was lost. */
export function unseen(coverage: Record<string, number>): { limits: [string, number][]; losses: [string, number][] } {
  const limits: [string, number][] = [];
  const losses: [string, number][] = [];
  for (const [name, n] of Object.entries(coverage)) {
    if (n === 0 || name === JOINED) continue;
    if (name in LIMITS) limits.push([LIMITS[name]!, n]);
    else losses.push([LOSSES[name] ?? name, n]);
  }
  return { limits, losses };
}
