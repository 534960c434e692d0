"""Random transactions of several producers beside a model that knows how each of them ended.

Whatever happens in between, a reader at read_committed who drops what the answers tell him to drop reads what was
committed, in order, and nothing beyond the last stable offset.
"""

import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kbroker._core.errors import Err
from kbroker._core.partitions import PartitionHandle
from kbroker._core.record.records import Record, batches, build_batch, iterate
from kbroker.protocol.messages.k01_fetch import FetchResponse
from kbroker.tests.unit.core.api.given import NODE, NOW, Node, ask, of, only
from kbroker.tests.unit.log.test_compaction import compact

PRODUCERS = st.integers(1, 4)
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class Transaction:
    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.state = OPEN


class Written:
    """A record as the model remembers it."""

    def __init__(self, offset: int, value: bytes, transaction: Transaction | None) -> None:
        self.offset = offset
        self.value = value
        self.transaction = transaction

    @property
    def committed(self) -> bool:
        return self.transaction is None or self.transaction.state == COMMITTED


class Producer:
    def __init__(self) -> None:
        self.epoch = 0
        self.sequence = 0
        self.open: Transaction | None = None
        self.last: tuple[bytes, int] | None = None  # a batch that may be sent again, and where it stands


def as_a_client(partition: FetchResponse.PartitionData) -> Iterator[Record]:
    """What a consumer keeps of an answer: KIP-98's rule, over the list that came with it."""
    aborted = sorted(partition.aborted_transactions or [], key=lambda one: one.first_offset)
    dropping: set[int] = set()
    data = partition.records or b""
    for header in batches(data):
        while aborted and aborted[0].first_offset <= header.last_offset:
            dropping.add(aborted.pop(0).producer_id)
        records = iterate(data[header.position : header.position + header.size])
        if header.control:
            if records and (records[0].key or b"")[2:4] == b"\0\0":
                dropping.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in dropping):
            yield from records


class TransactionsAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kbroker-transactions-"))
        self.node = Node(self.directory)
        self.model: list[Written] = []
        self.producers = {one: Producer() for one in range(1, 5)}
        self.end = 0
        self.start = 0
        self.coordinator_epoch = 0

    @initialize(segment=st.integers(600, 3000), interval=st.integers(0, 400))
    def begin(self, segment: int, interval: int) -> None:
        self.config = {
            "segment.bytes": segment,
            "index.interval.bytes": interval,
            "cleanup.policy": "compact,delete",
            "transaction.partition.verification.enable": True,
        }
        self.node.topic("t", **self.config)

    @property
    def handle(self) -> PartitionHandle:
        return self.node.topics["t"][0]

    @property
    def stable(self) -> int:
        firsts = [max(one.open.first_offset, self.start) for one in self.producers.values() if one.open is not None]
        return min(firsts, default=self.end)

    def batch(self, count: int, size: int, **how: object) -> bytes:
        records = [
            Record(timestamp=NOW, key=b"%d" % (self.end + n), value=b"%d" % (self.end + n) * size) for n in range(count)
        ]
        return build_batch(records, **how)

    def note(self, count: int, size: int, transaction: Transaction | None) -> None:
        for _ in range(count):
            self.model.append(Written(self.end, b"%d" % self.end * size, transaction))
            self.end += 1

    @rule(count=st.integers(1, 3), size=st.integers(1, 40))
    def put_plain(self, count: int, size: int) -> None:
        done = self.handle.produce(self.batch(count, size))
        assert (done.error, done.base_offset) == (Err.NONE, self.end)
        self.note(count, size, None)

    @rule(number=PRODUCERS, count=st.integers(1, 3), size=st.integers(1, 40), adds=st.booleans())
    def put(self, number: int, count: int, size: int, adds: bool) -> None:
        one = self.producers[number]
        data = self.batch(
            count, size, producer_id=number, producer_epoch=one.epoch, base_sequence=one.sequence, transactional=True
        )
        if one.open is None:
            assert self.handle.produce(data).error == Err.INVALID_TXN_STATE
            guard = self.handle.begin_verification(number, one.epoch, one.sequence, adds=adds and one.sequence == 0)
            assert guard > 0
            one.open = Transaction(self.end)
        else:
            guard = self.handle.begin_verification(number, one.epoch, one.sequence, adds=adds)
            assert guard == 0
        done = self.handle.produce(data, -1, None, guard)
        assert (done.error, done.base_offset) == (Err.NONE, self.end)
        one.last = (data, self.end)
        one.sequence += count
        self.note(count, size, one.open)

    @rule(number=PRODUCERS)
    def put_again(self, number: int) -> None:
        last = self.producers[number].last
        if last is not None:
            done = self.handle.produce(last[0])
            assert (done.error, done.base_offset) == (Err.NONE, last[1])

    @rule(number=PRODUCERS)
    def put_plain_inside(self, number: int) -> None:
        one = self.producers[number]
        data = self.batch(1, 1, producer_id=number, producer_epoch=one.epoch, base_sequence=one.sequence)
        if one.open is not None:
            assert self.handle.produce(data).error == Err.INVALID_TXN_STATE

    @rule(number=PRODUCERS, commit=st.booleans(), bumps=st.booleans(), election=st.booleans())
    def end_transaction(self, number: int, commit: bool, bumps: bool, election: bool) -> None:
        one = self.producers[number]
        if election:
            self.coordinator_epoch += 1
        marker = Record(
            timestamp=NOW, key=struct.pack(">hh", 0, commit), value=struct.pack(">hi", 0, self.coordinator_epoch)
        )
        data = build_batch(
            [marker], control=True, transactional=True, producer_id=number, producer_epoch=one.epoch + bumps
        )
        done = self.handle.append(data, transaction_version=2 if bumps else 1)
        assert (done.error, done.base_offset) == (Err.NONE, self.end)
        self.end += 1
        if bumps:
            one.epoch += 1
            one.sequence = 0
            one.last = None
        if one.open is not None:
            one.open.state = COMMITTED if commit else ABORTED
            one.open = None

    @rule(number=PRODUCERS)
    def end_too_late(self, number: int) -> None:
        one = self.producers[number]
        known = {facts.producer_id for facts in self.log.producers()}
        marker = Record(timestamp=NOW, key=struct.pack(">hh", 0, 1), value=struct.pack(">hi", 0, 0))
        data = build_batch([marker], control=True, transactional=True, producer_id=number, producer_epoch=one.epoch - 1)
        if number in known:
            assert self.handle.append(data).error == Err.INVALID_PRODUCER_EPOCH

    @property
    def log(self):  # type: ignore[no-untyped-def]
        assert self.handle.log is not None
        return self.handle.log

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def compact(self) -> None:
        compact(self.log, roll=False)

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.start = self.log.raise_start(self.start + int((self.end - self.start) * share))

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """After a kill the tail is scanned; what a snapshot does not hold of a producer is found there again."""
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        self.node.topics["t"][0].retire()
        log.close(sync=clean)
        opened = type(log).open(
            self.directory / "t-0",
            self.node.clock,
            self.config,
            clean=clean,
            log_start_offset=start,
        )
        handle = PartitionHandle(0, opened)
        handle.lead(NODE, 0, 1, 1)
        assert opened.log_end_offset == end
        self.node.topics["t"] = [handle]
        self.node.publish()
        for one in self.producers.values():
            one.last = None  # a snapshot keeps the last batch only, and that may be another one

    def read(self, offset: int, isolation: int, most: int, version: int) -> FetchResponse.PartitionData:
        return only(self.node.fetch([of("t", ask(offset=offset, max_bytes=most))], version, isolation_level=isolation))

    @rule(share=st.floats(0, 1), most=st.integers(1, 1000), version=st.sampled_from([4, 11, 12, 17]))
    def read_committed(self, share: float, most: int, version: int) -> None:
        offset = self.start + int((self.end - self.start) * share)
        expected = [one.value for one in self.model if offset <= one.offset < self.stable and one.committed]
        found: list[bytes | None] = []
        while True:
            partition = self.read(offset, 1, most, version)
            assert (partition.error_code, partition.last_stable_offset) == (0, self.stable)
            assert partition.aborted_transactions is not None
            headers = batches(partition.records or b"")
            if not headers:
                break
            assert headers[-1].last_offset < self.stable
            found += [one.value for one in as_a_client(partition) if one.offset >= offset]
            offset = headers[-1].last_offset + 1
        assert found == expected

    @rule(most=st.integers(1, 1000))
    def read_everything(self, most: int) -> None:
        partition = self.read(self.start, 0, most, 12)
        assert (partition.high_watermark, partition.aborted_transactions) == (self.end, None)

    @invariant()
    def the_last_stable_offset_is_the_models(self) -> None:
        if "t" in self.node.topics:
            assert self.log.last_stable_offset == self.stable
            began = {one.producer_id: one.txn_first_offset for one in self.log.producers() if one.txn_first_offset >= 0}
            assert began == {
                number: one.open.first_offset for number, one in self.producers.items() if one.open is not None
            }

    def teardown(self) -> None:
        for handles in self.node.topics.values():
            for handle in handles:
                if handle.log is not None:
                    handle.log.close(sync=False)
        shutil.rmtree(self.directory, ignore_errors=True)


TestTransactionsAgainstModel = TransactionsAgainstModel.TestCase
TestTransactionsAgainstModel.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
