"""Kafka Streams in a process of its own."""

from __future__ import annotations

import subprocess
import threading
from functools import lru_cache
from pathlib import Path

from compat_tests.oracle.jars import KAFKA_VERSION, compiled, java, kafka_class_path, maven_jars, quick_start
from compat_tests.until import until

_SOURCE = Path(__file__).with_name("WordCount.java")
_PATIENCE_SECONDS = 120  # for a JVM's start and a group's first rebalance on a busy machine
_POM = Path(__file__).with_name("streams.xml")


@lru_cache(maxsize=1)
def _class_path() -> str:
    """Kafka's own come first: they have the logger, too."""
    streams = maven_jars(_POM, f"kafka-streams-{KAFKA_VERSION}")
    return f"{kafka_class_path()}:{streams / '*'}"


class WordCount:
    """See WordCount.java. What it says is kept in `told`."""

    def __init__(self, bootstrap: str, application: str, input_topic: str, output_topic: str, directory: Path) -> None:
        classes = compiled(_SOURCE, _class_path())
        options = ("-Xmx512M", *quick_start(f"{_SOURCE.stem}-{classes.stem}"), "-Dlog4j2.level=OFF")
        arguments = (bootstrap, application, input_topic, output_topic, str(directory))
        self.told: list[str] = []
        self._process = subprocess.Popen(
            [java(), *options, "-cp", f"{_class_path()}:{classes}", _SOURCE.stem, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told.append(line.rstrip())

    def await_running(self) -> None:
        until(lambda: "RUNNING" in self.told, _PATIENCE_SECONDS)

    def stop(self) -> int:
        """Its exit code, once it has left its group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(_PATIENCE_SECONDS)
        self._reader.join()
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
