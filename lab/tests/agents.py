"""An agent whose status is read from its store, which costs a busy machine less than asking the program."""

import contextlib
import json
import signal
import subprocess
import time

import labkit

# Seconds of a window.
WINDOW_S = 10


class Agent:
    """A running agent, from its start to its end."""

    def __init__(self, child, store, err):
        self.child, self.store, self.err = child, store, err
        self.began, self.ended = time.time(), None
        # Since when it is known to capture.
        self.watches_since = None

    @classmethod
    def start(cls, folder, store):
        """Starts one with the configuration in `folder`, and does not wait for it. At the end of a block it is killed."""
        command = [labkit.MONGOSONAR, "agent", "--store", store, "--config", folder / "agent.toml"]
        path = folder / "agent.err"
        with open(path, "ab") as err:
            child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stderr=err)
        return cls(child, store, path)

    def status(self):
        """What it has written of itself; asking it costs more than reading that."""
        with contextlib.suppress(OSError, ValueError):
            status = json.loads((self.store / "agent.json").read_bytes())
            return status if status["pid"] == self.child.pid else None
        return None

    def asked_status(self):
        """What the program says of it; none if no agent runs."""
        done = labkit.run("agent", "--status", "--json", "--store", self.store, code=None)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def collector(self, name):
        status = self.status() or {"collectors": []}
        return next((one for one in status["collectors"] if one["name"] == name), {"state": "none"})

    def problems(self, name):
        """What is wrong with a collector, in one text."""
        return "\n".join(self.collector(name).get("problems", []))

    def errors(self):
        """What it has printed, with what earlier ones in the same folder have."""
        return self.err.read_text()

    def wait(self, condition, what, seconds=120.0):
        """Waits for a condition; fails at once if the agent ends."""

        def holds():
            assert self.child.poll() is None, f"the agent ended with {self.child.returncode}: {self.errors()}"
            return condition()

        return labkit.wait_until(holds, what, seconds)

    def wait_for(self, name, state, seconds=120.0):
        """Waits for a state of a collector."""
        self.wait(lambda: self.collector(name)["state"] == state, f"{name} {state}", seconds)

    def wait_until_read(self):
        """Waits until it has read what stands in the logs now: lines come all the time."""
        now = time.time_ns()
        self.wait(lambda: (self.collector("log").get("last_data_ns") or 0) > now, "the log")

    def observe(self, windows):
        """Waits until it has stored so many windows that begin after now."""
        # They lie on the boundaries of the clock.
        boundary = (int(time.time()) // WINDOW_S + 1) * WINDOW_S
        status = lambda: self.status() or {"windows": 0, "last_window_ns": None}
        self.wait(lambda: (status()["last_window_ns"] or 0) >= boundary * 10**9, "the window before")
        before = status()["windows"]
        stored = lambda: status()["windows"] - before
        self.wait(lambda: stored() >= windows, f"{windows} windows", windows * WINDOW_S + 60)

    def waited_for_processor(self):
        """For how many seconds each thread was ready to run and did not, since it began; by its number."""
        threads = labkit.of_each_thread(self.child.pid, "stat", "schedstat")
        return {int(stat.split()[0]): int(text.split()[1]) / 1e9 for stat, text in threads}

    def stop(self, number=signal.SIGTERM):
        """Sends a signal and waits for the end."""
        # What it may have stored by then.
        self.ended = time.time()
        self.child.send_signal(number)
        return self.child.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
            # On a file system that hangs it may not end before that is gone.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(10)
