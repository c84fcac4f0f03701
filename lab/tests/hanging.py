"""A file system that stops answering, as one over a network or on a broken disk does.

It is a FUSE server in Python that passes everything on to another folder, and that a test stops with SIGSTOP. As a program:
`python hanging.py MOUNTPOINT FOLDER`; it prints `ready` once it is mounted. With `--hang-at-close` it answers everything but
that a file is closed.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import select
import signal
import struct
import subprocess
import sys

MAX_WRITE = 128 << 10
ROOT = 1
IN = struct.Struct("<IIQQIIIHH")
OUT = struct.Struct("<IiQ")

# linux/fuse.h
LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR, RENAME = 1, 2, 3, 4, 9, 10, 11, 12
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR = 14, 15, 16, 17, 18, 20, 25, 26, 27, 28
RELEASEDIR, FSYNCDIR, CREATE, INTERRUPT, DESTROY, BATCH_FORGET, RENAME2 = 29, 30, 35, 36, 38, 42, 45
SET_MODE, SET_UID, SET_GID, SET_SIZE = 1, 2, 4, 8


def name_of(data):
    return os.fsdecode(data.split(b"\0", 1)[0])


class Server:
    """Answers the kernel's requests with what is in `folder`. Nothing is cached, so that the kernel asks each time."""

    def __init__(self, device, folder, hang_at_close=False):
        self.device, self.paths, self.opened = device, {ROOT: folder}, {}
        self.hang_at_close = hang_at_close

    def attributes(self, found):
        times = [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns]
        seconds, rest = [at // 10**9 for at in times], [at % 10**9 for at in times]
        device = os.makedev(0, 0)
        fields = [found.st_mode, found.st_nlink, found.st_uid, found.st_gid, device, 4096, 0]
        return struct.pack("<6Q10I", found.st_ino, found.st_size, found.st_blocks, *seconds, *rest, *fields)

    def entry(self, path):
        found = os.lstat(path)
        self.paths[found.st_ino] = path
        return struct.pack("<4Q2I", found.st_ino, 0, 0, 0, 0, 0) + self.attributes(found)

    def stat(self, node):
        """Also of a file that was removed while it is open."""
        of_file = [descriptor for descriptor, of in self.opened.items() if of == node]
        try:
            return os.lstat(self.paths[node])
        except (OSError, KeyError):
            if of_file:
                return os.fstat(of_file[0])
            raise

    def open(self, node, path, flags, mode=0):
        descriptor = os.open(path, flags & ~os.O_NOFOLLOW, mode)
        self.opened[descriptor] = node or os.fstat(descriptor).st_ino
        return descriptor

    def answer(self, code, node, data):
        path = self.paths.get(node)
        within = lambda rest: os.path.join(path, name_of(rest))
        if code == INIT:
            major, minor, ahead, _ = struct.unpack_from("<4I", data)
            # Reads at a time of their own, and large writes.
            head = struct.pack("<4I2H2I2H", 7, min(minor, 31), ahead, 0x21, 16, 12, MAX_WRITE, 1, 0, 0)
            return head.ljust(64, b"\0")
        if code == LOOKUP:
            return self.entry(within(data))
        if code == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self.attributes(self.stat(node))
        if code == SETATTR:
            valid, _, _, size = struct.unpack_from("<IIQQ", data)
            mode, _, user, group = struct.unpack_from("<4I", data, 68)
            if valid & SET_SIZE:
                os.truncate(path, size)
            if valid & SET_MODE:
                os.chmod(path, mode & 0o7777)
            if valid & (SET_UID | SET_GID):
                os.chown(path, user if valid & SET_UID else -1, group if valid & SET_GID else -1)
            return struct.pack("<QII", 0, 0, 0) + self.attributes(self.stat(node))
        if code in (OPEN, OPENDIR):
            (flags,) = struct.unpack_from("<I", data)
            descriptor = self.open(node, path, os.O_RDONLY | os.O_DIRECTORY if code == OPENDIR else flags)
            return struct.pack("<QIi", descriptor, 0, 0)
        if code == CREATE:
            flags, mode, mask, _ = struct.unpack_from("<4I", data)
            created = within(data[16:])
            descriptor = self.open(None, created, flags | os.O_CREAT, mode & ~mask)
            return self.entry(created) + struct.pack("<QIi", descriptor, 0, 0)
        if code == READ:
            descriptor, offset, size = struct.unpack_from("<QQI", data)
            return os.pread(descriptor, size, offset)
        if code == WRITE:
            descriptor, offset, size = struct.unpack_from("<QQI", data)
            return struct.pack("<II", os.pwrite(descriptor, data[40 : 40 + size], offset), 0)
        if code == READDIR:
            _, offset, size = struct.unpack_from("<QQI", data)
            listed = b""
            for at, name in enumerate(sorted(os.listdir(path))[offset:], offset + 1):
                text = os.fsencode(name)
                one = struct.pack("<QQII", os.lstat(os.path.join(path, name)).st_ino, at, len(text), 0) + text
                one += bytes(-len(one) % 8)
                if len(listed) + len(one) > size:
                    break
                listed += one
            return listed
        if code in (RELEASE, RELEASEDIR):
            (descriptor,) = struct.unpack_from("<Q", data)
            self.opened.pop(descriptor, None)
            os.close(descriptor)
            return b""
        # It does not want to know of each close (FLUSH). With a server that does, the kernel lets no process end that has a
        # file open here, until the server answers or ends.
        if code in (FSYNC, FSYNCDIR):
            if code == FSYNC:
                os.fdatasync(struct.unpack_from("<Q", data)[0])
            return b""
        if code == MKDIR:
            mode, mask = struct.unpack_from("<II", data)
            made = within(data[8:])
            os.mkdir(made, mode & ~mask)
            return self.entry(made)
        if code in (UNLINK, RMDIR):
            (os.unlink if code == UNLINK else os.rmdir)(within(data))
            return b""
        if code in (RENAME, RENAME2):
            (to,) = struct.unpack_from("<Q", data)
            if code == RENAME2 and struct.unpack_from("<I", data, 8)[0]:
                raise OSError(errno.EINVAL, "it cannot exchange files")
            old, new = data[8 if code == RENAME else 16 :].split(b"\0")[:2]
            target = os.path.join(self.paths[to], os.fsdecode(new))
            os.rename(within(old), target)
            self.paths[os.lstat(target).st_ino] = target
            return b""
        if code == STATFS:
            found = os.statvfs(path)
            numbers = [found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree]
            return struct.pack("<5Q4I24x", *numbers, found.f_bsize, found.f_namemax, found.f_frsize, 0)
        raise OSError(errno.ENOSYS, "no such request here")

    def serve(self):
        waiting = select.poll()
        for one in (self.device, sys.stdin.fileno()):
            waiting.register(one, select.POLLIN)
        while True:
            if sys.stdin.fileno() in [one for one, _ in waiting.poll()]:
                # Between two requests: of one that the server has read, the kernel does not even let a killed process go.
                if not os.read(sys.stdin.fileno(), 1):
                    return
                os.kill(os.getpid(), signal.SIGSTOP)
                continue
            try:
                request = os.read(self.device, MAX_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                # It was unmounted.
                return
            _, code, unique, node, *_ = IN.unpack_from(request)
            if code in (FORGET, BATCH_FORGET, INTERRUPT) or (code == FLUSH and self.hang_at_close):
                continue
            try:
                body, failed = self.answer(code, node, request[IN.size :]), 0
            except (OSError, KeyError) as error:
                body, failed = b"", -(getattr(error, "errno", None) or errno.ENOENT)
            with contextlib.suppress(OSError):
                os.write(self.device, OUT.pack(OUT.size + len(body), failed, unique) + body)


def mount(point, folder, *options_of_server):
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hanging", os.fsencode(point), b"fuse.hanging", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "cannot mount")
    print("ready here", flush=True)
    Server(device, folder, "--hang-at-close" in options_of_server).serve()


class HangingFiles:
    """A mounted file system."""

    def __init__(self, child, point, folder):
        self.child, self.point, self.folder = child, point, folder

    def stop(self):
        """Lets it answer nothing from now on."""
        self.child.stdin.write(b"s")
        self.child.stdin.flush()
        os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self):
        os.kill(self.child.pid, signal.SIGCONT)


@contextlib.contextmanager
def hanging_files(point, folder, *options):
    """Creates `folder` and `point`, and shows the content of `folder` at `point`. Read `folder` to see the files without the
    server. `options` are those of the program. At the end nothing waits for the file system any more: its server is killed, and the kernel answers with
    errors."""
    import pytest

    if not os.path.exists("/dev/fuse") or os.geteuid() != 0:
        pytest.skip("no FUSE here")
    point, folder = pathlib.Path(point), pathlib.Path(folder)
    for one in (point, folder):
        one.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, str(point), str(folder), *options]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if not child.stdout.readline().startswith(b"ready"):
            pytest.skip(f"FUSE cannot be used here: {child.stderr.read().decode()[-200:]}")
        yield HangingFiles(child, point, folder)
    finally:
        child.kill()
        child.wait()
        subprocess.run(["umount", "-l", str(point)], capture_output=True)


if __name__ == "__main__":
    mount(*sys.argv[1:])
