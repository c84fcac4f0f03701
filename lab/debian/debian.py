"""A clean Debian in a folder, for tests that install packages: each gets one of its own, as an overlay.

with debian.clean(tmp_path) as system:
    system.run("dpkg", "--install", "/new.deb")
    with system.booted():
        system.run("systemctl", "start", "mongosonar")
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import labkit

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent / "bin/debian/root"
# It enters the folder with a /proc of its own, as programs of packages expect one.
ENTER = """
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    mount -t sysfs sys "$0/sys"
    mount -o remount,bind,ro "$0/sys"
    exec chroot "$0" "$@"
"""


def missing():
    """Why there is no Debian to install into, in words; empty if there is one."""
    if os.geteuid() != 0:
        return "needs root"
    if not (ROOT.parent / "ready").exists():
        return f"no Debian in {ROOT} (make -C lab debian, which needs debootstrap)"
    return ""


class Debian:
    """A Debian in the folder `path`."""

    def __init__(self, path):
        self.path = path
        # Its systemd, as a process here, while it is booted.
        self.init = None

    def run(self, *words, code=0, **options):
        """Runs a program there as root. Fails if it ends with another exit code; `code=None` accepts any."""
        if self.init:
            enter = ["nsenter", "--target", str(self.init), "--all", "--root", "--wd=/"]
        else:
            enter = [
                "unshare",
                "--mount",
                "--pid",
                "--ipc",
                "--fork",
                "--kill-child",
                "sh",
                "-eu",
                "-c",
                ENTER,
                str(self.path),
            ]
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        command = [*enter, *(str(word) for word in words)]
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, **options
        )
        assert code is None or done.returncode == code, (
            f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done

    def file(self, path):
        """A path there, as seen from here. Links are not followed."""
        root = pathlib.Path(f"/proc/{self.init}/root") if self.init else self.path
        return root / str(path).lstrip("/")

    def put(self, here, there):
        """Copies a file from here to there, with its mode."""
        target = self.file(there)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(here, target)

    @contextlib.contextmanager
    def booted(self):
        """Runs its systemd until the end of the block."""
        group = cgroups() / f"mongosonar-lab-{os.getpid()}"
        with subprocess.Popen([HERE / "boot.sh", self.path, group], stdin=subprocess.DEVNULL) as boot:
            try:
                children = pathlib.Path(f"/proc/{boot.pid}/task/{boot.pid}/children")
                found = labkit.wait_until(
                    lambda: boot.poll() is None and [one for one in children.read_text().split() if is_systemd(one)],
                    "systemd",
                )
                self.init = int(found[0])
                # A service that fails is of no interest here.
                states = ("running", "degraded")
                labkit.wait_until(
                    lambda: self.run("systemctl", "is-system-running", code=None).stdout.strip() in states,
                    "the boot",
                    60,
                )
                yield self
            finally:
                if self.init:
                    os.kill(self.init, signal.SIGKILL)
                self.init = None
                boot.kill()
                boot.wait()
                labkit.wait_until(lambda: remove(group), f"the end of the processes in {group}")


def is_systemd(pid):
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "systemd"
    return False


def cgroups():
    """Where the hierarchy of cgroup v2 is mounted."""
    command = ["findmnt", "--noheadings", "--first-only", "--output", "TARGET", "--types", "cgroup2"]
    return pathlib.Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def remove(group):
    """Removes a control group with all below it; false while there are processes in it."""
    folders = [path for path, _, _ in os.walk(group, topdown=False)]
    try:
        for folder in folders:
            os.rmdir(folder)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def clean(folder):
    """A Debian in `folder` as it was made; nothing remains of it after the block."""
    parts = {name: folder / name for name in ("root", "upper", "work")}
    for part in parts.values():
        part.mkdir()
    layers = f"lowerdir={ROOT},upperdir={parts['upper']},workdir={parts['work']}"
    subprocess.run(["mount", "-t", "overlay", "debian", "-o", layers, parts["root"]], check=True)
    try:
        yield Debian(parts["root"])
    finally:
        subprocess.run(["umount", parts["root"]], check=True)
