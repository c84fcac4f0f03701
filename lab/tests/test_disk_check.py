"""`mongosonar disk check` of real file systems, and of other machines as directory trees."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

import pytest
from disks import loop_file_system, needs, run

import labkit


def checked(*options):
    """The document of a check, whatever it has found."""
    return json.loads(run("check", "--json", *options, code=None).stdout)


@pytest.mark.root
@pytest.mark.parametrize(
    "kind,options,grades",
    [
        ("xfs", "noatime", {"file-system": "ok", "atime": "ok"}),
        ("xfs", "relatime", {"file-system": "ok", "atime": "warning"}),
        ("ext4", "noatime", {"file-system": "warning", "atime": "ok"}),
        ("ext4", "strictatime", {"file-system": "warning", "atime": "warning"}),
    ],
)
def test_check_of_a_real_file_system(kind, options, grades):
    with loop_file_system(kind, options) as (point, _):
        done = run("check", "--json", "--dbpath", point, code=None)
        result = json.loads(done.stdout)
        found = {finding["name"]: finding for finding in result["findings"]}
        assert {name: found[name]["verdict"] for name in grades} == grades
        assert str(point) in found["file-system"]["found"]
        for finding in result["findings"]:
            assert finding["why"] and finding["document"]
            if finding["verdict"] != "ok" and finding["name"] != "raid":
                assert finding["remedy"] or finding["name"] in ("file-system", "rotational", "scheduler")
        assert done.returncode == {"ok": 0, "warning": 4, "problem": 5}[result["worst"]]


@pytest.mark.root
def test_the_remedy_of_a_finding_fixes_it():
    with loop_file_system("ext4", "strictatime") as (point, _):

        def atime():
            findings = checked("--dbpath", point)["findings"]
            return next(finding for finding in findings if finding["name"] == "atime")

        before = atime()
        command = before["remedy"].split("   ")[0].removeprefix("sudo ").split()
        subprocess.run(command, check=True)
        assert (before["verdict"], atime()["verdict"]) == ("warning", "ok")


def test_check_of_a_folder_in_memory():
    if not os.path.ismount("/dev/shm"):
        pytest.skip("no /dev/shm")
    found = {f["name"]: f for f in checked("--dbpath", "/dev/shm")["findings"]}
    assert found["file-system"]["verdict"] == "problem" and "memory" in found["file-system"]["why"]


MACHINES = labkit.LAB.parent / "fixtures/machines"


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Creates the directory tree of a recording."""
    sys.path.insert(0, str(MACHINES))
    import tree

    def make(name):
        folder = tmp_path_factory.mktemp(name)
        tree.make(MACHINES / f"{name}.txt", folder)
        return folder

    return make


@pytest.mark.parametrize(
    "name,dbpath,expected,words",
    [
        (
            "vm",
            "/mnt/a",
            {"file-system": "ok", "atime": "ok", "raid": "warning", "stripe": "warning"},
            "raid0 of vda, vdb",
        ),
        (
            "vm",
            "/mnt/b",
            {"file-system": "warning", "atime": "warning", "raid": "warning", "stripe": "ok"},
            "raid5 of vdc, vdd, vde",
        ),
        ("vm", "/mnt/c", {"raid": "ok", "stripe": "ok"}, "raid10 of vdf, vdg, vdh, vdi"),
        ("vm", "/mnt/d", {"raid": "warning", "stripe": "ok"}, "striped of vdj, vdk, chunks of 64 KiB"),
        ("vm", "/mnt/e", {"file-system": "warning", "atime": "warning", "rotational": "ok"}, "sda"),
        ("vm", "/mnt/f", {"file-system": "ok", "readahead": "warning", "rotational": "ok"}, "nvme0n1"),
        ("vm-degraded", "/mnt/c", {"raid-degraded": "problem"}, "1 missing"),
        ("vm-degraded", "/mnt/f", {"readahead": "ok"}, "16 KiB"),
        (
            "cloud",
            None,
            {
                "file-system": "ok",
                "atime": "ok",
                "readahead": "ok",
                "scheduler": "ok",
                "huge-pages": "ok",
                "huge-pages-defrag": "ok",
                "rseq": "ok",
                "overcommit": "ok",
                "swappiness": "ok",
                "numa": "ok",
                "limits": "ok",
                "max-map-count": "ok",
            },
            "8.0",
        ),
        (
            "container",
            None,
            {"file-system": "problem", "limits": "problem", "numa": "warning", "swappiness": "warning"},
            "overlay",
        ),
        (
            "limited",
            None,
            {
                "file-system": "ok",
                "memory": "problem",
                "memory-kills": "warning",
                "processors": "problem",
                "tasks": None,
                "rseq": "ok",
                "overcommit": "ok",
                "huge-pages": "ok",
            },
            "of the limit of 4.0 GiB",
        ),
        (
            "container",
            "/volume",
            {"file-system": "ok", "rotational": "warning", "scheduler": "ok", "readahead": "warning"},
            "ST4000NM0035",
        ),
    ],
)
def test_check_of_another_machine(machine, name, dbpath, expected, words):
    options = ["--dbpath", dbpath] if dbpath else []
    done = run("check", "--json", "--root", machine(name), *options, code=None)
    assert done.returncode in (0, 4, 5), done.stderr
    result = json.loads(done.stdout)
    grades = {}
    for finding in result["findings"]:
        order = ["ok", "warning", "problem"]
        grades[finding["name"]] = max(grades.get(finding["name"], "ok"), finding["verdict"], key=order.index)
    assert {check: grades.get(check) for check in expected} == expected, done.stdout
    assert any(words in finding["found"] for finding in result["findings"]), done.stdout


# Commands that can destroy data, or an array or volume that holds it.
DESTRUCTIVE = re.compile(
    r"(?<![\w-])(mkfs|mke2fs|dd|wipefs|rm|rmdir|shred|s?g?fdisk|sgdisk|gdisk|parted|[lvp]vremove|vgremove|lvreduce|[lp]vcreate|vgcreate|mkswap|blkdiscard)"
    r"(\.\w+)?(?![\w-])|--create|--zero-superblock|--stop|--remove|of=/dev|>\s*/dev/"
)


@pytest.mark.parametrize("name", sorted(path.stem for path in MACHINES.glob("*.txt")))
def test_check_never_prints_a_command_that_destroys_data(machine, name):
    root = machine(name)
    points = {line.split()[4] for line in (root / "proc/self/mountinfo").read_text().splitlines() if line.strip()}
    assert "/" in points
    remedies = 0
    for point in sorted(points):
        options = ["--root", root, "--dbpath", point]
        findings = checked(*options)["findings"]
        for finding in findings:
            text = " ".join(str(finding[part]) for part in ("found", "why", "remedy"))
            assert not DESTRUCTIVE.search(text), finding
            remedies += bool(finding["remedy"])
        shown = run("check", *options, code=None).stdout
        assert not DESTRUCTIVE.search(shown) and "mend it" not in shown, shown
    assert remedies


@pytest.mark.parametrize(
    "kind,source,where",
    [
        ("virtiofs", "data", "the host's disk"),
        ("9p", "share", "the host's disk"),
        ("zfs", "tank/mongo", "ZFS reads ahead"),
        ("nfs4", "nas:/mongo", "the server"),
        ("ceph", "10.0.0.1:/", "the machines that keep the data"),
        ("fuse.sshfs", "me@there:/", "what its process keeps"),
    ],
)
def test_check_says_where_readahead_and_scheduler_are_if_no_device_can_be_seen(machine, kind, source, where):
    root = machine("cloud")
    table = (
        f"25 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n31 25 0:52 / /data rw,noatime,hard,nolock - {kind} {source} rw\n"
    )
    for process in ("self", "1207"):
        (root / f"proc/{process}/mountinfo").write_text(table)
    result = checked("--root", root)
    names = {finding["name"] for finding in result["findings"]}
    assert not {"readahead", "scheduler", "rotational"} & names
    [words] = [words for words in result["unseen"] if words.startswith("readahead and scheduler")]
    assert f"({kind})" in words and where in words, words


def test_check_without_a_mongod_has_no_findings_about_one(machine):
    root = machine("cloud")
    shutil.rmtree(root / "proc/1207")
    result = checked("--root", root, "--dbpath", "/")
    assert not {"limits", "max-map-count"} & {finding["name"] for finding in result["findings"]}
    assert any(line.startswith("mongod: none runs here") for line in result["unseen"]), result["unseen"]


def test_check_of_a_well_configured_machine_is_all_ok(machine):
    run("check", "--root", machine("cloud"))


BUILD_INFO = (
    '{"t":{"$date":"2024-01-05T10:11:12.131+00:00"},"s":"I","c":"CONTROL","id":23403,"ctx":"initandlisten","msg":"Build Info",'
    '"attr":{"buildInfo":{"version":"%s","gitVersion":"7809d71e84e314b497f282ea8aa06d7ded3eb205"}}}\n'
)


@pytest.mark.parametrize(
    "program,files,version,source",
    [
        ("/opt/mongodb-linux-x86_64-rhel80-6.0.12/bin/mongod", {}, "6.0", "the path of its program"),
        ("/usr/bin/mongod", {"var/log/mongo.log": BUILD_INFO % "5.0.1" + BUILD_INFO % "7.0.5"}, "7.0", "its log"),
        # An older package is installed too; the running version counts.
        (
            "/opt/mongodb/bin/mongod",
            {
                "var/log/mongo.log": BUILD_INFO % "8.0.1",
                "var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: install ok installed\nVersion: 4.4.1\n",
            },
            "8.0",
            "its log",
        ),
        (
            "/usr/bin/mongod",
            {"var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: install ok installed\nVersion: 1:4.4.1-2\n"},
            "4.4",
            "package",
        ),
        (
            "/usr/bin/mongod",
            {"var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: deinstall ok config-files\nVersion: 4.4.1\n"},
            None,
            "no package",
        ),
        (
            "/opt/mongodb/bin/mongod",
            {"var/lib/dpkg/status": "Package: mongodb-org-server\nStatus: install ok installed\nVersion: 4.4.1\n"},
            None,
            "did not come out of a package",
        ),
        ("/usr/bin/mongod", {"var/log/mongo.log": "nothing of a start\n"}, None, "/var/log/mongo.log has no start"),
        ("/usr/bin/mongod", {}, None, "/data/diagnostic.data"),
    ],
)
def test_check_finds_the_version_of_mongod_or_names_what_it_could_not_see(machine, program, files, version, source):
    root = machine("cloud")
    (root / "var/lib/dpkg/status").unlink()
    (root / "proc/1207/cmdline").write_text(f"{program}\0--config\0/etc/mongod.conf\0")
    (root / "etc/mongod.conf").write_text(
        "storage:\n  dbPath: /data\nsystemLog:\n  destination: file\n  path: /var/log/mongo.log\n"
    )
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    result = checked("--root", root)
    found = next(finding["found"] for finding in result["findings"] if finding["name"] == "huge-pages")
    unseen = [words for words in result["unseen"] if words.startswith("version of mongod")]
    if version:
        assert f"for mongod {version} (from {source}" in found or f"for mongod {version} (from the {source}" in found, (
            found
        )
        assert not unseen
    else:
        assert "is unknown" in found and "--mongod-version" in unseen[0] and source in unseen[0], unseen


# A mongod of root in its own PID namespace, so that no other one is visible; each command looks at it.
OTHER_USER = """
"$0" 60 & mongod=$!
until [ "$(cat /proc/$mongod/comm)" = mongod ]; do sleep 0.01; done
echo $mongod > "$1/pid"
shift
setpriv --reuid=65533 --regid=65533 --clear-groups "$@" > "$OUT/nobody"; echo $? >> "$OUT/codes"
"$@" > "$OUT/root"; echo $? >> "$OUT/codes"
kill $mongod
"""


@pytest.mark.root
@pytest.mark.servers
def test_check_without_root_names_what_it_could_not_see(tmp_path):
    """The user nobody checks a process of root that is named mongod."""
    needs("setpriv", "unshare")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(shutil.which("sleep"), f"{folder}/mongod")
        binary = shutil.copy(labkit.MONGOSONAR, f"{folder}/mongosonar")
        inside = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "sh", "-c", OTHER_USER, program, tmp_path]
        check = [binary, "disk", "check", "--json", "--dbpath", folder]
        command = [str(word) for word in [*inside, *check]]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={**os.environ, "OUT": str(tmp_path)}
        )
    read = lambda name: (tmp_path / name).read_text()
    assert done.returncode == 0 and set(map(int, read("codes").split())) <= {0, 4, 5}, done.stderr
    seen, less = (json.loads(read(name)) for name in ("root", "nobody"))
    assert f"mongod runs here: process {int(read('pid'))}" in less["about"]
    # Facts that everybody may read give the same findings.
    alike = {"kernel", "file-system", "atime", "readahead", "swappiness", "max-map-count", "limits", "free-space"}
    judged = lambda result: {f["name"]: f["verdict"] for f in result["findings"] if f["name"] in alike}
    assert judged(less) == judged(seen)
    assert any(words.startswith("version of mongod") for words in less["unseen"])


def test_check_of_a_folder_uses_the_mongod_that_owns_it(tmp_path):
    for pid, folder in [(10, "/data/one"), (20, "/data/two"), (30, "/data/three")]:
        own = tmp_path / "proc" / str(pid)
        own.mkdir(parents=True)
        (own / "comm").write_text("mongod\n")
        (own / "cmdline").write_bytes(b"/usr/bin/mongod\0--dbpath=" + folder.encode() + b"\0")
    for folder, pid in [("/data/two", 20), ("/data/three", 30), ("/data/none", 10)]:
        found = checked("--root", tmp_path, "--dbpath", folder)
        assert f"mongod runs here: process {pid}" in found["about"], found


def test_check_asks_whose_data_is_meant_if_several_mongod_run(tmp_path):
    for pid, words in [(10, ["--dbpath=/data/one"]), (20, []), (30, ["-f", "/etc/mongod.conf"])]:
        own = tmp_path / "proc" / str(pid)
        own.mkdir(parents=True)
        (own / "comm").write_text("mongod\n")
        (own / "cmdline").write_bytes("".join(f"{word}\0" for word in ["/usr/bin/mongod", *words]).encode())
    done = run("check", "--root", tmp_path, code=2)
    assert not done.stdout, done
    for named in [
        "3 mongod run here: give --dbpath",
        "/data/one (process 10)",
        "/data/db (process 20)",
        "its folder cannot be seen without root (process 30)",
    ]:
        assert named in done.stderr, done.stderr


def test_a_folder_that_nothing_names_is_a_guess(tmp_path):
    own = tmp_path / "proc/5726"
    own.mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (own / "comm").write_text("mongod\n")
    (own / "status").write_text("Name:\tmongod\nUid:\t999\t999\t999\t999\n")
    (own / "cmdline").write_bytes(b"/usr/bin/mongod\0-f\0/etc/mongod.conf\0")

    def about():
        found = checked("--root", tmp_path)
        return found["about"], found["dbpath"], found["dbpath_is_guess"]

    # Its configuration is not in the copy.
    sentence, folder, is_guess = about()
    assert (folder, is_guess) == ("/data/db", True)
    assert "is only a guess" in sentence and "mongod (process 5726, user 999)" in sentence, sentence
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nmongodb:x:999:999::/:/bin/false\n")
    assert "process 5726, user mongodb" in about()[0]
    (tmp_path / "etc/mongod.conf").write_text("net:\n  port: 1\n")
    sentence, folder, is_guess = about()
    assert (folder, is_guess) == ("/data/db", False) and "mongod's default" in sentence, sentence
    (tmp_path / "etc/mongod.conf").write_text("storage:\n  dbPath: /data/real\n")
    assert about() == ("/data/real, the data of mongod (process 5726, user mongodb)", "/data/real", False)


@pytest.mark.root
@pytest.mark.apart
def test_a_link_in_a_container_leads_to_its_own_files(tmp_path):
    busybox = shutil.which("busybox")
    if not busybox or b"dynamically" in subprocess.run(["file", "-L", busybox], capture_output=True).stdout:
        pytest.skip("no static busybox is installed")
    root, host = tmp_path / "root", tmp_path / "host"
    for folder in (root / "data", root / "own", host):
        folder.mkdir(parents=True)
    for name in ("busybox", "mongod"):
        shutil.copy(busybox, root / name)
    # buildInfo.version of the first document: {doc: {buildInfo: {version: …}}}
    for folder, version in [(root / "own", b"7.0.5"), (host, b"9.9.9")]:
        text = struct.pack("<i", len(version) + 1) + version + b"\0"
        inner = b"\x02version\0" + text + b"\0"
        for name in (b"buildInfo", b"doc"):
            inner = b"\x03" + name + b"\0" + struct.pack("<i", len(inner) + 4) + inner + b"\0"
        (folder / "metrics.2026-01-01T00-00-00Z-00000").write_bytes(struct.pack("<i", len(inner) + 4) + inner)
    link = root / "data/diagnostic.data"
    command = ["chroot", root, "/busybox", "sh", "-c", "exec -a sh /mongod -c 'echo ready; read line' --dbpath /data"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with labkit.process(command, executable="/usr/sbin/chroot", **pipes) as child:
        assert child.stdout.readline() == b"ready\n"
        for target, is_found in [(host, False), ("/own", True)]:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            done = run("check", "--json", code=None)
            assert ("mongod 7.0 (from its diagnostic.data)" in done.stdout) == is_found, done.stdout
            assert "mongod 9.9" not in done.stdout, done.stdout


def test_check_of_an_invalid_root(tmp_path):
    assert "proc" in run("check", "--root", tmp_path, code=1).stderr
