"""The page that `make bench` writes, with benches of our own instead of the real ones."""

import subprocess
import sys

import pytest

import labkit

BENCH = labkit.LAB.parent / "bench"
START = f"import sys\nsys.path.insert(0, {str(BENCH)!r})\nfrom lib.kit import *\n"
FAST = '''"""How fast it is, in
two lines.

Not for the page."""
'''


@pytest.fixture
def folder(tmp_path):
    benches = {
        "fast": FAST
        + START
        + """
figure("speed", 1234.5, "MB/s", peer="other", peer_value=617.25, least=1000)
figure("memory", 250, "MiB", limit=200)
figure("time", 2, "ns", peer="slow", peer_value=100, share=0.01)
figure("no | limit", 3)
note("Medians.")
skipped("the other peer is not installed")
""",
        "absent": START + "skip('no tool')",
        "broken": START + "figure('first', 1, limit=2)\nsys.exit('cannot open /tmp/some/file')",
        "last": START + "figure('after them', 1)",
    }
    for name, source in benches.items():
        (tmp_path / f"{name}.py").write_text(source)
    return tmp_path


def run(folder, *names):
    command = [sys.executable, "-B", BENCH / "run.py", "--page", folder / "page.md", "--benches", folder, *names]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    page = folder / "page.md"
    return done, page.read_text() if page.exists() else ""


def test_every_figure_stands_beside_its_peer_and_its_limit(folder):
    done, page = run(folder, "fast")
    assert done.returncode == 0, done.stderr
    assert "| speed | 1,234 MB/s | other: 617 MB/s, 0.5 × ours | at least 1,000 MB/s | met |" in page
    assert "| memory | 250 MiB |  | at most 200 MiB | **missed** |" in page
    assert "| time | 2 ns | slow: 100 ns, 50 × ours | at most 1 % of slow | **missed** |" in page
    assert "| no \\| limit | 3 |  |  |  |" in page
    assert "\n## fast\n\nHow fast it is, in two lines.\n\n| figure |" in page
    assert "- Medians.\n- Skipped: the other peer is not installed.\n- Load before: " in page


def test_a_bench_that_fails_or_is_skipped_is_named_and_the_others_run(folder):
    done, page = run(folder, "absent", "broken", "last")
    assert done.returncode == 1
    assert "failed: broken: cannot open" in done.stderr
    assert "- Skipped: no tool." in page
    assert "| first | 1 |  | at most 2 | met |" in page and "- Failed: cannot open file\n" in page
    assert "| after them | 1 |" in page
    assert str(folder) not in page


def test_a_run_of_some_replaces_only_their_tables_and_says_when(folder):
    _, before = run(folder, "fast", "last")
    old = "2020-02-03, commit 0123456789ab"
    before = before.replace(before.split("Measured on ")[1].split(". ")[0], old).replace("1,234", "9,999")
    (folder / "page.md").write_text(before)
    (folder / "last.py").write_text(START + "figure('after them', 2)")
    done, page = run(folder, "last")
    assert done.returncode == 0, done.stderr
    assert f"Measured on {old}. " in page and "9,999 MB/s" in page
    kept, replaced = page.split("## last")
    assert kept == before.split("## last")[0]
    assert "| after them | 2 |" in replaced and ", commit " in replaced
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


def test_an_unknown_bench_writes_nothing(folder):
    done, page = run(folder, "fast", "missing")
    assert done.returncode == 2 and "missing" in done.stderr and not page
