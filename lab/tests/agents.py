"""An agent that is asked by reading its status, which costs a busy machine less than asking the program."""

import contextlib
import json
import subprocess
import time

import labkit


class AgentLife:
    """An agent from its start to its end."""

    def __init__(self, folder, store):
        self.store, self.began, self.ended = store, time.time(), None
        # Since when it is known to capture.
        self.watches_since = None
        command = [labkit.MONGOSONAR, "agent", "--store", store, "--config", folder / "agent.toml"]
        self.err = folder / "agent.err"
        with open(self.err, "ab") as err:
            self.child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stderr=err)

    def status(self):
        """What it has written of itself; asking it costs more than reading that."""
        with contextlib.suppress(OSError, ValueError):
            status = json.loads((self.store / "agent.json").read_bytes())
            return status if status["pid"] == self.child.pid else None
        return None

    def problems(self, name):
        """What is wrong with a collector, in one text."""
        return "\n".join((self.collector(name) or {}).get("problems", []))

    def errors(self):
        """What it has printed, with what earlier ones have."""
        return self.err.read_text()

    def collector(self, name):
        status = self.status()
        return next((one for one in status["collectors"] if one["name"] == name), None) if status else None

    def wait(self, condition, what):
        def holds():
            assert self.child.poll() is None, f"the agent ended with {self.child.returncode}"
            return condition()

        deadline = time.monotonic() + 120
        while not (value := holds()):
            assert time.monotonic() < deadline, f"{what}: did not come"
            # span: between two looks
            time.sleep(0.1)
        return value

    def wait_until_read(self):
        """Waits until it has read what stands in the log now: lines come all the time."""
        now = time.time_ns()
        self.wait(lambda: ((self.collector("log") or {}).get("last_data_ns") or 0) > now, "the log")

    def waited_for_processor(self):
        """For how many seconds each thread was ready to run and did not, since it began; by its number."""
        threads = labkit.of_each_thread(self.child.pid, "stat", "schedstat")
        return {int(stat.split()[0]): int(text.split()[1]) / 1e9 for stat, text in threads}

    def end(self, number):
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
