"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version; the stories are in compat_tests/groups."""

from __future__ import annotations

import uuid
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.cases import case
from compat_tests.raw.talk import Talk
from compat_tests.until import until


def given_out(talk: Talk, topic: str) -> bool:
    """Apache's coordinator hears of a topic after its logs do: a scout asks, each time in a group of its own."""
    scout = {"group_id": f"scout-{uuid.uuid4()}", "member_id": "scout"}
    joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic], "topic_partitions": []}
    answer = talk.quietly("ConsumerGroupHeartbeat", 1, {**scout, "member_epoch": 0, **joining})
    talk.quietly("ConsumerGroupHeartbeat", 1, {**scout, "member_epoch": -1})
    return bool((answer["assignment"] or {"topic_partitions": []})["topic_partitions"])


def _coordinated(talk: Talk, group: str, topic: str) -> None:
    def found() -> bool:
        answer = talk.quietly("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        asked = {"group_ids": [group], "include_authorized_operations": False}
        told = talk.quietly("ConsumerGroupDescribe", 0, asked)["groups"][0]["error_code"]
        return not answer["coordinators"][0]["error_code"] and told not in (14, 15, 16)

    until(found, WAIT_SECONDS)
    until(lambda: given_out(talk, topic), WAIT_SECONDS)


def _joining(group: str, topic: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": "one",
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }


@case("ConsumerGroupHeartbeat")
def joined_and_left(talk: Talk, version: int) -> None:
    topic, group = talk.topic(2).name, talk.name()
    _coordinated(talk, group, topic)
    talk.ask("join", "ConsumerGroupHeartbeat", version, _joining(group, topic))
    for label, epoch in (("beat", 2), ("fenced", 3), ("leave", -1), ("gone", -1)):
        body = {"group_id": group, "member_id": "one", "member_epoch": epoch}
        talk.ask(label, "ConsumerGroupHeartbeat", version, body)


@case("ConsumerGroupHeartbeat", [0])
def the_broker_makes_the_member_id(talk: Talk, version: int) -> None:
    topic, group = talk.topic(1).name, talk.name()
    _coordinated(talk, group, topic)
    answer = talk.quietly("ConsumerGroupHeartbeat", version, {**_joining(group, topic), "member_id": ""})
    talk.say("length of the id", len(answer.pop("member_id")))
    talk.say("joined", answer)


@case("ConsumerGroupDescribe")
def described(talk: Talk, version: int) -> None:
    topic, group = talk.topic(1).name, talk.name()
    _coordinated(talk, group, topic)
    talk.quietly("ConsumerGroupHeartbeat", 1, _joining(group, topic))
    for asked in (group, "", "nowhere"):  # one at a time: Apache answers in the order of its coordinators
        for operations in (False, True):
            body = {"group_ids": [asked], "include_authorized_operations": operations}
            talk.ask(f"{asked!r} {operations}", "ConsumerGroupDescribe", version, body)
    talk.ask("none", "ConsumerGroupDescribe", version, {"group_ids": [], "include_authorized_operations": False})
