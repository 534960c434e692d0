"""A broker on a directory that may be damaged: it serves, or refuses in one sentence; it neither hangs nor crashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

START_SECONDS = 60.0  # two cores are shared with others; a start takes half a second
STOP_SECONDS = 60.0
_READY = re.compile(r"kbroker is ready at 127\.0\.0\.1:(\d+)")


class Patient:
    """`kbroker start` as a process. `refusal` is its sentence when it did not come up."""

    def __init__(self, data_dir: Path, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.port = 0
        self.refusal = ""
        options = [word for key, value in (settings or {}).items() for word in ("--config", f"{key}={value}")]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kbroker",
                "start",
                "--listeners",
                "PLAINTEXT://127.0.0.1:0",
                "--data-dir",
                str(data_dir),
                "--log-format",
                "json",
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._await()

    def _await(self) -> None:
        assert self.process.stdout is not None
        late = threading.Timer(START_SECONDS, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        ready = _READY.match(line)
        if ready is not None:
            self.port = int(ready[1])
            return
        code = self.process.wait()
        said = self.said()
        sentences = [one for one in said if one.startswith("kbroker: ")]
        self._must(code == 1, f"it ended with {code} instead of a sentence and 1")
        self._must(len(sentences) == 1 and sentences[0].endswith("."), "it did not say why in one sentence")
        self._must(line == "", f"it said {line!r} on standard output")
        self._must_be_sane()
        self.refusal = sentences[0]

    @property
    def serves(self) -> bool:
        return self.port != 0

    def said(self) -> list[str]:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").splitlines()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said() if line.startswith("{")]

    def stop(self) -> int:
        """A stop must end, even if it is not clean: 0, or 1 with the reason in the log."""
        self._must(self.process.poll() is None, f"it died with {self.process.returncode}")
        self.process.terminate()
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("it did not stop\n" + "\n".join(self.said()[-40:])) from None
        self._must(code == 0, f"it stopped with {code}")
        self._must_be_sane()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()

    def _must_be_sane(self) -> None:
        said = self.said()
        self._must(
            not any("Traceback" in line or "Error" in line.split(":")[0] for line in said if "{" not in line[:1]),
            "it broke",
        )
        self._must(
            not any("traceback" in event or "exception" in event for event in self.events()), "it met a mistake of ours"
        )

    def _must(self, fine: bool, otherwise: str) -> None:
        if not fine:
            raise AssertionError("\n".join([otherwise, *self.said()[-40:]]))
