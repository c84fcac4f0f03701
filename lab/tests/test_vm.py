"""The lab's virtual machine: what other tests rely on."""

import pathlib
import subprocess

import pytest

import vm

BPF = r"""
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1};
    if (syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map) < 0) return printf("no map: %s\n", strerror(errno)), 1;
    struct bpf_insn code[] = {{.code = BPF_ALU64 | BPF_MOV | BPF_K}, {.code = BPF_JMP | BPF_EXIT}};
    union bpf_attr program = {.prog_type = BPF_PROG_TYPE_KPROBE, .insns = (unsigned long)code, .insn_cnt = 2, .license = (unsigned long)"GPL"};
    if (syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program) < 0) return printf("no program: %s\n", strerror(errno)), 1;
    return puts("map and program"), 0;
}
"""


@pytest.mark.vm
def test_a_stock_kernel_with_types_and_bpf(tmp_path):
    """One boot tests everything: BTF, bpf as root, disks, modules, both outputs, the exit code, copied files."""
    (tmp_path / "bpf.c").write_text(BPF)
    subprocess.run(["cc", "-o", tmp_path / "bpf", tmp_path / "bpf.c"], check=True)
    script = """
        uname -r
        head -c 2 /sys/kernel/btf/vmlinux | od -An -tx1
        bpf
        cat /sys/block/vdb/size; lsmod | grep -c '^raid1 '
        test -t 1 || echo no terminal
        echo complaint >&2
        dd if=/dev/vda bs=8 count=1 2> /dev/null > /tmp/first
        seq 200000 > /tmp/long
        sleep 1000 &
        exit 7
    """
    image = tmp_path / "image"
    image.write_bytes(b"written here".ljust(1 << 20, b"\0"))
    done = vm.run(
        script,
        files=[(tmp_path / "bpf", "/bin/bpf")],
        disks=[image, 8],
        modules=["raid1"],
        take=["/tmp/first", "/tmp/long"],
    )
    assert done.code == 7, done
    kernel, magic, bpf, size, module, terminal = done.out.splitlines()
    assert kernel in (vm.KERNEL / "ready").read_text(), done
    # The magic number of BTF, little-endian (linux/btf.h).
    assert magic.split() == ["9f", "eb"] and bpf == "map and program", done
    assert (size, module, terminal) == (str(8 << 11), "1", "no terminal"), done
    assert done.err == "complaint\n", done
    assert done.taken["/tmp/first"] == b"written " and done.taken["/tmp/long"].split()[-1] == b"200000"
    config = (vm.KERNEL / "config").read_text()
    assert all(
        f"CONFIG_{option}=y" in config
        for option in ("DEBUG_INFO_BTF", "DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "BPF_SYSCALL")
    )


@pytest.mark.vm
def test_a_machine_that_dies_is_an_error():
    with pytest.raises(vm.Failed) as failure:
        vm.run("echo before; sleep 1; echo c > /proc/sysrq-trigger")
    assert "before" in str(failure.value) and "sysrq triggered crash" in str(failure.value)


@pytest.mark.vm
def test_missing_files_are_named_before_anything_runs():
    with pytest.raises(vm.Failed, match="no module nosuch"):
        vm.run("true", modules=["nosuch"])
    with pytest.raises(vm.Unavailable, match="nosuch-program"):
        vm.run("true", files=["nosuch-program"])


@pytest.mark.vm
def test_modules_come_after_their_dependencies():
    order = [pathlib.PurePath(path).stem for path in vm.module_order(["raid456", "xfs", "ext4"])]
    assert "ext4" not in order, "built in"
    for module, needed in [
        ("raid456", "md-mod"),
        ("raid456", "async_raid6_recov"),
        ("async_raid6_recov", "async_tx"),
        ("xfs", "libcrc32c"),
    ]:
        assert order.index(needed) < order.index(module)
