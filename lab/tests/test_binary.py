"""The program as a file: what it needs on the machine that it is copied to."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys

import pytest

import labkit

CAPTURE = labkit.LAB.parent / "fixtures/mongod-4.0-mixed/wire.pcap.gz"
# What containers call an architecture.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
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


def run(*words, **options):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, **options)


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


@pytest.fixture(scope="module")
def in_container(static, tmp_path_factory):
    """Runs the program in a container of its image: options of `buildah run`, then the words of the command."""
    if not shutil.which("buildah"):
        pytest.skip("buildah is not installed")
    folder = tmp_path_factory.mktemp("image")
    shutil.copy(labkit.LAB.parent / "packaging/Containerfile", folder)
    program = folder / f"linux-{ARCHITECTURES[platform.machine()]}/mongosonar"
    for path in (program, folder / "licences/copyright"):
        path.parent.mkdir()
    shutil.copy(labkit.LAB.parent / "packaging/copyright", folder / "licences")
    subprocess.run(["strip", "-g", "-o", program, static], check=True)
    buildah = ["buildah", "--root", folder / "storage", "--runroot", folder / "run", "--storage-driver", "vfs"]
    # It needs no daemon, and no control group of its own.
    alone = ["--isolation", "chroot"]
    made = run(*buildah, "build", *alone, "--quiet", "--tag", "mongosonar", folder)
    assert made.returncode == 0, made.stderr
    name = run(*buildah, "from", "mongosonar").stdout.strip()
    yield lambda options, words, **more: run(
        *buildah, "run", *alone, *options, name, "--", "/usr/bin/mongosonar", *words, **more
    )
    run(*buildah, "rm", name)


# Those that docs/install.md gives to the container.
CAPABILITIES = ["NET_RAW", "BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]


@pytest.mark.root
def test_a_container_of_the_image_reads_a_capture(in_container):
    words = ["queries", "--read", "-", "--json"]
    with open(CAPTURE, "rb") as capture:
        read = in_container([], words, stdin=capture)
    expected = run(labkit.MONGOSONAR, "queries", "--read", CAPTURE, "--json")
    assert read.returncode == expected.returncode == 0, read
    assert read.stdout == expected.stdout


@pytest.mark.root
def test_the_doctor_in_a_container_names_the_options_that_are_missing(in_container):
    def found(capabilities):
        added = [f"--cap-add=CAP_{name}" for name in capabilities]
        dropped = [f"--cap-drop=CAP_{name}" for name in CAPABILITIES if name not in capabilities]
        lines = json.loads(in_container([*added, *dropped], ["doctor", "--json"]).stdout)
        return {line["name"]: line for line in lines["checks"]}

    without = found([])
    assert without["packet-socket"]["remedy"] == "docker run --cap-add NET_RAW …"
    assert without["ebpf"]["remedy"] == "docker run --cap-add BPF --cap-add PERFMON …"
    assert found(["NET_RAW", "BPF"])["ebpf"]["remedy"] == "docker run --cap-add PERFMON …"
    complete = found(CAPABILITIES)
    assert complete["packet-socket"]["verdict"] == "ok", complete
    # The profile of an older engine forbids bpf also to those who have the capability.
    assert complete["ebpf"]["remedy"] in (None, "docker run --security-opt seccomp=unconfined …"), complete["ebpf"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other architecture is emulated on x86-64 only")
def test_the_program_for_aarch64_runs(tmp_path):
    """Emulated, system call by system call: a packet ring and eBPF are beyond that."""
    emulator = shutil.which("qemu-aarch64-static")
    folder = labkit.LAB.parent / "target/aarch64-unknown-linux-musl"
    built = [path for profile in ("debug", "release") if (path := folder / profile / "mongosonar").exists()]
    if not emulator or not built:
        pytest.skip("no qemu-aarch64-static, or no program: scripts/dist-musl.sh dev aarch64 builds it")
    program = max(built, key=os.path.getmtime)
    headers = run("readelf", "-hlW", program).stdout
    assert "AArch64" in headers and "INTERP" not in headers, headers
    # The eBPF programs name the registers of that architecture (pt_regs), and none of this one.
    content = program.read_bytes()
    assert b"\0syscallno\0" in content and b"\0orig_ax\0" not in content
    version = run(emulator, program, "--version")
    assert version.returncode == 0 and version.stdout == run(labkit.MONGOSONAR, "--version").stdout, version
    read, expected = (
        run(*start, "queries", "--read", CAPTURE, "--json") for start in ([emulator, program], [labkit.MONGOSONAR])
    )
    assert read.returncode == expected.returncode == 0, read
    assert read.stdout == expected.stdout
    replay = ["agent", "--replay", CAPTURE, "--json", "--store"]
    stored, expected = (
        json.loads(run(*start, *replay, tmp_path / name).stdout)
        for name, start in (("emulated", [emulator, program]), ("here", [labkit.MONGOSONAR]))
    )
    assert stored["windows"] == expected["windows"] > 0 and stored["collectors"] == expected["collectors"]
    doctor = json.loads(run(emulator, program, "doctor", "--json").stdout)["checks"]
    assert {line["verdict"] for line in doctor if line["name"] in ("kernel", "configuration")} == {"ok"}, doctor
