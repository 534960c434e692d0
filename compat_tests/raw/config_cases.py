"""AlterConfigs and IncrementalAlterConfigs: what is changed, what is refused, and what DescribeConfigs shows then.

Apache answers before its brokers have taken a change over, so each change carries a marker, a setting whose value tells
how far the broker is. Settings of brokers are taken back at the end: other cases run on the same brokers.
"""

from __future__ import annotations

import itertools
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.batches import Batch, Rec
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk, produce_body
from compat_tests.until import until

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
MARKERS = {TOPIC: "file.delete.delay.ms", BROKER: "log.segment.delete.delay.ms"}
_marks = itertools.count(70_000)

Change = tuple[str, int, str | None]
Resource = dict[str, Any]


def _incremental(kind: int, name: str, *changes: Change) -> Resource:
    configs = [{"name": one, "config_operation": operation, "value": value} for one, operation, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def _whole(kind: int, name: str, **settings: str | None) -> Resource:
    configs = [{"name": one.replace("_", "."), "value": value} for one, value in settings.items()]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def _request(*resources: Resource, validate_only: bool = False) -> dict[str, Any]:
    return {"resources": list(resources), "validate_only": validate_only}


def _described(talk: Talk, kind: int, name: str, *keys: str) -> Any:
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)}
    answer = talk.quietly("DescribeConfigs", 4, {"resources": [asked], "include_synonyms": True})
    (result,) = answer["results"]
    result["configs"].sort(key=lambda one: one["name"])
    return result["configs"]


def _await(talk: Talk, kind: int, name: str, mark: str | None) -> None:
    """Until the broker shows the marker's value as set there; None: until it shows none."""
    source = {TOPIC: 1, BROKER: 2}[kind] if name else 3

    def shown() -> bool:
        found = _described(talk, kind, name, MARKERS[kind])
        held = [one["value"] for one in found if one["config_source"] == source]
        return held == ([] if mark is None else [mark])

    until(shown, WAIT_SECONDS)


def _change(
    talk: Talk, label: str, version: int, kind: int, name: str, *changes: Change, keys: tuple[str, ...]
) -> None:
    """One change, its answer, and what is described once the broker has taken it over."""
    mark = str(next(_marks))
    body = _request(_incremental(kind, name, *changes, (MARKERS[kind], SET, mark)))
    talk.ask(label, "IncrementalAlterConfigs", version, body)
    _await(talk, kind, name, mark)
    talk.say(f"{label}, described", _described(talk, kind, name, *keys))


@case("IncrementalAlterConfigs")
def a_topic_step_by_step(talk: Talk, version: int) -> None:
    topic = talk.topic(configs={"retention.ms": "1000"}).name
    steps: dict[str, tuple[Change, ...]] = {
        "set": (("retention.ms", SET, "2000"), ("compression.type", SET, " gzip ")),
        "append": (("cleanup.policy", APPEND, "compact"), ("leader.replication.throttled.replicas", APPEND, "0:1,1:1")),
        "append what is there": (("cleanup.policy", APPEND, "delete,compact"),),
        "subtract": (
            ("cleanup.policy", SUBTRACT, "delete"),
            ("leader.replication.throttled.replicas", SUBTRACT, "9:9"),
        ),
        "subtract the rest": (("leader.replication.throttled.replicas", SUBTRACT, "0:1,1:1"),),
        "delete": (("retention.ms", DELETE, None), ("cleanup.policy", DELETE, "ignored")),
        "delete what is not there": (("segment.ms", DELETE, None),),
        "nothing else": (),
    }
    keys = ("retention.ms", "cleanup.policy", "compression.type", "segment.ms", "leader.replication.throttled.replicas")
    for label, changes in steps.items():
        _change(talk, label, version, TOPIC, topic, *changes, keys=keys)
    talk.ask("none", "IncrementalAlterConfigs", version, _request())
    talk.ask("no changes", "IncrementalAlterConfigs", version, _request(_incremental(TOPIC, topic)))


@case("IncrementalAlterConfigs")
def a_topic_wrongly(talk: Talk, version: int) -> None:
    topic, other = talk.topic().name, talk.topic().name
    wrong: dict[str, tuple[Resource, ...]] = {
        "bad value": (_incremental(TOPIC, topic, ("retention.ms", SET, "soon")),),
        "empty value": (_incremental(TOPIC, topic, ("retention.ms", SET, "")),),
        "unknown name": (_incremental(TOPIC, topic, ("no.such", SET, "1")),),
        "unknown name deleted": (_incremental(TOPIC, topic, ("no.such", DELETE, None)),),
        "append to no list": (_incremental(TOPIC, topic, ("retention.ms", APPEND, "1")),),
        "append to an unknown name": (_incremental(TOPIC, topic, ("no.such", APPEND, "1")),),
        "append a bad value": (_incremental(TOPIC, topic, ("cleanup.policy", APPEND, "burn")),),
        "null set": (_incremental(TOPIC, topic, ("retention.ms", SET, None)),),
        "null appended": (_incremental(TOPIC, topic, ("cleanup.policy", APPEND, None)),),
        "a key twice": (_incremental(TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),),
        "operation 9": (_incremental(TOPIC, topic, ("retention.ms", 9, "1")),),
        "lags in conflict": (
            _incremental(TOPIC, topic, ("min.compaction.lag.ms", SET, "2"), ("max.compaction.lag.ms", SET, "1")),
        ),
        "remote storage": (_incremental(TOPIC, topic, ("remote.storage.enable", SET, "true")),),
        "unknown topic": (_incremental(TOPIC, "no-such-topic", ("retention.ms", SET, "1")),),
        "unknown topic, unknown name": (_incremental(TOPIC, "no-such-topic", ("no.such", SET, "1")),),
        "unknown topic, no change": (_incremental(TOPIC, "no-such-topic"),),
        "empty topic": (_incremental(TOPIC, "", ("retention.ms", SET, "1")),),
        "bad topic": (_incremental(TOPIC, "a/b", ("retention.ms", SET, "1")),),
        "a good key and a bad one": (
            _incremental(TOPIC, topic, ("segment.ms", SET, "5"), ("segment.bytes", SET, "1")),
        ),
        "a topic twice": (
            _incremental(TOPIC, topic, ("segment.ms", SET, "5")),
            _incremental(TOPIC, other, ("segment.ms", SET, "5")),
            _incremental(TOPIC, topic, ("retention.ms", SET, "5")),
        ),
        "unknown type": (_incremental(77, "x"),),
        "type 0": (_incremental(0, "x"),),
        "one of each": (
            _incremental(TOPIC, other, ("segment.ms", SET, "6")),
            _incremental(TOPIC, "b@d"),
            _incremental(3, "x"),
        ),
    }
    for label, resources in wrong.items():
        talk.ask(label, "IncrementalAlterConfigs", version, _request(*resources))
    good = _incremental(TOPIC, topic, ("retention.ms", SET, "5"))
    talk.ask("validated", "IncrementalAlterConfigs", version, _request(good, validate_only=True))
    bad = _incremental(TOPIC, topic, ("retention.ms", SET, "x"))
    talk.ask("validated, bad", "IncrementalAlterConfigs", version, _request(bad, validate_only=True))
    _change(talk, "afterwards", version, TOPIC, topic, keys=("retention.ms", "segment.ms", "cleanup.policy"))


@case("IncrementalAlterConfigs")
def brokers_step_by_step(talk: Talk, version: int) -> None:
    topic = talk.topic().name
    own = ("log.retention.ms", "log.cleanup.policy", "message.max.bytes", "num.partitions")
    of_topic = ("retention.ms", "cleanup.policy", "max.message.bytes")
    policy = (("log.cleanup.policy", APPEND, "compact"),)
    try:
        _change(talk, "all", version, BROKER, "", ("log.retention.ms", SET, "7000"), keys=own)
        _change(talk, "one", version, BROKER, "1", ("log.retention.ms", SET, "5000"), *policy, keys=own)
        talk.say("topic", _described(talk, TOPIC, topic, *of_topic))
        changes: tuple[Change, ...] = (("log.retention.ms", DELETE, None), ("log.cleanup.policy", SUBTRACT, "delete"))
        _change(talk, "one, less", version, BROKER, "1", *changes, keys=own)
        talk.say("topic, then", _described(talk, TOPIC, topic, *of_topic))
    finally:
        for whose in ("", "1"):
            gone = [(name, DELETE, None) for name in ("log.retention.ms", "log.cleanup.policy", MARKERS[BROKER])]
            talk.quietly("IncrementalAlterConfigs", 1, _request(_incremental(BROKER, whose, *gone)))
            _await(talk, BROKER, whose, None)
    talk.say("at last", _described(talk, BROKER, "1", *own))
    talk.say("at last, all", _described(talk, BROKER, ""))


@case("IncrementalAlterConfigs")
def brokers_wrongly(talk: Talk, version: int) -> None:
    wrong: dict[str, Resource] = {
        "read-only": _incremental(BROKER, "1", ("num.partitions", SET, "5")),
        "read-only, all": _incremental(BROKER, "", ("num.partitions", SET, "5")),
        "bad value": _incremental(BROKER, "1", ("log.retention.ms", SET, "soon")),
        "bad range": _incremental(BROKER, "", ("log.segment.bytes", SET, "1")),
        "bad list": _incremental(BROKER, "1", ("log.cleanup.policy", SET, "burn")),
        "append to no list": _incremental(BROKER, "1", ("log.retention.ms", APPEND, "1")),
        "null": _incremental(BROKER, "1", ("log.retention.ms", SET, None)),
        "a key twice": _incremental(BROKER, "1", ("log.retention.ms", SET, "1"), ("log.retention.ms", SET, "1")),
        "operation 9": _incremental(BROKER, "1", ("log.retention.ms", 9, "1")),
        "another broker": _incremental(BROKER, "2", ("log.retention.ms", SET, "1")),
        "not a number": _incremental(BROKER, "one", ("log.retention.ms", SET, "1")),
        "security": _incremental(BROKER, "1", ("ssl.keystore.password", SET, "secret")),
        "security, all": _incremental(BROKER, "", ("ssl.keystore.password", SET, "secret")),
        "a listener's, all": _incremental(BROKER, "", ("listeners", SET, "PLAINTEXT://127.0.0.1:1")),
        "listeners": _incremental(BROKER, "1", ("listeners", SET, "PLAINTEXT://127.0.0.1:1")),
        "too many threads": _incremental(BROKER, "1", ("num.io.threads", SET, "100")),
        "too few threads": _incremental(BROKER, "1", ("num.io.threads", SET, "1")),
        "no connections": _incremental(BROKER, "1", ("max.connections", SET, "0")),
        "unknown name": _incremental(BROKER, "1", ("no.such", SET, "1")),
    }
    for label, resource in wrong.items():
        talk.ask(label, "IncrementalAlterConfigs", version, _request(resource, validate_only=True))


@case("AlterConfigs")
def a_topic_as_a_whole(talk: Talk, version: int) -> None:
    topic = talk.topic(configs={"retention.ms": "1000", "segment.ms": "5000"}).name
    mark = str(next(_marks))
    whole = _whole(TOPIC, topic, retention_ms="3000", cleanup_policy="compact", file_delete_delay_ms=mark)
    talk.ask("replaced", "AlterConfigs", version, _request(whole))
    _await(talk, TOPIC, topic, mark)
    keys = ("retention.ms", "segment.ms", "cleanup.policy")
    talk.say("replaced, described", _described(talk, TOPIC, topic, *keys))
    wrong = {
        "bad value": (_whole(TOPIC, topic, retention_ms="soon"),),
        "unknown name": (_whole(TOPIC, topic, no_such="1"),),
        "null": (_whole(TOPIC, topic, retention_ms=None),),
        "unknown topic": (_whole(TOPIC, "no-such-topic", retention_ms="1"),),
        "empty topic": (_whole(TOPIC, "", retention_ms="1"),),
        "bad topic": (_whole(TOPIC, "a/b", retention_ms="1"),),
        "a logger": (_whole(8, "1", root="INFO"),),
        "unknown type": (_whole(77, "x"),),
        "none": (),
        "another broker": (_whole(BROKER, "2"),),
        "read-only": (_whole(BROKER, "1", num_partitions="5"),),
        "bad value of a broker": (_whole(BROKER, "1", log_segment_bytes="1"),),
    }
    for label, resources in wrong.items():
        talk.ask(label, "AlterConfigs", version, _request(*resources))
    talk.ask("validated", "AlterConfigs", version, _request(_whole(TOPIC, topic), validate_only=True))
    talk.say("afterwards", _described(talk, TOPIC, topic, *keys))
    talk.ask("emptied", "AlterConfigs", version, _request(_whole(TOPIC, topic)))
    _await(talk, TOPIC, topic, None)
    talk.say("emptied, described", _described(talk, TOPIC, topic, *keys))


@case("AlterConfigs")
def a_broker_as_a_whole(talk: Talk, version: int) -> None:
    marks = [str(next(_marks)), str(next(_marks))]
    keys = ("log.retention.ms", "log.roll.ms")
    try:
        both = _whole(BROKER, "1", log_retention_ms="5000", log_segment_delete_delay_ms=marks[0])
        talk.ask("set", "AlterConfigs", version, _request(both))
        _await(talk, BROKER, "1", marks[0])
        talk.say("set, described", _described(talk, BROKER, "1", *keys))
        other = _whole(BROKER, "1", log_roll_ms="6000", log_segment_delete_delay_ms=marks[1])
        talk.ask("replaced", "AlterConfigs", version, _request(other))
        _await(talk, BROKER, "1", marks[1])
        talk.say("replaced, described", _described(talk, BROKER, "1", *keys))
    finally:
        talk.ask("emptied", "AlterConfigs", version, _request(_whole(BROKER, "1")))
        _await(talk, BROKER, "1", None)
    talk.say("emptied, described", _described(talk, BROKER, "1", *keys))


@case("IncrementalAlterConfigs", [1])
def a_setting_holds_for_the_next_record(talk: Talk, version: int) -> None:
    topic = talk.topic()
    large = Batch((Rec(b"k", bytes(3_000)),)).encode()
    of_broker = ("message.max.bytes", MARKERS[BROKER])
    keys = ("max.message.bytes",)
    try:
        _change(talk, "topic", version, TOPIC, topic.name, ("max.message.bytes", SET, "1000"), keys=keys)
        talk.ask("too large", "Produce", 12, produce_body(topic, large))
        _change(talk, "topic, back", version, TOPIC, topic.name, ("max.message.bytes", DELETE, None), keys=keys)
        talk.ask("not too large", "Produce", 12, produce_body(topic, large))
        _change(talk, "all", version, BROKER, "", ("message.max.bytes", SET, "1000"), keys=of_broker[:1])
        talk.ask("too large for the broker", "Produce", 12, produce_body(topic, large))
    finally:
        gone = [(name, DELETE, None) for name in of_broker]
        talk.quietly("IncrementalAlterConfigs", 1, _request(_incremental(BROKER, "", *gone)))
        _await(talk, BROKER, "", None)
    talk.ask("at last", "Produce", 12, produce_body(topic, large))
