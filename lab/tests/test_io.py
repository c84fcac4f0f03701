"""`mongosonar io` over real WiredTiger: a collection in the order of `_id` and in hashed order, read in its own order and
through its `_id` index. The program's own output is the oracle of the accesses, and the verdict must match them.
strace is the oracle of single calls, the kernel's counters are that of the totals."""

import collections
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import labkit
import vm
from labkit import MONGOSONAR, process, wait_until

LAB = pathlib.Path(__file__).resolve().parent.parent
STUDY, ORACLE = LAB / "bin/study", LAB / "bin/io-oracle"
COUNT = (
    120_000  # documents of 3.5 KB on average: 400 MB, the cache a 14th of it; with less WiredTiger evicts what it walks
)
CACHE_MB = 30

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="tracing needs root")
rarely = pytest.mark.skipif(
    not os.environ.get("LONG"),
    reason="it computes for a quarter of a minute in an emulated machine; LONG=1 lets it run",
)


def drop_from_cache(folder):
    """Only its files leave the page cache: other tests need theirs."""
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fdatasync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def traced(command, recording, folder, cold=True):
    """Runs a program that waits for a tracer, and records it. Returns the report and the program's output."""
    if cold:
        drop_from_cache(folder)
    program = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "WAIT": "1"},
    )
    try:
        assert program.stdout.readline() == "ready\n"
        tracer = subprocess.Popen(
            [MONGOSONAR, "io", "record", "--pid", str(program.pid), "--dbpath", str(folder), str(recording)],
            stderr=subprocess.PIPE,
            text=True,
        )
        output = tracer.stderr.readline()
        if "Ctrl-C ends it" not in output:
            tracer.wait()
            assert any(word in output for word in ("permission", "BTF", "cannot load")), output
            pytest.skip(f"nothing can be traced here: {output}")
        out, _ = program.communicate("go\n")
        tracer.wait()
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0 and tracer.returncode == 0
    return report(recording), out


def report(recording):
    analysis = labkit.document("io", "report", "--json", recording)
    assert not any(analysis["lost"].values()), analysis["lost"]
    return analysis


def in_order(verdict, case=None):
    """On a busy machine WiredTiger evicts the page of the cursor and reads it again. The order is still the disk's,
    and the verdict distinguishes the two."""
    assert verdict["finding"] in ("sequential_pass", "read_again"), (case, verdict)
    assert verdict["far_share"] < 0.1, (case, verdict)


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    if not STUDY.exists():
        pytest.skip("the study was not built: libwiredtiger-dev is not installed")
    folder = tmp_path_factory.mktemp("wiredtiger")
    for order in ("ordered", "hashed"):
        subprocess.run([STUDY, "make", folder / order, order, str(COUNT)], check=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_verdicts_over_real_wiredtiger(databases, tmp_path):
    found, sums = {}, set()
    for order in ("ordered", "hashed"):
        for walk in ("pass", "fetch"):
            analysis, out = traced(
                [STUDY, walk, databases / order, CACHE_MB], tmp_path / f"{order}-{walk}.msio", databases / order
            )
            what, records, _, _, sum_ = out.split()[-5:]
            assert (what, records) == (walk, str(COUNT))
            sums.add(sum_)
            found[order, walk] = analysis["verdict"]
    assert len(sums) == 1, "all of them read the same documents"
    for case, verdict in found.items():
        assert verdict["path"].endswith("collection-2-1.wt"), case
        # The whole collection was read; only once if the order is the disk's.
        assert verdict["touched_bytes"] > 100 << 20, case
        if case == ("hashed", "fetch"):
            assert verdict["finding"] == "index_fetch" and verdict["index_path"].endswith("index-3-1.wt")
            assert verdict["randomness"] > 0.9 and verdict["amplification"] > 4
        else:
            in_order(verdict, case)
            assert case[1] == "fetch" or verdict["finding"] == "sequential_pass" and verdict["amplification"] < 1.1, (
                case
            )


def test_reordering_helps_and_a_rebuild_does_not(databases, tmp_path):
    folder = databases / "hashed"
    fetch = [STUDY, "fetch", folder, CACHE_MB]
    subprocess.run([STUDY, "rebuild", folder], check=True)
    analysis, _ = traced(fetch, tmp_path / "rebuilt.msio", folder)
    assert analysis["verdict"]["finding"] == "index_fetch", "a plain rebuild of _id does not help"
    subprocess.run([STUDY, "reorder", folder], check=True)
    analysis, out = traced(fetch, tmp_path / "reordered.msio", folder)
    in_order(analysis["verdict"])
    assert out.split()[-4] == str(COUNT)
    analysis, _ = traced([STUDY, "pass", folder, CACHE_MB], tmp_path / "pass.msio", folder)
    assert analysis["verdict"]["finding"] == "sequential_pass"
    compared = labkit.document("io", "compare", "--json", tmp_path / "rebuilt.msio", tmp_path / "pass.msio")
    files = {file["name"]: file for file in compared["files"]}
    assert files["collection-2-1.wt"]["reads"]["ratio"] < 0.3


def test_the_recording_contains_exactly_the_accesses(tmp_path):
    """Sequential, strided, backward, random, vectored, io_uring, several threads, mapped."""
    if not ORACLE.exists():
        pytest.skip("the oracle was not built: liburing-dev is not installed")
    data = tmp_path / "data"
    data.write_bytes(os.urandom(16 << 20))
    analysis, out = traced([ORACLE, data], tmp_path / "oracle.msio", tmp_path)
    expected = sorted(tuple(line.split()) for line in out.splitlines() if line[0].isalpha() and line != "ready")
    done = labkit.run("io", "report", "--each", tmp_path / "oracle.msio")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    at = {name: rows[0].index(name) for name in ("kind", "offset", "asked", "given")}
    seen = [tuple(row[at[name]] for name in ("kind", "offset", "asked", "given")) for row in rows[1:]]
    assert sorted(access for access in seen if access[0] != "fault") == expected
    # Each page of the mapped part was loaded by a fault, or together with such a page.
    faults = {int(access[1]) for access in seen if access[0] == "fault"}
    assert faults and all(8 << 20 <= offset < 12 << 20 for offset in faults)
    way = analysis["info"]["way"]
    assert ("page faults" in way) or len(faults) >= 1


# Reads and writes of all kinds by four threads, after each line on its standard input.
WORKLOAD = """
import os, random, sys, threading
file = os.open(sys.argv[1], os.O_RDWR)
def thread(seed):
    chance = random.Random(seed)
    for n in range(300):
        place = chance.randrange(4096) * 4096
        what = chance.randrange(12)
        if what < 8:
            os.pread(file, 1 + chance.randrange(16384), place)
        elif what == 8:
            os.preadv(file, [bytearray(100), bytearray(5000)], place + 7)
        elif what == 9:
            os.pwrite(file, b"x" * (1 + chance.randrange(8192)), place)
        elif what == 10:
            os.pwritev(file, [b"x" * 10, b"y" * 20], place + 1)
        else:
            os.pread(file, 4096, 1 << 40)
print("ready", flush=True)
for line in sys.stdin:
    threads = [threading.Thread(target=thread, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    os.lseek(file, 12345, os.SEEK_SET)
    while os.read(file, 65536):
        pass
    os.lseek(file, 999, os.SEEK_SET)
    os.readv(file, [bytearray(5), bytearray(6)])
    os.write(file, b"z" * 77)
    os.writev(file, [b"a" * 5, b"b" * 6])
    os.fsync(file)
    os.fdatasync(file)
    print("done", flush=True)
"""
KINDS = {
    "read": "read",
    "pread64": "read",
    "readv": "read",
    "preadv": "read",
    "preadv2": "read",
    "write": "write",
    "pwrite64": "write",
}
KINDS |= {"writev": "write", "pwritev": "write", "pwritev2": "write", "fsync": "fsync", "fdatasync": "fdatasync"}


def straced(path):
    """The calls of `strace -f -y -s 4`: thread, open file, kind, offset (None for the file position), length, result."""
    calls, begun = [], {}
    for line in path.read_text().splitlines():
        thread, rest = line.split(maxsplit=1)
        if rest.endswith("<unfinished ...>"):
            begun[thread] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", rest):
            rest = begun.pop(thread) + resumed[1]
        if not (call := re.fullmatch(r"(\w+)\(\d+<(.*?)>(.*)\) += (-?\d+).*", rest)):
            assert rest.endswith("<detached ...>") or rest.startswith(("---", "+++")), line
            continue
        name, target, result = call[1], call[2], int(call[4])
        arguments = re.sub(r'"(?:[^"\\]|\\.)*"', '""', call[3])
        numbers = re.findall(r"(?<=, )-?\d+", re.sub(r"\[.*\]", "", arguments))
        lengths = [int(length) for length in re.findall(r"iov_len=(\d+)", arguments)]
        kind, asked, offset = KINDS[name], 0, None
        if kind in ("read", "write"):
            asked = sum(lengths) if lengths else int(numbers[0])
            # The last argument of preadv2 is its flags.
            offset = int(numbers[-2 if name.endswith("2") else -1]) if name.startswith("p") else None
        calls.append((int(thread), target, kind, offset, asked, result))
    assert not begun, begun
    return calls


def accounted(pid):
    """The kernel's counters of a process (proc_pid_io(5)), and its major faults."""
    lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
    counts = {name: int(value) for name, value in (line.split(": ") for line in lines)}
    counts["majflt"] = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])
    return counts


def waits_for_its_input(pid):
    call = pathlib.Path(f"/proc/{pid}/syscall").read_text().split()
    return call[0] != "running" and int(call[1], 0) == 0


def test_calls_agree_with_strace_and_totals_with_the_kernel(tmp_path):
    """One run, observed by all three: strace, `/proc/PID/io` and a recording."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    data, list_, recording = tmp_path / "data", tmp_path / "strace", tmp_path / "reads.msio"
    data.write_bytes(os.urandom(16 << 20))
    strace_errors = tmp_path / "strace.err"
    with process(
        ["python3", "-S", "-c", WORKLOAD, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout.readline() == "ready\n"
        wait_until(lambda: waits_for_its_input(program.pid), "the program's wait")
        # Drop it from the page cache, as far as possible.
        with open(data, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        calls = ["strace", "-f", "-y", "-s", "4", "-e", "trace=" + ",".join(KINDS), "-o", list_, "-p", program.pid]
        record = [MONGOSONAR, "io", "record", "--pid", str(program.pid), str(recording)]
        with open(strace_errors, "wb") as stderr, process(calls, stderr=stderr) as strace:
            output = lambda: strace_errors.read_text()
            wait_until(lambda: "attached" in output() or strace.poll() is not None, "strace")
            if strace.poll() is not None:
                pytest.skip(f"strace cannot attach here: {output()}")
            with process(record, stderr=subprocess.PIPE, text=True) as tracer:
                line = tracer.stderr.readline()
                if "Ctrl-C ends it" not in line:
                    assert any(word in line for word in ("permission", "BTF", "cannot load")), line
                    pytest.skip(f"nothing can be traced here: {line}")
                before = accounted(program.pid)
                program.stdin.write("go\n")
                program.stdin.flush()
                assert program.stdout.readline() == "done\n"
                wait_until(lambda: waits_for_its_input(program.pid), "the program's wait")
                after = accounted(program.pid)
                tracer.send_signal(signal.SIGINT)
                assert tracer.wait(60) == 0
            strace.send_signal(signal.SIGINT)
            strace.wait(60)
        program.stdin.close()
        assert program.wait(60) == 0

    expected = straced(list_)
    report(recording)  # nothing was lost
    done = labkit.run("io", "report", "--each", recording)
    header, *lines = (line.split("\t") for line in done.stdout.splitlines())
    rows = [dict(zip(header, line)) for line in lines]
    assert {row["file"] for row in rows} == {str(data)}

    # Compare call by call for each thread. strace shows no offset for calls at the file position.
    seen, listed = collections.defaultdict(list), collections.defaultdict(list)
    for row in rows:
        given = -int(row["error"]) or int(row["given"])
        seen[int(row["thread"])].append((row["kind"], int(row["offset"]), int(row["asked"]), given))
    for thread, target, kind, offset, asked, result in expected:
        if target == str(data):
            own = (
                seen[thread][len(listed[thread])][1]
                if offset is None and len(listed[thread]) < len(seen[thread])
                else offset
            )
            listed[thread].append((kind, own, asked, result))
    assert len(seen) == 5 and sum(map(len, seen.values())) > 1200
    assert seen == listed
    assert set(row["kind"] for row in rows) == {"read", "write", "fsync", "fdatasync"}

    # The kernel also counts the calls on pipes that strace shows, and no others.
    delta = {name: after[name] - before[name] for name in after}
    for kind, count, size in (("read", "syscr", "rchar"), ("write", "syscw", "wchar")):
        elsewhere = [call for call in expected if call[2] == kind and call[1] != str(data)]
        own = [row for row in rows if row["kind"] == kind]
        assert all(call[1].startswith("pipe:") for call in elsewhere), elsewhere
        assert delta[count] == len(own) + len(elsewhere)
        assert delta[size] == sum(int(row["given"]) for row in own) + sum(call[5] for call in elsewhere)
    # Loading a page of the interpreter again is not an access to the file.
    device = sum(int(row["device_bytes"]) for row in rows)
    assert device <= delta["read_bytes"] if delta["majflt"] else device == delta["read_bytes"]
    kind = subprocess.run(["stat", "-f", "-c", "%T", data], capture_output=True, text=True, check=True).stdout.strip()
    assert device > 4 << 20 or kind in ("tmpfs", "ramfs"), (device, kind)


@pytest.mark.vm
@rarely
def test_a_missed_end_does_not_blind_a_thread_on_a_stock_kernel():
    """Runs the library's test where fentry works: it detaches the programs that see ends for one access."""
    program = labkit.tests_of_sonar_sys()
    test = "ebpf::tests::an_access_whose_end_was_missed_is_replaced_by_the_next"
    done = vm.run(f"library-test --exact {test} --nocapture 2>&1", files=[(program, "/bin/library-test")])
    assert done.code == 0 and "1 passed" in done.out and "skipped" not in done.out, done


# A shell that reads files, each closed at once. It forks nothing: a child would be followed as a mongod too.
READS = "read go; while [ $1 != --dbpath ]; do n=0; while [ $n != 100 ]; do n=$((n + 1)); read line < /mnt/db/db$1/collection-$n.wt; done; shift; done; read go"

# Each runs in the same virtual machine, which takes a while to boot. The clock is set last.
BOTH_WAYS = """
head -c 16777216 /dev/urandom > /mnt/data
for way in vfs calls; do
    rm -f /tmp/fifo /tmp/stderr; mkfifo /tmp/fifo; touch /tmp/stderr
    echo 3 > /proc/sys/vm/drop_caches
    ( WAIT=1 oracle /mnt/data < /tmp/fifo > /tmp/list-$way 2> /dev/null ) &
    exec 9> /tmp/fifo
    until pidof oracle > /dev/null; do sleep 1; done
    mongosonar io record --way $way --dbpath /mnt --pid $(pidof oracle) /tmp/$way.msio 2> /tmp/stderr &
    until grep -q mongosonar: /tmp/stderr; do sleep 1; done
    echo go >&9
    wait
    exec 9>&-
    grep recording /tmp/stderr
    mongosonar io report --each /tmp/$way.msio > /tmp/each-$way
done
"""
RESTART = """
mkdir /mnt/db
for d in 0 1 2 3 4 5 6 7 8 9; do
    mkdir /mnt/db/db$d
    for n in $(seq 100); do echo 12 > /mnt/db/db$d/collection-$n.wt; done
done
cp /bin/busybox /tmp/mongod
mkfifo /tmp/one /tmp/two
( exec -a sh /tmp/mongod /bin/reads 0 1 2 3 4 --dbpath /mnt/db < /tmp/one ) &
exec 8> /tmp/one
until [ "$(cat /proc/$!/comm)" = mongod ]; do sleep 1; done
mongosonar io record --way vfs --dbpath /mnt/db /tmp/reads.msio 2> /tmp/restart-stderr &
tracer=$!
until grep -q Ctrl-C /tmp/restart-stderr; do sleep 1; done
echo go >&8
sleep 2
echo end >&8
until grep -q 'waiting for the next mongod' /tmp/restart-stderr; do sleep 1; done
( exec -a sh /tmp/mongod /bin/reads 5 6 7 8 9 --dbpath /mnt/db < /tmp/two ) &
second=$!
exec 9> /tmp/two
until grep -q "process $second is a mongod that has started: it is followed" /tmp/restart-stderr; do sleep 1; done
echo go >&9
sleep 2
echo end >&9
until [ $(grep -c 'has ended' /tmp/restart-stderr) = 2 ]; do sleep 1; done
kill -TERM $tracer
wait
cat /tmp/restart-stderr
mongosonar io report --each /tmp/reads.msio > /tmp/each-restart
"""
CLOCK = """
echo 12 > /mnt/clock
mkfifo /tmp/clock-fifo
sh -c 'while read go; do read line < /mnt/clock; done' < /tmp/clock-fifo &
exec 9> /tmp/clock-fifo
mongosonar io record --pid $! /tmp/kept.msio 2> /tmp/clock-stderr 9>&- &
tracer=$!
until grep -q Ctrl-C /tmp/clock-stderr; do sleep 1; done
reads() { for n in 1 2 3; do echo go >&9; sleep 1; done; }
reads
date -s '2031-01-01 00:00:00'
reads
exec 9>&-
kill -TERM $tracer || true
wait $tracer
mongosonar io report --each /tmp/kept.msio > /tmp/each-clock
"""
SCRIPTS = {"both-ways": BOTH_WAYS, "restart": RESTART, "clock": CLOCK}


@pytest.fixture(scope="module")
def stock_kernel(tmp_path_factory):
    """What `io` recorded where fentry works: in each of the scripts, of which the output says how it ended."""
    if not ORACLE.exists():
        pytest.skip("the oracle was not built: liburing-dev is not installed")
    folder = tmp_path_factory.mktemp("stock")
    program = folder / "mongosonar"
    subprocess.run(["strip", "-g", "-o", program, MONGOSONAR], check=True)
    (folder / "reads").write_text(READS)
    files = [(program, "/bin/mongosonar"), (ORACLE, "/bin/oracle"), (folder / "reads", "/bin/reads")]
    whole = "mke2fs /dev/vda > /dev/null 2>&1\nmount -t ext4 /dev/vda /mnt\n"
    for name, script in SCRIPTS.items():
        (folder / name).write_text(script)
        files.append((folder / name, f"/bin/{name}"))
        whole += f"code=0; sh -e /bin/{name} || code=$?; echo {name}: exit code $code\n"
    taken = [f"/tmp/{what}-{way}" for what in ("list", "each") for way in ("vfs", "calls")]
    taken += ["/tmp/each-restart", "/tmp/restart-stderr", "/tmp/each-clock"]
    done = vm.run(whole, files=files, disks=[64], take=taken)
    assert done.code == 0, done
    return done


@pytest.mark.vm
def test_both_ways_of_tracing_on_a_stock_kernel_record_exactly_the_accesses(stock_kernel):
    """The same oracle on ext4 where fentry works, tracing VFS functions and system calls."""
    done = stock_kernel
    assert "both-ways: exit code 0" in done.out, done
    assert "VFS functions (fentry/fexit) into" in done.out and "system calls (raw tracepoints)" in done.out, done
    for way in ("vfs", "calls"):
        lines = done.taken[f"/tmp/list-{way}"].decode().splitlines()
        expected = sorted(tuple(line.split()) for line in lines if line != "ready")
        rows = [line.split("\t") for line in done.taken[f"/tmp/each-{way}"].decode().splitlines()]
        at = [rows[0].index(name) for name in ("kind", "offset", "asked", "given", "latency_ns")]
        seen = [tuple(row[column] for column in at) for row in rows[1:] if row[2] == "/mnt/data"]
        assert sorted(access[:4] for access in seen if access[0] != "fault") == expected, way
        faults = [access for access in seen if access[0] == "fault"]
        # A kernel this old has no tracepoint for faults; at the VFS functions they have a latency.
        assert bool(faults) == (way == "vfs") and all(int(access[4]) > 0 for access in faults)


@pytest.mark.vm
def test_a_clock_that_is_set_counts_for_what_is_recorded_afterwards(stock_kernel):
    done = stock_kernel
    assert "clock: exit code 0" in done.out, done
    rows = [line.split("\t") for line in done.taken["/tmp/each-clock"].decode().splitlines()]
    at = [rows[0].index(name) for name in ("start_ns", "file")]
    begun = [
        int(start) for start, file in ([row[column] for column in at] for row in rows[1:]) if file.endswith("clock")
    ]
    later = datetime.datetime(2031, 1, 1, tzinfo=datetime.UTC).timestamp() * 1e9
    assert begun[0] < later <= begun[-1], begun


@pytest.mark.vm
def test_at_vfs_functions_a_restart_is_followed_and_files_have_names(stock_kernel):
    """At VFS functions no descriptor is known, so each path has to be searched. A shell named mongod reads files, and
    another shell after it."""
    done = stock_kernel
    assert "restart: exit code 0" in done.out, done
    output = done.taken["/tmp/restart-stderr"].decode()
    rows = [line.split("\t") for line in done.taken["/tmp/each-restart"].decode().splitlines()]
    at = [rows[0].index(name) for name in ("file", "kind", "offset", "asked", "given")]
    seen = collections.Counter(tuple(row[column] for column in at) for row in rows[1:])
    # The shell reads one byte at a time.
    expected = {
        (f"/mnt/db/db{folder}/collection-{n}.wt", "read", str(offset), "1", "1"): 1
        for folder in range(10)
        for n in range(1, 101)
        for offset in range(3)
    }
    assert seen == expected, output
    assert " 3000 accesses recorded, 0 lost" in output and "left out" not in output
    assert output.count("is followed") == 1, output


@pytest.mark.vm
@rarely
def test_readahead_on_a_stock_kernel_equals_the_bytes_it_counts_as_fetched(tmp_path):
    """Folios of several pages and of one, on ext4: the pages that entered the page cache equal the bytes that the kernel
    counts as fetched for the process, in both ways of tracing."""
    program = tmp_path / "mongosonar"
    subprocess.run(["strip", "-g", "-o", program, MONGOSONAR], check=True)
    script = """
        mke2fs /dev/vda > /dev/null 2>&1
        mount -t ext4 /dev/vda /mnt
        head -c 16777216 /dev/urandom > /mnt/data
        for way in vfs calls; do
            sync; echo 3 > /proc/sys/vm/drop_caches
            # One process reads, so that it is the traced one.
            rm -f /tmp/fifo /tmp/stderr; mkfifo /tmp/fifo; touch /tmp/stderr
            strided /mnt/data < /tmp/fifo > /tmp/list-$way &
            exec 9> /tmp/fifo
            mongosonar io record --readahead --way $way --pid $! /tmp/$way.msio 2> /tmp/stderr 9>&- &
            until grep -q mongosonar: /tmp/stderr; do sleep 1; done
            cat /tmp/stderr >&2
            echo go >&9
            until [ -s /tmp/list-$way ]; do sleep 1; done
            exec 9>&-
            wait
            mongosonar io report --json /tmp/$way.msio > /tmp/report-$way
        done
    """
    strided = tmp_path / "strided"
    source = tmp_path / "strided.c"
    source.write_text(r"""
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <stdio.h>
        #include <unistd.h>
        static long fetched(void)
        {
            char line[99];
            long bytes = -1;
            FILE *counters = fopen("/proc/self/io", "r");
            while (fgets(line, sizeof line, counters))
                sscanf(line, "read_bytes: %ld", &bytes);
            fclose(counters);
            return bytes;
        }
        int main(int count, char **arguments)
        {
            static char page[4096];
            int file = open(arguments[1], O_RDONLY);
            fetched();
            getchar();
            long before = fetched(), given = 0;
            for (long mebibyte = 0; mebibyte < 16; mebibyte++)
                for (long at = 0; at < 4; at++)
                    given += pread(file, page, sizeof page, (mebibyte << 20) + at * 4096);
            printf("%ld %ld\n", fetched() - before, given);
            fflush(stdout);
            while (getchar() != EOF)
                ; // keep the files open until its input ends
            return 0;
        }
    """)
    subprocess.run(["cc", "-O1", "-static", "-o", strided, source], check=True)
    taken = [f"/tmp/{what}-{way}" for what in ("list", "report") for way in ("vfs", "calls")]
    done = vm.run(
        script, files=[(program, "/bin/mongosonar"), (strided, "/bin/strided")], disks=[64], take=taken, seconds=120
    )
    assert done.code == 0, done
    for way in ("vfs", "calls"):
        fetched, given = map(int, done.taken[f"/tmp/list-{way}"].decode().split())
        analysis = json.loads(done.taken[f"/tmp/report-{way}"])
        file = next(file for file in analysis["files"] if file["path"] == "/mnt/data")
        assert not any(analysis["lost"].values()), analysis["lost"]
        brought, wasted = file["page_ins"]["bytes"], file["page_ins"]["wasted_bytes"]
        # The kernel also counts the file system's own blocks.
        assert brought <= fetched < brought + (128 << 10), (way, brought, fetched)
        assert wasted == brought - given > 0 and file["reads"]["bytes"] == given, (way, wasted)
