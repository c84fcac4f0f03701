"""Errors that a person can act on, exit codes, and what else the command line promises."""

import csv
import gzip
import io
import json
import os
import shutil
import subprocess

import pytest
from test_privileges import open_to_all

import labkit

RECORDING = labkit.LAB.parent / "fixtures/mongod-4.0-mixed/wire.pcap.gz"


def run(*arguments, code=0, stdin=subprocess.DEVNULL):
    return labkit.run(*arguments, code=code, timeout=60, stdin=stdin)


@pytest.fixture(scope="module")
def plain_recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("recording") / "wire.pcap"
    path.write_bytes(gzip.decompress(RECORDING.read_bytes()))
    return path


@pytest.mark.root
def test_the_gate_fails_without_root_and_skips_nothing_for_lack_of_it(tmp_path):
    top = labkit.LAB.parent
    for name in [".ci/run", "scripts/test.sh"]:
        (tmp_path / name).parent.mkdir()
        shutil.copy(top / name, tmp_path / name)
    # What the top-level one does, and nothing else.
    (tmp_path / "Makefile").write_text("test:\n\t@scripts/test.sh\n")
    open_to_all(tmp_path)
    nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
    done = subprocess.run([*nobody, tmp_path / ".ci/run"], capture_output=True, text=True)
    assert done.returncode != 0 and "as root" in done.stderr, done


def test_an_unknown_interface_lists_the_known_ones():
    done = run("queries", "--interface", "nosuch0", code=1)
    assert "nosuch0" in done.stderr and "lo" in done.stderr.replace("nosuch0", "").split("nosuch0")[0]


def test_a_file_that_is_not_a_capture_names_its_first_bytes(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello, this is no capture")
    done = run("queries", "--read", path, code=1)
    assert str(path) in done.stderr and "68 65 6c 6c" in done.stderr


def test_a_missing_file_is_named(tmp_path):
    assert "absent.pcap" in run("queries", "--read", tmp_path / "absent.pcap", code=1).stderr


@pytest.mark.parametrize("port", ["0", "65536", "27020-27017", "mongod"])
def test_a_wrong_port_names_the_valid_range(port):
    done = run("queries", "--port", port, code=2)
    assert port in done.stderr and "27017" in done.stderr


def test_a_cut_file_is_read_to_the_cut_and_gives_exit_code_3(plain_recording, tmp_path):
    data = plain_recording.read_bytes()
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(data[: len(data) // 2])
    done = run("queries", "--read", cut, "--json", code=3)
    assert "in the middle of" in done.stderr and str(cut) in done.stderr
    assert labkit.summary([json.loads(line) for line in done.stdout.splitlines()])["totals"]["calls"] > 500


def test_standard_input_reads_as_the_file_does(plain_recording):
    from_file = run("queries", "--read", plain_recording, "--json")
    with open(plain_recording, "rb") as stdin:
        from_stdin = run("queries", "--read", "-", "--json", stdin=stdin)
    assert from_file.stdout == from_stdin.stdout


@pytest.mark.root
def test_without_permission_it_names_the_capability_and_the_line_that_grants_it(tmp_path):
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    # A directory that nobody may enter.
    binary = shutil.copy(labkit.MONGOSONAR, "/tmp/mongosonar-unprivileged")
    try:
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        listen = [binary, "queries", "--interface", "lo"]
        done = subprocess.run([*nobody, *listen], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1
        assert "CAP_NET_RAW" in done.stderr and "sudo setcap cap_" in done.stderr
        doctor = subprocess.run([*nobody, binary, "doctor"], capture_output=True, text=True, timeout=30)
        assert "CAP_NET_RAW" in doctor.stdout and "setcap" in doctor.stdout
        # If the capability is not available at all, setcap does not help.
        bounded = subprocess.run([*nobody, "--bounding-set=-all", *listen], capture_output=True, text=True, timeout=30)
        assert bounded.returncode == 1
        assert "CAP_NET_RAW" in bounded.stderr and "setcap" not in bounded.stderr
    finally:
        os.unlink(binary)


def test_json_and_csv_give_the_same_figures():
    summary = labkit.summary(labkit.documents("queries", "--read", RECORDING, "--json", timeout=60))
    row = summary["rows"][0]
    assert {
        "shape_id",
        "ordered_id",
        "command",
        "database",
        "collection",
        "shape",
        "role",
        "class",
        "server",
        "calls",
        "statements",
        "errors",
        "unanswered",
        "unacknowledged",
        "latency_ns",
        "transfer_ns",
        "request_bytes",
        "response_bytes",
        "docs_returned",
        "docs_affected",
        "apps",
        "clients",
        "in_flight",
        "oldest_in_flight_ns",
        "first_seen",
        "last_seen",
    } <= row.keys()
    assert {"p50", "p95", "p99", "max", "sum"} <= row["latency_ns"].keys()
    rows = list(csv.DictReader(io.StringIO(run("queries", "--read", RECORDING, "--csv").stdout)))
    by_shape = {(row["shape_id"], row["server"], row["role"], row["class"]): row for row in rows}
    assert len(by_shape) >= len(summary["rows"])
    for row in summary["rows"]:
        line = by_shape[row["shape_id"], row["server"], row["role"], row["class"]]
        assert int(line["calls"]) == row["calls"] and int(line["request_bytes"]) == row["request_bytes"]


def test_values_are_shown_only_when_asked_for():
    for line in run("queries", "--read", RECORDING, "--each", "--json").stdout.splitlines()[:50]:
        assert not json.loads(line).get("values")
    shown = run("queries", "--read", RECORDING, "--each", "--json", "--show-values").stdout.splitlines()
    assert any(json.loads(line).get("values") for line in shown)


def test_rows_by_application_and_by_client_add_up_to_the_totals():
    for by, key in (("app", "app"), ("client", "client"), ("namespace", "namespace")):
        summary = labkit.summary(labkit.documents("queries", "--read", RECORDING, "--json", "--by", by, timeout=60))
        assert all(key in row for row in summary["rows"])
        assert sum(row["calls"] for row in summary["rows"]) == summary["totals"]["calls"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_know_the_flags(shell):
    assert "snap-replies" in run("completions", shell).stdout


def test_the_bash_completion_is_bash():
    subprocess.run(["bash", "-n"], input=run("completions", "bash").stdout, text=True, check=True)


def test_the_manual_is_written(tmp_path):
    assert run("man").stdout.startswith(".")
    run("man", tmp_path)
    assert any(path.name.startswith("mongosonar") for path in tmp_path.iterdir())


def test_the_doctor_lists_what_works():
    text, machine = run("doctor"), run("doctor", "--json")
    assert text.stdout.strip()
    found = json.loads(machine.stdout)
    assert (found["schema"], found["kind"]) == (1, "doctor") and found["checks"]


def test_a_closed_pipe_is_not_an_error():
    command = f"set -o pipefail; {labkit.MONGOSONAR} queries --read {RECORDING} --each | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr
