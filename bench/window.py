#!/usr/bin/env python3
"""Recording one operation into a window: instructions of `Window::record` as valgrind counts them, over 40 shapes, 8
applications and 20 client hosts. The count includes some 75 instructions of the program that makes the operations."""

import shutil

from lib.kit import EXAMPLES, build, figure, instructions_each, main, skip

# The instructions when this bench was written, and at most 3 % more.
LIMIT = 970 * 1.03


def bench():
    each = instructions_each(lambda rounds: [EXAMPLES / "window_instructions", rounds], 1_000, 201_000)
    figure("one operation", each, "instructions", limit=LIMIT)


if not shutil.which("valgrind"):
    skip("valgrind is not installed")
build("-p", "sonar-core", "--example", "window_instructions")
main(bench)
