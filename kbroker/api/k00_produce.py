"""Produce (0), versions 3-13, advertised from 0 as Kafka does for clients that refuse a higher floor.

Answered in the data plane (_core/api/produce). What comes here is a request of which nothing has been appended yet, and
which has a batch whose codec has no native engine on this machine, or the first batch of a transaction in a partition.
The one is inflated by a worker thread; before the other the transaction's coordinator is asked (KIP-890). Both are
appended through the same partition, so every check stays where it is.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker._core.errors import Err
from kbroker.api.context import NO_REPLY, Context, HangUpError
from kbroker.api.registry import api
from kbroker.api.transactions import as_produced
from kbroker.cluster.topics import INTERNAL_TOPICS
from kbroker.coordinator.later import Later
from kbroker.protocol.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from kbroker._core.partitions import PartitionHandle, Produced

Answer = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage
TopicAnswer = ProduceResponse.TopicProduceResponse

BATCH_HEADER_BYTES = 61
PREFIX_BYTES = 12  # base_offset and batch_length
SIZE_TO_MAGIC = 17
LEGACY_MIN_SIZE = 14
CODEC_BITS, TRANSACTIONAL_BIT = 0x07, 0x10
ZSTD = 4
DECOMPRESSED_BATCH_MAX_BYTES = 134_217_728
REPLICATION_POLL_S = 0.005
ADMIN_CLIENT = "__admin_client"
ADDS_PARTITIONS = 12  # from this version on a transaction's partitions are added by producing to them (KIP-890)
LIGHT_BYTES = 262_144
LIGHT_PACKED_BYTES = 65_536
Place = tuple[str, int]


@dataclass(slots=True)
class Item:
    """One partition of the request on its way to its answer."""

    topic: str | None
    index: int
    records: bytes
    error: int = Err.NONE
    message: str | None = None
    transactional: bool = False
    guard: int = 0  # of a transaction that has not begun in the partition
    partition: PartitionHandle | None = None
    produced: Produced | None = None

    @property
    def producer(self) -> tuple[int, int]:
        """(producer id, epoch)"""
        return _int(self.records[43:51]), _int(self.records[51:53])

    @property
    def end_offset(self) -> int:
        assert self.produced is not None
        return self.produced.base_offset + _int(self.records[23:27]) + 1


@dataclass(slots=True)
class Asked:
    """A request, and its partitions with the topics they stand in."""

    request: ProduceRequest
    ctx: Context
    topics: list[tuple[ProduceRequest.TopicProduceData, list[Item]]]
    items: list[Item]


def _int(field: bytes) -> int:
    return int.from_bytes(field, "big", signed=True)


def _failed(request: ProduceRequest, code: int, version: int) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicAnswer(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[Answer(index=one.index, error_code=code) for one in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _is_followed(request: ProduceRequest) -> bool:
    """It is a transaction's, and here with the first batch in a partition: many a transaction has no other."""
    return request.transactional_id is not None


@api(0, versions="3-13", advertised="0-13", native=True, failed=_failed, followed=_is_followed)
def produce(request: ProduceRequest, ctx: Context) -> Later | Coroutine[Any, Any, Any]:
    topics = [(topic, [_resolve(topic, one, ctx) for one in topic.partition_data]) for topic in request.topic_data]
    asked = Asked(request, ctx, topics, [item for _, found in topics for item in found])
    _judge(request, ctx, asked.items)
    if request.transactional_id is None or not _transactional(asked.items):
        return _append_slowly(asked, inflate=True)
    return _append_verified(asked, request.transactional_id)


def _append_verified(asked: Asked, transactional_id: str) -> Later:
    """Asks the coordinator of a transaction about partitions where it has not begun, and appends what may come."""
    ctx = asked.ctx
    adds = ctx.api_version >= ADDS_PARTITIONS
    whole = Later()
    unknown: dict[Place, Item] = {}

    def begin(_ended: object) -> None:
        for item in _transactional(asked.items):
            assert item.partition is not None
            assert item.topic is not None
            sequence = _int(item.records[53:57])
            item.guard = item.partition.begin_verification(*item.producer, sequence, adds=adds)
            if item.guard:
                unknown[item.topic, item.index] = item
        if not unknown:
            whole.settle(_append_slowly(asked, inflate=True))
            return
        producer_id, epoch = next(iter(unknown.values())).producer
        codes = ctx.rooms.transactions.verify(transactional_id, producer_id, epoch, list(unknown), add=adds)
        codes.then(append)

    def append(codes: dict[Place, int]) -> None:
        for place, item in unknown.items():
            code = codes.get(place, Err.NONE)
            if code != Err.NONE:
                item.error, item.message = as_produced(code, ctx.api_version)
        whole.settle(_append_at_once(asked) if _is_light(asked.items) else _append_slowly(asked, inflate=False))

    if adds:
        ctx.rooms.transactions.last_one_ended(transactional_id).then(begin)
    else:
        begin(None)
    return whole


def _append_at_once(asked: Asked) -> ProduceResponse | Any:
    """The response, an exception, or a coroutine that waits for the replicas and then gives one of them."""
    try:
        _append(asked.items, asked.request.acks, inflate=False)
        if asked.request.acks == -1 and not all(_is_replicated(one) for one in _appended(asked.items)):
            return _replicated(asked)
        return _answers(asked)
    except Exception as error:
        return error


async def _append_slowly(asked: Asked, *, inflate: bool) -> ProduceResponse | Any:
    """In a worker thread. `inflate`: the request is here because of a codec."""
    await asked.ctx.rooms.in_thread(_append, asked.items, asked.request.acks, inflate)
    return await _replicated(asked) if asked.request.acks == -1 else _answers(asked)


def _answers(asked: Asked) -> ProduceResponse | Any:
    if asked.request.acks == 0:
        if any(item.error for item in asked.items):
            raise HangUpError("a batch produced with acks=0 was refused")  # how Kafka tells such a client
        return NO_REPLY
    return ProduceResponse(
        responses=[
            TopicAnswer(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_answer(asked.ctx, one) for one in found],
            )
            for topic, found in asked.topics
        ],
        node_endpoints=_endpoints(asked.ctx, asked.items),
    )


def _resolve(topic: ProduceRequest.TopicProduceData, one: ProduceRequest.PartitionProduceData, ctx: Context) -> Item:
    name: str | None = topic.name
    if ctx.api_version >= 13:
        known = ctx.rooms.image.topics_by_id.get(topic.topic_id)
        name = known.name if known is not None else None
    item = Item(name, one.index, one.records or b"")
    item.partition = ctx.rooms.replicas.find(name, one.index) if name is not None else None
    if name is None:
        item.error = Err.UNKNOWN_TOPIC_ID
    elif item.partition is None:
        item.error = Err.UNKNOWN_TOPIC_OR_PARTITION
    else:
        _look_at(item, ctx.api_version)
        if item.error == Err.NONE and name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT:
            item.error = Err.INVALID_TOPIC_EXCEPTION
    return item


def _look_at(item: Item, version: int) -> None:
    """Exactly one batch, magic 2, of a codec that this version may carry; what is left behind it is cut."""
    size, item.error = _first_batch(item.records)
    if item.error != Err.NONE:
        item.message = "The batch has a size or a magic that none can have"
        return
    if size == 0 or item.records[16] != 2:
        item.error = Err.INVALID_RECORD
    elif size < BATCH_HEADER_BYTES:
        item.error = Err.CORRUPT_MESSAGE
    elif item.records[22] & CODEC_BITS == ZSTD and version < 7:
        item.error = Err.UNSUPPORTED_COMPRESSION_TYPE
    elif item.records[22] & CODEC_BITS > ZSTD and version < 7:
        item.error = Err.UNKNOWN_SERVER_ERROR
    else:
        second, item.error = _first_batch(item.records[size:])
        if second > 0:
            item.error = Err.INVALID_RECORD
        item.records = item.records[:size]
        item.transactional = bool(item.records[22] & TRANSACTIONAL_BIT)


def _first_batch(records: bytes) -> tuple[int, int]:
    """The first batch's whole size (0: there is none), and an error for sizes and magics that no batch can have."""
    if len(records) < PREFIX_BYTES:
        return 0, Err.NONE
    size = int.from_bytes(records[8:12], "big", signed=True)
    if size < LEGACY_MIN_SIZE:
        return 0, Err.CORRUPT_MESSAGE
    if len(records) < SIZE_TO_MAGIC:
        return 0, Err.NONE
    if records[16] > 2:
        return 0, Err.CORRUPT_MESSAGE
    return (size + PREFIX_BYTES if size <= len(records) - PREFIX_BYTES else 0), Err.NONE


def _judge(request: ProduceRequest, ctx: Context, items: list[Item]) -> None:
    """Everything else that is known before an append."""
    unauthorized = request.transactional_id is None and any(item.transactional for item in items)
    for item in items:
        if unauthorized:
            item.error = Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif item.error == Err.NONE and request.acks not in (-1, 0, 1):
            item.error = Err.INVALID_REQUIRED_ACKS
    if len({item.producer for item in _transactional(items)}) > 1:
        for item in items:
            item.error = Err.INVALID_PRODUCER_ID_MAPPING
            item.message = "Transactional records contained more than one producer ID"


def _transactional(items: list[Item]) -> list[Item]:
    return [item for item in items if item.error == Err.NONE and item.transactional and item.producer[0] >= 0]


def _is_light(items: list[Item]) -> bool:
    """Whether the batches may be appended here and now: a thread would take longer than they do."""
    from kbroker._core.record.compression import native

    codecs = {item.records[22] & CODEC_BITS for item in items if item.error == Err.NONE}
    most = LIGHT_BYTES if codecs <= {0} else LIGHT_PACKED_BYTES
    return sum(len(item.records) for item in items) <= most and all(
        codec == 0 or codec > ZSTD or native(codec) for codec in codecs
    )


def _append(items: list[Item], acks: int, inflate: bool) -> None:
    """In a worker thread when it may take long."""
    from kbroker._core.record.batch import check
    from kbroker._core.record.codecs import OVER_CAP, UNDECODABLE, CodecError, decompress_fallback
    from kbroker._core.record.compression import native

    for item in items:
        if item.error != Err.NONE or item.partition is None:
            continue
        inflated: bytes | int | None = None
        codec = item.records[22] & CODEC_BITS
        if 0 < codec <= ZSTD and (inflate or not native(codec)):
            try:
                if check(item.records) == Err.NONE:  # a broken checksum comes before broken contents
                    packed = item.records[BATCH_HEADER_BYTES:]
                    inflated = decompress_fallback(codec, packed, DECOMPRESSED_BATCH_MAX_BYTES)
                else:
                    inflated = UNDECODABLE
            except CodecError as failed:
                # The partition says what it means, in its turn among the other checks.
                inflated = OVER_CAP if failed.code == OVER_CAP else UNDECODABLE
        item.produced = item.partition.produce(item.records, acks, inflated, item.guard)
        item.error, item.message = item.produced.error, item.produced.message


async def _replicated(asked: Asked) -> ProduceResponse:
    """Waits until the in-sync replicas have what was appended, at most until the client's timeout."""
    import asyncio  # loaded with the control loop, not with the registry

    waiting = _appended(asked.items)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + asked.request.timeout_ms / 1000
    while waiting := [item for item in waiting if not _is_replicated(item)]:
        if loop.time() >= deadline:
            break  # with REQUEST_TIMED_OUT; their records stay appended
        await asyncio.sleep(REPLICATION_POLL_S)
    response: ProduceResponse = _answers(asked)
    return response


def _appended(items: list[Item]) -> list[Item]:
    return [item for item in items if item.produced is not None and item.error in (Err.NONE, Err.REQUEST_TIMED_OUT)]


def _is_replicated(item: Item) -> bool:
    assert item.partition is not None
    item.error = item.partition.acknowledged(-1, item.end_offset)
    return item.error != Err.REQUEST_TIMED_OUT


def _answer(ctx: Context, item: Item) -> Answer:
    answer = Answer(index=item.index, error_code=item.error, base_offset=-1, error_message=item.message)
    if item.produced is not None:
        answer.base_offset = item.produced.base_offset
        answer.log_append_time_ms = item.produced.log_append_time
        answer.log_start_offset = item.produced.log_start_offset
        answer.record_errors = [
            RecordError(batch_index=index, batch_index_error_message=item.produced.record_message)
            for index in item.produced.record_errors
        ]
    if item.error == Err.NOT_LEADER_OR_FOLLOWER and item.partition is not None and ctx.api_version >= 10:
        answer.current_leader = ProduceResponse.LeaderIdAndEpoch(
            leader_id=item.partition.leader_id, leader_epoch=item.partition.leader_epoch
        )
    return answer


def _endpoints(ctx: Context, items: list[Item]) -> list[ProduceResponse.NodeEndpoint]:
    """Where the leaders are that errors above point at (KIP-951)."""
    leaders = {
        item.partition.leader_id
        for item in items
        if item.error == Err.NOT_LEADER_OR_FOLLOWER and item.partition is not None and ctx.api_version >= 10
    }
    found = []
    for leader in sorted(leaders):
        broker = ctx.rooms.image.brokers.get(leader)
        endpoint = broker.endpoint(ctx.listener_name) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(
                ProduceResponse.NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return found
