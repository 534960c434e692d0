"""Offsets by name and by time."""

from __future__ import annotations

from typing import Any

from compat_tests.client import Client, ProduceOptions, Record, TopicPlan
from compat_tests.scenarios.catalogue import scenario
from compat_tests.scenarios.records import FIRST_MS


@scenario
def offsets_of_an_empty_partition(client: Client, topic: str) -> Any:
    client.create_topic(topic, TopicPlan())
    return {str(when): client.list_offset(topic, 0, when) for when in (-2, -1, 0, FIRST_MS)}


@scenario
def offsets_by_time(client: Client, topic: str) -> Any:
    """Times rise, fall and repeat; several batches, one of them compressed, so that an answer lies inside a batch."""
    client.create_topic(topic, TopicPlan())
    times = [0, 10, 20, 20, 5, 30, 40, 35, 50, 60]
    for turn in range(5):
        sent = [Record(value=b"%d" % t, timestamp_ms=FIRST_MS + 100 * turn + t) for t in times]
        client.produce(topic, sent, ProduceOptions(codec="gzip" if turn % 2 else "none", batch_bytes=64 * 1024))
    asked = [-2, -1, 0, FIRST_MS - 1, *(FIRST_MS + t for t in range(0, 520, 15)), FIRST_MS + 460, FIRST_MS + 461]
    found = {str(when): client.list_offset(topic, 0, when) for when in asked}
    assert found["-2"] == 0
    assert found["-1"] == 50
    return found
