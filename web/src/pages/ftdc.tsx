// ftdc report: what is wrong with a server, and its figures over time.

import { useMemo, useState } from "preact/hooks";

import { Chart, type Mark, type Range, type Series } from "../parts/chart";
import type { Column } from "../parts/columns";
import { duration, exact, plural, visible } from "../parts/format";
import { colour } from "../parts/palette";
import { type Fact, Lost, Shell, Tile, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { timeAxis } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { axis, chartTitle, show } from "../parts/units";
import type { ExceedanceJson, FtdcFigureJson, FtdcReport } from "../report";

/** What the marks of incidents are called. */
const KINDS: Record<string, string> = {
  restart: "start",
  gap: "gap",
  lost: "lost samples",
  state: "election",
  clock_back: "clock set back",
};

const RANKS = { red: 2, amber: 1, ok: 0 };
const rank = ({ verdict }: FtdcFigureJson): number => (verdict ? RANKS[verdict] : -1);

/** Figures that are worth a look, worst first. */
export const findings = (figures: readonly FtdcFigureJson[]): FtdcFigureJson[] =>
  figures
    .filter((figure) => rank(figure) > 0)
    .sort((a, b) => rank(b) - rank(a) || over(b)[0].total_ns - over(a)[0].total_ns);

/** The limit of the verdict, and for how long it was passed. */
function over({ limits, verdict }: FtdcFigureJson): [ExceedanceJson, number] {
  if (!limits) return [{ total_ns: 0, longest_ns: 0, longest_start_ns: null }, 0];
  return verdict === "red" && limits.red != null ? [limits.over_red, limits.red] : [limits.over_amber, limits.amber];
}

/** The machine, and what of it the server may use: `4 of 16 processors`. */
export function machine({
  processors,
  processors_available,
  memory_mib,
  memory_limit_mib,
  system,
}: FtdcReport["server"]): string {
  const gib = (mib: number) => `${(mib / 1024).toFixed(1)} GiB`;
  const all = processors == null ? null : plural(processors, "processor");
  const memory = memory_mib == null ? "memory" : `${gib(memory_mib)} of memory`;
  return [
    all && (processors_available == null ? all : `${processors_available} of ${all}`),
    memory_limit_mib != null ? `limited to ${gib(memory_limit_mib)} of ${memory}` : memory_mib != null && memory,
    system,
  ]
    .filter(Boolean)
    .join(", ");
}

/** A chart: figures of one group and unit. */
export interface Plot {
  title: string;
  figures: FtdcFigureJson[];
  /** Begins of buckets, in seconds. */
  xs: number[];
  series: Series[];
}

/** Charts of all figures that are ever more than 0: the largest value of each interval, so that no peak is lost. */
export function plots(figures: readonly FtdcFigureJson[]): Plot[] {
  const groups = new Map<string, FtdcFigureJson[]>();
  for (const figure of figures) {
    if (figure.max <= 0) continue;
    const key = `${figure.group} ${figure.unit}`;
    groups.set(key, [...(groups.get(key) ?? []), figure]);
  }
  return [...groups.values()].map((figures) => {
    const starts = figures.flatMap(({ trend }) => trend.buckets.map(([start]) => start));
    const begins = [...new Set(starts)].sort((a, b) => a - b);
    const series = figures.map(({ title, trend }, at): Series => {
      const values = new Map(trend.buckets.map(([start, , , most]) => [start, most]));
      return { name: title, colour: colour(at), values: begins.map((start) => values.get(start) ?? null) };
    });
    return { title: chartTitle(figures[0]!.group, figures), figures, xs: begins.map(seconds), series };
  });
}

const columns: Column<FtdcFigureJson>[] = [
  { name: "figure", value: ({ title }) => title, text: true, rank: 0 },
  { name: "group", value: ({ group }) => group, text: true, rank: 4 },
  { name: "verdict", value: ({ verdict }) => verdict, text: true, rank: 1 },
  { name: "median", value: ({ p50 }) => p50, show: (figure) => show(figure)(figure.p50), rank: 2 },
  { name: "p95", value: ({ p95 }) => p95, show: (figure) => show(figure)(figure.p95), rank: 1 },
  { name: "max", value: ({ max }) => max, show: (figure) => show(figure)(figure.max), rank: 2 },
  {
    name: "limits",
    value: ({ limits }) => limits?.amber ?? null,
    show: (figure) => limitsText(figure),
    about: "amber and red",
    rank: 5,
  },
];

function limitsText(figure: FtdcFigureJson): string {
  if (!figure.limits) return "-";
  const { amber, red, rule } = figure.limits;
  if (rule === "any") return "any";
  return red == null ? show(figure)(amber) : `${show(figure)(amber)}, ${show(figure)(red)}`;
}

function Finding({ figure, clock }: { figure: FtdcFigureJson; clock: Clock }) {
  const [passed, limit] = over(figure);
  const bound =
    figure.limits?.rule === "any" ? "" : ` ${show(figure)(limit)} or ${figure.limits?.below ? "less" : "more"}`;
  const longest =
    passed.longest_start_ns == null
      ? ""
      : `, longest ${duration(passed.longest_ns)} from ${clock.full(seconds(passed.longest_start_ns))}`;
  return (
    <div class={`words ${figure.verdict === "red" ? "bad" : "verdict"}`}>
      <p>
        <b>{figure.verdict}</b> · {figure.title}:{bound} for {duration(passed.total_ns)}
        {longest}; median {show(figure)(figure.p50)}, p95 {show(figure)(figure.p95)}, max {show(figure)(figure.max)}
      </p>
      <p class="dim">
        {figure.limits?.meaning} ({figure.limits?.source})
      </p>
    </div>
  );
}

export function FtdcPage({ report }: { report: FtdcReport }) {
  const { server, about } = report;
  const extent: Range = [seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)];
  const clock = useMemo(() => new Clock(report.zone, extent[0], extent[1]), []);
  const [range, setRange] = useState<Range | null>(null);
  const found = useMemo(() => findings(report.figures), []);
  const drawn = useMemo(() => plots(report.figures), []);
  const marks = useMemo(
    () => report.incidents.map(({ time_ns, kind }): Mark => ({ at: seconds(time_ns), name: KINDS[kind] ?? kind })),
    [],
  );
  const facts: Fact[] = [
    [
      "server",
      [server.version && `${server.is_router ? "mongos" : "mongod"} ${server.version}`, server.replica_set]
        .filter(Boolean)
        .join(", "),
    ],
    ["data", server.dbpath],
    ["machine", machine(server)],
    ["samples", exact(report.samples)],
  ];
  const reds = found.filter(({ verdict }) => verdict === "red").length;
  return (
    <Shell title="Diagnostic data" about={about} clock={clock} facts={facts}>
      <div class="tiles">
        <Tile name="problems (red)" value={String(reds)} {...(reds > 0 ? { tone: "bad" } : {})} />
        <Tile name="deserve attention (amber)" value={String(found.length - reds)} />
        <Tile name="starts, gaps, elections" value={exact(report.incidents.length + report.incidents_other)} />
      </div>
      <Words tone="bad" lines={report.reading.damage} />
      <Lost
        lost={{
          "damaged chunks": report.reading.chunks_damaged,
          "documents of an unknown kind": report.reading.documents_unknown,
        }}
      />
      {found.length === 0 && <Words tone="verdict" lines={["Nothing is over its limit."]} />}
      {found.map((figure) => (
        <Finding key={figure.id} figure={figure} clock={clock} />
      ))}
      {report.incidents.length > 0 && (
        <section>
          <h2>What happened</h2>
          <Table
            name="incidents"
            rows={report.incidents}
            columns={[
              { name: "time", value: ({ time_ns }) => clock.full(seconds(time_ns)), text: true, rank: 0 },
              { name: "what", value: ({ words }) => visible(words), text: true, main: true },
            ]}
          />
        </section>
      )}
      <section>
        <h2>Over time</h2>
        <p class="dim">The largest value of each interval.</p>
        <div class="charts">
          {drawn.map((plot) => (
            <Chart
              key={plot.figures[0]!.id}
              title={plot.title}
              x={timeAxis(clock, 1)}
              y={{ name: axis(plot.figures[0]!), show: show(plot.figures[0]!) }}
              xs={plot.xs}
              series={plot.series}
              marks={marks}
              extent={extent}
              range={range}
              onRange={setRange}
              height={260}
            />
          ))}
        </div>
      </section>
      <section>
        <h2>Figures</h2>
        <Table name="figures" rows={report.figures} columns={columns} />
      </section>
    </Shell>
  );
}
