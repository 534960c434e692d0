"""Reads the `.ks` schemas: the single source of the wire. Used by the generator and its tests, not by a running broker.

A file holds messages. A message is one line at the margin and its fields, indented:

    request JoinGroup  key 11  versions 0-9  flexible 6+  listeners broker
      group_id              string
      rebalance_timeout_ms  int32       1+  ignorable = -1
      protocols             [Protocol]
        name      string
        metadata  bytes

kind       request, response, header, data, key and value (a coordinator's record), record (a metadata log's).
head       `key N`, `versions LO-HI`, `flexible N+`, `listeners ...`, `unstable_latest` (the last version is
           not served), `removed` (the key is known, no version is).
field      name, type, versions, attributes. A struct's fields stand below it; one used by several fields is declared
           once with `struct Name` below the message's own fields.
type       bool int8 int16 uint16 int32 uint32 int64 float64 uuid string bytes records, a struct's name, or [element].
           `?` makes it nullable, `?10+` in these versions only.
versions   3, 0-4 or 2+; none: wherever the surrounding struct is. A tagged field is tagged in all its versions.
attributes `tag N`; `ignorable`: dropped in silence by a version without it; `classic`: 16-bit length even if flexible;
           `= value`: the default; without it 0, false, "", an empty array, a struct of defaults; records: null.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

SCHEMA_DIR = Path(__file__).parent / "schema"
OPEN_END = 32767
PRIMITIVES = frozenset(
    ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid", "string", "bytes", "records")
)
KINDS = frozenset(("request", "response", "header", "data", "key", "value", "record"))


class SchemaError(ValueError):
    """A schema that does not follow the language."""


@dataclass(frozen=True)
class Range:
    """Versions, both ends included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str, scope: Range) -> Range:
        if text.endswith("+"):
            return cls(int(text[:-1]), scope.last)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def inside(self, other: Range) -> bool:
        return other.first <= self.first <= self.last <= other.last


@dataclass
class Field:
    name: str
    base: str  # a primitive or the name of a struct
    array: bool
    versions: Range
    nullable: Range | None = None
    tag: int | None = None
    ignorable: bool = False
    classic: bool = False
    default: str | None = None

    @property
    def is_struct(self) -> bool:
        return self.base not in PRIMITIVES


@dataclass
class Struct:
    name: str
    fields: list[Field] = field(default_factory=list)


@dataclass
class Message:
    kind: str
    name: str  # as Kafka says it: JoinGroupRequest
    key: int | None
    versions: Range | None  # None: removed
    flexible_from: int | None
    listeners: tuple[str, ...]
    unstable_latest: bool
    fields: list[Field] = field(default_factory=list)
    structs: list[Struct] = field(default_factory=list)


@dataclass(frozen=True)
class ErrorCode:
    code: int
    name: str
    retriable: bool
    refresh_metadata: bool


@dataclass
class _Line:
    number: int
    indent: int
    words: list[str]


def _lines(path: Path) -> list[_Line]:
    lines = []
    for number, raw in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = raw.split("#", 1)[0].rstrip()
        if text:
            lines.append(_Line(number, len(text) - len(text.lstrip()), text.split()))
    return lines


def read_messages(path: Path) -> list[Message]:
    """All messages of one file, in its order."""
    messages: list[Message] = []
    lines = _lines(path)
    at = 0
    while at < len(lines):
        try:
            message = _head(lines[at].words)
            at = _fields(message, lines, at + 1, message, message.versions)
            while at < len(lines) and lines[at].words[0] == "struct":
                shared = Struct(lines[at].words[1])
                message.structs.append(shared)
                at = _fields(message, lines, at + 1, shared, message.versions)
            _check(message)
        except (ValueError, IndexError, StopIteration) as broken:
            where = lines[min(at, len(lines) - 1)].number
            raise SchemaError(f"{path.name}:{where}: {broken}") from broken
        messages.append(message)
    return messages


def read_errors(path: Path) -> list[ErrorCode]:
    errors = []
    for line in _lines(path):
        word, code, name, *flags = line.words
        if word != "error" or not set(flags) <= {"retriable", "refresh_metadata"}:
            raise SchemaError(f"{path.name}:{line.number}: not an error's line")
        errors.append(ErrorCode(int(code), name, "retriable" in flags, "refresh_metadata" in flags))
    return errors


def _head(words: list[str]) -> Message:
    kind, name, *rest = words
    if kind not in KINDS:
        raise SchemaError(f"unknown kind {kind!r}")
    if kind in ("request", "response"):
        name += kind.capitalize()
    message = Message(kind, name, None, None, None, (), False)
    removed = False
    at = iter(rest)
    for word in at:
        if word == "key":
            message.key = int(next(at))
        elif word == "versions":
            message.versions = Range.parse(next(at), Range(0, OPEN_END))
        elif word == "flexible":
            message.flexible_from = int(next(at).removesuffix("+"))
        elif word == "unstable_latest":
            message.unstable_latest = True
        elif word == "removed":
            removed = True
        elif word == "listeners":
            continue
        elif word in ("broker", "controller"):
            message.listeners += (word,)
        else:
            raise SchemaError(f"unknown word {word!r}")
    if removed == (message.versions is not None):
        raise SchemaError(f"{name} needs either versions or removed")
    return message


def _fields(message: Message, lines: list[_Line], at: int, into: Struct | Message, scope: Range | None) -> int:
    """Takes the lines deeper than the one before, nested structs with them; answers the first line not taken."""
    outer = lines[at - 1].indent
    if at >= len(lines) or lines[at].indent <= outer or scope is None:
        return at
    indent = lines[at].indent
    while at < len(lines) and lines[at].indent == indent and lines[at].words[0] != "struct":
        entry = _field(lines[at].words, scope)
        into.fields.append(entry)
        at += 1
        if at < len(lines) and lines[at].indent > indent:
            nested = Struct(entry.base)
            message.structs.append(nested)
            at = _fields(message, lines, at, nested, entry.versions)
    return at


def _field(words: list[str], scope: Range) -> Field:
    name, shape, *rest = words
    shape, question, null_versions = shape.partition("?")
    array = shape.startswith("[")
    entry = Field(name, shape.strip("[]"), array, scope)
    if rest and rest[0][0].isdigit():
        entry.versions = Range.parse(rest.pop(0), scope)
        if not entry.versions.inside(scope):
            raise SchemaError(f"{name} is in versions that its struct is not in")
    if question:
        entry.nullable = Range.parse(null_versions, entry.versions) if null_versions else entry.versions
    at = iter(rest)
    for word in at:
        if word == "tag":
            entry.tag = int(next(at))
        elif word == "ignorable":
            entry.ignorable = True
        elif word == "classic":
            entry.classic = True
        elif word == "=":
            entry.default = next(at)
        else:
            raise SchemaError(f"unknown attribute {word!r} of {name}")
    return entry


def _check(message: Message) -> None:
    structs = [struct.name for struct in message.structs]
    if len(set(structs)) != len(structs):
        raise SchemaError(f"{message.name} names a struct twice")
    for fields in [message.fields, *(struct.fields for struct in message.structs)]:
        names = [entry.name for entry in fields]
        if len(set(names)) != len(names):
            raise SchemaError(f"{message.name} names a field twice")
        for entry in fields:
            if entry.is_struct and entry.base not in structs:
                raise SchemaError(f"{message.name}.{entry.name}: no struct {entry.base}")
            if entry.tag is not None and entry.versions.first < (message.flexible_from or 0):
                raise SchemaError(f"{message.name}.{entry.name} is tagged in a version that is not flexible")
