"""Answers and questions that change on the wire: what the data plane guarantees, taken away outside of it.

Each lie is one guarantee that is off. It sits in the proxy, one for every connection, and sees Produce and Fetch as
messages; whatever else passes is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kbroker._core.record.records import Record, batches, build_batch, iterate
from kbroker.protocol import codec
from kbroker.protocol.message import Message
from kbroker.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse

READ_UNCOMMITTED = 0
LOSES_EVERY = 5  # how many answers arrive for one that does not
SIZE_BYTES = 4


class Lie:
    """Nothing is changed: what a run with a true wire is compared with."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[int, int]] = {}  # key and version by correlation id

    def request(self, frame: bytes) -> bytes:
        """A frame without its size, as the broker shall see it."""
        header, at = codec.decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        asked: Message
        if key == FetchRequest.KEY:
            asked = fetch = codec.decode(FetchRequest, version, frame, at)[0]
            self.fetch(fetch)
        elif key == ProduceRequest.KEY:
            asked = produce = codec.decode(ProduceRequest, version, frame, at)[0]
            self.produce(produce)
        else:
            return frame
        self._asked[header.correlation_id] = (key, version)
        return codec.encode_request(asked, version, header.correlation_id, header.client_id)

    def response(self, frame: bytes) -> bytes:
        """A frame without its size, as the client shall see it."""
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        key, version = self._asked.pop(correlation_id, (-1, -1))
        if key == FetchRequest.KEY:
            _, fetched = codec.decode_response(FetchResponse, version, frame)
            self.fetched(fetched)
            return codec.encode_response(fetched, version, correlation_id)
        if key == ProduceRequest.KEY:
            _, produced = codec.decode_response(ProduceResponse, version, frame)
            self.produced(produced)
            return codec.encode_response(produced, version, correlation_id)
        return frame

    def fetch(self, request: FetchRequest) -> None: ...
    def fetched(self, response: FetchResponse) -> None: ...
    def produce(self, request: ProduceRequest) -> None: ...
    def produced(self, response: ProduceResponse) -> None:
        """OSError: the connection ends here, and the answer is lost."""


class Uncommitted(Lie):
    """Everybody reads what is not committed."""

    def fetch(self, request: FetchRequest) -> None:
        request.isolation_level = READ_UNCOMMITTED


class NothingAborted(Lie):
    """Readers are not told which transactions were aborted."""

    def fetched(self, response: FetchResponse) -> None:
        for partition in _fetched(response):
            partition.aborted_transactions = []


class Holes(Lie):
    """An answer that holds several batches lacks one in the middle."""

    def fetched(self, response: FetchResponse) -> None:
        for partition in _fetched(response):
            data = partition.records or b""
            inner = [one for one in batches(data, partial_tail=True)[1:-1] if not one.control]
            if inner:
                partition.records = data[: inner[0].position] + data[inner[0].position + inner[0].size :]


class Twice(Lie):
    """Batches outside of transactions come without a sequence, so that nobody knows one that is sent again.

    Some of their answers are lost: clients do send again.
    """

    answers = 0  # on all connections

    def produce(self, request: ProduceRequest) -> None:
        self._in_transaction = request.transactional_id is not None
        _rewrite(request, lambda records: records, transactional=False, forget=True)

    def produced(self, response: ProduceResponse) -> None:
        Twice.answers += not self._in_transaction
        if not self._in_transaction and Twice.answers % (LOSES_EVERY + 1) == 0:
            raise ConnectionAbortedError


class Shifted(Lie):
    """Producers are told another offset than the one their records have."""

    def produced(self, response: ProduceResponse) -> None:
        for topic in response.responses:
            for partition in topic.partition_responses:
                partition.base_offset += partition.error_code == 0


class Reversed(Lie):
    """The records of a batch are appended in the wrong order."""

    def produce(self, request: ProduceRequest) -> None:
        _rewrite(request, lambda records: records[::-1])


class Garbled(Lie):
    """Records are appended with other values than were sent."""

    def produce(self, request: ProduceRequest) -> None:
        _rewrite(request, lambda records: [one._replace(value=b"?" + (one.value or b"")) for one in records])


def _fetched(response: FetchResponse) -> Iterator[FetchResponse.PartitionData]:
    for topic in response.responses:
        yield from topic.partitions


def _rewrite(
    request: ProduceRequest,
    change: Callable[[list[Record]], list[Record]],
    *,
    transactional: bool = True,
    forget: bool = False,
) -> None:
    """The records of each batch, of transactions or of others, are changed; `forget` takes its producer away."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            data = partition.records or b""
            (header,) = batches(data)
            if header.transactional == transactional:
                records = [one._replace(offset=-1) for one in change(iterate(data))]
                producer = (-1, -1, -1) if forget else (header.producer_id, header.producer_epoch, header.base_sequence)
                partition.records = build_batch(
                    records,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    base_sequence=producer[2],
                    transactional=header.transactional,
                )
