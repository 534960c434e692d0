"""A program of Kafka's in a process of its own, which tells line by line what happens to it."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Told = TypeVar("Told")


class Telling(Generic[Told]):
    """What it says on stdout is in `told`, read by `read`, as it comes. It hears nothing: its stdin is for its end."""

    def __init__(self, command: list[str], read: Callable[[str], Told]) -> None:
        self.told: list[Told] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._listen, args=(read,), daemon=True)
        self._reader.start()

    def _listen(self, read: Callable[[str], Told]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told.append(read(line.rstrip()))

    def ask_to_end(self) -> None:
        """SIGTERM, which most programs of Kafka's take for that."""
        self._process.send_signal(signal.SIGTERM)

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def end(self, limit_seconds: float) -> int:
        """Its exit code, once it has ended and everything it said is in `told`."""
        code = self._process.wait(limit_seconds)
        self._reader.join()
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
