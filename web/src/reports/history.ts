// What the history of an agent has.

import type { Zone } from "../parts/time";
import type { About, Latency, Span, Unknown } from "./common";

/** One change: a sentence, its evidence, and what it caused. */
export interface Change {
  /** `event`, `application`, `shape`, `errors`, `growth`, `server`, `machine` or `series`. */
  kind: string;
  server: string | null;
  /** When what the sentence says happened or began. */
  since_ns: number;
  /** The end of the time that its figures cover. */
  until_ns: number;
  /** Time that operations took beyond what they took before. */
  cost_ns: number;
  sentence: string;
  evidence: string[];
  /** The arguments of the command that shows more. */
  command: string[];
  effects: Change[];
}

/** What changed within some windows. */
export interface Moment extends Span {
  changes: Change[];
  context: Change[];
  left_out: number;
  /** Over how long costs were measured, in nanoseconds. */
  measured_ns: number;
}

/** A time that was not observed. */
export interface Gap extends Span {
  what: string;
  /** What was not observed, with its verb; null for everything. */
  subject: string | null;
  /** The share that was observed nevertheless, 0 to 1. */
  observed: number;
}

export interface Changes {
  kind: "what-changed";
  about: About;
  zone: Zone;
  /** Null if each moment was compared with the time before it. */
  compared_with: Span | null;
  /** The time before that shows what is usual; null unless it is longer than `compared_with`. */
  usual: Span | null;
  /** The answer in one sentence. */
  summary: string;
  moments: Moment[];
  gaps: Gap[];
  notes: string[];
}

/** A figure over time: a value for each part of the axis. */
export interface Lane {
  group: string;
  id: string;
  title: string;
  unit: string;
  server: Unknown;
  /** `amber` or `red` if it is over a limit somewhere. */
  verdict: string | null;
  /** That limit. */
  limit: Unknown;
  values: Unknown[];
}

export interface LaneEvent {
  time_ns: number;
  kind: string;
  server: Unknown;
  sentence: string;
}

export interface TimelineReport {
  kind: "timeline";
  about: About;
  zone: Zone;
  /** Equal parts of the axis. */
  parts: number;
  lanes: Lane[];
  /** Figures of the internals that have limits and were observed, over them or not. */
  internals_judged: number;
  events: LaneEvent[];
  events_left_out: number;
  gaps: Gap[];
}

export interface QueryRow {
  command: string | null;
  database: string | null;
  collection: string | null;
  shape: string | null;
  load: Unknown;
  calls: number;
  failed: Unknown;
  latency_ns: Latency;
}

export interface SeriesFigure {
  group: string;
  server: Unknown;
  title: string;
  unit: string;
  mean: number;
  min: number;
  max: number;
  verdict: string | null;
}

export interface IncidentReport {
  kind: "incident";
  about: About;
  zone: Zone;
  changes: Changes;
  timeline: TimelineReport;
  queries: { rows: QueryRow[] };
  figures: SeriesFigure[];
}
