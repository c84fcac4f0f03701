"""The page of a running agent: who may read it, what its status says of it, and that nothing else depends on it."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import bson
import pytest
from test_agent import agent, free_port
from test_agent_split import threaded
from test_live import mock
from test_privileges import FIXTURES, children

import labkit

pytestmark = pytest.mark.root

TLS = FIXTURES / "page-tls"
MACHINE = "[collectors]\nqueries = false\nlog = false\ninternals = false\nfiles = false\n"


def config(listen, *settings):
    return "\n".join([f'{MACHINE}[page]\nlisten = "{listen}"', *settings, ""])


def answer(port, path, scheme="http", **headers):
    """The status of an answer, and its document."""
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}{path}", headers=headers)
    tls = ssl.create_default_context(cafile=TLS / "certificate.pem") if scheme == "https" else None
    try:
        with urllib.request.urlopen(request, context=tls) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def token(running):
    return {"Authorization": f"Bearer {(running.store / 'page-token').read_text().strip()}"}


def helper_of(running):
    (pid,) = [
        pid
        for pid in children(running.child.pid)
        if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "sonar-page"
    ]
    return pid


def opening(store, *options):
    return labkit.run("open", "--store", store, *options, code=None)


def test_no_link_is_printed_to_a_port_at_which_another_user_listens(tmp_path):
    store = tmp_path / "store"
    shutil.copytree(FIXTURES / "history", store)
    store.chmod(0o700)
    program = "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\nprint(listener.getsockname()[1], flush=True)\ninput()"
    nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", sys.executable, "-c", program]
    with labkit.process(nobody, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        port = int(other.stdout.readline())
        done = opening(store, "--listen", f"127.0.0.1:{port}")
        assert (done.returncode, done.stdout) == (1, "")
        assert f"a program of user 65534 listens at 127.0.0.1:{port}" in done.stderr


def test_an_agent_serves_its_history_and_counts_what_the_page_refuses(tmp_path):
    port = free_port()
    with agent(tmp_path, config(f"127.0.0.1:{port}")) as running:
        assert f"page at http://127.0.0.1:{port}/" in running.errors()
        running.wait(lambda: running.status()["windows"] > 0, "a window")
        code, status = answer(port, "/api/v1/status", **token(running))
        assert (code, status["agent"]["pid"], status["history"]) == (200, running.child.pid, str(running.store))
        code, timeline = answer(port, "/api/v1/timeline?from=-5m", **token(running))
        assert (code, timeline["kind"], timeline["about"]["sources"]) == (200, "timeline", [str(running.store)])
        assert answer(port, "/api/v1/status")[0] == 401
        assert answer(port, "/api/v1/status", Authorization="Bearer wrong")[0] == 401
        assert answer(port, "/api/v1/status", Host="evil.example")[0] == 421
        running.wait(lambda: running.status()["page"]["refused"] == {"access": 2, "host": 1}, "the counts")
        shown = labkit.run("agent", "--status", "--store", running.store)
        assert f"page at http://127.0.0.1:{port}/, 3 requests refused: access 2, host 1\n" in shown.stdout
        # The address comes from the status of the agent.
        opened = opening(running.store)
        assert opened.stdout.startswith(f"http://127.0.0.1:{port}/#"), opened
        # A change of it takes a restart.
        (tmp_path / "agent.toml").write_text(config(""))
        running.child.send_signal(signal.SIGHUP)
        running.wait(lambda: "only a restart can change: page" in running.errors(), "the refusal")
        assert labkit.stop(running.child) == 0
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_behind_a_reverse_proxy_the_page_is_below_its_path_and_links_begin_with_its_address(tmp_path):
    port, url = free_port(), "https://db1.example/mongosonar/"
    settings = config(f"127.0.0.1:{port}", 'path = "/mongosonar"', f'url = "{url}"')
    with agent(tmp_path, settings) as running:
        running.wait(lambda: running.status()["windows"] > 0, "a window")
        assert f"page at {url}; `mongosonar open" in running.errors()
        page = running.status()["page"]
        assert (page["address"], page["url"]) == (f"127.0.0.1:{port}", url)
        assert opening(running.store).stdout.startswith(f"{url}#")
        # As the proxy passes it on.
        path = "/mongosonar/api/v1/status"
        assert answer(port, path, Host="db1.example", **token(running))[0] == 200
        assert answer(port, path, Host="db2.example", **token(running))[0] == 421
        assert answer(port, "/api/v1/status", **token(running))[0] == 404


def test_a_page_by_tls_has_a_key_that_only_its_helper_reads(tmp_path):
    port, key = free_port(), tmp_path / "key.pem"
    settings = [f'tls-certificate = "{TLS / "certificate.pem"}"', f'tls-key = "{key}"']
    shutil.copy(TLS / "key.pem", key)
    key.chmod(0o600)
    with agent(tmp_path, config(f"127.0.0.1:{port}", *settings)) as running:
        url = f"https://127.0.0.1:{port}/"
        assert f"page at {url}; " in running.errors()
        running.wait(lambda: running.status()["windows"] > 0, "a window")
        assert answer(port, "/api/v1/status", "https", **token(running))[0] == 200
        assert opening(running.store).stdout.startswith(f"{url}#")
        # Plain text is no handshake.
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while plain.recv(1_000):
                    pass
        running.wait(lambda: running.status()["page"]["refused"] == {"handshake": 1}, "the count")
    key.chmod(0o644)
    with agent(tmp_path, config(f"127.0.0.1:{port}", *settings)) as running:
        assert f"the page is not served: every user can use the key of the page, {key}" in running.errors()
    shutil.copy(TLS / "other-key.pem", key)
    key.chmod(0o600)
    with agent(tmp_path, config(f"127.0.0.1:{port}", *settings)) as running:
        # The helper has read it, and the agent says why nothing is served.
        problem = running.status()["page"]["problem"]
        assert problem == f"cannot serve by TLS with {key}: its key is not that of the first certificate"


def test_what_runs_this_second_is_listed_while_somebody_looks(tmp_path):
    served, port = free_port(), free_port()
    settings = f"[collectors]\nlog = false\ninternals = false\nfiles = false\n[queries]\nport = [{port}]\n"
    with threaded(tmp_path, port), agent(tmp_path, f'{settings}[page]\nlisten = "127.0.0.1:{served}"\n') as running:
        running.wait_for("queries", "working")

        def now():
            code, document = answer(served, "/api/v1/now", **token(running))
            assert (code, document["problem"]) == (200, None), document
            listed = document["listed"]["operations"] if document["listed"] else []
            return [one for one in listed if one["server"] == str(port)], document["sources"]

        with socket.create_connection(("127.0.0.1", port)) as client:
            find = bson.encode({"find": "held", "filter": {"sleep": 3_600_000}, "$db": "lab"})
            client.sendall(mock.msg([mock.kind_0(find)], 1))
            running.wait(lambda: now()[0], "the operation")
            (first,), sources = now()
            assert (first["command"], first["namespace"], first["class"]) == ("find", "lab.held", "user")
            assert first["client"] == "{}:{}".format(*client.getsockname()) and first["sources"] == ["queries"]
            running.wait(lambda: now()[0][0]["running_ns"] > first["running_ns"] + 10**9, "a later list")
        lacks = {one["name"]: one["lacks"] for one in sources}
        assert lacks["queries"] is None and "split = true" in lacks["split"] and "[[server]]" in lacks["status"], lacks
        running.wait(lambda: not now()[0], "the end of the operation")
        assert running.stop() == 0


def test_an_agent_whose_page_cannot_be_served_or_has_ended_goes_on(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        (tmp_path / "taken").mkdir()
        with agent(tmp_path / "taken", config(address)) as running:
            running.wait(lambda: running.status()["windows"] > 0, "a window")
            page = running.status()["page"]
            assert page["address"] == address and "cannot serve at" in page["problem"], page
            assert f"the page is not served: cannot serve at {address}" in running.errors()
            assert "the agent does not serve the page: cannot serve at" in opening(running.store).stderr
    (tmp_path / "ended").mkdir()
    with agent(tmp_path / "ended", config(f"127.0.0.1:{free_port()}")) as running:
        # Not before it is known to run.
        running.wait(lambda: running.status()["windows"] > 0, "a window")
        os.kill(helper_of(running), signal.SIGKILL)
        running.wait(lambda: "has ended" in (running.status()["page"]["problem"] or ""), "the end of the page")
        before = running.status()["windows"]
        running.wait(lambda: running.status()["windows"] > before, "a window without the page")
    (tmp_path / "off").mkdir()
    with agent(tmp_path / "off", config("")) as running:
        assert running.status()["page"] is None and "page at" not in running.errors()
