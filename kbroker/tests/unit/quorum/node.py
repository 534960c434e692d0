"""A node without a network: its directories, controller and replicas, as server/broker_server.py composes them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kbroker._core.clock import BrokerClock
from kbroker._core.views import ViewHandle
from kbroker.cluster.runtime import Replicas
from kbroker.config import Config
from kbroker.quorum.driver import Controller
from kbroker.storage.log_dirs import LogDirs
from kbroker.storage.strays import Strays

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Node:
    config: Config
    log_dirs: LogDirs
    controller: Controller
    replicas: Replicas
    strays: Strays

    async def stop(self) -> None:
        await self.controller.close()
        await self.replicas.close(self.controller.broker_epoch)


async def start(*directories: Path, clock: BrokerClock | None = None, **settings: object) -> Node:
    config = Config.load(settings={"log.dirs": [str(path) for path in directories], **settings})
    clock = clock or BrokerClock()
    log_dirs = LogDirs.open(config.log_dirs, config.node_id, clock)
    try:
        controller = await Controller.open(config, clock, log_dirs, Random(1))
    except BaseException:
        log_dirs.release()
        raise
    replicas = Replicas(config, log_dirs, {"PLAINTEXT": ViewHandle()})
    strays = await replicas.start(controller.image, controller.deleted_topics)
    replicas.tell_directories_with(controller.assign_directories)
    controller.listen(replicas.on_commit)
    await controller.register(config.advertised_listeners)
    return Node(config, log_dirs, controller, replicas, strays)


@asynccontextmanager
async def running(*directories: Path, clock: BrokerClock | None = None, **settings: object) -> AsyncIterator[Node]:
    node = await start(*directories, clock=clock, **settings)
    try:
        yield node
    finally:
        await node.stop()
