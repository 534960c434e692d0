"""Metadata (3), versions 0-13.

v0: an empty list means all topics; v1+ null does, and an empty list means none. v4: the client may forbid creation.
v8: authorized operations (KIP-430). v10: topic ids in the answer (KIP-516). v12: topics may be asked for by id.
v13: a top-level error for clients that must bootstrap again (KIP-1102).

An unknown topic that may be created is created before the answer. Kafka answers UNKNOWN_TOPIC_OR_PARTITION first and
creates meanwhile, so that clients ask again after their back-off; the second answer is the same (ADR 0006).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from kbroker._core.errors import Err
from kbroker.api.context import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS, Context
from kbroker.api.registry import api
from kbroker.cluster.image import ClusterImage, PartitionImage, TopicImage
from kbroker.cluster.topics import INTERNAL_TOPICS, NewTopic, topic_name_error
from kbroker.errors import name_of
from kbroker.protocol.message import ZERO_UUID
from kbroker.protocol.messages import MetadataRequest, MetadataResponse

Topic = MetadataResponse.Topic
Partition = MetadataResponse.Partition

LOGGED_CHARS_MAX = 300  # of a topic's name, which the client may make as long as it likes


def _failed(request: MetadataRequest, code: int, version: int) -> MetadataResponse:
    return MetadataResponse(
        error_code=code if version >= 13 else 0,
        topics=[Topic(error_code=code, name=one.name or "", topic_id=one.topic_id) for one in request.topics or []],
    )


@api(3, versions="0-13", failed=_failed, steady=True)
def metadata(request: MetadataRequest, ctx: Context) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    if request.topics is None or (not request.topics and ctx.api_version == 0):
        return _response(request, ctx, [_topic(ctx, request, topic) for topic in ctx.rooms.image.topics.values()])
    if any((one.name is None or one.topic_id != ZERO_UUID) and ctx.api_version < 12 for one in request.topics):
        return _refused(request, ctx)
    if any(one.name is None and one.topic_id == ZERO_UUID for one in request.topics):
        return _refused(request, ctx)
    missing = _to_create(request, ctx)
    unnameable = {name: reason for name in missing if (reason := topic_name_error(name)) is not None}
    if unnameable:
        _warn_of_failed_creation(ctx, Err.INVALID_TOPIC_EXCEPTION, unnameable)
        missing = [name for name in missing if name not in unnameable]
    if missing:
        return _after_creation(request, ctx, missing)
    return _answer(request, ctx, {})


def _refused(request: MetadataRequest, ctx: Context) -> MetadataResponse:
    response = _failed(request, Err.INVALID_REQUEST, ctx.api_version)
    response.error_code = Err.NONE
    return response


def _to_create(request: MetadataRequest, ctx: Context) -> list[str]:
    if not request.allow_auto_topic_creation or not ctx.rooms.config.flag("auto.create.topics.enable"):
        return []
    image = ctx.rooms.image
    names = {one.name: None for one in request.topics or [] if one.name is not None and one.topic_id == ZERO_UUID}
    return [name for name in names if name not in image.topics]


async def _after_creation(request: MetadataRequest, ctx: Context, missing: list[str]) -> MetadataResponse:
    results = await ctx.rooms.controller.create_topics([NewTopic(name) for name in missing])
    failed: dict[int, dict[str, str]] = {}
    for result in results:
        if result.error_code not in (Err.NONE, Err.TOPIC_ALREADY_EXISTS) and result.name is not None:
            failed.setdefault(result.error_code, {})[result.name] = result.error_message or ""
    for code, reasons in failed.items():
        _warn_of_failed_creation(ctx, code, reasons)
    return _answer(request, ctx, {result.name: result.error_code for result in results if result.name is not None})


def _warn_of_failed_creation(ctx: Context, error_code: int, reasons: dict[str, str]) -> None:
    """Logs one of the topics, with its reason. Clients ask again several times a second."""
    topic, reason = next(iter(reasons.items()))
    ctx.rooms.warn(
        "topic auto-creation failed",
        (ctx.peer_host, error_code),
        count=len(reasons),
        topic=topic[:LOGGED_CHARS_MAX],
        error=name_of(error_code),
        reason=reason[:LOGGED_CHARS_MAX],
        peer=ctx.peer,
        client_id=ctx.client_id,
    )


def _answer(request: MetadataRequest, ctx: Context, errors: dict[str, int]) -> MetadataResponse:
    image = ctx.rooms.image
    topics: dict[str | bytes, Topic] = {}
    for one in request.topics or []:
        if one.topic_id != ZERO_UUID:
            known = image.topics_by_id.get(one.topic_id)
            if known is None:
                topics[one.topic_id] = Topic(error_code=Err.UNKNOWN_TOPIC_ID, name=None, topic_id=one.topic_id)
                continue
        else:
            assert one.name is not None, one
            known = image.topics.get(one.name)
            if known is None:
                topics[one.name] = _missing(request, one.name, errors.get(one.name))
                continue
        if known.name not in topics:  # asked for again, it is described once, as in Kafka, and costs once
            topics[known.name] = _topic(ctx, request, known)
    return _response(request, ctx, list(topics.values()))


def _missing(request: MetadataRequest, name: str, error: int | None) -> Topic:
    if topic_name_error(name) is not None:
        error = Err.INVALID_TOPIC_EXCEPTION
    elif error is None or error == Err.TOPIC_ALREADY_EXISTS:
        error = Err.UNKNOWN_TOPIC_OR_PARTITION
    return Topic(
        error_code=error,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=_operations(request),
    )


def _operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED


def _response(request: MetadataRequest, ctx: Context, topics: list[Topic]) -> MetadataResponse:
    image = ctx.rooms.image
    return MetadataResponse(
        brokers=[
            MetadataResponse.Broker(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in image.brokers.values()
            if not broker.fenced and (endpoint := broker.endpoint(ctx.listener_name)) is not None
        ],
        cluster_id=ctx.rooms.cluster_id,
        controller_id=ctx.rooms.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )


def _topic(ctx: Context, request: MetadataRequest, topic: TopicImage) -> Topic:
    image = ctx.rooms.image
    return Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, ctx, index, topic.partitions[index]) for index in sorted(topic.partitions)],
        topic_authorized_operations=_operations(request),
    )


def _partition(image: ClusterImage, ctx: Context, index: int, one: PartitionImage) -> Partition:
    error, leader = leader_as_seen(image, ctx, one)
    return Partition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=one.leader_epoch,
        replica_nodes=list(one.replicas),
        isr_nodes=list(one.isr),
        offline_replicas=offline_replicas(image, one),
    )


def leader_as_seen(image: ClusterImage, ctx: Context, one: PartitionImage) -> tuple[int, int]:
    """(error, leader id) for a client of this listener: a leader that it cannot reach is none."""
    leader = image.brokers.get(one.leader)
    if leader is None or leader.fenced:
        return Err.LEADER_NOT_AVAILABLE, -1
    if leader.endpoint(ctx.listener_name) is None:
        return (Err.LISTENER_NOT_FOUND if ctx.api_version >= 6 else Err.LEADER_NOT_AVAILABLE), -1
    return Err.NONE, one.leader


def offline_replicas(image: ClusterImage, one: PartitionImage) -> list[int]:
    """Those whose broker is away or has lost the directory they lie in."""
    brokers = ((node, image.brokers.get(node)) for node in one.replicas)
    return [
        node
        for node, broker in brokers
        if broker is None or broker.fenced or not broker.has_directory(one.directory_of(node))
    ]
