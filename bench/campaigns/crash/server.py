"""The broker's process: started on what is there, ended as the plan says. Its log goes to a file beside the data."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.campaigns.crash.ledger import Broken
from bench.campaigns.crash.topics import BROKER, DIRECTORIES
from bench.campaigns.crash.tripwire import Tripwire

PATIENCE_SECONDS = 60.0
KILLED = -signal.SIGKILL
_READY = re.compile(r"127\.0\.0\.1:(\d+)")


class Server:
    def __init__(self, home: Path, library: Path, port: int, settings: dict[str, str] | None = None) -> None:
        self._settings = settings or BROKER
        self.data = home / "data"
        self.dirs = [self.data / name for name in DIRECTORIES]
        self.log = home / "broker.log"
        self.port = port
        self.wire = Tripwire(home)
        self._library = library
        self._process: subprocess.Popen[str] | None = None
        self._read = 0

    def start(self, *, kill_after_s: float | None = None) -> bool:
        """True: it serves. False: it was killed before, by the wire or after so many seconds."""
        options = [word for key, value in self._settings.items() for word in ("--config", f"{key}={value}")]
        command = [sys.executable, "-m", "kbroker", "start", "--listeners", f"PLAINTEXT://127.0.0.1:{self.port}"]
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--data-dir", ",".join(map(str, self.dirs)), "--log-format", "json", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.wire.environment(self._library, self.data),
            )
        if kill_after_s is not None:
            time.sleep(kill_after_s)  # the moment of the kill is what is wanted, there is nothing to wait for
            self.kill()
            return False
        assert self._process.stdout is not None
        ready = _READY.search(self._process.stdout.readline())
        if ready is not None:
            self.port = int(ready.group(1))
            return True
        code = self._process.wait(PATIENCE_SECONDS)
        if code != KILLED:
            raise Broken(f"the broker did not start; it ended with {code}:\n{self.log.read_text()[-3000:]}")
        return False

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._end()

    def ask_to_stop(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def await_end(self, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit code of a broker that was asked to stop, or that the wire has killed."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Broken(f"the broker did not end in {seconds:.0f} s") from None
        return self._end()

    def _end(self) -> int:
        assert self._process is not None
        code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def lines(self) -> list[dict[str, Any]]:
        """What it logged since this was last asked. A mistake of the broker's own fails the campaign."""
        with self.log.open() as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        found = []
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                if "Traceback" in line or "Fatal" in line or "assert" in line.lower():
                    raise Broken(f"the broker said: {text[-3000:]}") from None
                continue  # cut short by the kill
            if entry.get("level") in ("error", "critical"):
                raise Broken(f"the broker logged: {line}")
            if "cannot be compacted" in str(entry.get("event")):
                raise Broken(f"the broker logged: {line}")
            found.append(entry)
        return found

    def close(self) -> None:
        if self.alive():
            self.kill()
