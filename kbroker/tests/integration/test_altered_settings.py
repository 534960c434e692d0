"""Settings altered by a real client: they hold, they are found again, and what changes nothing is told."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import admin as confluent_admin

import kbroker
from kbroker.observe.logging import BrokerLog
from kbroker.protocol import messages
from kbroker.tests.integration.wire import Connection

names: Any = confluent_admin  # re-exported names, which the library's hints do not say
Start = Callable[..., kbroker.Broker]
MESSAGE_TOO_LARGE = 10


def alter(broker: kbroker.Broker, kind: str, name: str, **settings: str) -> None:
    entries = [
        names.ConfigEntry(one.replace("_", "."), value, incremental_operation=names.AlterConfigOpType.SET)
        for one, value in settings.items()
    ]
    resource = names.ConfigResource(names.ConfigResource.Type[kind], name, incremental_configs=entries)
    admin = names.AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def create(broker: kbroker.Broker, topic: str) -> None:
    admin = names.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([names.NewTopic(topic, 1, 1)]).values():
        future.result(30)


def error_of_a_large_record(broker: kbroker.Broker, topic: str) -> int:
    told: list[int] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, bytes(5_000), on_delivery=lambda error, _: told.append(error.code() if error else 0))
    assert producer.flush(30) == 0
    return told[0]


def warnings(stream: io.StringIO) -> list[tuple[str | None, str]]:
    """Whose setting, and which, in the order they were told."""
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [(one.get("broker", one.get("topic")), one["setting"]) for one in lines if "setting" in one]


def test_an_altered_limit_holds_at_once_and_after_a_restart(start_broker: Start, tmp_path: Path) -> None:
    broker = start_broker(tmp_path)
    create(broker, "t")
    create(broker, "u")
    assert error_of_a_large_record(broker, "t") == 0
    alter(broker, "TOPIC", "t", max_message_bytes="2000")
    assert [error_of_a_large_record(broker, topic) for topic in "tu"] == [MESSAGE_TOO_LARGE, 0]
    alter(broker, "BROKER", "1", message_max_bytes="2000")
    assert error_of_a_large_record(broker, "u") == MESSAGE_TOO_LARGE
    broker.stop()
    again = start_broker(tmp_path)
    assert [error_of_a_large_record(again, topic) for topic in "tu"] == [MESSAGE_TOO_LARGE] * 2


def test_what_changes_nothing_is_told_when_it_is_set_and_at_the_next_start(start_broker: Start, tmp_path: Path) -> None:
    stream = io.StringIO()
    broker = start_broker(tmp_path, log=BrokerLog("json", stream=stream))
    create(broker, "t")
    alter(broker, "TOPIC", "t", unclean_leader_election_enable="true", max_message_bytes="2000")
    alter(broker, "TOPIC", "t", segment_ms="5000")
    alter(broker, "BROKER", "1", num_io_threads="9", message_max_bytes="2000")
    broker.log.close()
    assert warnings(stream) == [("t", "unclean.leader.election.enable"), ("1", "num.io.threads")]
    broker.stop()
    stream = io.StringIO()
    again = start_broker(tmp_path, log=BrokerLog("json", stream=stream))
    again.log.close()
    assert warnings(stream) == [("1", "num.io.threads")]


def test_a_client_is_told_why_a_setting_is_refused(broker: kbroker.Broker) -> None:
    with pytest.raises(KafkaException, match=r"Cannot update these configs dynamically: \[num\.partitions\]"):
        alter(broker, "BROKER", "1", num_partitions="5")


def limit_connections(asking: Connection, **settings: str | None) -> int:
    request = messages.IncrementalAlterConfigsRequest
    entries = [
        request.AlterableConfig(name=name.replace("_", "."), config_operation=0 if value else 1, value=value)
        for name, value in settings.items()
    ]
    resource = request.AlterConfigsResource(resource_type=4, resource_name="1", configs=entries)
    (answer,) = asking.ask(request(resources=[resource]), 1).responses
    return int(answer.error_code)


def test_limits_of_connections_hold_at_once_and_after_a_restart(start_broker: Start, tmp_path: Path) -> None:
    stream = io.StringIO()
    broker = start_broker(tmp_path, log=BrokerLog("json", stream=stream))
    with Connection(broker.port) as first:
        assert limit_connections(first, max_connections_per_ip="1") == 0
        with Connection(broker.port) as second:
            assert second.is_closed()
        overrides = "nowhere.invalid:7,127.0.0.1:2"
        assert limit_connections(first, max_connections_per_ip_overrides=overrides) == 0
        with Connection(broker.port) as second, Connection(broker.port) as third:
            assert third.is_closed()
            assert limit_connections(second, max_connections_per_ip_overrides=None) == 0
        assert "nowhere.invalid, which has no address" in stream.getvalue()
        assert warnings(stream) == []
    broker.stop()
    again = start_broker(tmp_path)
    with Connection(again.port) as first:
        with Connection(again.port) as second:
            assert second.is_closed()
        assert limit_connections(first, max_connections_per_ip=None) == 0
        with Connection(again.port) as second:
            assert limit_connections(second, max_connections_per_ip=None) == 0
