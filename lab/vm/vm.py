#!/usr/bin/env python3
"""A stock Debian kernel in a virtual machine, for features that this machine's kernel lacks, or that would harm this
machine: md and LVM, disks that go away, eBPF at functions of the kernel. QEMU in software emulation: the same on every
machine, a few seconds to boot, some thirty times slower than the machine.

    import vm
    done = vm.run("mdadm --version", files=["mdadm"], disks=[64, 64], modules=["raid1"])
    assert done.code == 0, done

    lab/vm/vm.py --file mdadm --disk 64 --module raid1 'cat /proc/mdstat'
"""

import argparse
import dataclasses
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KERNEL = HERE.parent / "bin/kernel"
QEMU = "qemu-system-x86_64"
BUSYBOX = "/bin/busybox"

# The modules of every machine: for its disks, and for the checksum of file systems.
MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic"]

# Four serial ports: the kernel's console, then standard output, standard error and the exit code of the script.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=dumb
for folder in /proc /sys /dev /tmp /run /root /mnt /var /var/tmp /etc; do mkdir -p $folder; done
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs trace /sys/kernel/tracing
mkdir -p /run/lock /dev/shm
ln -sf /proc/mounts /etc/mtab
ln -sf /proc/self/fd /dev/fd
echo 'root:x:0:0:root:/root:/bin/sh' > /etc/passwd
echo 'root:x:0:' > /etc/group
ip link set lo up
for port in 1 2 3; do stty -F /dev/ttyS$port raw; done
while read module; do insmod $module || echo "cannot load $module" > /dev/console; done < /modules
hwclock -s -u 2> /dev/null
cd /root
# Through pipes, so that no program takes the port for a person's terminal; whatever it left running holds them.
mkfifo /run/out /run/err
cat /run/out > /dev/ttyS1 &
cat /run/err > /dev/ttyS2 &
setsid sh -e /script < /dev/null > /run/out 2> /run/err &
script=$!
wait $script
code=$?
for process in /proc/[0-9]*; do
    [ "$(sed 's/.*) //' $process/stat | cut -d ' ' -f 4)" = $script ] && kill -9 ${process#/proc/}
done
wait
for disk in /sys/block/*; do
    [ "$(cat $disk/serial 2> /dev/null)" = lab-take ] && tar -c -f /dev/${disk##*/} -C / $(cat /take) 2> /dev/ttyS0
done
sync
echo "exit code $code" > /dev/ttyS3
poweroff -f
"""


class Unavailable(Exception):
    """This machine lacks what a virtual machine needs."""


class Failed(Exception):
    """The virtual machine did not reach the end of its script."""


@dataclasses.dataclass
class Done:
    """The result of a script."""

    code: int
    out: str
    err: str
    # The kernel's messages.
    console: str
    # Contents of the requested files, by path.
    taken: dict

    def __str__(self):
        return f"exit code {self.code}\n--- standard output\n{self.out}\n--- standard error\n{self.err}\n--- console, its end\n{self.console[-3000:]}"


def missing():
    """Why no virtual machine can run here, in words; empty if one can."""
    words = [f"{program} is not installed" for program in (QEMU, BUSYBOX) if not shutil.which(program)]
    if platform.machine() != "x86_64":
        words.append(f"programs of {platform.machine()} do not run in a machine of x86-64")
    if not (KERNEL / "ready").exists():
        words.append(f"no kernel in {KERNEL} (make -C lab kernel)")
    return ", ".join(words)


def program(name):
    """The path of a program that is installed here."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if not path:
        raise Unavailable(f"{name} is not installed")
    return path


def run(script, files=(), disks=(), memory=512, modules=(), processors=1, take=(), seconds=600):
    """Boots and runs `script` as root with `sh -e`. Returns its exit code, its output and the kernel's messages.

    `files`: names of programs (found in PATH, put into /bin), paths (put where they are here), or pairs of a path here
    and one there; shared libraries come along. The shell is busybox's, and takes its own programs before others of that
    name, unless they are named by their path (`/bin/setpriv`). `disks`: sizes in MiB of empty disks, or images; they are /dev/vda,
    /dev/vdb … `memory` in MiB. `modules` are loaded with what they need, in this order, before the script. `take`: paths
    whose contents are returned (better than printing long ones: a serial port is slow). `seconds`: how long it may
    take.

    Raises `Unavailable` if QEMU, busybox, the kernel or a program is missing, `Failed` if it does not end.
    """
    if words := missing():
        raise Unavailable(words)
    work = pathlib.Path(tempfile.mkdtemp(prefix="lab-vm-"))
    try:
        root = work / "root"
        fill(root, script, files, [*MODULES, *modules], take)
        images = []
        for number, disk in enumerate([*disks, *([64] if take else [])]):
            image = disk
            if isinstance(disk, int):
                image = work / f"disk{number}"
                with image.open("wb") as file:
                    file.truncate(disk << 20)
            serial = "lab-take" if take and number == len(disks) else f"lab-{number}"
            # Nobody needs it after a crash of this machine.
            images += [
                "-drive",
                f"file={image},format=raw,if=none,cache=unsafe,discard=unmap,id=disk{number}",
                "-device",
                f"virtio-blk-pci,drive=disk{number},serial={serial}",
            ]
        ports = [work / name for name in ("console", "out", "err", "code")]
        command = [
            # It takes a whole processor, and no test of it depends on time. Others do.
            "nice",
            "-n5",
            QEMU,
            "-machine",
            "pc",
            "-accel",
            "tcg",
            "-cpu",
            # Tables of pages with a level less are faster to emulate.
            "max,-la57",
            "-smp",
            str(processors),
            "-m",
            str(memory),
            "-display",
            "none",
            "-no-user-config",
            "-nodefaults",
            "-no-reboot",
            "-kernel",
            str(KERNEL / "vmlinuz"),
            "-initrd",
            str(pack(work, root)),
            "-append",
            # On a busy machine the timer's interrupts may come too late for the kernel's check, which would panic.
            "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off random.trust_cpu=on 8250.nr_uarts=4 no_timer_check",
            *images,
        ]
        for port in ports:
            command += ["-serial", f"file:{port}"]
        try:
            qemu = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            qemu = None
        console, out, err, code = (port.read_text(errors="replace") if port.exists() else "" for port in ports)
        if not (found := re.search(r"exit code (\d+)", code)):
            why = f"did not end within {seconds} s" if qemu is None else f"ended before its script did: {qemu.stderr}"
            raise Failed(f"the virtual machine {why}\n{Done(-1, out, err, console, {})}")
        return Done(int(found[1]), out, err, console, unpack(image) if take else {})
    finally:
        shutil.rmtree(work)


def fill(root, script, files, modules, take):
    """Makes the tree that the kernel boots into."""
    for folder in ("bin", "sbin", "root"):
        (root / folder).mkdir(parents=True)
    put(root, BUSYBOX, "/bin/busybox")
    for file in files:
        if isinstance(file, tuple):
            put(root, *file)
        elif "/" in str(file):
            put(root, os.path.abspath(file), os.path.abspath(file))
        else:
            put(root, program(file), f"/bin/{file}")
    with (root / "modules").open("w") as order:
        for module in module_order(modules):
            put(root, KERNEL / module, f"/{module}")
            order.write(f"/{module}\n")
    (root / "script").write_text(script)
    (root / "take").write_text(" ".join(path.lstrip("/") for path in take))
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)


def put(root, here, there):
    """Copies a file, or a folder, and the shared libraries that it is linked with."""
    target = root / str(there).lstrip("/")
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.isdir(here):
        shutil.copytree(here, target, symlinks=True)
        return
    shutil.copy(here, target)
    with open(here, "rb") as file:
        if file.read(4) != b"\x7fELF" or str(here).endswith(".ko"):
            return
    # It fails for static programs.
    listed = subprocess.run(["ldd", str(here)], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", listed):
        put(root, os.path.realpath(library), library)


def module_order(names):
    """Paths below the kernel's folder of these modules and of what they need, in the order of loading."""
    version = next((KERNEL / "lib/modules").iterdir())
    name_of = lambda path: pathlib.PurePath(path).name.removesuffix(".ko").replace("-", "_")
    needs = {}
    for line in (version / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[name_of(path)] = [path, *reversed(others.split())]
    builtin = {name_of(path) for path in (version / "modules.builtin").read_text().split()}
    order = []
    for name in names:
        name = name.replace("-", "_")
        if name in builtin:
            continue
        if name not in needs:
            raise Failed(f"the kernel has no module {name}")
        path, *others = needs[name]
        order += [module for module in (*others, path) if module not in order]
    return [(version / module).relative_to(KERNEL) for module in order]


def pack(work, root):
    """The archive that the kernel takes its first files from."""
    archive = work / "initramfs"
    names = subprocess.run(["find", ".", "-print0"], cwd=root, capture_output=True, check=True).stdout.replace(
        b"\0", b"\n"
    )
    with archive.open("wb") as file:
        subprocess.run(
            [BUSYBOX, "cpio", "-o", "-H", "newc", "-R", "0:0"],
            cwd=root,
            input=names,
            stdout=file,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return archive


def unpack(image):
    """The files of the archive that the script's machine wrote onto a disk."""
    try:
        with tarfile.open(image) as archive:
            return {f"/{member.name}": archive.extractfile(member).read() for member in archive if member.isfile()}
    except tarfile.TarError:
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("script")
    parser.add_argument("--file", action="append", default=[], metavar="NAME|PATH|HERE:THERE")
    parser.add_argument("--disk", action="append", type=int, default=[], help="MiB")
    parser.add_argument("--module", action="append", default=[])
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    options = parser.parse_args()
    files = [tuple(file.split(":")) if ":" in file else file for file in options.file]
    done = run(options.script, files, options.disk, options.memory, options.module)
    sys.stderr.write(done.console + done.err)
    sys.stdout.write(done.out)
    return done.code


if __name__ == "__main__":
    sys.exit(main())
