// io report: the reads of a process, file by file.

import { useMemo, useState } from "preact/hooks";

import { Bars } from "../parts/bars";
import { Chart, type Range } from "../parts/chart";
import { type Column, latencyColumns } from "../parts/columns";
import { type By, bounds, density, heat } from "../parts/density";
import { brief, bytes, count, duration, exact, fixed, percent, plural, visible } from "../parts/format";
import { COLOURS, REST } from "../parts/palette";
import { type Fact, Facts, Lost, Shell, Tile, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { linearTicks } from "../parts/ticks";
import type { FilePictureJson, IoFileJson, IoReportDocument } from "../report";

/** What a person knows a file by. */
const nameOf = (file: IoFileJson): string => visible(file.label ?? file.path?.split("/").pop() ?? `file ${file.file}`);

const FILES: Column<IoFileJson>[] = [
  { name: "reads", value: (file) => file.reads.count, format: count, rank: 1 },
  { name: "bytes", value: (file) => file.reads.bytes, format: bytes, rank: 2 },
  { name: "time", value: (file) => file.reads.latency_ns.sum, format: duration, rank: 0, about: "time spent in reads" },
  ...latencyColumns<IoFileJson>((file) => file.reads.latency_ns, { p50: 4, p99: 2 }),
  {
    name: "cached",
    value: (file) => file.reads.cached_share,
    format: percent,
    rank: 3,
    zero: true,
    about: "share that came from the page cache",
  },
  { name: "sequential", value: (file) => file.reads.sequential_share, format: percent, rank: 5, zero: true },
  {
    name: "randomness",
    value: (file) => file.reads.randomness,
    format: fixed,
    rank: 3,
    zero: true,
    about: "jumps among consecutive reads, 0 to 1",
  },
  {
    name: "run",
    value: (file) => file.reads.run_mean,
    format: count,
    rank: 9,
    about: "bytes read in a row, on average",
  },
  {
    name: "amplification",
    value: (file) => file.reads.amplification,
    format: fixed,
    rank: 6,
    about: "bytes read for each byte of the file that was touched",
  },
  {
    name: "device/B",
    value: (file) => file.reads.device_bytes_per_byte,
    format: fixed,
    rank: 8,
    about: "bytes from the device for each byte read",
  },
  {
    name: "read ahead for nothing",
    value: (file) => wasted(file),
    format: bytes,
    rank: 7,
    about: "a lower bound where the recording was made without --readahead",
  },
  { name: "writes", value: (file) => file.writes?.count ?? 0, format: count, rank: 6 },
  { name: "flushes", value: (file) => file.syncs, format: count, rank: 8 },
  { name: "file", value: nameOf, text: true, main: true },
];

const wasted = (file: IoFileJson): number | null =>
  file.page_ins ? file.page_ins.wasted_bytes : file.reads.readahead_wasted_at_least_bytes;

export function IoPage({ report }: { report: IoReportDocument }) {
  const pictures = report.pictures ?? [];
  const [at, show] = useState(
    Math.max(
      0,
      pictures.findIndex((picture) => picture.file === report.verdict.file),
    ),
  );
  const [by, setBy] = useState<By>("latency");
  const picture = pictures[at];
  const file = picture ? report.files.find((file) => file.file === picture.file) : report.files[0];
  const span = (report.end_ns ?? 0) - (report.start_ns ?? 0);
  return (
    <Shell title="Accesses to files" about={report.about}>
      {report.incomplete && <Words tone="bad" lines={[`Incomplete: ${report.incomplete}`]} />}
      <Lost lost={report.lost} words={report.lost_in_words} />
      <Words tone="verdict" lines={report.verdict.words} />
      <div class="tiles">
        <Tile name={`accesses in ${duration(span)}`} value={count(report.accesses)} about={exact(report.accesses)} />
        <Tile name="files" value={exact(report.files_total)} />
        {file && <Tile name={`reads of ${nameOf(file)}`} value={count(file.reads.count)} />}
        {file && (
          <Tile name="randomness" value={fixed(file.reads.randomness)} about="jumps among consecutive reads, 0 to 1" />
        )}
        {file?.reads.cached_share != null && (
          <Tile name="from the page cache" value={percent(file.reads.cached_share)} />
        )}
      </div>
      {report.left_out > 0 && (
        <p class="dim">
          Left out: {plural(report.left_out, "access", "accesses")} to files of /proc and /sys (--pseudo-filesystems
          shows them).
        </p>
      )}
      {picture && (
        <section>
          <h2>One file</h2>
          <p class="controls">
            <label>
              file{" "}
              <select value={at} onChange={(event) => show(Number(event.currentTarget.value))}>
                {pictures.map((picture, at) => (
                  <option key={at} value={at}>
                    {visible(picture.name)}
                  </option>
                ))}
              </select>
            </label>
            <label>
              coloured by{" "}
              <select value={by} onChange={(event) => setBy(event.currentTarget.value as By)}>
                <option value="latency">mean latency</option>
                <option value="reads">number of reads</option>
              </select>
            </label>
          </p>
          <FileCharts key={picture.file} picture={picture} file={file} by={by} />
        </section>
      )}
      <section>
        <h2>
          Files{" "}
          {report.files_total > report.files.length && (
            <span class="dim">
              ({report.files.length} of {exact(report.files_total)}, those with the most time)
            </span>
          )}
        </h2>
        <Table
          name="files"
          columns={FILES}
          rows={report.files}
          by="time"
          filter={{ words: (file) => file.path ?? "" }}
          detail={(file) => (
            <FileDetail
              file={file}
              onShow={
                pictures.some((one) => one.file === file.file)
                  ? () => show(pictures.findIndex((one) => one.file === file.file))
                  : null
              }
            />
          )}
        />
        <p class="dim">Read ahead for nothing: a lower bound where the recording was made without --readahead.</p>
      </section>
      <section>
        <h2>Threads</h2>
        <Table
          name="threads"
          rows={report.threads}
          by="time in reads"
          columns={[
            { name: "reads", value: (thread) => thread.reads, format: count, rank: 1 },
            { name: "bytes", value: (thread) => thread.read_bytes, format: bytes, rank: 3 },
            { name: "time in reads", value: (thread) => thread.read_ns, format: duration, rank: 0 },
            {
              name: "waits",
              value: (thread) => thread.read_share,
              format: percent,
              rank: 2,
              zero: true,
              about: "share of its time spent in reads, from its first access to its last",
            },
            { name: "writes", value: (thread) => thread.writes, format: count, rank: 4 },
            { name: "what for", value: (thread) => thread.role, text: true, rank: 2 },
            {
              name: "thread",
              value: (thread) => `${visible(thread.name ?? "")} (${thread.thread})`,
              text: true,
              main: true,
            },
          ]}
        />
      </section>
      {Object.keys(report.info).length > 0 && (
        <section>
          <details>
            <summary>
              <h2>How it was recorded</h2>
            </summary>
            <Facts kind="list" facts={Object.entries(report.info)} />
          </details>
        </section>
      )}
    </Shell>
  );
}

function FileCharts({ picture, file, by }: { picture: FilePictureJson; file: IoFileJson | undefined; by: By }) {
  const [range, setRange] = useState<Range | null>(null);
  const span = Math.max(picture.span_ns / 1e9, 1e-9);
  const layer = useMemo(() => density(picture, by), [by]);
  const [low, high] = useMemo(() => bounds(picture, by), [by]);
  const xs = useMemo(() => picture.over.map((_, at) => ((at + 0.5) / picture.columns) * span), []);
  const series = useMemo(
    () => [
      { name: "median", colour: COLOURS[0]!, values: picture.over.map((column) => column && Math.max(column[1], 1)) },
      {
        name: "99th percentile",
        colour: COLOURS[1]!,
        values: picture.over.map((column) => column && Math.max(column[2], 1)),
      },
    ],
    [],
  );
  const time = {
    name: "time since the first access",
    shared: true,
    show: (at: number) => `after ${duration(at * 1e9)}`,
    ticks: (min: number, max: number, most: number) =>
      linearTicks(min, max, most, (at, more) => brief(duration(at * 1e9, more))),
  };
  const shared = { x: time, extent: [0, span] as Range, range, onRange: setRange };
  const show = by === "latency" ? duration : (value: number) => plural(value, "read");
  const distances = file?.reads.distances ?? [];
  const buckets = picture.buckets;
  return (
    <>
      <Chart
        title="Offset over time"
        y={{ name: "offset in the file", show: bytes }}
        xs={[]}
        series={[]}
        layer={layer}
        height={400}
        {...shared}
      />
      <p class="dim scale">
        {by === "latency" ? "Mean latency" : "Reads"} of a cell: {show(low)}
        <i style={{ background: `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(heat).join(", ")})` }} />
        {show(high)}. The darker, the more reads.
      </p>
      <div class="charts">
        <Chart
          title="Latency over time"
          y={{ name: "latency of reads", log: 10, show: duration }}
          xs={xs}
          series={series}
          {...shared}
        />
        <Bars
          title="Histogram of latency"
          x="latency"
          y="reads"
          height={260}
          names={buckets.map((bucket) => `≤${duration(bucket[0])}`)}
          series={[
            { name: "from the page cache", colour: COLOURS[0]!, values: buckets.map((bucket) => bucket[1]) },
            { name: "from the device", colour: COLOURS[1]!, values: buckets.map((bucket) => bucket[2]) },
            { name: "not known", colour: REST, values: buckets.map((bucket) => bucket[3]) },
          ]}
        />
      </div>
      {distances.length > 0 && (
        <Bars
          title="Distances between consecutive reads"
          x="distance"
          y="reads"
          names={distances.map(({ from }) => (from < 0 ? "-" : from > 0 ? "+" : "") + bytes(Math.abs(from)))}
          series={[{ name: "reads", colour: COLOURS[0]!, values: distances.map((one) => one.count) }]}
          note="Backward to the left, contiguous in the middle, forward to the right."
        />
      )}
    </>
  );
}

function FileDetail({ file, onShow }: { file: IoFileJson; onShow: (() => void) | null }) {
  const { reads, writes } = file;
  const facts: Fact[] = [
    ["path", file.path],
    ["holds", file.label],
    ["kind", file.role],
    ["different blocks read", exact(reads.blocks)],
    ["bytes touched", bytes(reads.touched_bytes)],
    ["longest run", reads.run_longest == null ? null : count(reads.run_longest)],
    ["reads that failed", reads.errors ? exact(reads.errors) : null],
    ["page faults among them", reads.faults ? exact(reads.faults) : null],
    [
      "written",
      writes
        ? `${bytes(writes.bytes)}, p50 ${duration(writes.latency_ns.p50)}, p99 ${duration(writes.latency_ns.p99)}`
        : null,
    ],
    [
      "flushes",
      file.syncs
        ? `${exact(file.syncs)}, p50 ${duration(file.sync_ns.p50)}, p99 ${duration(file.sync_ns.p99)}, max ${duration(file.sync_ns.max)}`
        : null,
    ],
    [
      "came into the page cache",
      file.page_ins ? `${bytes(file.page_ins.bytes)}, ${percent(file.page_ins.wasted_share)} of it not read` : null,
    ],
  ];
  return (
    <div class="details">
      {onShow && (
        <button type="button" onClick={onShow}>
          Show its charts
        </button>
      )}
      <Facts kind="list" facts={facts} />
      {file.phases.length > 1 && (
        <Table
          name="phases"
          rows={file.phases}
          columns={[
            { name: "phase", value: (phase) => phase.path, text: true, rank: 0 },
            {
              name: "from",
              value: (phase) => phase.start_ns - file.phases[0]!.start_ns,
              format: duration,
              zero: true,
              rank: 1,
            },
            { name: "length", value: (phase) => phase.length_ns, format: duration, rank: 1 },
            { name: "reads", value: (phase) => phase.reads, format: count, rank: 1 },
            { name: "bytes", value: (phase) => phase.bytes, format: bytes, rank: 2 },
            { name: "randomness", value: (phase) => phase.randomness, format: fixed, zero: true, rank: 2 },
          ]}
        />
      )}
    </div>
  );
}
