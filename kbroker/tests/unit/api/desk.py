"""A gateway between a mailbox of lists and rooms of dictionaries: handlers are asked through frames, as clients ask
them.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kbroker._core.clock import BrokerClock
from kbroker.api.context import Rooms
from kbroker.api.producer_ids import ProducerIds
from kbroker.cluster import configs
from kbroker.cluster import topics as decisions
from kbroker.cluster.image import ClusterImage
from kbroker.cluster.producer_ids import ProducerIdBlock
from kbroker.config import Config, Dynamic
from kbroker.coordinator.later import Later
from kbroker.coordinator.runtime import Site
from kbroker.coordinator.txn.runtime import TransactionCoordinator
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.errors import CoordinatorNotAvailableError
from kbroker.gateway import Gateway
from kbroker.observe.logging import BrokerLog
from kbroker.observe.repeats import Repeats
from kbroker.protocol import apis, codec
from kbroker.protocol.message import Message
from kbroker.protocol.records import FeatureLevelRecord, RegisterBrokerRecord
from kbroker.storage.markers import Markers
from kbroker.storage.usage import DirectoryUsage

NODE_ID = 1
LISTENER = "PLAINTEXT"
HOST, PORT = "broker.example", 9092

M = TypeVar("M", bound=Message)


def registration(broker_id: int, *, fenced: bool = False, listener: str = LISTENER) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=bytes([broker_id] * 16),
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=listener, host=HOST, port=PORT + broker_id - 1, security_protocol=0
            )
        ],
        fenced=fenced,
        log_dirs=[bytes([broker_id] * 16)],
    )


class FakeController:
    """Decides as the real one does, and commits at once."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.image = ClusterImage()
        for record in (FeatureLevelRecord(name="metadata.version", feature_level=30), registration(NODE_ID)):
            self.image.apply(record)
        chance = random.Random(7)
        self.rules = decisions.Rules(
            num_partitions=config.integer("num.partitions"),
            default_replication_factor=config.integer("default.replication.factor"),
            check_configs=config.check_topic_overrides,
            new_id=lambda: chance.randbytes(16),
            shuffle=chance.shuffle,
        )
        self.next_id = 1000
        self.committed: Callable[[], None] = lambda: None

    def apply(self, records: Sequence[Message]) -> None:
        for record in records:
            self.image.apply(record)
        self.committed()

    async def create_topics(
        self, wanted: Sequence[decisions.NewTopic], *, validate_only: bool = False
    ) -> list[decisions.TopicResult]:
        decision = decisions.create_topics(self.image, wanted, self.rules)
        await asyncio.sleep(0)
        if not validate_only:
            self.apply(decision.records)
        return decision.results

    async def delete_topics(self, names: Sequence[str], ids: Sequence[bytes]) -> list[decisions.TopicResult]:
        decision = decisions.delete_topics(self.image, names, ids, enabled=self.config.flag("delete.topic.enable"))
        self.apply(decision.records)
        return decision.results

    async def create_partitions(
        self,
        wanted: Sequence[tuple[str, int, Sequence[Sequence[int]] | None]],
        *,
        validate_only: bool = False,
    ) -> list[decisions.TopicResult]:
        decision = decisions.create_partitions_of(self.image, wanted, self.rules)
        if not validate_only:
            self.apply(decision.records)
        return decision.results

    async def alter_configs(
        self, wanted: Sequence[configs.Alteration], *, validate_only: bool = False
    ) -> list[configs.ConfigResult]:
        decision = configs.alter_configs(self.image, wanted, self.config)
        if not validate_only:
            self.apply(decision.records)
        return decision.results

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        self.next_id += 3
        return ProducerIdBlock(self.next_id - 3, 3)

    def dynamic(self) -> Dynamic:
        return configs.dynamic_of(self.image, NODE_ID)


@dataclass
class FakeLog:
    """What ListOffsets and OffsetForLeaderEpoch read of a log."""

    log_start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    log_end_offset: int = 0
    by_timestamp: list[tuple[int, int, int]] = field(default_factory=list)  # (offset, timestamp, epoch)
    epoch_ends: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class FakePartition:
    log: Any
    leader_epoch: int = 0
    is_leader: bool = True
    leader_id: int = NODE_ID


class FakeReplicas:
    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], Any] = {}
        self.local: set[tuple[str, int]] = set()  # besides those that can be read
        self.broken: set[tuple[str, int]] = set()  # their files fail
        self.raised: list[dict[tuple[str, int], int]] = []
        self.directories: list[DirectoryUsage] = []
        self.moves = self  # whose door has one more function
        self.moved: list[dict[tuple[str, int], str]] = []

    async def usage(self) -> list[DirectoryUsage]:
        return self.directories

    async def alter(self, wanted: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], int]:
        self.moved.append(dict(wanted))
        return {key: 0 if key in self.local else 9 for key in wanted}

    def find(self, topic: str, index: int) -> Any:
        return self.partitions.get((topic, index))

    def is_local(self, topic: str, index: int) -> bool:
        return (topic, index) in self.local

    async def raise_starts(self, offsets: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        self.raised.append(dict(offsets))
        starts = {}
        for key in offsets.keys() - self.broken:
            log = self.partitions[key].log
            log.log_start_offset = starts[key] = max(log.log_start_offset, offsets[key])
        return starts


class FakeGroups:
    """A coordinator whose topic does not exist."""

    def __init__(self) -> None:
        self.reasons: list[tuple[str, str, str, str | None]] = []
        self.sought: list[tuple[str, str]] = []

    def note_reason(self, event: str, group_id: str, member_id: str, reason: str | None) -> None:
        self.reasons.append((event, group_id, member_id, reason))

    def note_sought(self, group_id: str, who: str) -> None:
        self.sought.append((group_id, who))

    def partition_of(self, group_id: str) -> int | None:
        return None

    def take_commit(self, frame: bytes, later: Later) -> bool:
        return False

    def take_heartbeat(self, frame: bytes, later: Later) -> bool:
        return False

    def append_decided(self) -> None:
        pass

    def submit(self, group_id: str, event: object) -> Later:
        later = Later()
        later.settle(CoordinatorNotAvailableError())
        return later

    def submit_to_all(self, event: object) -> list[Later]:
        return []


class FakeMailbox:
    def __init__(self) -> None:
        self.posted: list[tuple[int, int, int, str, int, bytes]] = []
        self.replies: dict[int, bytes | None] = {}
        self.closed: dict[int, str] = {}

    def take(self, limit: int) -> list[tuple[int, int, int, str, int, bytes]]:
        taken, self.posted = self.posted[:limit], self.posted[limit:]
        return taken

    def reply(self, token: int, payload: bytes | None) -> None:
        assert token not in self.replies, "a request is answered once"
        self.replies[token] = payload

    def reply_all(self, replies: list[tuple[int, bytes | None]]) -> None:
        for token, payload in replies:
            self.reply(token, payload)

    def close_connection(self, token: int, reason: str) -> None:
        self.closed[token] = reason


class Desk:
    def __init__(
        self, groups: Any = None, transactions: TransactionCoordinator | None = None, **settings: object
    ) -> None:
        self.config = Config.load(settings=settings)
        self.controller = FakeController(self.config)
        self.replicas = FakeReplicas()
        self.mailbox = FakeMailbox()
        self.log_lines = io.StringIO()
        self.log = BrokerLog("json", "debug", self.log_lines)
        self._waiting: list[Coroutine[Any, Any, None]] = []
        self.clock = BrokerClock()
        self.rooms = rooms = Rooms(
            node_id=NODE_ID,
            cluster_id="a-cluster-id",
            config=self.config,
            controller=self.controller,
            replicas=self.replicas,
            producer_ids=ProducerIds(self.controller.allocate_producer_ids),
            groups=groups or FakeGroups(),
            markers=Markers(self.replicas.find, self.clock),
            transactions=transactions or self._transactions(),
            in_thread=asyncio.to_thread,
            warn=Repeats(self.log).warning,
        )
        self.expected = 0  # answers behind which another request is near
        self.gateway = Gateway(self.mailbox, rooms, self.log, [LISTENER], self.spawn, expect=self._expect)
        self.controller.committed = self.gateway.forget_answers
        self._token = 0

    def _transactions(self) -> TransactionCoordinator:
        """A coordinator whose topic does not exist; tests with transactions put another in its place."""

        async def new_id() -> int:
            return 0

        return TransactionCoordinator(
            Site(NODE_ID, lambda: self.controller.image, lambda *_: None, self.clock, self.log, asyncio.to_thread),
            settings=TransactionSettings,
            level=lambda: 2,
            new_producer_id=new_id,
            write_marker=Markers(self.replicas.find, self.clock).write_marker,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """It waits, until go_on()."""
        self._waiting.append(work)

    def _expect(self) -> None:
        self.expected += 1

    def begin(self, frame: bytes) -> int:
        """Sends one frame. What has to wait waits, until go_on()."""
        return self.begin_all([frame])[0]

    def begin_all(self, frames: Sequence[bytes]) -> list[int]:
        """Sends frames of several clients, which are served in one turn."""
        first = self._token + 1
        self._token += len(frames)
        tokens = list(range(first, self._token + 1))
        for token, frame in zip(tokens, frames, strict=True):
            self.mailbox.posted.append((token, 0, 0, "127.0.0.1", 50000, frame))
        self.gateway.serve_pending()
        return tokens

    def go_on(self) -> bool:
        """Finishes the first of those that wait; False: nobody does."""
        if not self._waiting:
            return False
        asyncio.run(self._waiting.pop(0))  # type: ignore[arg-type]
        return True

    def post(self, frame: bytes) -> int:
        """Sends one frame and waits until everything it set going is done. Its token finds the reply."""
        token = self.begin(frame)
        while self.go_on():
            pass
        return token

    def ask(self, request: Message, version: int) -> Any:
        """The decoded response; the connection must not have been closed."""
        token = self.post(codec.encode_request(request, version, 77, "a-client"))
        assert token not in self.mailbox.closed, self.mailbox.closed[token]
        payload = self.mailbox.replies[token]
        assert payload is not None
        correlation_id, response = codec.decode_response(apis.by_key(request.KEY).response, version, payload)
        assert correlation_id == 77
        return response

    def logged(self) -> str:
        self.log.close(60)
        return self.log_lines.getvalue()
