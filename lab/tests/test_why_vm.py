"""The programs of `why` and `stacks` on a stock Debian kernel, which differs from this machine's."""

import os
import subprocess

import pytest

import labkit
import vm


@pytest.mark.vm
def test_threads_are_followed_and_sampled_on_a_stock_kernel(tmp_path):
    """Runs the library's own tests, except those that need the timing or the speed of a real processor."""
    program = tmp_path / "library-test"
    subprocess.run(["strip", "-g", "-o", program, labkit.tests_of_sonar_sys()], check=True)
    tests = "a_long_wait split::tests::control::without_control_no_stack"
    if os.environ.get("LONG"):
        tests = "a_long_wait of_a_sample another_thread split::tests::control stacks:: --skip samples_of_long_ago"
    done = vm.run(f"library-test {tests} --test-threads 1 --nocapture 2>&1", files=[(program, "/bin/library-test")])
    assert done.code == 0 and "skipped" not in done.out, done
    assert "split::tests::a_long_wait_is_reported_with_the_stack_of_its_thread ... ok" in done.out, done
    refused = "split::tests::control::without_control_no_stack_of_another_process_is_reported ... ok"
    assert refused in done.out, done
    sampled = "stacks::tests::threads_of_this_process_are_seen_in_both_ways ... ok"
    assert sampled in done.out or not os.environ.get("LONG"), done
