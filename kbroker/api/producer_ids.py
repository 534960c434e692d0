"""Deals out producer ids one by one, from blocks that the controller hands out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Task

    from kbroker.cluster.producer_ids import ProducerIdBlock


class ProducerIds:
    """Never deals an id twice: a block belongs to one life of this broker, and what is left of it at its end is lost.

    Called on the control loop only. Everyone who finds the block empty waits for the same request for the next one.
    """

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._asking: Task[None] | None = None

    async def next(self) -> int:
        import asyncio

        while self._next == self._end:
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._ask())
            await asyncio.shield(self._asking)
        dealt = self._next
        self._next += 1
        return dealt

    async def _ask(self) -> None:
        try:
            block = await self._allocate()
        finally:
            self._asking = None
        self._next, self._end = block.first, block.first + block.count
