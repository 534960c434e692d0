"""Producer ids: dealt once each, one request for the next block however many wait."""

import asyncio

import pytest

from kbroker.api.producer_ids import ProducerIds
from kbroker.cluster.producer_ids import ProducerIdBlock
from kbroker.errors import KafkaStorageError


def test_ids_follow_one_another_through_blocks() -> None:
    asked = 0

    async def allocate() -> ProducerIdBlock:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return ProducerIdBlock(asked * 100, 2)

    async def deal() -> list[int]:
        ids = ProducerIds(allocate)
        return [await ids.next() for _ in range(5)]

    assert asyncio.run(deal()) == [100, 101, 200, 201, 300]


def test_many_that_wait_share_blocks_and_get_different_ids() -> None:
    asked = 0

    async def allocate() -> ProducerIdBlock:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return ProducerIdBlock(asked * 1000, 10)

    async def deal() -> list[int]:
        ids = ProducerIds(allocate)
        return await asyncio.gather(*(ids.next() for _ in range(25)))

    assert len(set(asyncio.run(deal()))) == 25
    assert asked == 3


def test_a_refused_block_fails_those_who_wait_and_is_asked_for_again() -> None:
    answers = [KafkaStorageError(), ProducerIdBlock(7, 1)]

    async def allocate() -> ProducerIdBlock:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def deal() -> int:
        ids = ProducerIds(allocate)
        with pytest.raises(KafkaStorageError):
            await ids.next()
        return await ids.next()

    assert asyncio.run(deal()) == 7
