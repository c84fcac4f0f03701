// Points in time, in the zone of the report.

import type { ZoneObject } from "../report";

const TWO = (part: number): string => String(part).padStart(2, "0");

/** Shows points in time (seconds since 1970) by a clock of the zone. */
export class Clock {
  private readonly middle: number;

  constructor(
    private readonly zone: ZoneObject,
    first: number,
    last: number,
  ) {
    this.middle = (first + last) / 2;
  }

  /** Seconds east of UTC. Where a clock was changed within the report, its halves have an offset each. */
  offset(seconds: number): number {
    return this.zone.utc_offsets_s[seconds > this.middle ? 1 : 0];
  }

  get name(): string {
    return this.zone.name;
  }

  private at(seconds: number): Date {
    return new Date((seconds + this.offset(seconds)) * 1000);
  }

  /** `2026-05-01`. */
  date(seconds: number): string {
    const at = this.at(seconds);
    return `${at.getUTCFullYear()}-${TWO(at.getUTCMonth() + 1)}-${TWO(at.getUTCDate())}`;
  }

  /** `12:00:00`, with as many decimals as asked for. */
  time(seconds: number, decimals = 0): string {
    const at = this.at(seconds);
    const text = `${TWO(at.getUTCHours())}:${TWO(at.getUTCMinutes())}:${TWO(at.getUTCSeconds())}`;
    return decimals > 0 ? `${text}.${String(at.getUTCMilliseconds()).padStart(3, "0").slice(0, decimals)}` : text;
  }

  /** `2026-05-01 12:00:00`. */
  full(seconds: number, decimals = 0): string {
    return `${this.date(seconds)} ${this.time(seconds, decimals)}`;
  }
}

/** Nanoseconds since 1970 as seconds. */
export const seconds = (ns: number): number => ns / 1e9;

/** A clock of UTC. */
export const utc = (): Clock => new Clock({ name: "UTC", utc_offsets_s: [0, 0] }, 0, 0);
