// The server of a log: its starts, clients, errors and warnings.

import { duration, exact, plural, visible } from "../../parts/format";
import { Table } from "../../parts/table";
import { type Clock, seconds } from "../../parts/time";
import type { DigestDocument } from "../../report";
import { caller } from "./row";

export function Server({ report, clock }: { report: DigestDocument; clock: Clock }) {
  const { notices } = report;
  if (!notices) return null;
  const at = (ns: number) => clock.full(seconds(ns), 3);
  return (
    <section>
      <h2>The server</h2>
      <p>
        Connections: {exact(notices.accepted)} accepted, {exact(notices.ended)} ended
        {notices.most_open != null && `, ${exact(notices.most_open)} open at most`}. Versions:{" "}
        {notices.versions.map(visible).join(", ") || "not known"}.
        {notices.starts.length > 0 && ` ${plural(notices.starts.length, "start")}.`}
      </p>
      {notices.slow_replies && notices.slow_replies.count > 0 && (
        <p>
          {plural(notices.slow_replies.count, "reply", "replies")} took {duration(notices.slow_replies.total_ms * 1e6)}{" "}
          to send, the longest {duration(notices.slow_replies.longest_ms * 1e6)}: clients or the network took them
          slowly, not the server.
        </p>
      )}
      <div class="charts">
        {notices.starts.length > 0 && (
          <Table
            name="starts"
            rows={notices.starts}
            columns={[
              { name: "start", value: (start) => at(start.at), text: true, main: true },
              { name: "version", value: (start) => visible(start.version), text: true },
              { name: "pid", value: (start) => start.pid },
              { name: "port", value: (start) => start.port },
              { name: "host", value: (start) => visible(start.host), text: true, rank: 1 },
            ]}
          />
        )}
        {notices.clients.length > 0 && (
          <Table
            name="clients"
            rows={notices.clients}
            by="connections"
            columns={[
              { name: "application", value: (client) => caller(client.app, client.driver), text: true, main: true },
              {
                name: "driver",
                value: (client) => visible(`${client.driver} ${client.driver_version}`.trim()),
                text: true,
                rank: 1,
              },
              { name: "connections", value: (client) => client.connections, format: exact },
            ]}
          />
        )}
      </div>
      {notices.messages.length > 0 && (
        <>
          <h3>Errors and warnings</h3>
          <Table
            name="errors and warnings"
            rows={notices.messages}
            by="count"
            filter={{}}
            columns={[
              { name: "count", value: (message) => message.count, format: exact },
              {
                name: "severity",
                value: (message) => message.severity,
                text: true,
                rank: 1,
                tone: (message) => (/^(error|fatal)/i.test(message.severity) ? "bad" : ""),
              },
              { name: "component", value: (message) => visible(message.component), text: true, rank: 3 },
              { name: "id", value: (message) => message.id, rank: 4 },
              { name: "first", value: (message) => message.first, show: (message) => at(message.first), rank: 6 },
              { name: "last", value: (message) => message.last, show: (message) => at(message.last), rank: 5 },
              { name: "message", value: (message) => visible(message.text), text: true, main: true },
            ]}
          />
          {notices.messages_other > 0 && <p class="dim">{exact(notices.messages_other)} more of other kinds.</p>}
        </>
      )}
    </section>
  );
}
