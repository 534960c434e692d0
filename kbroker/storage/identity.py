"""Whose a data directory is: its meta.properties, and ids as Kafka writes them."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kbroker.storage.checkpoints import read_small, write_whole

META_PROPERTIES = "meta.properties"
_CLUSTER_ID = re.compile(r"[A-Za-z0-9._-]{1,255}")
_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_NUMBER = re.compile(r"[0-9]{1,9}")


class DataDirectoryError(Exception):
    """A directory that cannot be used, in one sentence for whoever chose it."""


class RefusedDirectoryError(DataDirectoryError):
    """The system refused it: others may go on without it."""

    def __init__(self, sentence: str, problem: OSError) -> None:
        super().__init__(sentence)
        self.problem = problem


def format_uuid(raw: bytes) -> str:
    """A 16-byte id as Kafka writes it: base64, URL-safe, unpadded."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    if _UUID.fullmatch(text) is None:  # the decoder would pass over what it does not know
        raise DataDirectoryError(f"{text!r} is not an id.")
    return base64.urlsafe_b64decode(text.encode() + b"==")


def random_uuid() -> bytes:
    """A version 4 id whose text does not begin with a dash, so that it never looks like an option (as Kafka's)."""
    while True:
        raw = uuid.uuid4().bytes
        if not format_uuid(raw).startswith("-"):
            return raw


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: bytes


def read_meta(directory: Path) -> MetaProperties | None:
    """None: the directory is not formatted. What makes no sense is refused: nothing else tells whose data it is."""
    path = directory / META_PROPERTIES
    try:
        text = read_small(path).decode("ascii")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise RefusedDirectoryError(f"{path} cannot be read: {problem.strerror}.", problem) from None
    except UnicodeDecodeError:
        raise DataDirectoryError(f"{path} is damaged: it is not text; restore it from a backup.") from None
    values: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if not bare or bare[0] in "#!":
            continue
        name, equals, value = bare.partition("=")
        if not equals or not bare.isprintable() or values.setdefault(name.strip(), value.strip()) != value.strip():
            raise DataDirectoryError(
                f"{path} is damaged: line {number} is not a setting, or contradicts another; restore it from a backup."
            )
    return _meta_of(path, values)


def _meta_of(path: Path, values: Mapping[str, str]) -> MetaProperties:
    """Whatever a broker wrote has these four, each of one shape."""
    shapes = {"version": _NUMBER, "cluster.id": _CLUSTER_ID, "node.id": _NUMBER, "directory.id": _UUID}
    for name, shape in shapes.items():
        if name not in values:
            raise DataDirectoryError(f"{path} does not tell its {name}: restore it from a backup.")
        if shape.fullmatch(values[name]) is None:
            raise DataDirectoryError(f"{path} is damaged: {values[name]!r} is no {name}; restore it from a backup.")
    if values["version"] != "1":
        raise DataDirectoryError(f"{path} has version {values['version']}; only version 1 can be opened.")
    return MetaProperties(values["cluster.id"], int(values["node.id"]), parse_uuid(values["directory.id"]))


def write_meta(directory: Path, meta: MetaProperties) -> None:
    content = (
        f"node.id={meta.node_id}\ndirectory.id={format_uuid(meta.directory_id)}\n"
        f"version=1\ncluster.id={meta.cluster_id}\n"
    )
    write_whole(directory / META_PROPERTIES, content.encode())
