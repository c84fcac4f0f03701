"""Fixtures. A test that cannot run here is skipped with the reason."""

import os
import shutil
import sys

import pytest

import labkit

sys.path.insert(0, str(labkit.LAB / "vm"))
sys.path.insert(0, str(labkit.LAB / "debian"))
import vm

# COLUMNS would set a width for output to a pipe. Readline, which pytest loads, sets it without Python noticing.
os.unsetenv("COLUMNS")


def pytest_configure(config):
    config.addinivalue_line("markers", "root: needs root (packet sockets, network namespaces)")
    config.addinivalue_line(
        "markers", "alone: runs beside no other test: it looks at the whole machine, or measures time"
    )
    config.addinivalue_line("markers", "vm: needs a virtual machine (QEMU and a stock kernel)")


def pytest_collection_modifyitems(items):
    without = vm.missing()
    for item in items:
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


@pytest.fixture(scope="session")
def tshark():
    if not shutil.which("tshark"):
        pytest.skip("tshark is not installed")
    return "tshark"
