#!/usr/bin/env python3
"""The history of an agent: 30 days of 200 shapes, 50 of them active in each window, with 7,000 operations a second and
200 series; windows of 10 s of the last days, of minutes and of hours. Views are read from the page cache; they begin
beside a full hour."""

import pathlib

from lib.kit import EXAMPLES, build, figure, folder, main, note, output, quantity

# What a view is called in the table, its name in the example, and its limit in milliseconds.
VIEWS = (
    ("24 hours, all rows", "day", 100),
    ("24 hours, by hour", "day_by_hour", 100),
    ("24 hours, by minute", "day_by_minute", 100),
    ("30 days, all rows", "month", 500),
    ("30 days, by hour", "month_by_hour", 500),
    ("30 days, gaps", "month_observed", 500),
)


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
    for what, name, limit in VIEWS:
        processors = quantity(read[f"{name}_processors"], "ms")
        figure(what, read[name], "ms", limit=limit, note=f"({processors} of processors)")
    note(
        'Medians of seven; each opens the files anew. "By hour" and "by minute" are the rows of each, which several '
        "threads read."
    )


build("-p", "sonar-store", "--example", "store_bench")
main(bench)
