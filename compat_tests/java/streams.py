"""Kafka Streams in a process of its own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from compat_tests.oracle.jars import KAFKA_VERSION, compiled, java, kafka_class_path, maven_jars, quick_start
from compat_tests.telling import Telling
from compat_tests.until import until

_SOURCE = Path(__file__).with_name("WordCount.java")
_PATIENCE_SECONDS = 120  # for a JVM's start and a group's first rebalance on a busy machine
_POM = Path(__file__).with_name("streams.xml")


@lru_cache(maxsize=1)
def _class_path() -> str:
    """Kafka's own come first: they have the logger, too."""
    streams = maven_jars(_POM, f"kafka-streams-{KAFKA_VERSION}")
    return f"{kafka_class_path()}:{streams / '*'}"


class WordCount(Telling[str]):
    """See WordCount.java."""

    def __init__(self, bootstrap: str, application: str, input_topic: str, output_topic: str, directory: Path) -> None:
        classes = compiled(_SOURCE, _class_path())
        options = ("-Xmx512M", *quick_start(f"{_SOURCE.stem}-{classes.stem}"), "-Dlog4j2.level=OFF")
        arguments = (bootstrap, application, input_topic, output_topic, str(directory))
        super().__init__([java(), *options, "-cp", f"{_class_path()}:{classes}", _SOURCE.stem, *arguments], str)

    def await_running(self) -> None:
        until(lambda: "RUNNING" in self.told, _PATIENCE_SECONDS)

    def stop(self) -> int:
        """Its exit code, once it has left its group."""
        self.end_input()
        return self.end(_PATIENCE_SECONDS)
