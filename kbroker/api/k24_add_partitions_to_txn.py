"""AddPartitionsToTxn (24), versions 0-5: partitions become part of a transaction.

v0-3 come from clients, v4-5 from partition leaders: several transactions at once, and `verify_only`, which adds nothing
(KIP-890). v2: PRODUCER_FENCED (KIP-588). v5: the client follows transaction version 2.
"""

from __future__ import annotations

from typing import Any

from kbroker._core.errors import Err
from kbroker.api.answers import code_of, told
from kbroker.api.context import Context
from kbroker.api.registry import api
from kbroker.coordinator.later import Later, gather
from kbroker.coordinator.txn.shard import Found, Producer
from kbroker.coordinator.txn.transaction import EPOCH_BUMPS_FROM, Place
from kbroker.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

FENCED_FROM = 2
BATCHED_FROM = 4
VERSION_2_FROM = 5

Topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


def _failed(request: AddPartitionsToTxnRequest, code: int, version: int) -> AddPartitionsToTxnResponse:
    code = told(code, version, fenced_from=FENCED_FROM)
    if version >= BATCHED_FROM:
        return AddPartitionsToTxnResponse(error_code=code)
    codes = dict.fromkeys(_places(request.v3_and_below_topics), code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(request.v3_and_below_topics, codes))


def _places(topics: list[Topic]) -> list[Place]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _results(topics: list[Topic], codes: dict[Place, int]) -> list[TopicResult]:
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=one, partition_error_code=codes[topic.name, one])
                for one in topic.partitions
            ],
        )
        for topic in topics
    ]


@api(24, versions="0-5", failed=_failed, followed=lambda _: True)
def add_partitions_to_txn(request: AddPartitionsToTxnRequest, ctx: Context) -> Later:
    version = ctx.api_version
    if version >= BATCHED_FROM:
        wanted = request.transactions
    else:
        wanted = [
            Transaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]

    def combine(answers: list[Any]) -> AddPartitionsToTxnResponse:
        results = [
            _results(one.topics, _codes(answer, _places(one.topics), version))
            for one, answer in zip(wanted, answers, strict=True)
        ]
        if version < BATCHED_FROM:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id, topic_results=found
                )
                for one, found in zip(wanted, results, strict=True)
            ]
        )

    return gather([_ask(one, ctx) for one in wanted], combine)


def _ask(wanted: Transaction, ctx: Context) -> Later:
    places = _places(wanted.topics)
    missing = {place for place in places if not _exists(place, ctx)}
    if missing:  # all or nothing
        refused = Later()
        refused.settle(
            Found(
                {
                    place: Err.UNKNOWN_TOPIC_OR_PARTITION if place in missing else Err.OPERATION_NOT_ATTEMPTED
                    for place in places
                }
            )
        )
        return refused
    who = Producer(wanted.transactional_id, wanted.producer_id, wanted.producer_epoch)
    if wanted.verify_only:
        return ctx.rooms.transactions.look(who, places)
    return ctx.rooms.transactions.add(who, places, EPOCH_BUMPS_FROM if ctx.api_version >= VERSION_2_FROM else 0)


def _exists(place: Place, ctx: Context) -> bool:
    topic = ctx.rooms.image.topics.get(place[0])
    return topic is not None and place[1] in topic.partitions


def _codes(answer: Any, places: list[Place], version: int) -> dict[Place, int]:
    if isinstance(answer, Found):
        return answer.codes
    return dict.fromkeys(places, told(code_of(answer), version, fenced_from=FENCED_FROM))
