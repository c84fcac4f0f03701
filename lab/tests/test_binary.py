"""The program as a file: what it needs where it is copied to."""

import re
import subprocess

import labkit

# What glibc itself consists of.
LIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_it_needs_no_shared_library_but_those_of_libc():
    done = subprocess.run(["readelf", "-d", labkit.MONGOSONAR], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))
    assert needed <= LIBC, needed - LIBC
