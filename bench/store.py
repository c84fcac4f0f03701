#!/usr/bin/env python3
"""The history of an agent: 30 days of 200 shapes, 50 of them active in each window, with 7,000 operations a second and
200 series; windows of 10 s of the last days, of minutes and of hours. Views are read from the page cache; they begin
beside a full hour."""

import pathlib

from lib.kit import EXAMPLES, build, figure, folder, main, note, output


def values(command):
    """What an example prints: a name and a number on each line."""
    return {name: float(number) for name, number in map(str.split, output(command).splitlines())}


def size(path):
    return sum(file.stat().st_size for file in pathlib.Path(path).iterdir())


def bench():
    with folder() as work:
        store = work / "store"
        filled = values([EXAMPLES / "store_bench", "fill", store])
        figure("size of 30 days", size(store) / 1e6, "MB", limit=1_000)
        figure("one window of 10 s added, with its minute and hour", filled["seconds"] / filled["windows"] * 1e3, "ms")
        read = values([EXAMPLES / "store_bench", "read", store])
        figure("24 hours, all rows", read["day"], "ms", limit=100)
        figure("24 hours, by hour", read["day_by_hour"], "ms", limit=100)
        figure("24 hours, by minute", read["day_by_minute"], "ms", limit=100)
        figure("30 days, all rows", read["month"], "ms", limit=500)
        figure("30 days, by hour", read["month_by_hour"], "ms", limit=500)
        note(
            'Processor time, medians of seven; each opens the files anew. "By hour" and "by minute" are the rows of each.'
        )


build("-p", "sonar-store", "--example", "store_bench")
main(bench)
