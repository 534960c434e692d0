"""What the campaign says to the broker. A broker that has died is Gone, one that answers otherwise is Broken."""

from __future__ import annotations

from typing import Any

from bench import frames
from bench.campaigns.crash.ledger import Broken
from bench.campaigns.wire import ClosedError, Wire
from kbroker.protocol import apis, codec, messages
from kbroker.protocol.message import Message

NOT_LEADER, OUT_OF_RANGE, OUT_OF_ORDER, DUPLICATE = 6, 1, 45, 46
UNKNOWN_TOPIC = 3
EARLIEST, LATEST = -2, -1
READ_COMMITTED = 1
TOPIC_RESOURCE = 2
_BUDGET = 1 << 28
_TIMEOUT_MS = 30_000


class Gone(Exception):  # noqa: N818 - says what is the case
    """The broker is not there any more."""


class Talk:
    """One connection. Requests may be sent ahead of their answers."""

    def __init__(self, port: int) -> None:
        try:
            self._wire = Wire(port, timeout=30)
        except OSError:
            raise Gone from None

    def close(self) -> None:
        self._wire.close()

    def send(self, request: Message, version: int) -> None:
        try:
            self._wire.send(frames.frame(request, version))
        except (ClosedError, OSError):
            raise Gone from None

    def receive(self, request: type[Message], version: int) -> Any:
        try:
            frame = self._wire.receive()
        except TimeoutError:
            raise Broken(f"no answer to {request.__name__} in 30 s") from None
        except (ClosedError, OSError):
            raise Gone from None
        return codec.decode_response(apis.by_key(request.KEY).response, version, frame, _BUDGET)[1]

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive(type(request), version)

    # ---- records ----

    def send_batch(self, topic: str, partition: int, batch: bytes) -> None:
        part = messages.ProduceRequest.PartitionProduceData(index=partition, records=batch)
        data = messages.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
        self.send(messages.ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[data]), 9)

    def receive_produced(self) -> Any:
        """error_code, base_offset, log_start_offset."""
        answer = self.receive(messages.ProduceRequest, 9)
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20, isolation: int = 0) -> Any:
        """error_code, log_start_offset, high_watermark, aborted_transactions, records."""
        request = frames.fetch_request(topic, partition, offset, max_bytes)
        request.max_wait_ms, request.min_bytes, request.isolation_level = 0, 0, isolation
        answer = self.ask(request, frames.FETCH_VERSION)
        if answer.error_code:
            raise Broken(f"Fetch of {topic}-{partition} was answered with error {answer.error_code}")
        return answer.responses[0].partitions[0]

    def offset(self, topic: str, partition: int, timestamp: int, isolation: int = 0) -> tuple[int, int]:
        """(offset, its timestamp) as ListOffsets tells."""
        part = messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        asked = messages.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])
        answer = self.ask(messages.ListOffsetsRequest(replica_id=-1, topics=[asked], isolation_level=isolation), 7)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise Broken(f"ListOffsets of {topic}-{partition} was answered with error {found.error_code}")
        return found.offset, found.timestamp

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Where the log starts now."""
        part = messages.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        asked = messages.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])
        answer = self.ask(messages.DeleteRecordsRequest(topics=[asked], timeout_ms=_TIMEOUT_MS), 2)
        found = answer.topics[0].partitions[0]
        if found.error_code == NOT_LEADER:
            raise Gone
        if found.error_code or found.low_watermark < offset:
            raise Broken(f"DeleteRecords of {topic}-{partition} to {offset} was answered with {found}")
        return int(found.low_watermark)

    def move(self, topic: str, partition: int, directory: str) -> None:
        """Begins it; nobody waits for its end."""
        request = messages.AlterReplicaLogDirsRequest
        moved = request.AlterReplicaLogDirTopic(name=topic, partitions=[partition])
        answer = self.ask(request(dirs=[request.AlterReplicaLogDir(path=directory, topics=[moved])]), 2)
        (found,) = answer.results[0].partitions
        if found.error_code:
            raise Broken(f"AlterReplicaLogDirs of {topic}-{partition} to {directory} was answered with {found}")

    def producer_id(self) -> tuple[int, int]:
        answer = self.ask(messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        if answer.error_code:
            raise Broken(f"InitProducerId was answered with error {answer.error_code}")
        return answer.producer_id, answer.producer_epoch

    # ---- topics ----

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> bytes:
        """Its id."""
        create = messages.CreateTopicsRequest
        given = [create.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = create.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
        (answer,) = self.ask(create(topics=[topic], timeout_ms=_TIMEOUT_MS), 7).topics
        if answer.error_code:
            raise Broken(f"the creation of {name} was answered with {answer.error_code} {answer.error_message}")
        return bytes(answer.topic_id)

    def delete_topic(self, name: str) -> None:
        state = messages.DeleteTopicsRequest.DeleteTopicState(name=name)
        (answer,) = self.ask(messages.DeleteTopicsRequest(topics=[state], timeout_ms=_TIMEOUT_MS), 6).responses
        if answer.error_code:
            raise Broken(f"the deletion of {name} was answered with {answer.error_code} {answer.error_message}")

    def topic_ids(self) -> dict[str, bytes]:
        answer = self.ask(messages.MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        for topic in answer.topics:
            wrong = [part for part in topic.partitions if part.error_code or part.leader_id < 0]
            if topic.error_code or wrong:
                raise Broken(f"{topic.name} is not whole: {topic.error_code}, {wrong}")
        return {topic.name: bytes(topic.topic_id) for topic in answer.topics}

    def alter(self, topic: str, name: str, value: str) -> None:
        alter = messages.IncrementalAlterConfigsRequest
        config = alter.AlterableConfig(name=name, config_operation=0, value=value)
        resource = alter.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config])
        (answer,) = self.ask(alter(resources=[resource]), 1).responses
        if answer.error_code:
            raise Broken(f"setting {name}={value} of {topic} was answered with {answer.error_message}")

    def settings(self, topic: str) -> dict[str, str | None]:
        describe = messages.DescribeConfigsRequest
        resource = describe.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic)
        (answer,) = self.ask(describe(resources=[resource]), 4).results
        if answer.error_code:
            raise Broken(f"the settings of {topic} were answered with {answer.error_message}")
        return {config.name: config.value for config in answer.configs}
