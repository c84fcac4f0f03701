// Stacks of threads.

import type { About, Pair, Unknown } from "./common";

export interface StackRow {
  class: string;
  idle: boolean;
  role: string | null;
  state: string;
  call: string | null;
  samples: number;
  threads: number;
  cut: string | null;
  /** The innermost first. `machinery` only passes a call on. */
  frames: { function: string; library: string | null; machinery?: boolean }[];
}

export interface StackReport {
  kind: "stacks";
  about: About;
  process: { pid: number; name: string };
  snapshots: number;
  threads: number;
  samples: number;
  shown: number;
  idle: number;
  not_asked: number;
  cut: number;
  without_frames: number;
  lost: number;
  walk_ns_per_thread: Unknown;
  full_names: boolean;
  limits: string[];
  stacks: StackRow[];
}

export interface ShareChange {
  name: string;
  share: Pair;
}

export interface StackComparison {
  kind: "stacks_compare";
  about: About;
  samples: Pair;
  words: string[];
  classes: { changed: ShareChange[]; unchanged: number };
  functions: { changed: ShareChange[]; unchanged: number };
}
