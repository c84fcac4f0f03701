"""The program as a file: what it needs on the machine that it is copied to."""

import os
import platform
import re
import shutil
import subprocess
import sys

import pytest

import labkit

CAPTURE = labkit.LAB.parent / "fixtures/mongod-4.0-mixed/wire.pcap.gz"
# The libraries of glibc itself.
LIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_it_needs_only_the_shared_libraries_of_libc():
    done = subprocess.run(["readelf", "-d", labkit.MONGOSONAR], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))
    assert needed <= LIBC, needed - LIBC


@pytest.fixture(scope="module")
def static():
    """The newest binary of `scripts/dist-musl.sh`."""
    folder = labkit.LAB.parent / "target" / f"{platform.machine()}-unknown-linux-musl"
    built = [path for profile in ("debug", "release") if (path := folder / profile / "mongosonar").exists()]
    if not built:
        pytest.skip("no static binary: make dist-musl builds it")
    return max(built, key=os.path.getmtime)


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)


def test_the_static_binary_needs_nothing_to_run(static, tmp_path):
    headers = subprocess.run(["readelf", "-lW", "-d", static], capture_output=True, text=True, check=True).stdout
    assert "LOAD" in headers
    assert "INTERP" not in headers and "(NEEDED)" not in headers, headers
    if os.geteuid() == 0:
        # It runs in a directory tree without any other file.
        shutil.copy(static, tmp_path / "mongosonar")
        done = run("chroot", tmp_path, "/mongosonar", "--version")
        assert done.returncode == 0 and done.stdout.startswith("mongosonar "), done


def test_the_static_binary_does_the_same(static):
    version = run(static, "--version")
    assert version.returncode == 0 and re.fullmatch(r"mongosonar \d+\.\d+\.\d+.*\n", version.stdout), version
    doctor, expected = run(static, "doctor"), run(labkit.MONGOSONAR, "doctor")
    assert doctor.returncode == expected.returncode and doctor.stdout, (doctor, expected)
    words = ["queries", "--read", CAPTURE, "--json"]
    read, expected = run(static, *words), run(labkit.MONGOSONAR, *words)
    assert read.returncode == expected.returncode == 0, (read, expected)
    assert read.stdout.splitlines()[-1] == expected.stdout.splitlines()[-1]


@pytest.mark.root
def test_the_static_binary_works_without_its_privileges(static, served_v4, tmp_path, monkeypatch):
    """musl makes other system calls than glibc, and the filter must allow them."""
    monkeypatch.setattr(labkit, "MONGOSONAR", str(static))
    port = labkit.port_of(served_v4)
    kept = tmp_path / "kept.pcapng"
    with labkit.live_capture(
        tmp_path, ["--interface", "lo", "--port", str(port), "--json", "--interval", "500ms", "--write", str(kept)]
    ) as running:
        labkit.run_driver("go", served_v4, tmp_path / "driver.jsonl")
        lines = running.stop()
    assert labkit.summary(lines)["totals"]["calls"] > 0
    assert labkit.read_capture(kept)
    recording = tmp_path / "kept.msio"
    program = (
        "import os, time\nf = os.open('/etc/hostname', os.O_RDONLY)\nwhile True: os.pread(f, 1, 0); time.sleep(0.001)"
    )
    with labkit.process([sys.executable, "-c", program]) as reader:
        done = run(static, "io", "record", recording, "--pid", reader.pid, "--duration", "2s")
    counted = re.search(r"(\d+) accesses recorded", done.stderr)
    assert done.returncode == 0 and int(counted[1]) > 0, done
    report = run(static, "io", "report", recording, "--json")
    assert report.returncode == 0 and "/etc/hostname" in report.stdout, report
