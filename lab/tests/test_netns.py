"""Network namespaces: both ends of a veth pair and `any` give the same figures; a connection behind address translation is captured once."""

import contextlib
import os
import subprocess
import time

import pytest

import labkit

pytestmark = pytest.mark.root

PORT = 27_017


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def namespaces(*names):
    """Network namespaces named after this process, with loopback up; gone at the end."""
    made = {name: f"sonar-{os.getpid()}-{name}" for name in names}
    try:
        for name in made.values():
            try:
                ip("netns", "add", name)
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"no network namespaces here: {error}")
            ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in made.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def join_by_veth(left, right):
    """A veth pair between (namespace, device, address/prefix) and another such."""
    (left_ns, left_device, _), (right_ns, right_device, _) = left, right
    ip("-n", left_ns, "link", "add", left_device, "type", "veth", "peer", "name", right_device, "netns", right_ns)
    for namespace, device, address in (left, right):
        ip("-n", namespace, "address", "add", address, "dev", device)
        ip("-n", namespace, "link", "set", device, "up")


def inside(namespace):
    return ["ip", "netns", "exec", namespace]


def listen(directory, namespace, *arguments, each=True):
    directory.mkdir()
    options = ["--port", str(PORT), "--json", "--class", "all", "--role", "all", *arguments]
    if each:
        options.append("--each")
    return labkit.live_capture(directory, options, prefix=inside(namespace))


def settled(sonar, sent):
    """The captured operations, as soon as they include all that the driver sent, or after five seconds."""
    deadline = time.monotonic() + 5
    while labkit.join(labkit.operations(sonar.lines()), sent).missing and time.monotonic() < deadline:
        time.sleep(0.1)
    return labkit.operations(sonar.stop())


def test_both_ends_of_a_veth_pair_and_any_capture_the_same(tmp_path):
    with namespaces("client", "server") as ns, contextlib.ExitStack() as stack:
        join_by_veth((ns["client"], "c0", "10.99.1.1/24"), (ns["server"], "s0", "10.99.1.2/24"))
        address = stack.enter_context(labkit.server(f"10.99.1.2:{PORT}", prefix=inside(ns["server"])))
        ears = {
            "client's side": listen(tmp_path / "client", ns["client"], "--interface", "c0"),
            "server's side": listen(tmp_path / "server", ns["server"], "--interface", "s0"),
            "any": listen(tmp_path / "any", ns["server"]),
        }
        ears = {place: stack.enter_context(sonar) for place, sonar in ears.items()}
        sent = labkit.run_driver("go", address, tmp_path / "driver.jsonl", prefix=inside(ns["client"]))
        figures = {}
        for place, sonar in ears.items():
            captured = settled(sonar, sent)
            difference = labkit.join(captured, sent)
            assert not difference, f"{place}:\n{difference}"
            facts = ("request_id", "command", "shape_id", "request_bytes", "response_bytes", "docs_returned", "outcome")
            figures[place] = sorted([str([op[fact] for fact in facts]) for op in captured if op["class"] == "user"])
        assert figures["client's side"] == figures["server's side"] == figures["any"]


def test_a_connection_behind_address_translation_is_captured_once(tmp_path):
    """A router translates the server's address; both of its interfaces see each packet."""
    with namespaces("client", "router", "server") as ns, contextlib.ExitStack() as stack:
        join_by_veth((ns["client"], "c0", "10.99.1.1/24"), (ns["router"], "r0", "10.99.1.254/24"))
        join_by_veth((ns["server"], "s0", "10.99.2.2/24"), (ns["router"], "r1", "10.99.2.254/24"))
        ip("-n", ns["client"], "route", "add", "default", "via", "10.99.1.254")
        ip("-n", ns["server"], "route", "add", "default", "via", "10.99.2.254")
        subprocess.run([*inside(ns["router"]), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
        rules = (
            "table ip lab { chain before { type nat hook prerouting priority dstnat; "
            f"ip daddr 10.99.1.254 tcp dport {PORT} dnat to 10.99.2.2:{PORT}; }} "
            "chain after { type nat hook postrouting priority srcnat; oifname r1 masquerade; } }"
        )
        done = subprocess.run([*inside(ns["router"]), "nft", "-f", "-"], input=rules, capture_output=True, text=True)
        if done.returncode != 0:
            commands = [
                [
                    "-A",
                    "PREROUTING",
                    "-d",
                    "10.99.1.254",
                    "-p",
                    "tcp",
                    "--dport",
                    PORT,
                    "-j",
                    "DNAT",
                    "--to",
                    f"10.99.2.2:{PORT}",
                ],
                ["-A", "POSTROUTING", "-o", "r1", "-j", "MASQUERADE"],
            ]
            for command in commands:
                words = [*inside(ns["router"]), "iptables", "-t", "nat", *map(str, command)]
                if subprocess.run(words, capture_output=True).returncode != 0:
                    pytest.skip(f"no address translation here: {done.stderr.strip()}")
        stack.enter_context(labkit.server(f"10.99.2.2:{PORT}", prefix=inside(ns["server"])))
        sonar = stack.enter_context(listen(tmp_path / "router", ns["router"]))
        totals = stack.enter_context(listen(tmp_path / "totals", ns["router"], each=False))
        sent = labkit.run_driver("go", f"10.99.1.254:{PORT}", tmp_path / "driver.jsonl", prefix=inside(ns["client"]))
        captured = settled(sonar, sent)
        difference = labkit.join(captured, sent)
        assert not difference, str(difference)
        coverage = labkit.summary(totals.stop())["coverage"]
        # Both sides were visible; every second copy was counted as such and nothing else.
        assert coverage["frames_twin_nat"] > 500
        assert coverage["kernel_drops"] == coverage["gaps"] == coverage["messages_damaged"] == 0
