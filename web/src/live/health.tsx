// How the agent is: its sources, what they lost and cost, and what helps.

import type { Column } from "../parts/columns";
import { bytes, count, plural, visible } from "../parts/format";
import { Facts, Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { type Clock, seconds } from "../parts/time";
import type { About, CollectorStatus, HeldBytes, PageStatus, WatchedServer } from "../report";

const STATES: Record<string, string> = { needs_you: "needs you" };

function sources(clock: Clock, lived_ns: number): Column<CollectorStatus>[] {
  const share = (ns: number | null) => (ns === null ? null : ns / Math.max(lived_ns, 1));
  const ofOne = (value: number | null) => (value === null ? "-" : `${(value * 100).toFixed(2)} %`);
  return [
    { name: "source", value: ({ name }) => name, text: true, rank: 0 },
    {
      name: "state",
      value: ({ state }) => STATES[state] ?? state,
      text: true,
      rank: 0,
      tone: ({ state }) => (state === "needs_you" ? "bad" : ""),
    },
    { name: "last data", value: (one) => one.last_data_ns, show: (one) => at(clock, one.last_data_ns), rank: 2 },
    {
      name: "lost",
      about: "records that it lost so far",
      value: ({ lost }) => lost,
      format: count,
      rank: 1,
      tone: ({ lost }) => (lost > 0 ? "bad" : ""),
    },
    {
      name: "processor",
      about: "of one processor, since the agent started",
      value: (one) => share(one.user_ns + one.system_ns),
      format: ofOne,
      rank: 1,
    },
    {
      name: "eBPF",
      about: "of one processor, in the threads that it traces",
      value: (one) => share(one.ebpf_ns),
      format: ofOne,
      rank: 3,
    },
    {
      name: "problems and notes",
      value: ({ problems, notes }) => [...problems, ...notes].map(visible).join("; "),
      text: true,
      rank: 0,
      main: true,
    },
  ];
}

const at = (clock: Clock, ns: number | null): string => (ns === null ? "never" : clock.full(seconds(ns)));

const servers: Column<WatchedServer>[] = [
  { name: "port", value: ({ port }) => port, rank: 0 },
  {
    name: "program",
    value: ({ name, version }) => visible([name, version].filter(Boolean).join(" ")),
    text: true,
    rank: 1,
  },
  { name: "process", value: ({ pid }) => pid, rank: 3 },
  { name: "log", value: (one) => visible(one.log_problem ?? one.log ?? "unknown"), text: true, rank: 0, main: true },
  {
    name: "diagnostic.data",
    value: (one) => visible(one.diagnostic_problem ?? one.diagnostic_data ?? "unknown"),
    text: true,
    rank: 2,
  },
];

const held: Column<HeldBytes>[] = [
  { name: "what", value: ({ name }) => visible(name), text: true, rank: 0, main: true },
  { name: "where", value: ({ place }) => place, text: true, rank: 2 },
  { name: "now", value: (one) => one.bytes, format: bytes, rank: 0 },
  { name: "at most", value: ({ max_bytes }) => max_bytes, format: bytes, rank: 1 },
];

export function HealthView({ status, about, clock }: { status: PageStatus; about: About; clock: Clock }) {
  const { agent, agent_problem } = status;
  const refused = Object.entries(status.refused);
  return (
    <Shell title="Health" about={about} clock={clock}>
      {agent_problem && <Words tone="bad" lines={[visible(agent_problem)]} />}
      {!agent && !agent_problem && (
        <p class="dim">No agent writes this history now: it is a copy, or the agent does not run.</p>
      )}
      {agent && (
        <>
          <Words
            tone="bad"
            lines={[
              agent.store_problem,
              agent.refused_configuration,
              agent.windows_lost > 0 ? `${plural(agent.windows_lost, "window")} could not be stored` : null,
              agent.page?.problem,
            ].flatMap((line) => (line ? [visible(line)] : []))}
          />
          <Words lines={agent.notices.map(visible)} />
          <Facts
            kind="facts"
            facts={[
              ["agent", visible(agent.version)],
              ["process", String(agent.pid)],
              ["since", clock.full(seconds(agent.started_ns))],
              ["windows stored", count(agent.windows)],
              ["store", bytes(agent.store_bytes)],
              ["memory", bytes(agent.memory_bytes)],
              [
                "processor",
                `${((100 * (agent.cpu_ns + agent.helpers_cpu_ns)) / Math.max(agent.written_ns - agent.started_ns, 1)).toFixed(2)} % of one`,
              ],
            ]}
          />
          <section>
            <h2>Sources</h2>
            <Table
              name="sources"
              rows={agent.collectors}
              columns={sources(clock, agent.written_ns - agent.started_ns)}
            />
          </section>
          <section>
            <h2>Servers</h2>
            {agent.servers.length === 0 ? (
              <p class="dim">No mongod or mongos runs here.</p>
            ) : (
              <Table name="servers" rows={agent.servers} columns={servers} />
            )}
          </section>
          <section>
            <h2>Memory</h2>
            <Table name="memory" rows={agent.held} columns={held} by="now" />
          </section>
        </>
      )}
      <section>
        <h2>The page</h2>
        {refused.every(([, times]) => times === 0) ? (
          <p class="dim">Nothing was refused.</p>
        ) : (
          <Words
            lines={refused
              .filter(([, times]) => times > 0)
              .map(([why, times]) => `${why}: ${plural(times, "request")} refused`)}
          />
        )}
      </section>
    </Shell>
  );
}
