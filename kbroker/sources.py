"""The settings of `kbroker start`, gathered: properties file, KAFKA_ variables, --config pairs, options.

A later source overrides an earlier one. Unknown names in the file or the environment do not end the start, as with
Kafka: files are shared between versions and vendors. Unknown names in --config pairs do: somebody has just typed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kbroker.config import SYNONYM_FAMILIES, Config, ConfigError, read_properties, table
from kbroker.config_table import closest_setting
from kbroker.environment import Environment, read_environment

# Settings of which only the first that is set counts.
RANKED = (*SYNONYM_FAMILIES, ("log.dirs", "log.dir"))
# Prefixes of settings that other products read from the same file.
VENDORS = {
    "confluent.": "a setting of Confluent Platform; remove it",
    "zookeeper.": "a setting of ZooKeeper, which is not used; remove it",
    "listener.name.": "settings of a single listener are not supported yet",
    "cruise.control.": "a setting of Cruise Control; remove it",
}


class StartWarning(NamedTuple):
    event: str
    fields: dict[str, list[str]]


class Gathered(NamedTuple):
    config: Config
    warnings: list[StartWarning]


class _Layer(NamedTuple):
    source: str
    values: Mapping[str, str]


def gather(
    *,
    file: Path | None = None,
    variables: Mapping[str, str] | None = None,
    pairs: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
) -> Gathered:
    """Returns the settings of all sources and the warnings for the log. Raises ConfigError for unusable ones."""
    known = table().broker
    unknown: list[str] = []
    layers: list[_Layer] = []
    if file is not None:
        found = read_properties(file)
        unknown += [_hint(name, name) for name in found if name not in known]
        layers.append(_Layer(file.name, {name: text for name, text in found.items() if name in known}))
    environment = read_environment(variables or {})
    unknown += [_hint(name, variable) for variable, name, _ in environment.settings if name not in known]
    in_variables = {name: text for _, name, text in environment.settings if name in known}
    layers.append(_Layer("environment", in_variables))
    layers += [_Layer("--config", _split(pairs)), _Layer("options", options or {})]
    given, overridden = _merge(layers)
    warnings = _skipped(environment)
    if unknown:
        warnings.append(StartWarning("unknown settings ignored", {"settings": unknown}))
    if overridden:
        warnings.append(StartWarning("settings overridden", {"settings": overridden}))
    return Gathered(Config(given), warnings)


def _skipped(environment: Environment) -> list[StartWarning]:
    events = {
        "environment variables without effect": environment.without_effect,
        "environment variables of Kubernetes skipped": environment.kubernetes,
        "empty environment variables skipped": environment.empty,
    }
    return [StartWarning(event, {"variables": names}) for event, names in events.items() if names]


def _split(pairs: Iterable[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"{pair!r} is not a setting: write it as key=value.")
        found[name.strip()] = value.strip()
    return found


def _merge(layers: list[_Layer]) -> tuple[dict[str, str], list[str]]:
    """Returns the winning values, and a line per setting that two sources give different values."""
    given: dict[str, str] = {}
    source_of: dict[str, str] = {}
    overridden = []
    for layer in layers:
        for name, text in layer.values.items():
            if given.get(name, text) != text:
                overridden.append(f"{name} ({layer.source} over {source_of[name]})")
            given[name], source_of[name] = text, layer.source
    return given, overridden + _outranked(layers, source_of)


def _outranked(layers: list[_Layer], source_of: Mapping[str, str]) -> list[str]:
    """Returns a line per setting that a later source gives in vain: an earlier one gives a setting of higher rank."""
    order = [layer.source for layer in layers]
    lines = []
    for family in RANKED:
        given = [name for name in family if name in source_of]
        for name in given[1:]:
            counts, source = given[0], source_of[given[0]]
            if order.index(source_of[name]) > order.index(source):
                lines.append(f"{name} of {source_of[name]} ({counts} of {source} counts)")
    return lines


def _hint(name: str, written: str) -> str:
    """Names an unknown setting as its source wrote it, with the reason or the closest known name. Never its value."""
    for prefix, reason in VENDORS.items():
        if name.startswith(prefix):
            return f"{written} ({reason})"
    close = closest_setting(name, table().broker)
    return f"{written} (did you mean {close}?)" if close else written
