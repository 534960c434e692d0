"""Threads that nobody waits for let the others go first."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

NICE = 19


def step_back() -> None:
    """The calling thread takes what processor time is left over, so that a network thread that wakes up runs at once.

    On Linux niceness is a thread's own; elsewhere it is the process's and is left alone.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # an unusual sandbox
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
