"""The packages: what is in them, installing, upgrading, removing and purging them in a clean Debian, and the service in
its sandbox under a real systemd. They contain the program under test, so nothing is built but the packages."""

import fcntl
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import debian
import pytest
import tlskit

import labkit

ROOT = labkit.LAB.parent
CONFIGURATION = "/etc/mongosonar/agent.toml"
STORE = "/var/lib/mongosonar"
UNIT = "/usr/lib/systemd/system/mongosonar.service"
CAPABILITIES = ["CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}

pytestmark = [
    pytest.mark.skipif(not shutil.which("go"), reason="nfpm is built with Go, which is not installed"),
]
needs_debian = pytest.mark.skipif(bool(debian.missing()), reason=debian.missing() or "-")


def build(folder, **environment):
    command = [ROOT / "scripts/package.sh"]
    environment = {**os.environ, "MONGOSONAR": os.path.abspath(labkit.MONGOSONAR), "OUT": str(folder), **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def built_once(factory, name, **environment):
    """Builds packages once for all workers of a run. Returns their folder and the messages of the build."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, said = base / name, base / f"{name}.txt"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            done = build(folder, **environment)
            assert done.returncode == 0, done.stderr
            said.write_text(done.stderr)
    return folder, said.read_text()


@pytest.fixture(scope="session")
def packaged(tmp_path_factory):
    """The folder with the packages of the program under test, as `make package` makes it, and what that said."""
    return built_once(tmp_path_factory, "packages")


@pytest.fixture(scope="session")
def packages(packaged):
    """The folder with the packages."""
    return packaged[0]


@pytest.fixture(scope="session")
def newer(tmp_path_factory):
    """The same as a higher version."""
    return built_once(tmp_path_factory, "newer", VERSION="99.1.0")[0]


def only(folder, pattern):
    (found,) = folder.glob(pattern)
    return found


@pytest.fixture
def system(tmp_path):
    with debian.clean(tmp_path) as one:
        yield one


@pytest.fixture
def installed(system, packages):
    """A Debian with the package."""
    install(system, packages)
    return system


def install(system, folder):
    system.put(only(folder, "*.deb"), "/package.deb")
    return system.run("dpkg", "--install", "/package.deb")


def test_the_same_sources_give_the_same_packages(packages, tmp_path):
    assert build(tmp_path / "again").returncode == 0
    names = sorted(path.name for path in packages.iterdir() if path.is_file())
    assert [name for name in names if name.endswith((".deb", ".rpm"))], names
    for name in names:
        first, second = ((folder / name).read_bytes() for folder in (packages, tmp_path / "again"))
        assert first == second, name


def test_what_was_not_built_is_named(packaged):
    """The other architecture would need a program of its own."""
    packages, said = packaged
    assert f"skipped: {OTHER[os.uname().machine]}: " in said, said
    sums = dict(reversed(line.split()) for line in (packages / "SHA256SUMS").read_text().splitlines())
    assert {pathlib.PurePath(name).suffix for name in sums} == {".deb", ".rpm"}
    for name, digest in sums.items():
        assert hashlib.sha256((packages / name).read_bytes()).hexdigest() == digest


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """The folder with the packages of both architectures."""
    other = OTHER[os.uname().machine]
    folder = ROOT / f"target/{other}-unknown-linux-musl"
    built = [path for profile in ("debug", "release") if (path := folder / profile / "mongosonar").exists()]
    if not built:
        pytest.skip(f"no program for {other}: scripts/dist-musl.sh dev {other} builds it")
    folder = tmp_path_factory.mktemp("both")
    done = build(folder, MONGOSONAR_OTHER=str(max(built, key=os.path.getmtime)))
    assert done.returncode == 0 and "skipped" not in done.stderr, done.stderr
    return folder


def deb_of(file, folder):
    """Architecture and files of a .deb, which is unpacked into a folder."""
    run = lambda *words: subprocess.run(words, capture_output=True, text=True, check=True).stdout
    run("dpkg-deb", "--extract", file, folder)
    rows = [line.split(maxsplit=5) for line in run("dpkg-deb", "--contents", file).splitlines()]
    return run("dpkg-deb", "--field", file, "Architecture").strip(), {row[5]: (row[0], row[1]) for row in rows}


def rpm_of(file, folder):
    """The same for an .rpm."""
    # It may exit with 1 after all of it; a cut archive is an error below.
    content = subprocess.run(["rpm2cpio", file], capture_output=True).stdout
    subprocess.run(["busybox", "cpio", "-idm"], cwd=folder, input=content, capture_output=True, check=True)
    listed = rpm("--query", "--package", "--queryformat", "%{ARCH}\n[%{FILENAMES} %{FILEMODES:perms}\n]", file)
    arch, *rows = listed.splitlines()
    return arch, dict(row.split() for row in rows)


def test_both_architectures_have_the_same_files_and_programs_of_their_own(both, tmp_path):
    names = {name: (tmp_path / name) for name in ("deb-amd64", "deb-arm64", "rpm-x86_64", "rpm-aarch64")}
    for folder in names.values():
        folder.mkdir()
    debs = {arch: deb_of(only(both, f"*_{arch}.deb"), tmp_path / f"deb-{arch}") for arch in ("amd64", "arm64")}
    assert [debs[arch][0] for arch in debs] == ["amd64", "arm64"]
    assert debs["amd64"][1] == debs["arm64"][1] and "./usr/bin/mongosonar" in debs["arm64"][1]
    machines = {"deb-amd64": "X86-64", "deb-arm64": "AArch64"}
    if all(map(shutil.which, ("rpm", "rpm2cpio", "busybox"))):
        rpms = {arch: rpm_of(only(both, f"*.{arch}.rpm"), tmp_path / f"rpm-{arch}") for arch in ("x86_64", "aarch64")}
        assert [rpms[arch][0] for arch in rpms] == ["x86_64", "aarch64"]
        assert rpms["x86_64"][1] == rpms["aarch64"][1] and "/usr/bin/mongosonar" in rpms["aarch64"][1]
        machines |= {"rpm-x86_64": "X86-64", "rpm-aarch64": "AArch64"}
    for name, machine in machines.items():
        program = names[name] / "usr/bin/mongosonar"
        headers = subprocess.run(["readelf", "-hlW", program], capture_output=True, text=True, check=True).stdout
        assert re.search(rf"^ +Machine: .*{machine}", headers, re.M), (name, headers)
        # No other file depends on the architecture.
        for path in program.parents[2].rglob("*"):
            if path.is_file() and path != program:
                assert not path.read_bytes().startswith(b"\x7fELF"), path
    for arch in ("amd64", "arm64"):
        unpacked = (tmp_path / f"deb-{arch}/usr/bin/mongosonar").read_bytes()
        assert (both / f"container/linux-{arch}/mongosonar").read_bytes() == unpacked
    assert len((both / "SHA256SUMS").read_text().splitlines()) == 4


def commands(prefix=("mongosonar",)):
    """Every command of the program that has a manual page, as words."""
    help_text = labkit.run(*prefix[1:], "--help").stdout
    yield prefix
    section = re.search(r"^Commands:\n((?:  .*\n|\n)+)", help_text, re.M)
    for name in re.findall(r"^  (\w[\w-]*)", section[1], re.M) if section else []:
        if name != "help":
            yield from commands((*prefix, name))


def test_both_packages_have_everything_in_its_place(packages):
    expected = {
        "/usr/bin/mongosonar": "-rwxr-xr-x",
        UNIT: "-rw-r--r--",
        "/usr/lib/sysusers.d/mongosonar.conf": "-rw-r--r--",
        CONFIGURATION: "-rw-r-----",
        "/usr/share/bash-completion/completions/mongosonar": "-rw-r--r--",
        "/usr/share/fish/vendor_completions.d/mongosonar.fish": "-rw-r--r--",
        "/usr/share/doc/mongosonar/copyright": "-rw-r--r--",
        "/usr/share/doc/mongosonar/THIRD-PARTY-LICENSES.gz": "-rw-r--r--",
        "/usr/share/doc/mongosonar/changelog.gz": "-rw-r--r--",
    }
    expected |= {f"/usr/share/man/man1/{'-'.join(words)}.1.gz": "-rw-r--r--" for words in commands()}
    assert len(expected) > 30
    only_deb = {
        "/usr/share/zsh/vendor-completions/_mongosonar",
        "/usr/share/lintian/overrides/mongosonar",
        "/usr/share/doc/mongosonar/changelog.Debian.gz",
    }
    listed = subprocess.run(
        ["dpkg-deb", "--contents", only(packages, f"*_{ARCH}.deb")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    rows = [line.split(maxsplit=5) for line in listed]
    assert {row[1] for row in rows} == {"root/root"}
    files = {row[5].removeprefix("."): row[0] for row in rows if not row[0].startswith("d")}
    assert files == expected | dict.fromkeys(only_deb, "-rw-r--r--")
    if not shutil.which("rpm"):
        pytest.skip("the .deb is right; rpm is not installed")
    package = only(packages, "*.rpm")
    owners = "[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME}\n]"
    rows = [line.split() for line in rpm("--query", "--package", "--queryformat", owners, package).splitlines()]
    assert {row[2] for row in rows if row[0] != CONFIGURATION} == {"root:root"}
    assert [row[2] for row in rows if row[0] == CONFIGURATION] == ["root:mongosonar"]
    assert {row[0]: row[1] for row in rows} == expected | {"/usr/share/zsh/site-functions/_mongosonar": "-rw-r--r--"}
    assert rpm("--query", "--package", "--configfiles", package).split() == [CONFIGURATION]


def test_the_terms_of_what_the_program_contains_come_along(packages):
    text = gzip.decompress((packages / "container/licences/THIRD-PARTY-LICENSES.gz").read_bytes()).decode()
    names, _, terms = text.partition("=" * 80)
    listed = dict(re.findall(r"^  (\S+) [\d.]+\S*: (.+)$", names, re.M))
    # Some of what the crates bring along in C, and in Rust; nothing that only builds or tests the program.
    contained = {"libbpf-sys", "zstd-sys", "rusqlite", "libsqlite3-sys", "mongodb", "rustls", "ratatui", "clap", "toml"}
    assert contained <= listed.keys() and len(listed) > 150
    assert not {"proptest", "criterion", "insta", "libbpf-cargo", "serde_derive"} & listed.keys()
    without = re.findall(r"^(\S+) \S+ comes without the text", names, re.M)
    for name in listed.keys() - without:
        assert re.search(rf"^(.*, )?{re.escape(name)} \d", terms, re.M), name
    for part in ["GNU LESSER GENERAL PUBLIC LICENSE", "Rich Felker", "Apache License", "Mark Adler"]:
        assert part in terms, part
    assert "Files: *" in (packages / "container/licences/copyright").read_text()


def is_static(program):
    headers = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
    return "INTERP" not in headers


@pytest.mark.skipif(not shutil.which("lintian"), reason="lintian is not installed")
@pytest.mark.skipif(not os.environ.get("LONG"), reason="it computes for a quarter of a minute; LONG=1 lets it run")
def test_lintian_finds_no_error(packages):
    command = ["lintian", "--allow-root", "--fail-on", "error,warning", only(packages, "*.deb")]
    if not is_static(labkit.MONGOSONAR):
        # The package of a release has no use for a libc.
        command[2:2] = ["--suppress-tags", "missing-dependency-on-libc"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_debian
def test_the_program_runs_in_a_clean_debian(installed):
    version = installed.run("mongosonar", "--version").stdout
    assert version == labkit.run("--version").stdout
    doctor = json.loads(installed.run("mongosonar", "doctor", "--json", code=None).stdout)["checks"]
    assert {line["verdict"] for line in doctor if line["name"] in ("kernel", "packet-socket")} == {"ok"}, doctor
    # The shell finds the completions, and man the page.
    assert (
        "mongosonar"
        in installed.run("bash", "-c", ". /usr/share/bash-completion/completions/mongosonar; complete -p").stdout
    )
    assert gzip.decompress(installed.file("/usr/share/man/man1/mongosonar-queries.1.gz").read_bytes()).startswith(
        b".ie"
    )


@needs_debian
def test_the_service_has_a_user_and_waits_for_the_administrator(installed):
    user = installed.run("getent", "passwd", "mongosonar").stdout.strip().split(":")
    assert 0 < int(user[2]) < 1000 and user[5:] == [STORE, "/usr/sbin/nologin"], user
    assert installed.run("stat", "--format", "%U:%G %a", CONFIGURATION).stdout == "root:mongosonar 640\n"
    assert installed.run("systemctl", "is-enabled", "mongosonar", code=1).stdout == "disabled\n"
    assert not installed.file(STORE).exists()


@needs_debian
def test_the_configuration_is_found_and_checked(installed):
    assert installed.run("mongosonar", "agent", "--check-config").stdout == f"{CONFIGURATION}: valid\n"
    with installed.file(CONFIGURATION).open("a") as file:
        file.write("[stor]\n")
    wrong = installed.run("mongosonar", "agent", "--check-config", code=2).stderr
    assert CONFIGURATION in wrong and "stor" in wrong, wrong


@needs_debian
def test_an_upgrade_keeps_the_configuration_and_the_history(installed, newer):
    change(installed)
    kept = state(installed)
    install(installed, newer)
    assert "99.1.0-1" in installed.run("dpkg-query", "--show", "mongosonar").stdout
    assert state(installed) == kept


@needs_debian
def test_only_a_purge_removes_the_configuration_and_the_history(installed, packages):
    change(installed)
    installed.run("systemctl", "enable", "mongosonar")
    kept = state(installed)
    installed.run("dpkg", "--remove", "mongosonar")
    assert state(installed) == kept and not installed.file("/usr/bin/mongosonar").exists()
    install(installed, packages)
    assert state(installed) == kept
    installed.run("dpkg", "--purge", "mongosonar")
    left = installed.run("find", "/etc", "/var/lib", "/usr", "-path", "*mongosonar*").stdout
    # The list of the user's creation has no other trace of the package.
    assert left == "", left
    assert installed.run("getent", "passwd", "mongosonar").stdout, "its number must not become another one's"


def change(system):
    """What an administrator and the agent would leave behind."""
    with system.file(CONFIGURATION).open("a") as file:
        file.write("# a change by the administrator\n")
    system.run("install", "-d", "-o", "mongosonar", "-m", "0700", STORE)
    system.run("setpriv", "--reuid=mongosonar", "--clear-groups", "sh", "-c", f"echo history > {STORE}/2026-11-22.db")


def state(system):
    paths = [CONFIGURATION, STORE, f"{STORE}/2026-11-22.db"]
    owners = system.run("stat", "--format", "%n %U:%G %a", *paths).stdout
    return owners, system.file(CONFIGURATION).read_text(), system.file(f"{STORE}/2026-11-22.db").read_text()


@needs_debian
def test_a_package_manager_without_systemd_s_programs_is_refused(system, packages):
    """The dependency names what the scripts use."""
    system.run("rm", "/usr/bin/systemd-sysusers")
    system.put(only(packages, "*.deb"), "/package.deb")
    needed = system.run("dpkg-deb", "--field", "/package.deb", "Depends").stdout.strip()
    assert needed == "systemd | systemd-standalone-sysusers | systemd-sysusers"
    assert "systemd-sysusers" in system.run("dpkg", "--install", "/package.deb", code=1).stderr


def rpm(*words):
    return subprocess.run(["rpm", *(str(word) for word in words)], capture_output=True, text=True, check=True).stdout


@needs_debian
@pytest.mark.skipif(not shutil.which("rpm"), reason="rpm is not installed")
def test_the_rpm_installs_upgrades_and_leaves(system, packages, newer):
    """Its scripts run in the Debian, whose programs they find; rpm knows no package there that has them."""
    first, second = (only(folder, "*.rpm") for folder in (packages, newer))
    here = ["--root", system.path, "--nodeps"]
    rpm("--initdb", "--root", system.path)
    rpm("--install", *here, first)
    assert system.run("stat", "--format", "%U:%G %a", CONFIGURATION).stdout == "root:mongosonar 640\n"
    assert system.run("systemctl", "is-enabled", "mongosonar", code=1).stdout == "disabled\n"
    assert system.run("mongosonar", "--version").stdout
    change(system)
    kept = state(system)
    rpm("--upgrade", *here, second)
    assert state(system) == kept
    assert rpm("--query", "--root", system.path, "mongosonar").startswith("mongosonar-99.1.0-1.")
    # Of what is installed only the content of the configuration differs from the package.
    command = ["rpm", "--verify", "--root", system.path, "--nodeps", "mongosonar"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.split() == ["S.5....T.", "c", CONFIGURATION]
    rpm("--erase", *here, "mongosonar")
    assert not system.file("/usr/bin/mongosonar").exists()
    # The changed configuration stays as rpm names it, the history as it was.
    assert system.file(CONFIGURATION + ".rpmsave").read_text() == kept[1]
    assert system.file(f"{STORE}/2026-11-22.db").read_text() == kept[2]


@needs_debian
def test_the_sandbox_of_the_service_is_tight(installed):
    checked = installed.run("systemd-analyze", "verify", "--man=no", UNIT)
    assert "mongosonar" not in checked.stderr, checked.stderr
    rated = installed.run("systemd-analyze", "security", "--no-pager", "--offline=yes", UNIT).stdout
    score = re.search(r"Overall exposure level for mongosonar.service: ([\d.]+)", rated)
    assert float(score[1]) < 2.5, rated


# Plays a server: listens, keeps its log open, and reads its data all the time.
MONGOD = r"""
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(27017), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), log = open(words[2], O_RDWR | O_CREAT, 0600), data = open(words[3], O_RDONLY);
    char block[4096];
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 9) || log < 0 || data < 0) return 1;
    for (;; usleep(5000)) pread(data, block, sizeof block, 0);
}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory, packages):
    """A booted Debian with the package, and with a server of another user whose files nobody else may read. That server is
    a process of this machine, too."""
    folder = tmp_path_factory.mktemp("running")
    (folder / "mongod.c").write_text(MONGOD)
    subprocess.run(["cc", "-static", "-O2", "-o", folder / "mongod", folder / "mongod.c"], check=True)
    with debian.clean(folder) as system:
        install(system, packages)
        system.put(folder / "mongod", "/usr/bin/mongod")
        system.run("useradd", "--system", "mongodb")
        system.run("install", "-d", "-o", "mongodb", "-m", "0700", "/var/lib/mongodb", "/var/log/mongodb")
        system.run("dd", "if=/dev/zero", "of=/var/lib/mongodb/collection-0.wt", "bs=64k", "count=1")
        with system.booted():
            words = ["/usr/bin/mongod", "--logpath", "/var/log/mongodb/mongod.log", "/var/lib/mongodb/collection-0.wt"]
            system.run("systemd-run", "--unit", "mongod", "--uid", "mongodb", *words)
            yield system


def in_sandbox(system, command, settings=""):
    """Runs a command once as the service would run; returns what it prints, also if it fails."""
    override = f"""
        [Service]
        Type=oneshot
        WatchdogSec=0
        Restart=no
        SuccessExitStatus=1 5
        ExecStart=
        ExecStart={command}
        StandardOutput=truncate:/run/out
        StandardError=truncate:/run/err
    """
    folder = system.file("/run/systemd/system/mongosonar.service.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.conf").write_text(re.sub(r"^\s+", "", override, flags=re.M) + settings)
    try:
        system.run("systemctl", "daemon-reload")
        done = system.run("systemctl", "start", "mongosonar", code=None)
        assert done.returncode == 0, done.stderr + system.run("journalctl", "--no-pager", "-n", "30").stdout
        return system.file("/run/out").read_text(), system.file("/run/err").read_text()
    finally:
        shutil.rmtree(folder)
        system.run("systemctl", "daemon-reload")


def doctor(system, settings=""):
    out, err = in_sandbox(system, "/usr/bin/mongosonar doctor --json", settings)
    assert out, err
    return {line["name"]: line["verdict"] for line in json.loads(out)["checks"]}


# What the sources of the agent need, by the names of the doctor.
NEEDED = [
    "packet-socket",
    "tpacket-v3",
    "ring-memory",
    "fanout",
    "interfaces",
    "servers",
    "processes",
    "log",
    "connection",
]
NEEDED += ["ebpf", "confinement"]
# The clean Debian has a process namespace of its own, in which eBPF works but finds no process.
EXPECTED = dict.fromkeys(NEEDED, "ok") | {"ebpf": "warning"}


@pytest.mark.servers
@needs_debian
def test_everything_that_the_agent_needs_works_in_the_sandbox(running):
    found = doctor(running)
    assert {name: found.get(name) for name in NEEDED} == EXPECTED, found


@pytest.mark.servers
@needs_debian
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_no_capability_is_granted_without_need(running, capability):
    without = "".join(f"{setting}=~{capability}\n" for setting in ("AmbientCapabilities", "CapabilityBoundingSet"))
    found = doctor(running, without)
    assert [name for name in NEEDED if found.get(name) != EXPECTED[name]], (
        f"nothing is missing without {capability}: {found}"
    )


@pytest.mark.servers
@needs_debian
def test_the_sandbox_writes_only_the_history(running):
    folders = f"/etc /usr /var/log /var/lib/mongodb /home /root {STORE}"
    script = f"for folder in {folders}; do touch $folder/new && echo $folder; done"
    out, err = in_sandbox(running, f"/bin/sh -c '{script}'")
    assert out.split() == [STORE] and err.count("touch: cannot touch") == 6, (out, err)
    owners = running.run("stat", "--format", "%U %a", STORE, f"{STORE}/new").stdout
    assert owners.splitlines() == ["mongosonar 700", "mongosonar 600"]


def shown(system, *properties):
    """Properties of the service, as systemd knows them."""
    lines = system.run("systemctl", "show", "mongosonar", f"--property={','.join(properties)}").stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines)
    return [found[name] for name in properties]


def agent_status(system):
    done = system.run("mongosonar", "agent", "--status", "--json", code=None)
    return json.loads(done.stdout) if done.returncode == 0 else None


# The sources that deliver data here: the server writes no log, and has no diagnostic.data.
SOURCES = {"queries", "machine", "files"}


def working(system):
    found = agent_status(system)
    return (
        found
        if found and {one["name"] for one in found["collectors"] if one["state"] == "working"} >= SOURCES
        else None
    )


@pytest.fixture(scope="module")
def served(running):
    """The same with the service, and with traffic: the lab's server with its workload, as a mongod of another user."""
    running.put(labkit.LAB / "bin/server", "/opt/mongod")
    words = ["/opt/mongod", "--demo", "--listen", "127.0.0.1:27018"]
    running.run("systemd-run", "--unit", "lab-server", "--uid", "mongodb", *words)
    running.run("systemctl", "enable", "--now", "mongosonar")
    yield running
    running.run("systemctl", "disable", "--now", "mongosonar")


@pytest.mark.servers
@needs_debian
def test_the_service_collects_from_each_source(served):
    assert shown(served, "ActiveState", "UnitFileState") == ["active", "enabled"]
    found = labkit.wait_until(lambda: working(served), f"data of {SOURCES}: {agent_status(served)}")
    failed = [one for one in found["collectors"] if one["state"] == "failed"]
    assert not failed, failed
    assert {server["port"] for server in found["servers"]} == {27017, 27018}, found["servers"]
    # Its name as seen from the sandbox, which has a mount namespace of its own.
    assert any((server["log"] or "").endswith("/var/log/mongodb/mongod.log") for server in found["servers"])
    listed = served.run("find", STORE, "-printf", "%u %m %y %f\n").stdout.splitlines()
    assert "mongosonar 700 d mongosonar" in listed and len(listed) > 2
    assert all(line.startswith(("mongosonar 600 f ", "mongosonar 700 d ")) for line in listed), listed


@pytest.mark.servers
@needs_debian
def test_the_service_has_no_privileges_left(served):
    labkit.wait_until(lambda: working(served), "data")
    (pid,) = shown(served, "MainPID")
    status = served.file(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == int(fields["CapAmb"], 16) == 0
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert fields["Uid"].split() == served.run("id", "-u", "mongosonar").stdout.split() * 4


@pytest.mark.servers
@needs_debian
def test_the_service_attaches_to_the_tls_library_of_a_server_that_starts_later(served, tmp_path):
    """TLS ends in the lab's relay, which uses OpenSSL as mongod does, as another user, in front of the lab's server. This
    Debian has process numbers of its own, which the kernel's programs do not know, so nothing is read here."""
    labkit.wait_until(lambda: working(served), "data")
    served.put(labkit.LAB / "bin/membio", "/opt/tls/mongod")
    served.put(tlskit.certificate(tmp_path), "/opt/tls/both.pem")
    served.run("chmod", "0644", "/opt/tls/both.pem")
    words = ["/opt/tls/mongod", "27019", "27018", "/opt/tls/both.pem"]
    served.run("systemd-run", "--unit", "lab-tls", "--uid", "mongodb", *words)
    journal = lambda: served.run("journalctl", "--no-pager", "-u", "mongosonar").stdout
    attached = lambda: re.search(r"encrypted connections .*", journal())
    said = labkit.wait_until(attached, "word of encrypted connections", 40)[0]
    served.run("systemctl", "stop", "lab-tls")
    assert re.fullmatch(r"encrypted connections of process \d+ in libssl\.so\.3", said), said
    (active,) = shown(served, "ActiveState")
    assert active == "active"


@pytest.mark.servers
@needs_debian
def test_a_wrong_configuration_does_not_reach_the_service(served):
    # Run by itself, it begins when the service has just been started.
    labkit.wait_until(lambda: working(served), "data")
    (pid,) = shown(served, "MainPID")
    good = served.file(CONFIGURATION).read_text()
    served.file(CONFIGURATION).write_text(good + "[stor]\n")
    assert served.run("systemctl", "reload", "mongosonar", code=None).returncode != 0
    assert shown(served, "ActiveState", "MainPID") == ["active", pid]
    served.file(CONFIGURATION).write_text(good.replace("# log = true", "log = false"))
    served.run("systemctl", "reload", "mongosonar")
    state = lambda: {one["name"]: one["state"] for one in agent_status(served)["collectors"]}["log"]
    labkit.wait_until(lambda: state() == "off", "the change")
    served.file(CONFIGURATION).write_text(good)
    served.run("systemctl", "reload", "mongosonar")
    # A reload ends a moment after the command.
    labkit.wait_until(lambda: shown(served, "ActiveState") == ["active"], "the end of the reload")
    assert shown(served, "MainPID", "NRestarts") == [pid, "0"]


@pytest.mark.servers
@needs_debian
def test_the_service_stops_cleanly_and_an_upgrade_restarts_it(served, newer, packages):
    labkit.wait_until(lambda: working(served), "data")
    (before,) = shown(served, "MainPID")
    install(served, newer)
    active, after, result = shown(served, "ActiveState", "MainPID", "Result")
    assert (active, result) == ("active", "success") and after != before
    assert agent_status(served) is None or labkit.wait_until(lambda: working(served), "data")
    served.run("systemctl", "stop", "mongosonar")
    assert shown(served, "ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"]
    # An upgrade starts nothing that its administrator has stopped.
    served.run("dpkg", "--install", "/package.deb")
    assert shown(served, "ActiveState", "UnitFileState") == ["inactive", "enabled"]


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("buildah"), reason="buildah is not installed")
def test_the_image_holds_the_program_and_its_terms_only(packages, tmp_path):
    """Built and run without a daemon. The program under test needs a libc, the static one of a release does not."""
    storage = ["buildah", "--root", tmp_path / "storage", "--runroot", tmp_path / "run", "--storage-driver", "vfs"]
    context = packages / "container"
    command = [*storage, "build", "--isolation", "chroot", "--tag", "mongosonar", context]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    container = subprocess.run(
        [*storage, "from", "mongosonar"], capture_output=True, text=True, check=True
    ).stdout.strip()
    folder = pathlib.Path(
        subprocess.run([*storage, "mount", container], capture_output=True, text=True, check=True).stdout.strip()
    )
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    documents = {f"usr/share/doc/mongosonar/{name}" for name in os.listdir(context / "licences")}
    assert files == documents | {"usr/bin/mongosonar"}
    assert (folder / "usr/bin/mongosonar").stat().st_mode & 0o777 == 0o755
    inspected = subprocess.run([*storage, "inspect", "mongosonar"], capture_output=True, text=True, check=True).stdout
    settings = json.loads(inspected)["OCIv1"]["config"]
    assert (settings["Entrypoint"], settings["Cmd"]) == (["/usr/bin/mongosonar"], ["agent"])
    assert list(settings["Volumes"]) == [STORE]
