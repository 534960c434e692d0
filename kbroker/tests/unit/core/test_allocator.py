"""What malloc keeps of freed memory, in a process of its own: the setting is for the whole of it."""

import subprocess
import sys

import pytest

THREAD = """
import re, sys, threading
from pathlib import Path
from kbroker._core.allocator import keep_little

def resident_mib():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) // 1024

def work():
    before = resident_mib()
    large = b"x" * (30 << 20)
    del large  # what malloc keeps follows the largest block that was freed
    many = [b"x" * (1 << 20) for _ in range(48)]
    assert resident_mib() - before > 40
    del many
    print(resident_mib() - before)

if not keep_little():
    sys.exit(77)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_thread_that_has_freed_much_keeps_little() -> None:
    found = subprocess.run([sys.executable, "-c", THREAD], capture_output=True, text=True, timeout=60, check=False)
    if found.returncode == 77:
        pytest.skip("malloc is not glibc's")
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) <= 16
