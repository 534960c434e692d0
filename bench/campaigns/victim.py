"""The broker under attack: a process of its own that tells what it holds, so that nothing held can hide.

The child runs `kbroker.Broker` and answers each word on its standard input with its counters, as JSON. Its log goes to
a file; a line of level error there means that a request found a mistake of ours, and fails the campaign.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PATIENCE_SECONDS = 60.0
NETWORK_THREADS = 2
REQUEST_BYTES_MAX = 128 << 20  # so that it can be filled
CONFIG = {
    "num.network.threads": NETWORK_THREADS,
    "queued.max.request.bytes": REQUEST_BYTES_MAX,
    "message.max.bytes": 32 << 20,  # large bombs shall reach the decompressor
    "log.retention.ms": -1,  # attackers date their records as they like; what the witness reads stays
}


class Victim:
    """One running broker. `home` and `environment` start it from another build, such as the sanitized one."""

    def __init__(self, home: Path | None = None, environment: dict[str, str] | None = None) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="kbroker-fuzz-")
        self.log = Path(self.directory.name) / "broker.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.campaigns.victim", self.directory.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=home,
                env={**os.environ, **(environment or {})},
            )
        line = self._answer()
        if not line.isdigit():
            raise RuntimeError(f"the broker did not start: {line!r}\n{self.log.read_text()[-4000:]}")
        self.port = int(line)
        self.admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def _ask(self, word: str) -> dict[str, Any]:
        self.check_alive()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self._answer())
        return found

    def counters(self) -> dict[str, Any]:
        """The broker's own account of what it did and holds."""
        return self._ask("counters")

    def trim(self) -> None:
        """Has the allocator give back what it only keeps for later: what is resident then is in use."""
        self._ask("trim")

    def check_alive(self) -> None:
        if self.process.poll() is not None:
            raise AssertionError(f"the broker died with {self.process.returncode}:\n{self.log.read_text()[-8000:]}")

    def errors(self) -> list[str]:
        """What the broker logged as its own mistake."""
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return [line for line in lines if '"level": "error"' in line or not line.startswith("{")]

    def resident_mib(self, what: str = "VmRSS") -> float:
        found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found is not None
        return int(found.group(1)) / 1024

    def forget_peak(self) -> None:
        """VmHWM counts from here."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def wait_until(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The counters once they say so. That they never do is a leak or a hang."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.counters()
            if condition(found):
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"not in {PATIENCE_SECONDS:.0f} s: {what}; {found}")
            time.sleep(0.02)

    def wait_until_nothing_is_held(self, connections: int) -> dict[str, Any]:
        """By anyone but `connections` well-behaved clients."""
        return self.wait_until(
            "nothing is held any more",
            lambda held: (
                held["connections_open"] <= connections
                and held["receive_buffer_bytes"] == 0
                and held["request_bytes_held"] == 0
                and held["reply_bytes_held"] == 0
                and held["requests_parked_now"] <= connections
                and held["mailbox_depth"] == 0
            ),
        )

    def fresh_topics(self, wanted: dict[str, int], kept: set[str]) -> None:
        """Whatever topics the attackers made are deleted; those of `wanted` are made anew, so that no log grows on."""
        there = set(self.admin.list_topics(timeout=PATIENCE_SECONDS).topics)
        if gone := sorted(there - kept):
            for deleted in self.admin.delete_topics(gone, request_timeout=PATIENCE_SECONDS).values():
                deleted.result(PATIENCE_SECONDS)
        made = self.admin.create_topics(
            [NewTopic(name, count, 1) for name, count in wanted.items()], request_timeout=PATIENCE_SECONDS
        )
        for created in made.values():
            created.result(PATIENCE_SECONDS)

    def stop(self) -> None:
        """A clean stop; anything else is a failure."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_SECONDS)
        if code != 0 or self.errors():
            raise AssertionError(f"the broker ended with {code}:\n" + "\n".join(self.errors())[-8000:])

    def __enter__(self) -> Victim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()


def main() -> None:
    import ctypes
    import gc

    import kbroker
    from kbroker._core.allocator import keep_little
    from kbroker.observe.logging import BrokerLog

    keep_little()  # as `kbroker start` does
    log = BrokerLog("json", "warning")
    broker = kbroker.Broker(Path(sys.argv[1]) / "data", log=log, config=CONFIG)
    broker.start()
    print(broker.port, flush=True)
    for word in sys.stdin:
        if word == "trim\n":
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
        print(json.dumps(broker.counters()), flush=True)
    broker.stop()
    log.close()
    sys.exit(1 if broker.failed else 0)


if __name__ == "__main__":
    main()
