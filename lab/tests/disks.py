"""Shared code of the tests of `mongosonar disk`: running it, and file systems and devices to run it on."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import labkit

MIB = 1 << 20


def run(*arguments, code=0, stdin="", **options):
    return labkit.run("disk", *arguments, code=code, timeout=120, input=stdin, **options)


def bench(*arguments, **options):
    """A short run, as its JSON document."""
    done = run("bench", "--json", "--quiet", "--step-seconds", "1", "--probe-seconds", "0", *arguments, **options)
    return json.loads(done.stdout)


def needs(*programs):
    for program in programs:
        if not (shutil.which(program) or os.path.exists(f"/usr/sbin/{program}")):
            pytest.skip(f"{program} is not installed")


@contextlib.contextmanager
def loop_file_system(kind, options="", mebibytes=400, in_memory=False):
    """A real file system on a loop device; yields mount point and device. With `in_memory` its image is in memory,
    so that a busy disk does not delay it."""
    needs(f"mkfs.{kind}", "losetup")
    base = pathlib.Path("/dev/shm") if in_memory and os.path.ismount("/dev/shm") else labkit.LAB.parent / "target"
    work = pathlib.Path(tempfile.mkdtemp(prefix="disk-loop-", dir=base))
    image, point = work / "image", work / "mounted"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes * MIB)
    device = None
    try:
        found = subprocess.run(["losetup", "--find", "--show", str(image)], capture_output=True, text=True)
        if found.returncode:
            pytest.skip(f"no loop device: {found.stderr.strip()}")
        device = found.stdout.strip()
        subprocess.run([f"mkfs.{kind}", "-q", device], check=True, capture_output=True)
        mounted = subprocess.run(
            ["mount", *(["-o", options] if options else []), device, str(point)], capture_output=True, text=True
        )
        if mounted.returncode:
            pytest.skip(f"cannot mount {kind}: {mounted.stderr.strip()}")
        yield point, device
    finally:
        subprocess.run(["umount", "-l", str(point)], capture_output=True)
        if device:
            subprocess.run(["losetup", "--detach", device], capture_output=True)
        shutil.rmtree(work)


@contextlib.contextmanager
def throttled(device, per_second):
    """Limits reads and writes per second of a device for the processes that join. Yields the
    shell words that join the limit and run what follows."""
    throttle = pathlib.Path("/sys/fs/cgroup/blkio")
    if not (throttle / "blkio.throttle.read_iops_device").exists():
        pytest.skip("no cgroup here that throttles a device (blkio of version 1)")
    group = throttle / f"disk-test-{os.getpid()}"
    group.mkdir()
    try:
        number = os.stat(device).st_rdev
        for kind in ("read", "write"):
            (group / f"blkio.throttle.{kind}_iops_device").write_text(
                f"{os.major(number)}:{os.minor(number)} {per_second}"
            )
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        labkit.wait_until(lambda: not (group / "cgroup.procs").read_text(), "the end of what was throttled")
        group.rmdir()
