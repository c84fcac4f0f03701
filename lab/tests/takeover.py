"""Makes system calls inside a thread of another process, as somebody would who has taken it over.

The calls go through the filter, the Landlock rules, the user and the capabilities of that thread: what the kernel refuses
to it, it refuses here. For x86_64.
"""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import re
import signal
import socket
import struct
import time

SEIZE, INTERRUPT, GETREGS, SETREGS, SINGLESTEP, DETACH = 0x4206, 0x4207, 12, 13, 9, 17
WAIT_ALL = 0x40000000
SCRATCH = 4096

# Numbers of system calls.
CALLS = {
    "read": 0,
    "mmap": 9,
    "munmap": 11,
    "close": 3,
    "open": 2,
    "ioctl": 16,
    "sendto": 44,
    "sendmsg": 46,
    "truncate": 76,
    "chmod": 90,
    "setxattr": 188,
    "socket": 41,
    "connect": 42,
    "socketpair": 53,
    "clone": 56,
    "execve": 59,
    "kill": 62,
    "ptrace": 101,
    "setresuid": 117,
    "mount": 165,
    "unlink": 87,
    "unshare": 272,
    "perf_event_open": 298,
    "prlimit64": 302,
    "process_vm_readv": 310,
    "bpf": 321,
}

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    """`struct user_regs_struct` of x86_64."""

    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in (
            "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
            "fs_base gs_base ds es fs gs"
        ).split()
    ]


def trace(request, thread, address=None, data=None):
    if libc.ptrace(request, thread, address, data) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def place_of_a_call(process):
    """The address of an instruction in the process that makes a system call."""
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for line in maps:
            code = re.match(r"(\w+)-(\w+) r-xp .*(?:libc|ld-|mongosonar|\[vdso\])", line)
            if code:
                start, end = (int(part, 16) for part in code.groups())
                memory.seek(start)
                found = memory.read(end - start).find(b"\x0f\x05")
                if found >= 0:
                    return start + found
    raise AssertionError("no place for a system call")


class TakenThread:
    """A thread that is stopped and makes the calls that it is told to make."""

    def __init__(self, process, thread):
        self.process, self.thread = process, thread
        self.at = place_of_a_call(process)
        trace(SEIZE, thread)
        trace(INTERRUPT, thread)
        os.waitpid(thread, WAIT_ALL)
        self.registers = Registers()
        trace(GETREGS, thread, None, ctypes.addressof(self.registers))
        self.scratch = self.call("mmap", 0, SCRATCH, 3, 0x22, -1, 0)
        assert self.scratch > 0, "memory for arguments"
        self.used = 0

    def put(self, data):
        """Puts bytes where the thread finds them; returns their address."""
        data = bytes(data)
        address = self.scratch + self.used
        self.used += (len(data) + 15) // 8 * 8
        assert self.used <= SCRATCH
        with open(f"/proc/{self.process}/mem", "wb", buffering=0) as memory:
            memory.seek(address)
            memory.write(data)
        return address

    def get(self, address, length):
        """Bytes of the thread's memory."""
        with open(f"/proc/{self.process}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(length)

    def text(self, text):
        return self.put(os.fsencode(text) + b"\0")

    def call(self, name, *arguments):
        """Makes a call; returns its result, or the negative number of its error."""
        registers = Registers.from_buffer_copy(self.registers)
        registers.rip, registers.rax = self.at, CALLS[name]
        # Nothing is to be restarted.
        registers.orig_rax = 2**64 - 1
        for place, argument in zip("rdi rsi rdx r10 r8 r9".split(), [*arguments, *[0] * 6], strict=False):
            setattr(registers, place, argument % 2**64)
        trace(SETREGS, self.thread, None, ctypes.addressof(registers))
        while True:
            trace(SINGLESTEP, self.thread)
            _, status = os.waitpid(self.thread, WAIT_ALL)
            assert os.WIFSTOPPED(status), f"{name} ended the thread: {status:#x}"
            trace(GETREGS, self.thread, None, ctypes.addressof(registers))
            if registers.rip != self.at:
                break
        assert os.WSTOPSIG(status) == signal.SIGTRAP, os.WSTOPSIG(status)
        return ctypes.c_longlong(registers.rax).value

    def leave(self):
        self.call("munmap", self.scratch, SCRATCH)
        trace(SETREGS, self.thread, None, ctypes.addressof(self.registers))
        trace(DETACH, self.thread)


@contextlib.contextmanager
def taken(process, thread):
    """A thread to make calls in; it goes on at the end as if nothing had happened."""
    it = TakenThread(process, thread)
    try:
        yield it
    finally:
        it.leave()


@contextlib.contextmanager
def stopped(thread):
    """Stops one thread of a process; the others go on."""
    trace(SEIZE, thread)
    trace(INTERRUPT, thread)
    os.waitpid(thread, WAIT_ALL)
    try:
        yield
    finally:
        trace(DETACH, thread)


class Surroundings:
    """What a taken-over thread may try to reach: files, sockets, other processes. `folder` can be entered by all users."""

    def __init__(self, folder, victims, listener, local):
        self.folder, self.victims = folder, victims
        self.port = listener.getsockname()[1]
        self.local = local
        self.secret = folder / "of-root"
        self.secret.write_text("secret")
        self.secret.chmod(0o600)
        self.open = folder / "of-all"
        self.open.write_text("public")
        self.open.chmod(0o644)
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        self.local_address = struct.pack("<H", 1) + os.fsencode(local) + b"\0"
        self.address = struct.pack("<H", 2) + struct.pack(">H", self.port) + bytes([127, 0, 0, 1]) + bytes(8)


def opens(thread, path, flags=os.O_RDONLY, mode=0):
    number = thread.call("open", thread.text(path), flags, mode)
    if number < 0:
        return False
    thread.call("close", number)
    return True


def changes_permissions(thread, around):
    """Gives a file of root the mode that it has, and an attribute to whichever file it may."""
    attribute = thread.text("user.lab")
    attributes = [
        thread.call("setxattr", thread.text(path), attribute, attribute, 1, 0) for path in (around.secret, around.open)
    ]
    return thread.call("chmod", thread.text(around.secret), 0o600) == 0 or 0 in attributes


def cuts_by_name(thread, around):
    """Cuts files to the length that they have."""
    files = [around.secret, around.open]
    return any([thread.call("truncate", thread.text(path), path.stat().st_size) == 0 for path in files])


def connects(thread, around, domain):
    number = thread.call("socket", domain, 1, 0)
    if number < 0:
        return False
    address = around.local_address if domain == 1 else around.address
    done = thread.call("connect", number, thread.put(address), len(address))
    thread.call("close", number)
    return done == 0


# MSG_FASTOPEN
CONNECTING = 0x20000000


def sends(thread, around, kind, flags):
    """To an address, by a socket of this kind that was not connected before."""
    number = thread.call("socket", socket.AF_INET, kind, 0)
    if number < 0:
        return False
    sent = thread.call("sendto", number, thread.put(b"x"), 1, flags, thread.put(around.address), len(around.address))
    thread.call("close", number)
    return passes(sent)


# AF_PACKET, SOCK_RAW
PACKET, RAW = 17, 3


def sends_packets(thread, around):
    """To an interface of its choice, by a ring that it has open, which sends nothing then. Who has none tries it with a socket
    of his own."""
    numbers = rings(thread.process, thread.thread)
    made = thread.call("socket", PACKET, RAW, 0) if not numbers else -1
    # A type that is for local experiments; 6 is the length of an address.
    kind = socket.htons(0x88B5)
    to = struct.pack("=HHiHBB8s", PACKET, kind, socket.if_nametoindex("lo"), 0, 0, 6, bytes(8))
    frame = struct.pack("=12sH46s", b"", kind, b"")
    at, address = thread.put(frame), thread.put(to)
    sent = [thread.call("sendto", number, at, len(frame), 0, address, len(to)) for number in [*numbers, made]]
    if made >= 0:
        thread.call("close", made)
    return max(sent) == len(frame)


def rings(process, thread):
    """The numbers of the sockets that capture which a thread has open."""
    table = pathlib.Path(f"/proc/{process}/net/packet").read_text()
    of_rings = {row.split()[-1] for row in table.splitlines()[1:]}
    return [number for number, inode in sockets(f"{process}/task/{thread}") if str(inode) in of_rings]


def makes_socket(thread, *arguments):
    number = thread.call("socket", *arguments)
    if number >= 0:
        thread.call("close", number)
    return number >= 0


def sends_out(thread, around):
    """By a pair of datagram sockets to somebody else's."""
    numbers = thread.put(bytes(8))
    if thread.call("socketpair", 1, 2, 0, numbers) < 0:
        return False
    pair = struct.unpack("<ii", thread.get(numbers, 8))
    sent = thread.call("sendto", pair[0], numbers, 1, 0, thread.put(around.local_address), len(around.local_address))
    for number in pair:
        thread.call("close", number)
    # A stream listens there, which is another error.
    return sent >= 0 or -sent == errno.EPROTOTYPE


def reads_memory(thread, victim):
    here = thread.put(struct.pack("<QQ", thread.put(bytes(8)), 8))
    there = thread.put(struct.pack("<QQ", victim.address, 8))
    return thread.call("process_vm_readv", victim.pid, here, 1, there, 1, 0) == 8


def creates_map(thread):
    # BPF_MAP_CREATE: an array with one entry of four bytes.
    attributes = thread.put(struct.pack("<IIII", 2, 4, 4, 1) + bytes(112))
    number = thread.call("bpf", 0, attributes, 128)
    if number >= 0:
        thread.call("close", number)
    return number >= 0


# Commands of bpf(2).
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, MAP_DELETE, OBJECT_INFO = 0, 1, 2, 3, 15


class Map:
    """A map that a thread has open."""

    def __init__(self, thread, number):
        self.thread, self.number = thread, number
        thread.used = 0
        info = thread.put(bytes(88))
        thread.call("bpf", OBJECT_INFO, thread.put(struct.pack("<IIQ", number, 88, info) + bytes(112)), 128)
        self.type, _, self.key_size, self.value_size = struct.unpack("<IIII", thread.get(info, 16))
        self.name = thread.get(info + 24, 16).split(b"\0")[0].decode()

    def do(self, command, key, value):
        """Lookup, update or delete; returns the error, and the value."""
        self.thread.used = 0
        at = self.thread.put(value)
        attributes = struct.pack("<IIQQQ", self.number, 0, self.thread.put(key), at, 0)
        result = self.thread.call("bpf", command, self.thread.put(attributes + bytes(96)), 128)
        return result, self.thread.get(at, len(value))

    def takes(self, victims):
        """Whether an entry can be written. Of a table of processes it is one of somebody else's, which is taken out again."""
        if not self.key_size or self.value_size > SCRATCH // 2:
            return False
        is_of_processes = self.name.endswith("_processes")
        key = struct.pack("<I", victims[0].pid) if is_of_processes else bytes(self.key_size)
        failed, value = self.do(MAP_LOOKUP, key, bytes(self.value_size))
        # What is there stays as it is.
        value = value if not failed else b"\1".ljust(self.value_size, b"\0")
        is_written = self.do(MAP_UPDATE, key, value)[0] == 0
        if is_written and failed:
            self.do(MAP_DELETE, key, b"")
        return is_written


def has_memory_copied(thread, around):
    """Has the eBPF programs that copy stacks and plaintext follow others, by the tables of processes, the states of their
    threads, or any other map of theirs. Who has none tries it with a map of his own."""
    numbers = open_maps(f"{thread.process}/task/{thread.thread}")
    opened = [Map(thread, number) for number in numbers]
    written = [one.name for one in opened if one.name.startswith(("split_", "tls_")) and one.takes(around.victims)]
    if numbers:
        return bool(written)
    thread.used = 0
    made = thread.call("bpf", MAP_CREATE, thread.put(struct.pack("<IIII", 2, 4, 4, 1) + bytes(112)), 128)
    if made < 0:
        return False
    is_written = Map(thread, made).takes(around.victims)
    thread.call("close", made)
    return is_written


def peer(inode):
    """The inode of the other end of a local socket; `None` if it has none (linux/unix_diag.h)."""
    show_peer, of_peer, own = 4, 2, 2**32 - 1
    request = struct.pack("<BBHIII2I", socket.AF_UNIX, 0, 0, own, inode, show_peer, own, own)
    # SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST
    request = struct.pack("<IHHII", 16 + len(request), 20, 1, 1, 0) + request
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diagnosis:
        diagnosis.send(request)
        answer = diagnosis.recv(4096)
    length, at = struct.unpack_from("<I", answer)[0], 32
    while at + 8 <= length:
        size, kind, value = struct.unpack_from("<HHI", answer, at)
        if kind == of_peer:
            return value
        at += (size + 3) // 4 * 4
    return None


def socket_to(process, other):
    """The number by which a process has the socket that leads to another one."""
    theirs = {inode for _, inode in sockets(other)}
    # There may be several numbers of the same socket.
    return min(number for number, inode in sockets(process) if peer(inode) in theirs)


def sockets(process):
    for link in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link))
            if found:
                yield int(link.name), int(found[1])


# Of a question that nobody else asks.
OWN_QUESTION = 2**63


def ask(thread, number, question):
    """Asks a helper by the socket of this number; returns what it says, and how many files it hands out."""
    thread.used = 0
    text = json.dumps(question).encode()
    sent = struct.pack("<QI", OWN_QUESTION, len(text)) + text
    assert thread.call("sendto", number, thread.put(sent), len(sent), 0, 0, 0) == len(sent)

    def received(length):
        got = b""
        while len(got) < length:
            at = thread.put(bytes(length - len(got)))
            count = thread.call("read", number, at, length - len(got))
            # The process may have set a time after which it waits no longer.
            assert count > 0 or count == -errno.EAGAIN, os.strerror(-count)
            got += thread.get(at, max(count, 0))
            thread.used = 0
        return got

    while True:
        asked, length, files = struct.unpack("<QII", received(16))
        said = received(length)
        # A byte comes with each file, which is closed because nobody takes it.
        received(files)
        if asked == OWN_QUESTION:
            return json.loads(said), files


def open_maps(process):
    """The numbers of the eBPF maps that a process has open."""
    found = []
    for link in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(link) == "anon_inode:bpf-map":
                found.append(int(link.name))
    return sorted(found)


def counts_events(thread, victim):
    # Software event: the processor's clock; without the kernel.
    attributes = thread.put(struct.pack("<IIQ", 1, 128, 0) + bytes(24) + struct.pack("<Q", 1 << 5) + bytes(80))
    number = thread.call("perf_event_open", attributes, victim.pid, -1, -1, 0)
    if number >= 0:
        thread.call("close", number)
    return number >= 0


def passes(result, refused=(errno.EPERM, errno.EACCES, errno.ENOSYS)):
    """Whether a call that the kernel cannot carry out came as far as that."""
    return -result not in refused


def of_any(victims, call):
    return any([call(victim) for victim in victims])


# What is tried, in the words of the table.
ATTEMPTS = {
    "read files of all users": lambda thread, around: opens(thread, around.open),
    "read files of root": lambda thread, around: opens(thread, around.secret),
    "read `/proc`": lambda thread, around: opens(thread, f"/proc/{around.victims[0].pid}/stat"),
    "read memory of others in `/proc`": lambda thread, around: of_any(
        around.victims, lambda victim: opens(thread, f"/proc/{victim.pid}/mem")
    ),
    "create files": lambda thread, around: opens(thread, around.shared / "new", os.O_CREAT | os.O_WRONLY, 0o600),
    "change permissions of files": changes_permissions,
    # FS_IOC_ENABLE_VERITY
    "make files unchangeable": lambda thread, around: passes(thread.call("ioctl", -1, 0x40806685, 0)),
    "cut files by name": cuts_by_name,
    "connect by TCP": lambda thread, around: any(
        [connects(thread, around, 2), sends(thread, around, socket.SOCK_STREAM, CONNECTING)]
    ),
    "connect to local sockets": lambda thread, around: connects(thread, around, 1),
    "send datagrams to anybody": lambda thread, around: any(
        [sends_out(thread, around), sends(thread, around, socket.SOCK_DGRAM, 0)]
    ),
    "pass descriptors on": lambda thread, around: passes(thread.call("sendmsg", -1, 0, 0)),
    "open packet sockets": lambda thread, around: makes_socket(thread, PACKET, RAW, 0),
    "send packets to any interface": sends_packets,
    "send signals": lambda thread, around: of_any(
        around.victims, lambda victim: thread.call("kill", victim.pid, 0) == 0
    ),
    "change limits of others": lambda thread, around: of_any(
        around.victims, lambda victim: thread.call("prlimit64", victim.pid, 7, 0, thread.put(bytes(16))) == 0
    ),
    "debug others": lambda thread, around: of_any(
        around.victims, lambda victim: thread.call("ptrace", SEIZE, victim.pid, 0, 0) == 0
    ),
    "read memory of others": lambda thread, around: of_any(around.victims, lambda victim: reads_memory(thread, victim)),
    "make eBPF maps": lambda thread, around: creates_map(thread),
    "have eBPF programs copy memory of others": has_memory_copied,
    "open perf events of others": lambda thread, around: of_any(
        around.victims, lambda victim: counts_events(thread, victim)
    ),
    "mount": lambda thread, around: passes(
        thread.call("mount", 0, thread.text(around.folder / "none"), thread.text("tmpfs"), 0, 0)
    ),
    "make namespaces": lambda thread, around: passes(thread.call("unshare", -1)),
    "start programs": lambda thread, around: passes(thread.call("execve", thread.text(around.folder / "none"), 0, 0)),
    # CLONE_SIGHAND without CLONE_VM is an error of its own.
    "start processes": lambda thread, around: passes(thread.call("clone", 0x800 | signal.SIGCHLD, 0, 0, 0, 0)),
    "become root": lambda thread, around: thread.call("setresuid", 0, 0, 0) == 0,
}


def descriptors(process, thread):
    """The kinds of what a thread has open, but for standard input, output and error. What it just reads and closes again
    is not there each time."""
    found = open_now(process, thread)
    for _ in range(2):
        # span: between two looks
        time.sleep(0.1)
        found &= open_now(process, thread)
    return found


def open_now(process, thread):
    kinds = set()
    for link in pathlib.Path(f"/proc/{process}/task/{thread}/fd").iterdir():
        number = int(link.name)
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(link)
            if number <= 2:
                continue
            kinds.add(kind(f"{process}/task/{thread}", number, target))
    return kinds - {None}


# SYS_kcmp, KCMP_FILES
COMPARE, TABLES_OF_DESCRIPTORS = 312, 2


def has_own_descriptors(process, thread):
    """Whether a thread shares no table of descriptors with the main thread of its process."""
    order = libc.syscall(COMPARE, process, thread, TABLES_OF_DESCRIPTORS, 0, 0)
    assert order >= 0, os.strerror(ctypes.get_errno())
    return order != 0


MAP_RINGBUF = 27


def kind(task, number, target):
    """The kind of a descriptor of a process, or of a thread with a table of its own."""
    if target.startswith("socket:"):
        return of_socket(task, target[8:-1])
    if target == "anon_inode:bpf-map":
        about = pathlib.Path(f"/proc/{task}/fdinfo/{number}").read_text()
        is_ring = f"map_type:\t{MAP_RINGBUF}\n" in about
        return "a ring of eBPF programs" if is_ring else "maps of eBPF programs"
    if target in ("anon_inode:bpf-prog", "anon_inode:bpf_link", "anon_inode:[perf_event]", "anon_inode:bpf-link"):
        return "eBPF programs and probes"
    if target.startswith("anon_inode:[pidfd]"):
        return "handles of servers' processes"
    if target.startswith(("anon_inode:btf", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "pipe:")):
        return None
    if target.startswith("/proc/") or target.startswith("/sys/"):
        return "files of `/proc` and `/sys`"
    if target == "/dev/null":
        return None
    return "files" if target.startswith("/") else target


def of_socket(task, inode):
    for table, kind in [("packet", "packet sockets"), ("unix", "a socket pair to its other side")]:
        if re.search(rf"\b{inode}\b", pathlib.Path(f"/proc/{task}/net/{table}").read_text()):
            return kind
    return "sockets"
