"""A broker's settings: Kafka's names, types, defaults and validators, each once. The table itself is `config.ks`.

A value is looked up as Kafka looks it up: set on the topic, set on this broker at run time, set for all brokers at run
time, given at start, default. What is known but not acted on yet is listed in `Config.unsupported`, so that no setting
is accepted and ignored in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from kbroker.config_table import ConfigError, Value, table, to_text, unknown_setting
from kbroker.listeners import Listener, advertised_of, parse_listeners, parse_protocol_map

__all__ = [
    "NOT_CHANGED",
    "SYNONYM_FAMILIES",
    "Config",
    "ConfigEntry",
    "ConfigError",
    "ConfigSynonym",
    "ConfigType",
    "Dynamic",
    "Source",
    "Unsupported",
    "Value",
    "read_properties",
    "table",
    "unknown_setting",
]

T = TypeVar("T")
CLEANER_THREAD_BYTES = 1 << 20  # less of a dedupe buffer a thread, Kafka says, is no use
WORKED_OUT_MAX = 64  # answers about topics that are kept, a few KiB each

# A unit conversion chain: the first that is set wins, and each of them names the others among its synonyms.
SYNONYM_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FAMILY_OF = {name: family for family in SYNONYM_FAMILIES for name in family}


class Source(IntEnum):
    """ConfigSource on the wire (DescribeConfigs)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """ConfigType on the wire (DescribeConfigs v3+)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """One setting as DescribeConfigs tells it. `synonyms` are in order of precedence, the winner first."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: int


class Unsupported(NamedTuple):
    """A setting that was given, is valid, and changes nothing yet."""

    name: str
    value: str
    sentence: str


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Dynamic(NamedTuple):
    """Broker settings changed at run time, as the cluster image holds them (ConfigRecord, resource type BROKER)."""

    broker: Mapping[str, str] = NOTHING
    default: Mapping[str, str] = NOTHING


NOT_CHANGED = Dynamic()


class Config:
    """Made once, at start. Dynamic and topic overrides are handed in: they live in the cluster image."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.given: dict[str, str] = dict(given or {})
        self._values: dict[str, Value] = {}
        self._defaults: dict[str, Value] = {}  # those that were asked for
        self._worked_out: dict[object, Any] = {}
        broker = table().broker
        for name, text in self.given.items():
            setting = broker.get(name)
            if setting is None:
                raise ConfigError(unknown_setting(name, broker))
            self._values[name] = setting.parse(text)
        self._align_node_id()
        self.listeners: list[Listener] = []
        self.controller_listeners: list[Listener] = []
        self.advertised_listeners: list[Listener] = []
        self._read_listeners()
        self._check_roles()
        self._check_limits()
        self._check_directories()

    @classmethod
    def load(
        cls, *, file: str | Path | None = None, pairs: Iterable[str] = (), settings: Mapping[str, object] | None = None
    ) -> Config:
        """From a server.properties file, `key=value` pairs and keywords (`num_partitions=3`); the last one wins."""
        given: dict[str, str] = {}
        if file is not None:
            given.update(read_properties(Path(file)))
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not equals:
                raise ConfigError(f"{pair!r} is not a setting: write it as key=value.")
            given[name.strip()] = value.strip()
        for key, setting_value in (settings or {}).items():
            given[key.replace("_", ".")] = _text_of(setting_value)
        return cls(given)

    def __getitem__(self, name: str) -> Value:
        if name in self._values:
            return self._values[name]
        if name not in self._defaults:
            self._defaults[name] = table().broker[name].default_value()
        return self._defaults[name]

    def integer(self, name: str) -> int:
        value = self[name]
        assert isinstance(value, int), (name, value)
        return value

    def flag(self, name: str) -> bool:
        value = self[name]
        assert isinstance(value, bool), (name, value)
        return value

    def text(self, name: str) -> str | None:
        value = self[name]
        assert value is None or isinstance(value, str), (name, value)
        return value

    def items(self, name: str) -> list[str]:
        value = self[name]
        assert isinstance(value, list), (name, value)
        return value

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def log_dirs(self) -> list[Path]:
        """Where partitions live; the metadata log is in the first unless metadata.log.dir says otherwise."""
        named = self.items("log.dirs") if self["log.dirs"] else self.items("log.dir")
        paths = [Path(name).expanduser() for name in named]
        if not all(named) or not named or len(set(paths)) != len(paths):
            raise ConfigError(f"log.dirs must name different directories, but it is {','.join(named)!r}.")
        return paths

    @property
    def metadata_log_dir(self) -> Path:
        named = self.text("metadata.log.dir")
        return Path(named).expanduser() if named else self.log_dirs[0]

    @property
    def voters(self) -> list[int]:
        """Ids of the quorum's static voters; a node that is told nothing is its own quorum."""
        ids = []
        for item in self.items("controller.quorum.voters"):
            voter_id, at, address = item.partition("@")
            if not at or not voter_id.isdigit() or ":" not in address:
                raise ConfigError(f"controller.quorum.voters holds {item!r}: write it as id@host:port.")
            ids.append(int(voter_id))
        return ids or [self.node_id]

    def per_ip_overrides(self, dynamic: Dynamic = NOT_CHANGED) -> list[tuple[str, int]]:
        """max.connections.per.ip.overrides: host names or addresses, and how many connections each may have."""
        name = "max.connections.per.ip.overrides"
        found = []
        for item in str(self.broker_value(name, dynamic) or "").split(","):
            host, colon, count = item.strip().rpartition(":")
            if not item.strip():
                continue
            if not colon or not host or not count.strip().isdigit():
                raise ConfigError(f"{name} holds {item.strip()!r}: write it as host:count.")
            found.append((host.strip().strip("[]"), int(count)))
        return found

    @property
    def unsupported(self) -> list[Unsupported]:
        """Settings given with another value than their default on which nothing acts yet."""
        broker = table().broker
        found = [
            Unsupported(name, self._shown(name), f"{name} is known but has no effect yet.")
            for name, text in self.given.items()
            if not broker[name].honoured and self._values[name] != broker[name].default_value()
        ]
        found += [
            Unsupported(
                "listeners",
                str(listener),
                f"The controller listener {listener} is not opened: the quorum is this node.",
            )
            for listener in self.controller_listeners
        ]
        return found

    def unsupported_topic_settings(self, overrides: Mapping[str, str]) -> list[Unsupported]:
        topic = table().topic
        return [
            Unsupported(name, text, f"The topic setting {name} is stored but has no effect yet.")
            for name, text in overrides.items()
            if name in topic and not topic[name].honoured and topic[name].parse(text) != topic[name].default_value()
        ]

    def unsupported_dynamic(self, changed: Mapping[str, str]) -> list[Unsupported]:
        """Broker settings given to a running broker that change nothing."""
        known = {**table().broker, **table().dynamic}
        found = []
        for name, text in changed.items():
            setting = known.get(name)
            if setting is None:
                why = "there is no such setting here"
            elif setting.at_start:
                why = "it has an effect only as given at start"
            elif not setting.honoured and text != setting.default:
                why = "it has no effect yet"
            else:
                continue
            shown = "(hidden)" if setting is None or setting.sensitive else text
            found.append(Unsupported(name, shown, f"The broker setting {name} is stored, but {why}."))
        return found

    def with_dynamic(self, dynamic: Dynamic) -> Config:
        """The settings as a start would find them if these had been given to it: ConfigError if it would refuse."""
        known = table().broker
        stored = {**dynamic.default, **dynamic.broker}
        return Config({**self.given, **{name: text for name, text in stored.items() if name in known}})

    def check_topic_overrides(
        self, overrides: Mapping[str, str | None] | Mapping[str, str], dynamic: Dynamic = NOT_CHANGED
    ) -> str | None:
        """Why a topic cannot have these settings (INVALID_CONFIG's message, in Kafka's words), or None."""
        topic = table().topic
        parsed: dict[str, Value] = {}
        for name, text in overrides.items():
            if name not in topic:
                return f"Unknown topic config name: {name}"
            if text is None:
                return f"Null value not supported for topic configs: {name}"
            try:
                parsed[name] = topic[name].parse(text)
            except ConfigError as problem:
                if topic[name].valid == "replicas":
                    return (
                        f"Invalid value [{text}] for configuration {name}: {name} must be the literal '*' or a list of "
                        "replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                    )
                return str(problem)
        shortest = parsed.get("min.compaction.lag.ms", self._inherited("min.compaction.lag.ms", dynamic))
        longest = parsed.get("max.compaction.lag.ms", self._inherited("max.compaction.lag.ms", dynamic))
        assert isinstance(shortest, int), shortest
        assert isinstance(longest, int), longest
        if shortest > longest:
            return (
                f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
            )
        if parsed.get("remote.storage.enable") is True:
            return (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )
        return None

    def topic_value(self, name: str, overrides: Mapping[str, str], dynamic: Dynamic = NOT_CHANGED) -> Value:
        """What holds for a topic with these overrides."""
        setting = table().topic[name]
        return setting.parse(overrides[name]) if name in overrides else self._inherited(name, dynamic)

    def least_topic_value(self, name: str) -> int:
        """The lower bound of a topic setting that is a number."""
        return table().topic[name].least

    def topic_config(self, overrides: Mapping[str, str], dynamic: Dynamic = NOT_CHANGED) -> dict[str, Value]:
        """Every topic setting, typed: what a PartitionLog is opened and reconfigured with."""
        return dict(self._once(self._topic_config, overrides, dynamic))

    def _once(
        self, work_out: Callable[[Mapping[str, str], Dynamic], T], overrides: Mapping[str, str], dynamic: Dynamic
    ) -> T:
        """Most topics override nothing, so hundreds of them are created and described by the same answer."""
        key = (work_out.__name__, *(tuple(sorted(each.items())) for each in (overrides, *dynamic)))
        known: dict[object, Any] = self._worked_out
        answer: T | None = known.get(key)
        if answer is None:
            answer = work_out(overrides, dynamic)
            if len(known) >= WORKED_OUT_MAX:  # two threads ask: a new one is put in place of the full one, whole
                self._worked_out = known = {}
            known[key] = answer
        return answer

    def _topic_config(self, overrides: Mapping[str, str], dynamic: Dynamic) -> dict[str, Value]:
        values = {name: self.topic_value(name, overrides, dynamic) for name in table().topic}
        if values["internal.segment.bytes"] is not None:
            values["segment.bytes"] = values["internal.segment.bytes"]
        for name in ("producer.id.expiration.ms", "transaction.partition.verification.enable"):
            values[name] = self.broker_value(name, dynamic)
        return values

    def broker_value(self, name: str, dynamic: Dynamic = NOT_CHANGED) -> Value:
        known = table().broker.get(name) or table().dynamic[name]
        for changed in (dynamic.broker, dynamic.default):
            if name in changed:
                with suppress(
                    ConfigError
                ):  # of another broker's directory: Kafka, too, passes over what it cannot read
                    return known.parse(changed[name])
        return self[name] if name in table().broker else known.default_value()

    def describe_topic(self, overrides: Mapping[str, str], dynamic: Dynamic = NOT_CHANGED) -> list[ConfigEntry]:
        return list(self._once(self._describe_topic, overrides, dynamic))

    def _describe_topic(self, overrides: Mapping[str, str], dynamic: Dynamic) -> list[ConfigEntry]:
        entries = []
        for setting in table().topic.values():
            if setting.internal and setting.name not in overrides:
                continue
            value = self.topic_value(setting.name, overrides, dynamic)
            text = None if value is None else to_text(value)
            synonyms: tuple[ConfigSynonym, ...] = ()
            if setting.synonyms:
                synonyms = self._synonyms(setting.synonyms[0][0], dynamic)
            if setting.name in overrides:
                synonyms = (ConfigSynonym(setting.name, text, Source.TOPIC), *synonyms)
            source = synonyms[0].source if synonyms else Source.DEFAULT
            entries.append(
                ConfigEntry(setting.name, text, False, source, False, synonyms, ConfigType[setting.type.upper()])
            )
        return entries

    def describe_group(self, overrides: Mapping[str, str], dynamic: Dynamic = NOT_CHANGED) -> list[ConfigEntry]:
        entries = []
        text: str | None
        for setting in table().group.values():
            if setting.synonyms:
                consulted = setting.synonyms[0][0]
                text, synonyms = to_text(self.broker_value(consulted, dynamic)), self._synonyms(consulted, dynamic)
            else:
                text = setting.default
                synonyms = (ConfigSynonym(setting.name, text, Source.DEFAULT),)
            if setting.name in overrides:
                text = to_text(setting.parse(overrides[setting.name]))
                synonyms = (ConfigSynonym(setting.name, text, Source.GROUP), *synonyms)
            source = synonyms[0].source if synonyms else Source.DEFAULT
            entries.append(
                ConfigEntry(setting.name, text, False, source, False, synonyms, ConfigType[setting.type.upper()])
            )
        return entries

    def describe_broker(self, dynamic: Dynamic = NOT_CHANGED) -> list[ConfigEntry]:
        entries = []
        for setting in table().broker.values():
            if setting.internal and setting.name not in self.given:
                continue
            synonyms = self._synonyms(setting.name, dynamic)
            value = self.broker_value(setting.name, dynamic)
            text = None if value is None or setting.sensitive else to_text(value)
            source = synonyms[0].source if synonyms else Source.DEFAULT
            entries.append(
                ConfigEntry(
                    setting.name,
                    text,
                    setting.read_only,
                    source,
                    setting.sensitive,
                    synonyms,
                    ConfigType[setting.type.upper()],
                )
            )
        at_run_time = {**dynamic.broker, **dynamic.default}
        entries += [self._describe_stored(name, dynamic) for name in at_run_time if name not in table().broker]
        return entries

    def describe_cluster_default(self, dynamic: Dynamic = NOT_CHANGED) -> list[ConfigEntry]:
        """The broker resource with the empty name: only what was set for all brokers at run time."""
        entries = []
        for name, text in dynamic.default.items():
            setting = table().broker.get(name)
            if setting is None:
                entries.append(self._describe_stored(name, Dynamic(default=dynamic.default)))
                continue
            shown = None if setting.sensitive else text
            synonyms = (ConfigSynonym(name, shown, Source.DYNAMIC_DEFAULT),)
            kind = ConfigType[setting.type.upper()]
            entries.append(
                ConfigEntry(name, shown, setting.read_only, Source.DYNAMIC_DEFAULT, setting.sensitive, synonyms, kind)
            )
        return entries

    def _describe_stored(self, name: str, dynamic: Dynamic) -> ConfigEntry:
        """What exists only at run time; what nobody knows (of a listener, of a plug-in) may be secret: not shown."""
        setting = table().dynamic.get(name)
        held = ((dynamic.broker, Source.DYNAMIC_BROKER), (dynamic.default, Source.DYNAMIC_DEFAULT))
        synonyms = tuple(
            ConfigSynonym(name, None if setting is None else values[name], source)
            for values, source in held
            if name in values
        )
        kind = ConfigType.UNKNOWN if setting is None else ConfigType[setting.type.upper()]
        unknown = setting is None
        return ConfigEntry(name, synonyms[0].value, unknown, synonyms[0].source, unknown, synonyms, kind)

    def _synonyms(self, name: str, dynamic: Dynamic) -> tuple[ConfigSynonym, ...]:
        family = _FAMILY_OF.get(name, (name,))
        broker = table().broker
        found = []
        for values, source in (
            (dynamic.broker, Source.DYNAMIC_BROKER),
            (dynamic.default, Source.DYNAMIC_DEFAULT),
            (self._static_texts(), Source.STATIC),
            ({each: broker[each].default for each in family}, Source.DEFAULT),
        ):
            found += [
                ConfigSynonym(each, None if broker[each].sensitive else text, source)
                for each in family
                if (text := values.get(each)) is not None
            ]
        while found and found[0].name != name:  # a converted unit that stands before the name itself is not shown
            found.pop(0)
        return tuple(found)

    def _static_texts(self) -> dict[str, str]:
        texts = dict(self.given)
        texts.setdefault("broker.id", str(self.node_id))
        return texts

    def _inherited(self, topic_setting: str, dynamic: Dynamic) -> Value:
        setting = table().topic[topic_setting]
        for name, factor in setting.synonyms:
            value = self.broker_value(name, dynamic)
            if value is not None and factor != 1:
                assert isinstance(value, int), value
                value *= factor
            if value is not None:
                unlimited = topic_setting == "retention.ms" and isinstance(value, int) and value < 0
                return -1 if unlimited else value
        return setting.default_value()

    def _shown(self, name: str) -> str:
        return "(hidden)" if table().broker[name].sensitive else self.given[name]

    def _align_node_id(self) -> None:
        """broker.id is node.id's older name: given alone it is the node's id, given both they agree."""
        broker_id = self._values.get("broker.id", -1)
        if broker_id != -1 and "node.id" not in self._values:
            self._values["node.id"] = broker_id
        elif broker_id not in (-1, self.node_id):
            raise ConfigError(f"node.id is {self.node_id} but broker.id is {broker_id}: they must be the same.")
        self._values["broker.id"] = self.node_id

    def _read_listeners(self) -> None:
        controllers = self.items("controller.listener.names")
        protocols = parse_protocol_map(self.text("listener.security.protocol.map") or "")
        for name in controllers:  # Kafka's convenience: a controller listener nobody mapped is plaintext
            if "listener.security.protocol.map" not in self.given:
                protocols.setdefault(name.upper(), "PLAINTEXT")
        try:
            everything = parse_listeners("listeners", self.items("listeners"), protocols)
            advertised = self["advertised.listeners"]
            self.controller_listeners = [
                one for one in everything if one.name in {name.upper() for name in controllers}
            ]
            self.listeners = [one for one in everything if one not in self.controller_listeners]
            self.advertised_listeners = advertised_of(
                self.listeners,
                self.controller_listeners,
                advertised if isinstance(advertised, list) else None,
                protocols,
            )
        except ValueError as problem:
            raise ConfigError(str(problem)) from None
        between = self.text("inter.broker.listener.name")
        if between is not None and between.upper() not in {one.name for one in self.listeners}:
            raise ConfigError(f"inter.broker.listener.name is {between!r}, which is not one of the listeners.")
        if not self.listeners:
            raise ConfigError("listeners names no listener for clients: add one such as PLAINTEXT://127.0.0.1:9092.")

    def _check_directories(self) -> None:
        if self.metadata_log_dir not in self.log_dirs:
            raise ConfigError(f"metadata.log.dir is {self.metadata_log_dir}, but it must be one of log.dirs.")

    def _check_limits(self) -> None:
        queued, largest = self.integer("queued.max.request.bytes"), self.integer("socket.request.max.bytes")
        if 0 < queued < largest:
            raise ConfigError(
                f"queued.max.request.bytes is {queued}, but it must be at least socket.request.max.bytes ({largest})."
            )
        if self._inherited("retention.ms", NOT_CHANGED) == 0:
            raise ConfigError("log.retention.ms must be unlimited (-1) or, equal or greater than 1")
        threads, deduping = self.integer("log.cleaner.threads"), self.integer("log.cleaner.dedupe.buffer.size")
        if deduping // max(1, threads) <= CLEANER_THREAD_BYTES:
            raise ConfigError("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
        overrides = self.per_ip_overrides()
        if self.integer("max.connections.per.ip") == 0 and not overrides:
            raise ConfigError(
                "max.connections.per.ip can be zero only if max.connections.per.ip.overrides lets someone in."
            )

    def _check_roles(self) -> None:
        roles = self.items("process.roles")
        if sorted(roles) != ["broker", "controller"]:
            raise ConfigError(
                f"process.roles is {','.join(roles)!r}, but a node here is broker and controller in one: "
                "set it to broker,controller or leave it out."
            )
        if self.voters != [self.node_id]:
            raise ConfigError(
                f"controller.quorum.voters names {', '.join(map(str, self.voters))}, "
                f"but only a quorum of this node alone ({self.node_id}) can be started yet."
            )


def _text_of(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return to_text(value) if isinstance(value, bool | int | float) else str(value)


def read_properties(path: Path) -> dict[str, str]:
    """A server.properties file: Java's format as far as Kafka's files use it (comments, continuations, `=` or `:`)."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigError(f"The settings file {path} cannot be read: {problem.strerror}.") from None
    found: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.lstrip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        name, value = _split_property(line)
        found[name] = value.replace("\\\\", "\\").replace("\\:", ":").replace("\\=", "=")
    return found


def _split_property(line: str) -> tuple[str, str]:
    cut = next((i for i, char in enumerate(line) if char in "=: \t" and line[i - 1 : i] != "\\"), len(line))
    rest = line[cut:].lstrip()
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip()
    return line[:cut], rest
