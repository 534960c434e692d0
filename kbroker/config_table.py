"""The table of settings, `config.ks`, as objects: what a setting is called, what it may be, what it is by default."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

Value = bool | int | float | str | list[str] | None

_INTEGERS = {"short": (-(2**15), 2**15 - 1), "int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


class ConfigError(ValueError):
    """A setting that cannot be used. The text is one sentence for whoever wrote the setting."""


class Setting(NamedTuple):
    name: str
    type: str
    default: str | None  # as text; None is null
    required: bool
    valid: str
    mode: str  # static, broker, cluster; topic settings: topic
    honoured: bool
    internal: bool
    synonyms: tuple[tuple[str, int], ...] = ()  # topic settings: broker settings consulted, with the unit's factor
    at_start: bool = False  # what a running broker is told has no effect

    @property
    def sensitive(self) -> bool:
        return self.type == "password"

    @property
    def read_only(self) -> bool:
        return self.mode == "static"

    @property
    def least(self) -> int:
        """Of a number that is bounded below."""
        return int(self.valid.partition("..")[0])

    def parse(self, text: str) -> Value:
        """The typed value of `text`; ConfigError, in Kafka's words, when it is not one."""
        value = _typed(self, text)
        problem = _check(self.valid, value)
        if problem is not None:
            raise ConfigError(f"Invalid value {_shown(value, problem)} for configuration {self.name}: {problem}")
        return value

    def default_value(self) -> Value:
        return None if self.default is None else _typed(self, self.default)


def _typed(setting: Setting, text: str) -> Value:
    kind, text = setting.type, text if setting.type == "password" else text.strip()
    if kind == "boolean":
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ConfigError(
            f"Invalid value {text} for configuration {setting.name}: Expected value to be either true or false"
        )
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        digits = text[1:] if text[:1] in ("+", "-") else text
        if digits.isascii() and digits.isdigit() and len(digits) < 40 and low <= int(text) <= high:
            return int(text)
        raise ConfigError(f"Invalid value {text} for configuration {setting.name}: Not a number of type {kind.upper()}")
    if kind == "double":
        try:
            number = float(text.replace("_", "x"))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):  # Java would take NaN and Infinity; no setting means anything by them
            raise ConfigError(f"Invalid value {text} for configuration {setting.name}: Not a number of type DOUBLE")
        return number
    if kind == "list":
        return [part.strip() for part in text.split(",")] if text else []
    return text


def _check(valid: str, value: Value) -> str | None:
    """What is wrong with the value, in Kafka's words, or None."""
    if valid == "-":
        return None
    if valid == "nonempty":
        return "String must be non-empty" if value in ("", []) else None
    if valid == "nonnull":
        return None
    if valid == "replicas":
        return None if value in ([], ["*"]) or _are_replicas(value) else "replicas"
    if "{" in valid:
        allowed = valid[valid.index("{") + 1 : -1].split(",")
        folded = {name.lower() for name in allowed} if valid.startswith("~") else set(allowed)
        given = value if isinstance(value, list) else [str(value)]
        bad = [one for one in given if (one.lower() if valid.startswith("~") else one) not in folded]
        return f"String must be one of: {', '.join(allowed)}" if bad else None
    bounds, _, also = valid.partition("|")
    low, _, high = bounds.partition("..")
    assert isinstance(value, int | float), (valid, value)
    if also and value == int(also):
        return None
    if also and not float(low) <= value <= float(high):
        return f"Value must be between {low} and {high} or equal to {also}"
    if low and value < float(low):
        return f"Value must be at least {low}"
    if high and value > float(high):
        return f"Value must be no more than {high}"
    return None


def _are_replicas(value: Value) -> bool:
    assert isinstance(value, list), value
    return all(len(pair := item.split(":")) == 2 and all(part.isdigit() for part in pair) for item in value)


def _shown(value: Value, problem: str) -> str:
    if isinstance(value, list):
        allowed = problem.rpartition(": ")[2].split(", ")
        return next((one for one in value if one not in allowed), ",".join(value))
    return to_text(value)


def to_text(value: Value) -> str:
    """A typed value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def _java_double(value: float) -> str:
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        mantissa, _, exponent = f"{value:.16e}".partition("e")
        mantissa = mantissa.rstrip("0")
        mantissa += "0" if mantissa.endswith(".") else ""
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"


class Table(NamedTuple):
    broker: Mapping[str, Setting]
    dynamic: Mapping[str, Setting]  # broker settings that no file can give: they exist at run time only
    topic: Mapping[str, Setting]
    group: Mapping[str, Setting]


@cache
def table() -> Table:
    """config.ks, read once. What it holds never changes, so brokers of one process share it."""
    sections: dict[str, list[list[str]]] = {"broker": [], "dynamic": [], "topic": [], "group": [], "ours": []}
    rows: list[list[str]] = []
    for line in Path(__file__).with_name("config.ks").read_text().splitlines():
        if line.startswith("["):
            rows = sections[line.strip("[]")]
        elif line and not line.startswith("#"):
            rows.append(line.split())
    ours = dict(sections["ours"])
    broker = {row[1]: _broker_setting(row, ours.get(row[1])) for row in sections["broker"]}
    dynamic = {row[1]: _broker_setting(row, None) for row in sections["dynamic"]}
    topic = {row[1]: _topic_setting(row) for row in sections["topic"]}
    group = {row[1]: _topic_setting(row) for row in sections["group"]}
    return Table(broker, dynamic, topic, group)


def _default_of(cell: str) -> str | None:
    return None if cell in ("-", "!") else "" if cell == '""' else cell


def _broker_setting(row: list[str], ours: str | None) -> Setting:
    mark, name, kind, default, valid, mode, *flags = row
    return Setting(
        name,
        kind,
        ours if ours is not None else _default_of(default),
        default == "!" and ours is None,
        valid,
        mode,
        mark == "+",
        "internal" in flags,
        at_start="start" in flags,
    )


def _topic_setting(row: list[str]) -> Setting:
    mark, name, kind, default, valid, synonyms, *flags = row
    consulted = () if synonyms == "-" else tuple(_synonym(item) for item in synonyms.split(","))
    return Setting(name, kind, _default_of(default), False, valid, "topic", mark == "+", "internal" in flags, consulted)


def _synonym(item: str) -> tuple[str, int]:
    name, _, factor = item.partition("*")
    return name, int(factor or 1)


def unknown_setting(name: str, known: Mapping[str, Setting]) -> str:
    close = closest_setting(name, known)
    return f"There is no setting {name!r}" + (f"; did you mean {close!r}?" if close else ".")


def closest_setting(name: str, known: Mapping[str, Setting]) -> str | None:
    """Returns the known name that a misspelt one resembles most, or None if none is similar."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
