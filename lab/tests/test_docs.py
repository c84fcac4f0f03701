"""The examples of README.md and docs/ that need root, a server or a disk: blocks marked `console lab=WHERE` or `sh lab=WHERE`.

WHERE is one of
  profiler  a mongod with a profiler, which is the lab's MOCK (lab/mock/mongod.py), written to while the block runs;
            `localhost:27017` of an example is its address, and so is MONGOSONAR_URI
  wire      the lab's server with a driver at work; `mongosonar queries` is given its port, as it is not called mongod
  io        a program called mongod that reads a file of its own
  disk      a folder on this machine's disk

The other blocks are run by crates/mongosonar/tests/it/docs.rs, which also fails for a block that nobody runs.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys

import pymongo
import pytest
from profilers import mongod

import labkit

ROOT = labkit.LAB.parent
# The server of the examples.
ADDRESS = "localhost:27017"
BLOCK = re.compile(r"^```(console|sh) lab=(\w+)\n(.*?)^```$", re.M | re.S)


def blocks():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            line = text[: found.start()].count("\n") + 1
            yield pytest.param(*found.groups(), id=f"{page.name}:{line}")


def steps(kind, text):
    """The commands of a block, each with its output as shown."""
    if kind == "sh":
        commands = [line.partition("  #")[0].rstrip() for line in text.splitlines()]
        return [(command, []) for command in commands if command]
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def skeleton(line):
    """A line without numbers and units, and without alignment."""
    line = re.sub(
        r"(?<![\w])[<≥~-]?\d[\d.,:TZ-]*\s?(ns|µs|ms|s|m|h|d|k|M|G|T|MiB|KiB|kB|MB|GB|B|%)?(\d+s)?(?![\w])", "#", line
    )
    return " ".join(line.split())


@contextlib.contextmanager
def profiler(folder):
    with mongod("6.0") as mock:

        def write(stop):
            while not stop.wait(0.1):
                if mock.profile()["was"] == 2:
                    mock.write(20)

        with labkit.in_background(write):
            yield {"MONGOSONAR_URI": mock.uri}, lambda text: text.replace(ADDRESS, mock.address), mock.address


@contextlib.contextmanager
def wire(folder):
    with labkit.server("127.0.0.1:0") as address:
        client = pymongo.MongoClient(f"mongodb://{address}", appname="shop")
        people = client.shop.people
        people.insert_many({"_id": n, "age": n % 90} for n in range(500))

        def ask(stop):
            while not stop.wait(0.02):
                people.find_one({"_id": 7})
                people.update_one({"_id": 8}, {"$inc": {"age": 1}})

        port = labkit.port_of(address)
        with labkit.in_background(ask):
            yield (
                {},
                lambda text: re.sub(r"mongosonar queries(?! --read)", f"mongosonar queries --port {port}", text),
                address,
            )
        client.close()


@contextlib.contextmanager
def io(folder):
    program = folder / "bin/mongod"
    program.symlink_to(sys.executable)
    (folder / "data").mkdir()
    (folder / "data/collection-1-2.wt").write_bytes(os.urandom(1 << 22))
    reads = "import os, random, time\nf = os.open('data/collection-1-2.wt', os.O_RDONLY)\nwhile True:\n  for _ in range(50): os.pread(f, 4096, random.randrange(1024) * 4096)\n  time.sleep(0.01)\n"
    with labkit.process([program, "-c", reads], cwd=folder):
        yield {}, lambda text: text, ADDRESS


@contextlib.contextmanager
def disk(folder):
    yield {}, lambda text: text, ADDRESS


@pytest.mark.root
@pytest.mark.servers
@pytest.mark.parametrize(("kind", "where", "text"), list(blocks()))
def test_an_example_that_needs_the_lab(kind, where, text, tmp_path):
    (tmp_path / "bin").mkdir()
    sudo = tmp_path / "bin/sudo"
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    shutil.copy(labkit.MONGOSONAR, tmp_path / "bin/mongosonar")
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    with {"profiler": profiler, "wire": wire, "io": io, "disk": disk}[where](tmp_path) as (more, adapted, address):
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "HOME": "/nonexistent", "PATH": path, **more}
        for command, shown in steps(kind, text):
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", adapted(command)],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, f"$ {command}\n{done.stdout}"
            printed = {skeleton(line) for line in done.stdout.replace(address, ADDRESS).splitlines()}
            for line in shown:
                # The parts that the page leaves out vary in more than numbers.
                parts = [skeleton(part) for part in line.split("…")]
                held = (
                    any(all(part in one for part in parts) for one in printed)
                    if "…" in line
                    else skeleton(line) in printed
                )
                assert held, f"$ {command}\nthe page shows\n  {line}\nprinted was\n{done.stdout}"
