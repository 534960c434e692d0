"""Metadata, topics, partitions, configs, the cluster."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk
from compat_tests.until import until


def _names(*names: str | None) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


def _metadata(topics: list[dict[str, Any]] | None, *, auto: bool = False, **more: Any) -> dict[str, Any]:
    return {"topics": topics, "allow_auto_topic_creation": auto, **more}


@case("Metadata")
def of_one_topic(talk: Talk, version: int) -> None:
    topic = talk.topic(partitions=3)
    talk.ask("answer", "Metadata", version, _metadata(_names(topic.name)))
    talk.ask("twice", "Metadata", version, _metadata(_names(topic.name, topic.name)))


@case("Metadata")
def of_all_and_of_none(talk: Talk, version: int) -> None:
    topic = talk.topic()
    lists: tuple[tuple[str, list[dict[str, Any]] | None], ...] = (("null", None), ("empty", []))
    for label, wanted in lists:
        if wanted is None and version == 0:
            continue  # version 0 has no null here
        answer = talk.connection.ask("Metadata", version, _metadata(wanted))
        assert isinstance(answer, dict)
        answer["topics"] = [one for one in answer["topics"] if one["name"] == topic.name]
        talk.say(label, answer)


@case("Metadata", range(4, 14))
def of_unknown_names(talk: Talk, version: int) -> None:
    for name in ("no-such-topic", "", ".", "..", "a/b", "n" * 250, "__consumer_offsets_x"):
        talk.ask(f"name {name[:20]!r}", "Metadata", version, _metadata(_names(name)))


@case("Metadata")
def auto_creation(talk: Talk, version: int) -> None:
    name = talk.name()
    talk.ask("first", "Metadata", version, _metadata(_names(name), auto=True))

    def there() -> bool:
        answer = talk.quietly("Metadata", version, _metadata(_names(name), auto=True))
        return bool(answer["topics"][0]["error_code"] == 0)

    until(there, WAIT_SECONDS)
    talk.ask("then", "Metadata", version, _metadata(_names(name), auto=True))
    talk.ask("bad name", "Metadata", version, _metadata(_names("b@d"), auto=True))


@case("Metadata", range(10, 14))
def by_id(talk: Talk, version: int) -> None:
    topic = talk.topic(partitions=2)
    other = talk.topic()
    ids = {"known": topic.topic_id, "unknown": b"\7" * 16, "zero": bytes(16)}
    for label, topic_id in ids.items():
        for name_label, name in (("no name", None), ("its name", topic.name), ("another name", other.name)):
            body = _metadata([{"topic_id": topic_id, "name": name}])
            talk.ask(f"{label} id, {name_label}", "Metadata", version, body)
    mixed: list[dict[str, Any]] = [
        {"topic_id": topic.topic_id, "name": None},
        {"topic_id": bytes(16), "name": other.name},
    ]
    talk.ask("mixed", "Metadata", version, _metadata(mixed))


@case("Metadata", range(8, 14))
def authorized_operations(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for cluster in (False, True):
        for per_topic in (False, True):
            more = {"include_cluster_authorized_operations": cluster, "include_topic_authorized_operations": per_topic}
            body = _metadata(_names(topic.name, "no-such-topic", "b@d"), **more)
            talk.ask(f"cluster {cluster}, topic {per_topic}", "Metadata", version, body)
            if version >= 12:
                by_id = [{"topic_id": topic_id, "name": None} for topic_id in (topic.topic_id, b"\7" * 16)]
                answer = _by_name(talk.connection.ask("Metadata", version, _metadata(by_id, **more)))
                talk.say(f"by id, cluster {cluster}, topic {per_topic}", answer)


def _plan(name: str, partitions: int = 1, replication: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replication, **more}


def _create(*plans: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"topics": list(plans), "timeout_ms": 30_000, **more}


def _by_name(answer: Any, field: str = "topics") -> Any:
    """Batch answers come in no promised order."""
    if isinstance(answer, dict):
        answer[field].sort(key=lambda one: (one["name"] or "", one["error_code"]))
    return answer


@case("CreateTopics")
def topics_well_made(talk: Talk, version: int) -> None:
    talk.ask("plain", "CreateTopics", version, _create(_plan(talk.name(), 3)))
    configs = [{"name": "retention.ms", "value": "1000"}, {"name": "cleanup.policy", "value": "compact"}]
    talk.ask("configs", "CreateTopics", version, _create(_plan(talk.name(), configs=configs)))
    assignments = [{"partition_index": n, "broker_ids": [1]} for n in range(2)]
    by_hand = _plan(talk.name(), -1, -1, assignments=assignments)
    talk.ask("assignments", "CreateTopics", version, _create(by_hand))
    talk.say(
        "two", _by_name(talk.connection.ask("CreateTopics", version, _create(_plan(talk.name()), _plan(talk.name()))))
    )
    talk.ask("none", "CreateTopics", version, _create())
    if version >= 4:
        talk.ask("defaults", "CreateTopics", version, _create(_plan(talk.name(), -1, -1)))


@case("CreateTopics")
def topics_ill_made(talk: Talk, version: int) -> None:
    taken = talk.topic().name
    name = talk.name()
    good = {"partition_index": 0, "broker_ids": [1]}
    wrong: dict[str, dict[str, Any]] = {
        "exists": _plan(taken),
        "empty name": _plan(""),
        "dot": _plan("."),
        "dots": _plan(".."),
        "long name": _plan("n" * 250),
        "slash": _plan("a/b"),
        "umlaut": _plan("ü"),
        "internal": _plan("__cluster_metadata"),
        "no partitions": _plan(name, 0),
        "minus two partitions": _plan(name, -2),
        "no replicas": _plan(name, 1, 0),
        "minus two replicas": _plan(name, 1, -2),
        "too many replicas": _plan(name, 1, 2),
        "unknown config": _plan(name, configs=[{"name": "no.such", "value": "1"}]),
        "bad value": _plan(name, configs=[{"name": "retention.ms", "value": "x"}]),
        "null value": _plan(name, configs=[{"name": "retention.ms", "value": None}]),
        "small segment": _plan(name, configs=[{"name": "segment.bytes", "value": "1000"}]),
        "bad policy": _plan(name, configs=[{"name": "cleanup.policy", "value": "burn"}]),
        "bad codec": _plan(name, configs=[{"name": "compression.type", "value": "rar"}]),
        "assignments and partitions": _plan(name, 1, -1, assignments=[good]),
        "assignments and replicas": _plan(name, -1, 1, assignments=[good]),
        "unknown broker": _plan(name, -1, -1, assignments=[{"partition_index": 0, "broker_ids": [99]}]),
        "no broker": _plan(name, -1, -1, assignments=[{"partition_index": 0, "broker_ids": []}]),
        "broker twice": _plan(name, -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1, 1]}]),
        "partition missing": _plan(name, -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
        "partition twice": _plan(name, -1, -1, assignments=[good, good]),
    }
    for label, plan in wrong.items():
        talk.ask(label, "CreateTopics", version, _create(plan))
    talk.ask("named twice", "CreateTopics", version, _create(_plan(name), _plan(name)))
    mixed = talk.connection.ask("CreateTopics", version, _create(_plan(talk.name()), _plan("a/b"), _plan(taken)))
    talk.say("mixed", _by_name(mixed))


@case("CreateTopics")
def topics_that_collide(talk: Talk, version: int) -> None:
    name = talk.name().replace("-", ".")
    talk.ask("dots", "CreateTopics", version, _create(_plan(name)))
    talk.ask("underscores", "CreateTopics", version, _create(_plan(name.replace(".", "_"))))


@case("CreateTopics")
def only_validated(talk: Talk, version: int) -> None:
    name = talk.name()
    talk.ask("good", "CreateTopics", version, _create(_plan(name, 2), validate_only=True))
    talk.ask("bad", "CreateTopics", version, _create(_plan(name, 0), validate_only=True))
    talk.ask("not there", "Metadata", 9, _metadata(_names(name)))


def _delete(version: int, *topics: dict[str, Any]) -> dict[str, Any]:
    if version >= 6:
        return {"topics": list(topics), "timeout_ms": 30_000}
    return {"topic_names": [topic["name"] for topic in topics], "timeout_ms": 30_000}


@case("DeleteTopics")
def topics_deleted(talk: Talk, version: int) -> None:
    topic, second, third = talk.topic(), talk.topic(2), talk.topic()
    talk.ask("one", "DeleteTopics", version, _delete(version, {"name": topic.name}))
    talk.ask("again", "DeleteTopics", version, _delete(version, {"name": topic.name}))
    names = ({"name": second.name}, {"name": third.name}, {"name": "no-such-topic"})
    answer = talk.connection.ask("DeleteTopics", version, _delete(version, *names))
    talk.say("several", _by_name(answer, "responses"))
    talk.ask("none", "DeleteTopics", version, _delete(version))

    def gone() -> bool:
        answer = talk.quietly("Metadata", 9, _metadata(_names(topic.name, second.name, third.name)))
        return all(one["error_code"] == 3 for one in answer["topics"])

    until(gone, WAIT_SECONDS)


@case("DeleteTopics")
def named_twice(talk: Talk, version: int) -> None:
    topic = talk.topic()
    twice = ({"name": topic.name}, {"name": topic.name})
    answer = talk.connection.ask("DeleteTopics", version, _delete(version, *twice))
    talk.say("answer", _by_name(answer, "responses"))


@case("DeleteTopics", [6])
def deleted_by_id(talk: Talk, version: int) -> None:
    topic, other = talk.topic(), talk.topic()
    talk.ask("both given", "DeleteTopics", 6, _delete(6, {"name": topic.name, "topic_id": topic.topic_id}))
    talk.ask("neither given", "DeleteTopics", 6, _delete(6, {"name": None}))
    talk.ask("unknown id", "DeleteTopics", 6, _delete(6, {"name": None, "topic_id": b"\7" * 16}))
    talk.ask("by id", "DeleteTopics", 6, _delete(6, {"name": None, "topic_id": topic.topic_id}))
    talk.ask("by id again", "DeleteTopics", 6, _delete(6, {"name": None, "topic_id": topic.topic_id}))
    same = ({"name": other.name}, {"name": None, "topic_id": other.topic_id})
    answer = talk.connection.ask("DeleteTopics", 6, _delete(6, *same))
    talk.say("by id and name", _by_name(answer, "responses"))


@case("CreatePartitions")
def partitions_added(talk: Talk, version: int) -> None:
    topic = talk.topic(2)

    def grow(label: str, count: int, name: str = topic.name, **more: Any) -> None:
        plan: dict[str, Any] = {"name": name, "count": count, "assignments": None, **more}
        body = {"topics": [plan], "timeout_ms": 30_000, "validate_only": label.startswith("validate")}
        talk.ask(label, "CreatePartitions", version, body)

    for count in (0, -1, 1, 2):
        grow(f"to {count}", count)
    grow("unknown topic", 3, "no-such-topic")
    grow("bad name", 3, "a/b")
    grow("validate", 3)
    grow("too few assignments", 4, assignments=[{"broker_ids": [1]}])
    grow("too many assignments", 3, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}])
    grow("unknown broker", 3, assignments=[{"broker_ids": [99]}])
    grow("two replicas", 3, assignments=[{"broker_ids": [1, 1]}])
    grow("no replicas", 3, assignments=[{"broker_ids": []}])
    grow("to 3", 3)
    grow("to 5 by hand", 5, assignments=[{"broker_ids": [1]}, {"broker_ids": [1]}])
    twice = [{"name": topic.name, "count": 6, "assignments": None}] * 2
    talk.ask("named twice", "CreatePartitions", version, {"topics": twice, "timeout_ms": 30_000})
    talk.ask("none", "CreatePartitions", version, {"topics": [], "timeout_ms": 30_000})

    def grown() -> bool:
        answer = talk.quietly("Metadata", 9, _metadata(_names(topic.name)))
        return len(answer["topics"][0]["partitions"]) == 5

    until(grown, WAIT_SECONDS)
    talk.ask("metadata", "Metadata", 12, _metadata(_names(topic.name)))


def _resource(kind: int, name: str, keys: list[str] | None = None) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}


def _sorted_configs(answer: Any) -> Any:
    if isinstance(answer, dict):
        for result in answer["results"]:
            result["configs"].sort(key=lambda config: config["name"])
    return answer


@case("DescribeConfigs")
def of_topics(talk: Talk, version: int) -> None:
    configs = {"retention.ms": "1000", "cleanup.policy": "compact", "max.message.bytes": "5000"}
    topic = talk.topic(configs=configs)

    def ask(label: str, *resources: dict[str, Any], **more: Any) -> None:
        body = {"resources": list(resources), **more}
        talk.say(label, _sorted_configs(talk.connection.ask("DescribeConfigs", version, body)))

    ask("all", _resource(2, topic.name))
    ask("synonyms", _resource(2, topic.name), include_synonyms=True)
    ask("documentation", _resource(2, topic.name), include_documentation=True)
    ask("some", _resource(2, topic.name, ["retention.ms", "segment.bytes", "no.such"]))
    ask("no keys", _resource(2, topic.name, []))
    ask("unknown topic", _resource(2, "no-such-topic"))
    ask("empty name", _resource(2, ""))
    ask("bad name", _resource(2, "a/b"))
    ask("unknown type", _resource(77, "x"))
    ask("type 0", _resource(0, "x"))
    ask("none")


@case("DescribeConfigs")
def of_brokers(talk: Talk, version: int) -> None:
    keys = ["log.retention.ms", "log.segment.bytes", "num.partitions", "message.max.bytes", "compression.type"]

    def ask(label: str, *resources: dict[str, Any], **more: Any) -> None:
        body = {"resources": list(resources), **more}
        talk.say(label, _sorted_configs(talk.connection.ask("DescribeConfigs", version, body)))

    ask("some", _resource(4, "1", keys))
    ask("synonyms", _resource(4, "1", keys), include_synonyms=True)
    ask("another broker", _resource(4, "99", keys))
    ask("not a number", _resource(4, "one", keys))
    ask("broker logger, another", _resource(8, "99"))


@case("DescribeCluster")
def of_the_cluster(talk: Talk, version: int) -> None:
    for operations in (False, True):
        body = {"include_cluster_authorized_operations": operations}
        talk.ask(f"operations {operations}", "DescribeCluster", version, body)
    if version >= 1:
        talk.ask("controllers", "DescribeCluster", version, {"endpoint_type": 2})
        talk.ask("no such endpoints", "DescribeCluster", version, {"endpoint_type": 9})
    if version >= 2:
        talk.ask("fenced too", "DescribeCluster", version, {"include_fenced_brokers": True})


@case("DescribeTopicPartitions")
def of_topics_in_pages(talk: Talk, version: int) -> None:
    two, three = talk.topic(2), talk.topic(3)

    def ask(label: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        place = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        body = {"topics": _names(*names), "response_partition_limit": limit, "cursor": place}
        talk.ask(label, "DescribeTopicPartitions", version, body)

    ask("both", three.name, two.name)
    ask("twice", two.name, two.name)
    ask("unknown", "no-such-topic", two.name)
    ask("bad name", "a/b")
    for limit in (0, 1, 2, 3, 4, 5, -1):
        ask(f"limit {limit}", two.name, three.name, limit=limit)
    for place in ((two.name, 1), (three.name, 0), (three.name, 2), (two.name, 7), ("zzz", 0), (two.name, -1)):
        ask(f"cursor {place}", two.name, three.name, cursor=place)
    ask("cursor and limit", two.name, three.name, limit=2, cursor=(two.name, 1))


@case("FindCoordinator")
def of_odd_kinds(talk: Talk, version: int) -> None:
    for kind in (3, 7, -1):
        if version == 0:
            break
        body = {"key": "g", "key_type": kind, "coordinator_keys": ["g", "h"]}
        talk.ask(f"kind {kind}", "FindCoordinator", version, body)
    if version >= 4:
        talk.ask("no keys", "FindCoordinator", version, {"key_type": 0, "coordinator_keys": []})
