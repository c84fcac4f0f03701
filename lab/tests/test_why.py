"""Where the time of an operation goes, against the lab's own server, whose commands take a known time at a known place.

The server (lab/threaded) is not MongoDB, but serves as mongod does: one thread for each connection, on the real
WiredTiger.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import bson
import pytest

import labkit
from labkit import ask_threaded as ask

PORT = 28017


@pytest.fixture(scope="module")
def served(traced_server):
    return traced_server(PORT)


def client(most=200):
    """With at most so many connections for operations."""
    return labkit.client(PORT, "lab-why", maxPoolSize=most)


def stolen_ns():
    """Time of all processors that was taken from the threads on them: by interrupts and by the host."""
    fields = open("/proc/stat").readline().split()
    return sum(map(int, fields[6:9])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def why(served, work, *arguments):
    """`why` on the server of these tests."""
    return traced((served.pid, PORT), work, *arguments)


def traced(server, work, *arguments):
    """Runs `work` while `why` traces a server, its process and port (none: that of the process), ends it with SIGINT, and
    returns its report."""
    pid, port = server
    command = [labkit.MONGOSONAR, "why", "--pid", pid, "--duration", "30s", "--json", "--limit", 100]
    if port is not None:
        command += ["--port", port]
    with labkit.process([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        labkit.wait_until(lambda: "tracing" in child.stderr.readline(), "the trace")
        stolen = stolen_ns()
        result = work()
        labkit.wait_until_connections_rest(pid)
        child.send_signal(2)
        output, errors = child.communicate(timeout=30)
    assert child.returncode == 0, errors
    report = json.loads(output)
    # In whole ticks.
    report["stolen_ns"] = stolen_ns() - stolen + 20_000_000
    return report, result


def shape(report, *steps):
    """The row of the filter with these steps."""
    found = [row for row in report["shapes"] if all(f"{step}: ?number" in row["typed"] for step in steps)]
    found = [row for row in found if row["typed"].count("?number") == len(steps)]
    assert len(found) == 1, (steps, [row["typed"] for row in report["shapes"]])
    return found[0]


def part(row, name):
    return next((part["ns"] for part in row["parts"] if part["part"] == name), 0)


def near(measured, expected, operations, more=0):
    """Within 5 % or 100 µs for each operation; `measured` may exceed that by `more`."""
    off = max(0.05 * expected, 100_000 * operations)
    assert -off <= measured - expected <= off + more, (measured, expected)


def slept(row, measured):
    """Each operation sleeps for 20 ms or, where its processor wakes it late, for as long as the server has measured;
    of these operations the row may have only some. Where a thread loses its processor between setting the timer and
    going to sleep, the rest of the 20 ms is time in the run queue."""
    count = row["operations"]
    assert part(row, "sleep") <= sum(sorted(one["slept_ns"] for one in measured)[-count:])
    assert part(row, "sleep") + part(row, "run_queue") >= 20_000_000 * count - 1_000 * count
    assert part(row, "sleep") > 0


def adds_up(row):
    assert abs(sum(part["ns"] for part in row["parts"]) - row["total_ns"]) <= 1000 * row["operations"]
    assert part(row, "unexplained") == 0


ROUNDS = 20


def each_step_is_found(served, client, why):
    """Asks for each step alone; returns the report, its rows and what the server measured, both by step."""
    steps = [{"burn": 10}, {"sleep": 10}, {"read": 30}, {"fault": 30}, {"send": 1}]

    def work():
        with client() as connected:
            return {next(iter(step)): [ask(connected.lab, step) for _ in range(ROUNDS)] for step in steps}

    report, measured = why(served, work)
    rows = {name: shape(report, name) for name in measured}
    for name, row in rows.items():
        assert row["operations"] == ROUNDS and row["apps"] == ["lab-why"], name
        adds_up(row)
    # What receiving, sending and measuring take is not in what the server measures; a burn is almost all of it.
    near(part(rows["burn"], "cpu"), sum(one["cpu_ns"] for one in measured["burn"]), ROUNDS, report["stolen_ns"])
    # A read needs room in the cache, which is tiny: where nobody else gets a processor to make some, it waits for that.
    read = rows["read"]
    made_room = sum(part(read, name) for name in ("futex", "backoff", "file_write", "yield"))
    assert part(read, "file_read") + made_room > 0.5 * blocked(rows, measured, "read")[0]
    assert part(read, "file_read") > 1_000 * ROUNDS and read["files"][0]["reads"] >= ROUNDS
    assert rows["read"]["files"][0]["name"] == "collection-2-1.wt"
    assert rows["fault"]["faults"] == sum(one["faults"] for one in measured["fault"]) > ROUNDS
    assert report["coverage"]["joined"] >= len(steps) * ROUNDS
    for loss in ["ring_full", "threads_full", "unreadable", "foreign_replies", "packets_dropped"]:
        assert report["coverage"][loss] == 0, loss
    return report, rows, measured


def blocked(rows, measured, step):
    """How long the operations of a step were blocked, by what the server measured, at least and at most: it does not
    know how much of the time in the run queue came before it began to measure."""
    off_cpu = sum(one["wall_ns"] - one["cpu_ns"] for one in measured[step])
    return off_cpu - part(rows[step], "run_queue"), off_cpu


def test_each_step_is_found_where_it_waits(served):
    report, rows, measured = each_step_is_found(served, client, why)
    least, most = blocked(rows, measured, "sleep")
    near(part(rows["sleep"], "sleep"), least, ROUNDS, most - least)
    [file] = [file for file in report["files"] if file["name"] == "collection-2-1.wt"]
    assert (
        file["shapes"][0]["shape_id"] == rows["read"]["shape_id"] and file["reads"] >= rows["read"]["files"][0]["reads"]
    )
    assert file["in_order"] < 0.1 * file["reads"], "it reads at random"
    # As the kernel encodes it, and as /proc has it.
    device = [str(file["device"] >> 20), str(file["device"] & 0xFFFFF)]
    is_counted = any(line.split()[:2] == device for line in open("/proc/diskstats"))
    disks = [disk for disk in report["disks"] if disk["device"] == file["device"]]
    assert len(disks) == is_counted
    for disk in disks:
        assert disk["reads_per_second"] * report["seconds"] >= 0.5 * file["reads"] and 0 < disk["busy"] <= 1, disk
    assert rows["read"]["device_bytes"] >= ROUNDS * 10 * 4096
    least, most = blocked(rows, measured, "fault")
    near(part(rows["fault"], "page_fault"), least, ROUNDS, most - least)
    # An interrupt may come while a program handles the same event on that processor.
    assert report["coverage"]["programs_skipped"] < 10


def test_the_holder_of_a_lock_is_named_and_what_the_lock_is(served, tmp_path):
    classes = tmp_path / "classes.txt"
    classes.write_text("[lock of the lab]\nall  take_the_lock\n")

    def work():
        with client() as connected:
            connected.admin.command("hello")
            for _ in range(5):
                labkit.wait_for_a_lock(served.pid, connected.lab, 30)

    report, _ = why(served, work, "--classes", classes)
    row = shape(report, "lock")
    waited = part(row, "futex")
    [wait] = next(part["classes"] for part in row["parts"] if part["part"] == "futex")
    assert (wait["class"], wait["waits"]) == ("lock of the lab", 5)
    near(wait["wait_ns"], waited, 5)
    [pause] = next(part["classes"] for part in shape(report, "hold")["parts"] if part["part"] == "sleep")
    assert (pause["class"], pause["waits"]) == ("write conflict backoff or sleep", 5)
    assert any("lock of the lab" in sentence for sentence in row["answer"]), row["answer"]
    assert row["operations"] == 5 and waited >= 5 * 30_000_000, row["parts"]
    [blocker] = row["blockers"]
    assert blocker["shape_id"] == shape(report, "hold")["shape_id"]
    assert blocker["command"] == "find lab.orders" and blocker["thread_name"].startswith("conn")
    near(blocker["wait_ns"], waited, 5)
    assert any("find lab.orders" in sentence for sentence in row["answer"]), row["answer"]


def document(page):
    """The document that a page draws."""
    inside = page.read_text().split('<script id="data" type="application/json">')[1].split("</script>")[0]
    return json.loads(inside)


def test_operations_over_time_are_those_of_the_table_and_the_page_draws_the_same_document(served, tmp_path):
    def work():
        with client() as connected:
            # span: in which nothing happens
            time.sleep(1)
            for _ in range(20):
                ask(connected.lab, {"sleep": 50, "burn": 5})

    page = tmp_path / "why.html"
    report, _ = why(served, work, "--html", page)
    activity = report["activity"]
    lengths = [activity["width_ns"]] * len(activity["parts"][0]["active"])
    lengths[-1] = activity["end_ns"] - activity["start_ns"] - sum(lengths[:-1])
    assert activity["width_ns"] == 125_000_000 and lengths[-1] >= activity["width_ns"]
    names = [part["part"] for part in activity["parts"]]
    assert names == [part["part"] for part in report["active_parts"]] and names[0] == "sleep"
    spent = {}
    for over_time, whole in zip(activity["parts"], report["active_parts"], strict=True):
        spent[over_time["part"]] = sum(a * length for a, length in zip(over_time["active"], lengths, strict=True))
        # Rounded to four digits in each interval.
        assert abs(spent[over_time["part"]] - whole["ns"]) <= 0.00005 * sum(lengths), over_time["part"]
    # Nothing happened in the first second, then one operation after the other. What wakes late waits for a processor.
    slept = activity["parts"][0]["active"]
    assert sum(slept[:6]) == 0 and max(slept) <= 1.0001, slept
    assert spent["sleep"] + spent.get("run_queue", 0) >= 20 * 50_000_000, spent
    drawn = document(page)
    report.pop("stolen_ns")
    assert drawn == report


def test_only_what_is_asked_for_counts(served):
    def work():
        with client() as connected:
            for _ in range(5):
                ask(connected.lab, {"sleep": 10})
                ask(connected.lab, {"burn": 1})

    wanted, _ = why(served, work, "--namespace", "lab.orders", "--app", "lab-why")
    only = shape(wanted, "sleep")["shape_id"]
    assert wanted["operations"] == 10 and len(wanted["shapes"]) == 2
    one, _ = why(served, work, "--shape", only[:6])
    assert one["operations"] == 5 and [row["shape_id"] for row in one["shapes"]] == [only]
    [row] = one["shapes"]
    assert one["active"] == pytest.approx(row["total_ns"] / 1e9 / one["seconds"], rel=0.001) and row["share"] == 1
    for nothing in [("--app", "other"), ("--namespace", "lab.other"), ("--namespace", "shop")]:
        report, _ = why(served, work, *nothing)
        assert report["operations"] == 0 and report["shapes"] == report["activity"]["parts"] == [], nothing


def test_operations_that_hang_are_shown_with_what_they_wait_for(served, tmp_path):
    classes = tmp_path / "classes.txt"
    classes.write_text("[lock of the lab]\nall  take_the_lock\n")
    with (
        client() as connected,
        # Its connection opens during the trace.
        client() as another,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        labkit.held_lock(connected.lab),
    ):

        def work():
            pool.submit(ask, another.lab, {"lock": 1})
            labkit.wait_until_the_lock_is_awaited(served.pid)
            # span: how long it has waited at least
            time.sleep(1)

        report, _ = why(served, work, "--classes", classes)
    before, since = report["in_progress"]
    assert (before["elapsed_ns"], before["command"]) == (None, None)
    assert before["class"] == "write conflict backoff or sleep" and before["thread_name"].startswith("conn")
    assert (since["command"], since["namespace"], since["app"]) == ("find", "lab.orders", "lab-why")
    assert (since["doing"], since["class"]) == ("futex", "lock of the lab")
    assert since["elapsed_ns"] >= since["doing_ns"] >= 1_000_000_000
    assert sum(part["ns"] for part in since["parts"]) == since["elapsed_ns"]
    assert report["in_progress_total"] == 2


def sequences_add_up(server, client, connections):
    """Traces a server, its process and port, while this many connections of clients ask for a sequence of steps."""
    steps = {"burn": 1, "sleep": 20, "read": 2}

    def work():
        with client() as connected, concurrent.futures.ThreadPoolExecutor(connections) as pool:
            tasks = [pool.submit(ask, connected.lab, steps) for _ in range(max(connections * 4, 20))]
            return [task.result() for task in tasks]

    report, measured = traced(server, work)
    row = shape(report, *steps)
    assert row["operations"] == len(measured)
    adds_up(row)
    near(part(row, "cpu"), sum(one["cpu_ns"] for one in measured), len(measured), report["stolen_ns"])
    slept(row, measured)


@pytest.mark.parametrize("connections", [1, 8, 64])
def test_sequences_on_many_connections_add_up(served, connections):
    sequences_add_up((served.pid, PORT), client, connections)


def test_sums_equal_what_the_kernel_counts_for_each_thread(served):
    def counters():
        """Nanoseconds on a processor and in the run queue of all threads, as `schedstat` has them."""
        sums = [0, 0]
        for (counts,) in labkit.of_each_thread(served.pid, "schedstat"):
            cpu, queued, _ = map(int, counts.split())
            sums[0] += cpu
            sums[1] += queued
        return sums

    with client() as connected:
        ask(connected.lab, {"burn": 1})

        def work():
            before = counters()
            for _ in range(50):
                ask(connected.lab, {"burn": 5})
            return before, counters()

        report, (before, after) = why(served, work)
    cpu = sum(part(row, "cpu") for row in report["shapes"]) + sum(role["cpu_ns"] for role in report["threads"])
    # The trace is a little longer than the time between the two readings.
    near(cpu, after[0] - before[0], 50, report["stolen_ns"])


def test_bytes_and_faults_equal_what_the_kernel_counts_for_the_threads_of_connections(served):
    def counters():
        """Of all threads of connections: bytes read by system calls and from devices, and faults that read."""
        sums = [0, 0, 0]
        for name, counts, stat in labkit.of_each_thread(served.pid, "comm", "io", "stat"):
            if not name.startswith("conn"):
                continue
            io = dict(line.split(": ") for line in counts.splitlines())
            counted = (int(io["rchar"]), int(io["read_bytes"]), int(stat.rpartition(")")[2].split()[9]))
            sums = [sum(pair) for pair in zip(sums, counted, strict=True)]
        return sums

    with client() as connected:
        ask(connected.lab, {"burn": 1})

        def work():
            before = counters()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for step in [{"read": 40}, {"fault": 40}, {"burn": 1}]:
                    list(pool.map(lambda _, step=step: ask(connected.lab, step), range(12)))
            return [now - then for now, then in zip(counters(), before, strict=True)]

        report, counted = why(served, work)
    rows = report["shapes"] + report["unseen"]
    found = [sum(row[name] for row in rows) for name in ("read_bytes", "device_bytes", "faults")]
    assert found == counted and all(counted), (found, counted)


def test_packets_are_not_needed(served):
    """The same from the sockets of the process, also without the right to capture packets."""

    def work():
        with client() as connected:
            return [ask(connected.lab, {"burn": 5}) for _ in range(ROUNDS)]

    report, measured = why(served, work, "--source", "process")
    row = shape(report, "burn")
    assert row["operations"] == ROUNDS and row["apps"] == ["lab-why"]
    adds_up(row)
    near(part(row, "cpu"), sum(one["cpu_ns"] for one in measured), ROUNDS, report["stolen_ns"])
    coverage = report["coverage"]
    assert coverage["without_wire"] + coverage["without_thread"] <= 2, coverage


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_calls_take_as_long_as_strace_says(served, tmp_path):
    """strace stops the thread at both ends of each call, for as long as strace itself waits for a processor. So what it
    says of a call bounds from below, and what the client waited for from above."""
    calls = tmp_path / "calls"
    with client() as connected:
        ask(connected.lab, {"burn": 1})
        command = ["strace", "-f", "-T", "-e", "trace=clock_nanosleep,nanosleep,futex", "-o", calls, "-p", served.pid]
        with labkit.process(command, stderr=subprocess.PIPE, text=True) as tracer:
            assert "attached" in tracer.stderr.readline()

            waited_for = {"sleep": 0, "lock": 0}

            def timed(database, step):
                began = time.monotonic_ns()
                ask(database, step)
                waited_for[next(iter(step))] += time.monotonic_ns() - began

            def work():
                for _ in range(20):
                    timed(connected.lab, {"sleep": 25})
                labkit.wait_for_a_lock(served.pid, connected.lab, 200, timed)

            report, _ = why(served, work)
    ended = list(calls_of(calls.read_text().splitlines()))
    slept = [ns for call, ns in ended if "nanosleep(" in call and "tv_nsec=25000000" in call]
    assert len(slept) == 20 and min(slept) > 20e6, ended
    row = shape(report, "sleep")
    # A thread that is preempted on its way to sleep waits for a processor in a part of the time that it asked for.
    measured = part(row, "sleep") + part(row, "run_queue")
    assert 20 * 25_000_000 <= measured <= waited_for["sleep"], (row, waited_for)
    # A thread waits for a mutex in this call.
    longest = max(ns for call, ns in ended if "FUTEX_WAIT_PRIVATE, 2, NULL" in call)
    assert longest / 2 < part(shape(report, "lock"), "futex") <= waited_for["lock"], (report, longest)


def calls_of(lines):
    """Each call that strace saw end, and its nanoseconds. strace shows a call in two parts if others came between."""
    begun = {}
    for line in lines:
        thread, _, text = line.partition(" ")
        if "<unfinished ...>" in text:
            begun[thread] = text
        elif took := re.search(r"<([0-9.]+)>$", text):
            yield (begun.pop(thread, "") if "resumed>" in text else "") + text, float(took[1]) * 1e9


@pytest.mark.skipif(not shutil.which("offcputime"), reason="offcputime (libbpf-tools) is not installed")
def test_waits_are_as_long_as_offcputime_says(served):
    """offcputime adds up, by stack and thread, how long threads were off their processors, waking included."""
    with client() as connected:
        ask(connected.lab, {"burn": 1})
        # The kernel drops a stack whose hash another one has, and these are less often the same in a large table. The time
        # is printed without it then.
        command = ["offcputime", "-p", served.pid, "-m", "1000", "--stack-storage-size", "65536"]
        with labkit.process(command, stdout=subprocess.PIPE, text=True) as tool:
            labkit.wait_until(lambda: labkit.sleeps(tool.pid), "offcputime, which sleeps when it has attached")

            def work():
                for _ in range(30):
                    ask(connected.lab, {"sleep": 25})
                labkit.wait_for_a_lock(served.pid, connected.lab, 400)

            report, _ = why(served, work)
            tool.send_signal(signal.SIGINT)
            output, _ = tool.communicate(timeout=60)
    stacks = [stack.split() for stack in output.split("\n\n")]

    def off(is_counted):
        """Nanoseconds of the stacks that count, of the threads of connections."""
        found = [stack for stack in stacks if is_counted(stack) and any(one.startswith("conn") for one in stack)]
        return 1000 * sum(int(stack[-1]) for stack in found)

    def includes(rows, blocked, function):
        """offcputime counts waking for what the thread waited for. A processor that it lost elsewhere is no part of it."""
        least = sum(part(row, blocked) for row in rows)
        most = least + sum(part(row, "run_queue") for row in rows)
        other = 100_000 * sum(row["operations"] for row in rows)
        seen, dropped = off(lambda stack: function in stack), off(lambda stack: "schedule" not in stack)
        assert least - other <= seen + dropped and seen <= most + other, (least, seen, dropped, most)

    includes([shape(report, "sleep"), shape(report, "hold")], "sleep", "do_nanosleep")
    # Threads that wait for a request do not wait in futexes.
    includes([shape(report, "lock")], "futex", "futex_wait")


def of_a_sample_nothing_is_missing(served, client, why):
    """What is followed is divided as ever. Other connections are in no figure, and their threads are skipped."""

    with contextlib.ExitStack() as all_clients:
        # Each has one connection for its operations; a pool would use as few of its own as it gets along with.
        clients = [all_clients.enter_context(client(most=1)) for _ in range(48)]

        def ask_eight_times(one):
            return [ask(one.lab, {"burn": 1, "sleep": 20}) for _ in range(8)]

        def work():
            with concurrent.futures.ThreadPoolExecutor(48) as pool:
                return [measured for all_of_one in pool.map(ask_eight_times, clients) for measured in all_of_one]

        report, measured = why(served, work, "--sample", "1/3")
        all_threads = len(list(labkit.connections(served.pid)))
    row = shape(report, "burn", "sleep")
    followed, others = divmod(row["operations"], 8)
    assert report["sample_every"] == 3 and others == 0 and 0.1 * 48 < followed < 0.7 * 48
    adds_up(row)
    slept(row, measured)
    coverage = report["coverage"]
    assert coverage["without_thread"] == coverage["without_wire"] == 0, coverage
    [threads] = [role["threads"] for role in report["threads"] if role["role"] == "conn"]
    # Clients also have connections to look whether the server is there: one each, or two.
    assert followed <= threads < 0.7 * all_threads


def test_a_sample_follows_the_same_connections_on_the_wire_and_inside_the_server(served):
    of_a_sample_nothing_is_missing(served, client, why)


@contextlib.contextmanager
def loaded(connections, rate):
    """Asks for operations that compute for 20 µs, so often a second over so many connections; yields the client, and what
    tells how many replies it has."""
    body = bson.encode({"find": "orders", "filter": {"burn": 0.02}, "$db": "lab"})
    request = struct.pack("<iiiiiB", 21 + len(body), 1, 0, 2013, 0, 0) + body
    command = [labkit.LAB / "bin/threaded-load", PORT, connections, rate, 600]
    with tempfile.TemporaryFile() as out, labkit.process(command, stdin=subprocess.PIPE, stdout=out) as load:
        load.stdin.write(request)
        load.stdin.close()

        def replies():
            assert load.poll() is None, "the clients have ended"
            complete = os.pread(out.fileno(), 1 << 20, 0).rpartition(b"\n")[0]
            return int(complete.split()[-1]) if complete else 0

        yield load, replies


def test_a_busy_server_is_followed_in_part(served):
    """The program says so before the trace and in the report."""
    with loaded(64, 12_000) as (_, replies):

        def is_busy():
            before = replies()
            # span: in which the operations are counted
            time.sleep(0.5)
            return replies() - before > 3_000

        labkit.wait_until(is_busy, "a server that is busy beside what else this machine does")
        words = ["why", "--pid", served.pid, "--port", PORT, "--duration", "3s", "--json"]
        report, whole = labkit.run(*words, timeout=60), labkit.run(*words, "--sample", "1/1", timeout=60)
    assert "only one connection in" in report.stderr and "only one connection in" not in whole.stderr
    report, whole = json.loads(report.stdout), json.loads(whole.stdout)
    assert report["sample_every"] > 2 and whole["sample_every"] == 1
    followed, all_of_them = (shape(one, "burn")["operations"] for one in (report, whole))
    assert 100 < followed < 0.8 * all_of_them
    assert report["coverage"]["without_thread"] + report["coverage"]["without_wire"] < 0.01 * followed


@pytest.mark.parametrize("sample", [1, 8])
def test_thousands_of_connections_are_divided(served, sample):
    """Each asks once a second."""
    with loaded(3_000, 3_000) as (load, replies):
        labkit.wait_until(lambda: replies() > 3_000, "the connections")

        def work():
            # Each connection asks once more, and then all of them rest.
            asked = replies()
            labkit.wait_until(lambda: replies() > asked + 9_000, "operations of all connections")
            load.send_signal(signal.SIGSTOP)

        try:
            report, _ = why(served, work, "--sample", f"1/{sample}")
        finally:
            load.send_signal(signal.SIGCONT)
    row, coverage = shape(report, "burn"), report["coverage"]
    assert row["operations"] * sample > 3_000
    adds_up(row)
    for loss in ["threads_full", "ring_full", "unreadable", "foreign_replies", "packets_dropped"]:
        assert coverage[loss] == 0, coverage
    assert coverage["without_thread"] + coverage["without_wire"] < 0.001 * row["operations"], coverage


def test_what_operations_compute_is_sampled(served):
    """The functions that were sampled divide the measured processor time of their shape."""

    def work():
        with client() as connected:
            for _ in range(60):
                ask(connected.lab, {"burn": 10})
                ask(connected.lab, {"sleep": 10})

    report, _ = why(served, work)
    cpu = next(one for one in shape(report, "burn")["parts"] if one["part"] == "cpu")
    names = [one["class"] for one in cpu["classes"]]
    # `burn` reads the clock all the time; where it is inlined, its caller has its place.
    assert {"in clock_gettime", "in burn", "in execute", "in find"} & set(names[:2]), names
    assert sum(one["waits"] for one in cpu["classes"]) >= 10, cpu
    # Functions with few samples are left out.
    assert 0.6 * cpu["ns"] <= sum(one["wait_ns"] for one in cpu["classes"]) <= cpu["ns"], cpu
    assert all(one["waits"] >= 5 for one in cpu["classes"]), cpu
    slept = [one for one in shape(report, "sleep")["parts"] if one["part"] == "cpu"]
    assert sum(one["waits"] for part in slept for one in part["classes"]) < 10, slept
