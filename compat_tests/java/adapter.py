from __future__ import annotations

from pathlib import Path

from compat_tests.leash import Leash, LeashedClient
from compat_tests.oracle.jars import KAFKA_VERSION, compiled, java, kafka_class_path, quick_start

_SOURCE = Path(__file__).with_name("JavaClient.java")


def _command() -> list[str]:
    classes = compiled(_SOURCE, kafka_class_path())
    options = ("-Xmx512M", *quick_start(f"{_SOURCE.stem}-{classes.stem}"), "-Dlog4j2.level=OFF")
    return [java(), *options, "-cp", f"{kafka_class_path()}:{classes}", _SOURCE.stem]


class JavaClient(LeashedClient):
    name = "java"
    version = KAFKA_VERSION
    leash = Leash("Java", _command)
