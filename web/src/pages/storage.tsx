// Files, disks and space over time: who read and wrote, how busy the disks were, and what grew.

import { useMemo, useState } from "preact/hooks";

import { GapList, gapSummary } from "../parts/changes";
import { Chart, type Mark, type Range, type Series } from "../parts/chart";
import type { Column } from "../parts/columns";
import { bytes, count, duration, percent, plural, UNKNOWN, visible } from "../parts/format";
import { colour, COLOURS, REST } from "../parts/palette";
import { Shell, Words } from "../parts/shell";
import { Table } from "../parts/table";
import { timeAxis } from "../parts/ticks";
import { Clock, seconds } from "../parts/time";
import { span, xsOf } from "../parts/timeline";
import { axis, show } from "../parts/units";
import type {
  FileUseJson,
  PlaceFigureJson,
  StorageDeviceJson,
  StorageFileJson,
  StorageReport,
  StorageSpaceJson,
  StoredSizeJson,
} from "../report";
import { named } from "./waits";

const NS_PER_MS = 1e6;
/** A read that takes so many times as long as in the test, in which nothing else ran, stands out. */
const SLOW = 4;

type Place = StorageDeviceJson | StorageSpaceJson;

const figure = (place: Place, metric: string): PlaceFigureJson | undefined => place.figures[metric];
const mean = (place: Place, metric: string): number | null => figure(place, metric)?.mean ?? null;
const milliseconds = (ms: number | null | undefined): string => duration(ms == null ? ms : ms * NS_PER_MS);

/** What became of a figure since the time before: `+12%`, `×3.4`; empty if nothing is known of that, or nothing changed. */
export function change(now: number | null | undefined, before: number | null | undefined): string {
  if (now == null || before == null || before <= 0) return now != null && now > 0 && before === 0 ? "new" : "";
  const ratio = now / before;
  if (ratio >= 2) return `×${ratio.toFixed(1)}`;
  const text = percent(ratio - 1);
  return text === "0%" ? "" : ratio > 1 ? `+${text}` : text;
}

/** A figure with what became of it since the time before. */
export const withChange = (text: string, now: number | null | undefined, before: number | null | undefined): string =>
  [text, change(now, before)].filter(Boolean).join(" ");

/** The share of what was read that did not come from the device; null if nothing was read. Reading ahead hides some. */
export const cached = ({ read_bytes_per_second, device_bytes_per_second }: FileUseJson): number | null =>
  read_bytes_per_second > 0 ? Math.max(0, 1 - device_bytes_per_second / read_bytes_per_second) : null;

/** What a disk did beside what `disk bench` measured on it, in a sentence; empty without a test of reads. */
export function besideTest(device: StorageDeviceJson, clock: Clock): string {
  const { name, test } = device;
  const [most, took] = [figure(device, "disk.reads_per_second")?.max, mean(device, "disk.read_wait_ms")];
  if (test?.reads_per_second == null || most == null) return "";
  const day = clock.date(seconds(test.started_ns));
  const measured = `${count(test.reads_per_second)} random reads per second that disk bench measured on ${day}`;
  const parts = [
    `${visible(name)} served at most ${count(most)} reads per second, ${percent(most / test.reads_per_second)} of the ${measured}`,
  ];
  const alone = test.read_alone_ms ?? test.read_ms;
  if (took != null && alone != null)
    parts.push(
      `a read took ${milliseconds(took)} on average, and ${milliseconds(alone)} in the test${test.read_alone_ms == null ? "" : " when it was alone"}`,
    );
  return parts.join("; ") + ".";
}

/** Whether the reads of a disk take far longer than they need. */
export function isSlow(device: StorageDeviceJson): boolean {
  const [took, alone] = [mean(device, "disk.read_wait_ms"), device.test?.read_alone_ms ?? device.test?.read_ms];
  return took != null && alone != null && took > SLOW * alone;
}

/** The last value less the first one that is known; null if there are no two. */
export function grown(one: PlaceFigureJson | undefined): number | null {
  const known = (one?.values ?? []).filter((value) => value != null);
  return one && known.length > 1 ? one.last - known[0]! : null;
}

/** A line for each place that has a figure, those with the largest values first. */
export const lines = (places: readonly Place[], metric: string): Series[] =>
  places
    .flatMap((place) => {
      const one = figure(place, metric);
      return one ? [{ name: visible(place.name), one }] : [];
    })
    .sort((a, b) => (b.one.mean ?? 0) - (a.one.mean ?? 0))
    .slice(0, COLOURS.length)
    .map(({ name, one }, at) => ({ name, colour: colour(at), values: one.values }));

/** The lanes of the files that took longest, and one of all others. */
export function fileLanes(files: readonly StorageFileJson[]): Series[] {
  const most = COLOURS.length - 1;
  const shown = files.filter(({ name }) => name !== null).slice(0, most);
  const others = files.filter((file) => !shown.includes(file));
  const lanes: Series[] = shown.map((file, at) => ({
    name: shortName(file),
    about: visible(file.name ?? ""),
    colour: colour(at),
    values: file.values,
  }));
  const parts = others[0]?.values.map((_, at) => {
    const known = others.flatMap(({ values }) => (values[at] == null ? [] : [values[at]]));
    return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) : null;
  });
  return parts ? [...lanes, { name: "all others", colour: REST, values: parts }] : lanes;
}

/** The last two parts of a path, which tell files of one server apart. */
const shortName = ({ name }: StorageFileJson): string => visible((name ?? "").split("/").slice(-2).join("/"));

const serverOf = ({ server, address }: { server: number | null; address?: string }): string =>
  server === null ? UNKNOWN : visible(address ?? String(server));

/** A figure of a disk with what became of it. */
function ofDisk(name: string, metric: string, rank: number, about?: string): Column<StorageDeviceJson> {
  const value = (device: StorageDeviceJson) => mean(device, metric);
  return {
    name,
    ...(about === undefined ? {} : { about }),
    value,
    show: (device) => {
      const one = figure(device, metric);
      return one ? withChange(show(one)(one.mean), one.mean, one.before) : UNKNOWN;
    },
    rank,
  };
}

const disks: Column<StorageDeviceJson>[] = [
  { name: "disk", value: ({ name }) => visible(name), text: true, rank: 0, main: true },
  ofDisk("busy", "disk.busy_percent", 0, "share of the time with a request in flight; and since the time before"),
  ofDisk("reads/s", "disk.reads_per_second", 1),
  {
    ...ofDisk("read", "disk.read_wait_ms", 0, "mean time of a read"),
    tone: (device) => (isSlow(device) ? "bad" : ""),
  },
  {
    name: "in the test",
    about: "mean time of a read alone, as disk bench measured it",
    value: ({ test }) => test?.read_alone_ms ?? test?.read_ms,
    format: milliseconds,
    rank: 2,
  },
  ofDisk("writes/s", "disk.writes_per_second", 1),
  ofDisk("write", "disk.write_wait_ms", 2, "mean time of a write"),
  ofDisk("flush", "disk.flush_wait_ms", 4, "mean time of a flush"),
  ofDisk("queue", "disk.queue_length", 3, "requests in flight, mean"),
  ofDisk("read B", "disk.read_bytes_per_second", 5, "bytes read per second"),
  ofDisk("written B", "disk.written_bytes_per_second", 5, "bytes written per second"),
];

const files: Column<StorageFileJson>[] = [
  { name: "file", value: ({ name }) => named(name), text: true, rank: 0, main: true },
  { name: "holds", value: ({ role }) => role, text: true, rank: 3 },
  {
    name: "at once",
    about: "reads and writes in progress at once, on average; and since the time before",
    value: ({ usage }) => usage.at_once,
    show: ({ usage, before }) => withChange(count(usage.at_once), usage.at_once, before?.at_once),
    rank: 0,
  },
  {
    name: "reads/s",
    value: ({ usage }) => usage.reads_per_second,
    show: ({ usage, before }) =>
      withChange(count(usage.reads_per_second), usage.reads_per_second, before?.reads_per_second),
    rank: 1,
  },
  { name: "read", about: "mean time of a read", value: ({ usage }) => usage.read_ms, format: milliseconds, rank: 1 },
  {
    name: "cached",
    about: "share of the bytes read that did not come from the device",
    value: ({ usage }) => cached(usage),
    format: percent,
    zero: true,
    rank: 2,
  },
  {
    name: "from device",
    about: "bytes of the file that were read from the device, per second",
    value: ({ usage }) => usage.device_bytes_per_second,
    format: (value) => bytes(value) + "/s",
    rank: 3,
  },
  { name: "writes/s", value: ({ usage }) => usage.writes_per_second, format: count, rank: 2 },
  { name: "write", about: "mean time of a write", value: ({ usage }) => usage.write_ms, format: milliseconds, rank: 4 },
  { name: "server", value: serverOf, text: true, rank: 5 },
];

const spaces: Column<StorageSpaceJson>[] = [
  { name: "file system", value: ({ name }) => visible(name), text: true, rank: 0, main: true },
  {
    name: "used",
    value: (space) => (figure(space, "file_system.used_percent")?.last ?? NaN) / 100,
    format: (share) => percent(share, 1),
    bar: true,
    rank: 0,
  },
  { name: "free", value: (space) => figure(space, "file_system.free_bytes")?.last, format: bytes, rank: 0 },
  {
    name: "grew by",
    about: "within this time",
    value: (space) => grown(figure(space, "file_system.used_bytes")),
    format: bytes,
    rank: 1,
  },
  {
    name: "inodes used",
    value: (space) => (figure(space, "file_system.inodes_used_percent")?.last ?? NaN) / 100,
    format: (share) => percent(share, 1),
    rank: 3,
  },
];

const sizes: Column<StoredSizeJson>[] = [
  { name: "name", value: ({ name }) => named(name), text: true, rank: 0, main: true },
  { name: "what", value: ({ subject }) => subject ?? UNKNOWN, text: true, rank: 2 },
  { name: "size", about: "of the file", value: (one) => one.bytes, format: bytes, rank: 0 },
  { name: "grew by", about: "within this time", value: ({ grown_bytes }) => grown_bytes, format: bytes, rank: 0 },
  { name: "reusable", value: ({ reusable_bytes }) => reusable_bytes, format: bytes, rank: 3 },
  { name: "documents", value: ({ documents }) => documents, format: count, rank: 3 },
  { name: "server", value: serverOf, text: true, rank: 5 },
];

/** The charts of disks, by metric. */
const DISK_CHARTS: [title: string, metric: string][] = [
  ["How busy the disks were", "disk.busy_percent"],
  ["Time of a read", "disk.read_wait_ms"],
  ["Reads per second", "disk.reads_per_second"],
  ["Time of a write", "disk.write_wait_ms"],
  ["Writes per second", "disk.writes_per_second"],
  ["Requests in flight", "disk.queue_length"],
];

/** What a test of the only disk measured of a metric, as a line of its chart. */
export function testLevel(devices: readonly StorageDeviceJson[], metric: string): Mark | undefined {
  const [device] = devices;
  if (!device?.test || devices.length > 1) return undefined;
  const { reads_per_second, writes_per_second, read_alone_ms } = device.test;
  const levels: Record<string, number | null> = {
    "disk.reads_per_second": reads_per_second,
    "disk.writes_per_second": writes_per_second,
    "disk.read_wait_ms": read_alone_ms,
  };
  const at = levels[metric];
  return at == null ? undefined : { at, name: "disk bench" };
}

export function StoragePage({ report }: { report: StorageReport }) {
  const { about, zone, devices, before_ns } = report;
  const clock = useMemo(() => new Clock(zone, seconds(about.start_ns ?? 0), seconds(about.end_ns ?? 0)), [report]);
  const extent = span(about);
  const [range, setRange] = useState<Range | null>(null);
  const lanes = useMemo(() => fileLanes(report.files), [report]);
  const shared = { x: timeAxis(clock), extent, range, onRange: setRange };
  const xs = useMemo(() => xsOf(extent, partsOf(report)), [report]);
  const compared =
    before_ns === null
      ? "Nothing is stored of the time before."
      : `Changes are those since the time before, from ${clock.full(seconds(before_ns))} on.`;
  return (
    <Shell title="Files and disk" about={about} clock={clock}>
      <Words tone="bad" lines={gapSummary(report.gaps, clock)} />
      <Words lines={devices.map((device) => besideTest(device, clock)).filter(Boolean)} />
      <Words tone="bad" lines={report.notes.map((note) => `A result of disk bench is not shown: ${note}.`)} />
      <p class="dim">{compared}</p>
      {report.left_out > 0 && (
        <p class="dim">
          {plural(
            report.left_out,
            "more disk, file system, collection or index",
            "more disks, file systems, collections and indexes",
          )}{" "}
          left out.
        </p>
      )}
      <section>
        <h2>Disks</h2>
        {devices.length === 0 ? (
          <p class="dim">No disk was observed in this time: the agent needs its source “machine” for it.</p>
        ) : (
          <>
            <div class="charts timeline">
              {DISK_CHARTS.map(([title, metric]) => {
                const series = lines(devices, metric);
                const one = devices.map((device) => figure(device, metric)).find((found) => found !== undefined);
                const level = testLevel(devices, metric);
                return (
                  one && (
                    <Chart
                      key={metric}
                      {...shared}
                      xs={xs}
                      title={title}
                      y={{ name: axis(one), show: show(one) }}
                      series={series}
                      {...(level ? { level } : {})}
                      height={180}
                      note={one.meaning}
                    />
                  )
                );
              })}
            </div>
            <Table name="disks" rows={devices} columns={disks} by="busy" />
            {devices.every(({ test }) => test === null) && (
              <p class="dim">
                To see beside it what a disk can do, keep a result in the folder of the history: mongosonar disk bench
                --json &gt; {visible(about.sources[0] ?? "")}/disk-bench-NAME.json
              </p>
            )}
          </>
        )}
      </section>
      <section>
        <h2>Files</h2>
        {report.files.length === 0 ? (
          <p class="dim">
            No file was read or written in this time, or nobody looked: the agent needs eBPF and its source “files” for
            it. Health says what it lacks.
          </p>
        ) : (
          <>
            <div class="lists">
              <Chart
                {...shared}
                xs={xs}
                stacked
                title="Which files were read and written"
                y={{ name: "reads and writes at once", show: count }}
                series={lanes}
                height={260}
                note="The area of a colour is the time that reads and writes of a file took."
              />
              <Chart
                {...shared}
                xs={xs}
                stacked
                title="What they hold"
                y={{ name: "reads and writes at once", show: count }}
                series={report.roles.map(({ role, values }, at): Series => ({
                  name: role || "other files",
                  colour: role ? colour(at) : REST,
                  values,
                }))}
                height={200}
              />
            </div>
            <Table name="files" rows={report.files} columns={files} filter={{}} />
          </>
        )}
      </section>
      <section>
        <h2>Space</h2>
        {report.file_systems.length > 0 && (
          <>
            <Chart
              {...shared}
              xs={xs}
              title="How full file systems were"
              y={{ name: "per cent", show: show({ unit: "percent" }) }}
              series={lines(report.file_systems, "file_system.used_percent")}
              height={180}
            />
            <Table name="file systems" rows={report.file_systems} columns={spaces} by="used" />
          </>
        )}
        {report.sizes.length > 0 ? (
          <Table name="sizes" rows={report.sizes} columns={sizes} filter={{}} />
        ) : (
          <p class="dim">
            Sizes of collections and indexes are not known of this time: the agent needs a login for them ([[server]] in
            its configuration).
          </p>
        )}
      </section>
      <GapList gaps={report.gaps} clock={clock} />
    </Shell>
  );
}

/** How many parts the axis has. */
const partsOf = ({ files, devices, file_systems }: StorageReport): number =>
  files[0]?.values.length ??
  [...devices, ...file_systems].flatMap(({ figures }) => Object.values(figures))[0]?.values.length ??
  1;
