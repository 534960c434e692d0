from __future__ import annotations

from pathlib import Path

from compat_tests.leash import Leash, LeashedClient
from compat_tests.oracle.jars import KAFKA_VERSION, java, kafka_class_path

_SOURCE = Path(__file__).with_name("JavaClient.java")


def _command() -> list[str]:
    return [
        java(),
        "-Xmx512M",
        "-XX:+UseSerialGC",
        "-Dlog4j2.level=OFF",
        "-cp",
        kafka_class_path(),
        str(_SOURCE),
    ]


class JavaClient(LeashedClient):
    name = "java"
    version = KAFKA_VERSION
    leash = Leash("Java", _command)
