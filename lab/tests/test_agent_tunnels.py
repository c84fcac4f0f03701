"""The agent on the machine to which traffic is mirrored."""

import signal

import pytest
from test_agent import agent
from test_netns import EVERYTHING, MirroredFrames, calls, inside, mirror, send_frames

import labkit

pytestmark = [pytest.mark.root, pytest.mark.apart]


def stored(running):
    """The calls of each shape in the history."""
    words = ["--store", running.store, "--from", "-1h", "--json", *EVERYTHING]
    lines = labkit.documents("queries", *words, code=None)
    return calls(labkit.summary(lines)) if lines else {}


def config(frames, *lines):
    sources = "".join(f"{name} = false\n" for name in ("log", "internals", "machine", "files"))
    queries = [f"port = {frames.ports}", 'interface = ["h0"]', "tls = false", *lines]
    return f"[collectors]\n{sources}[queries]\n" + "\n".join(queries) + "\n"


@pytest.mark.parametrize("arguments, lines", [(["--tunnels"], []), ([], ["tunnels = true"])], ids=["option", "setting"])
def test_the_agent_stores_mirrored_traffic(tmp_path, arguments, lines):
    frames = MirroredFrames.inside("vxlan", tmp_path)
    expected = frames.calls(*EVERYTHING)
    with (
        mirror() as ns,
        agent(tmp_path, config(frames, *lines), arguments=arguments, prefix=inside(ns["here"])) as running,
    ):
        # Whatever it reads from here on must have been captured.
        running.wait_for("queries", "working")
        send_frames(ns, frames)
        labkit.wait_until(lambda: running.collector("queries")["last_data_ns"], "packets")
        assert running.stop() == 0
        assert stored(running) == expected


def test_tunnels_are_switched_on_while_the_agent_runs(tmp_path):
    frames = MirroredFrames.inside("vxlan", tmp_path)
    with mirror() as ns, agent(tmp_path, config(frames), prefix=inside(ns["here"])) as running:
        running.wait_for("queries", "working")
        # What the kernel does not keep is not there, however long one waits: the change comes after it.
        send_frames(ns, frames)
        (tmp_path / "agent.toml").write_text(config(frames, "tunnels = true"))
        running.child.send_signal(signal.SIGHUP)
        labkit.wait_until(lambda: "ring of queries" in running.errors(), "the change")
        send_frames(ns, frames)
        labkit.wait_until(lambda: running.collector("queries")["last_data_ns"], "packets")
        assert running.stop() == 0
        assert stored(running) == frames.calls(*EVERYTHING), "those of one time that they were sent"
