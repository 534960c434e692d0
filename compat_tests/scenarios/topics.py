"""Topics: made, seen, changed, removed; and every way to ask for one wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compat_tests.client import WAIT_SECONDS, Client, ClientError, ProduceOptions, Record, TopicPlan
from compat_tests.scenarios.catalogue import scenario
from compat_tests.scenarios.records import must_equal, sample_records
from compat_tests.until import until


def code_of(work: Callable[[], Any]) -> int:
    try:
        work()
    except ClientError as error:
        return error.code
    return 0


@scenario
def topic_life(client: Client, topic: str) -> Any:
    """Created, listed, described, refused a second time, deleted, gone."""
    outcome: dict[str, Any] = {"create": code_of(lambda: client.create_topic(topic, TopicPlan(partitions=3)))}
    until(lambda: topic in client.list_topics(), WAIT_SECONDS)
    outcome["describe"] = client.describe_topic(topic)
    outcome["again"] = code_of(lambda: client.create_topic(topic, TopicPlan()))
    outcome["delete"] = code_of(lambda: client.delete_topic(topic))
    until(lambda: topic not in client.list_topics(), WAIT_SECONDS)
    outcome["delete again"] = code_of(lambda: client.delete_topic(topic))
    assert len(outcome["describe"]["partitions"]) == 3
    return outcome


@scenario
def a_topic_made_again_is_empty(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan())
    client.produce(topic, sample_records(10), ProduceOptions())
    client.delete_topic(topic)
    until(lambda: topic not in client.list_topics(), WAIT_SECONDS)
    client.create_topic(topic, TopicPlan())
    until(lambda: topic in client.list_topics(), WAIT_SECONDS)
    end = client.list_offset(topic, 0, -1)
    sent = sample_records(4)
    offsets = client.produce(topic, sent, ProduceOptions())
    must_equal(sent, client.consume(topic, 0, 0, 4))
    return {"end": end, "offsets": offsets}


@scenario
def topics_refused(client: Client, topic: str) -> Any:
    wrong = {
        "name": (topic + "/slash", TopicPlan()),
        "long name": ("n" * 250, TopicPlan()),
        "dot": (".", TopicPlan()),
        "no partitions": (topic, TopicPlan(partitions=0)),
        "replication": (topic, TopicPlan(replication_factor=3)),
        "unknown config": (topic, TopicPlan(configs={"no.such.config": "1"})),
        "bad value": (topic, TopicPlan(configs={"retention.ms": "soon"})),
        "bad policy": (topic, TopicPlan(configs={"cleanup.policy": "burn"})),
    }
    codes = {
        what: code_of(lambda name=name, plan=plan: client.create_topic(name, plan))  # type: ignore[misc]
        for what, (name, plan) in wrong.items()
    }
    assert 0 not in codes.values(), codes
    return codes


@scenario
def validate_only_creates_nothing(client: Client, topic: str) -> Any:
    code = code_of(lambda: client.create_topic(topic, TopicPlan(validate_only=True)))
    return {"code": code, "listed": topic in client.list_topics()}


@scenario
def names_that_collide_are_refused(client: Client, topic: str) -> Any:
    client.create_topic(topic + ".a", TopicPlan())
    return code_of(lambda: client.create_topic(topic + "_a", TopicPlan()))


@scenario
def partitions_are_added(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan(partitions=2))
    outcome = {
        "fewer": code_of(lambda: client.create_partitions(topic, 1)),
        "same": code_of(lambda: client.create_partitions(topic, 2)),
        "more": code_of(lambda: client.create_partitions(topic, 4)),
        "unknown": code_of(lambda: client.create_partitions(topic + "-none", 4)),
    }
    until(lambda: len(client.describe_topic(topic)["partitions"]) == 4, WAIT_SECONDS)
    return {**outcome, "described": client.describe_topic(topic)}


@scenario
def topic_configs_are_described(client: Client, topic: str) -> Any:
    chosen = {"retention.ms": "60000", "cleanup.policy": "compact,delete", "segment.bytes": "2097152"}
    client.create_topic(topic, TopicPlan(configs=chosen))
    until(lambda: topic in client.list_topics(), WAIT_SECONDS)
    described = client.describe_configs(topic)
    assert {name: described[name] for name in chosen} == chosen
    return described


@scenario
def topic_configs_change_and_hold_at_once(client: Client, topic: str) -> Any:
    """A smaller limit refuses the next large record; what cannot be set is refused and changes nothing."""
    client.create_topic(topic, TopicPlan(configs={"retention.ms": "60000"}))
    large = [Record(value=bytes(5_000), timestamp_ms=1_700_000_000_000)]
    client.produce(topic, large, ProduceOptions())
    chosen = {"max.message.bytes": "2000", "cleanup.policy": "compact,delete", "segment.bytes": "2097152"}
    client.alter_configs(topic, chosen)
    until(lambda: client.describe_configs(topic)["max.message.bytes"] == "2000", WAIT_SECONDS)
    outcome: dict[str, Any] = {
        "large": code_of(lambda: client.produce(topic, large, ProduceOptions())),
        "bad value": code_of(lambda: client.alter_configs(topic, {"retention.ms": "soon"})),
        "unknown name": code_of(lambda: client.alter_configs(topic, {"no.such.config": "1"})),
        "unknown topic": code_of(lambda: client.alter_configs(topic + "-none", {"retention.ms": "1"})),
        "described": client.describe_configs(topic),
    }
    assert 0 not in outcome.values(), outcome
    assert {name: outcome["described"][name] for name in chosen} == chosen
    return outcome


@scenario
def the_cluster_is_described(client: Client, topic: str) -> Any:
    cluster = client.describe_cluster()
    assert [place for _, place in cluster["nodes"]] == [client.bootstrap]
    return {"nodes": len(cluster["nodes"]), "controller": cluster["controller"], "id": cluster["nodes"][0][0]}
