"""Fixtures. A test that cannot run here is skipped with the reason."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile

import pytest

import labkit

sys.path.insert(0, str(labkit.LAB / "vm"))
sys.path.insert(0, str(labkit.LAB / "debian"))
import vm

# COLUMNS would set a width for output to a pipe. Readline, which pytest loads, sets it without Python noticing.
os.unsetenv("COLUMNS")


# A shell that starts the tests in the background makes them ignore Ctrl-C, and so would all programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    config.addinivalue_line("markers", "root: needs root (packet sockets, network namespaces)")
    config.addinivalue_line("markers", "alone: runs beside no other test: it measures time")
    config.addinivalue_line("markers", "apart: runs in namespaces of its own, where it sees only its own processes")
    config.addinivalue_line(
        "markers", "servers: sees every mongod of this machine, or runs one; beside no other test that does"
    )
    config.addinivalue_line("markers", "vm: needs a virtual machine (QEMU and a stock kernel)")


# What takes longest, so it begins first. The tests of one group run one after another.
LONGEST = [
    "test_agent_hanging",
    "test_agent_kills",
    "test_agent_stops",
    "servers",
    "test_agent_storing",
    "test_io",
    "test_package",
    "test_why_vm",
    "test_vm",
    "test_reorder",
    "test_tls",
    "test_disk_vm",
    "test_why",
    "test_ending",
    "test_disk",
    "test_why_tls",
]


def group_of(item):
    """Tests of a file share fixtures, so they form a group, as do those that see each other's servers."""
    return "servers" if item.get_closest_marker("servers") else item.path.stem


# Before pytest-xdist reads the groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(group_of(item), len(order)))
    without = vm.missing()
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
        if item.get_closest_marker("vm") and without:
            item.add_marker(pytest.mark.skip(reason=f"no virtual machine: {without}"))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session", autouse=True)
def binary():
    """The program under test, built by the top-level Makefile."""
    if not os.access(labkit.MONGOSONAR, os.X_OK):
        pytest.exit(f"{labkit.MONGOSONAR} is not there: cargo build --release -p mongosonar, or set MONGOSONAR", 1)
    return labkit.MONGOSONAR


@pytest.fixture(scope="session", params=["ipv4", "ipv6"])
def served(request):
    """The address of a lab server on loopback, over each IP version."""
    if request.param == "ipv6" and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this kernel has no IPv6")
    with labkit.server(labkit.LOOPBACK[request.param] + ":0") as address:
        yield address


@pytest.fixture(scope="session")
def served_v4():
    """The address of a lab server on 127.0.0.1."""
    with labkit.server("127.0.0.1:0") as address:
        yield address


@pytest.fixture(scope="module")
def traced_server(tmp_path_factory):
    """Starts the lab's server with one thread for each connection, as `labkit.threaded` does, at a port."""
    if os.geteuid() != 0:
        pytest.skip("tracing takes root")
    with contextlib.ExitStack() as running:

        def start(port, **options):
            return running.enter_context(labkit.threaded(tmp_path_factory.mktemp("threaded"), port, **options))

        yield start


@pytest.fixture
def silent():
    """The URI of a server that accepts connections and never answers, and which is waited for."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"mongodb://127.0.0.1:{listener.getsockname()[1]}/?{labkit.PATIENT}"


@pytest.fixture(scope="session")
def tshark():
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    return "tshark"


@pytest.fixture
def folder():
    """A folder on a file system with direct I/O; a test's own temporary folder may be in memory."""
    base = labkit.LAB.parent / "target"
    base.mkdir(exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="disk-test-", dir=base))
    yield path
    left = list(path.iterdir())
    shutil.rmtree(path)
    assert not left, f"left behind: {left}"
