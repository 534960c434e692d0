"""A partition as a client sees it: everything that is served, and what of it is wrong."""

from __future__ import annotations

import struct
from typing import NamedTuple

from bench import frames
from bench.campaigns.transactional import visible
from bench.client import Client
from kbroker._core.record.records import BatchHeader, BrokenRecords, Record, batches, iterate
from kbroker.protocol import codec, messages

_FETCH_BYTES = 1 << 20
READ_COMMITTED = 1
_MARKER_KEY, _COMMIT = struct.Struct(">hh"), 1  # version and kind
KAFKA_STORAGE_ERROR = 56
Key = tuple[str, int]


class Content(NamedTuple):
    error: int  # of the first answer that had one
    start: int
    end: int
    records: dict[int, tuple[int, bytes | None, bytes | None]]  # offset -> timestamp, key, value
    wrong: list[int]  # offsets of batches that do not match their checksums, or from where on there are no more batches
    committed: dict[int, bytes | None]  # offset -> value: what a reader of committed records gets
    markers: dict[int, tuple[int, bool]]  # offset -> producer, and whether its transaction is committed by it

    def end_of_transaction(self, producer: int, offset: int) -> tuple[int, bool] | None:
        """Where the producer's transaction that has this offset ends, and whether committed: its next marker tells."""
        behind = [(at, commits) for at, (one, commits) in self.markers.items() if one == producer and at > offset]
        return min(behind, default=None)


def ask_offset(client: Client, key: Key, timestamp: int) -> tuple[int, int]:
    """(error, offset) that ListOffsets answers."""
    request = messages.ListOffsetsRequest(replica_id=-1)
    topic = messages.ListOffsetsRequest.ListOffsetsTopic(name=key[0])
    topic.partitions = [messages.ListOffsetsRequest.ListOffsetsPartition(partition_index=key[1], timestamp=timestamp)]
    request.topics = [topic]
    answer = client.ask(request, 7)
    assert isinstance(answer, messages.ListOffsetsResponse)
    said = answer.topics[0].partitions[0]
    return said.error_code, said.offset


def ask_fetch(client: Client, key: Key, offset: int, isolation: int = 0) -> messages.FetchResponse.PartitionData:
    request = frames.fetch_request(key[0], key[1], offset, _FETCH_BYTES)
    request.max_wait_ms, request.isolation_level = 0, isolation
    answer = client.exchange(frames.frame(request, frames.FETCH_VERSION))
    _, said = codec.decode_response(messages.FetchResponse, frames.FETCH_VERSION, answer)
    return said.responses[0].partitions[0]


def fetch(client: Client, key: Key, offset: int) -> tuple[int, bytes]:
    said = ask_fetch(client, key, offset)
    return said.error_code, bytes(said.records or b"")


def read_committed(client: Client, key: Key, content: Content) -> dict[int, bytes | None]:
    """What a reader of committed records gets, as far as it gets: offset -> value."""
    found: dict[int, bytes | None] = {}
    offset = content.start
    while offset < content.end:
        said = ask_fetch(client, key, offset, READ_COMMITTED)
        data = bytes(said.records or b"")
        try:
            heads = [head for head in batches(data, partial_tail=True) if head.position + head.size <= len(data)]
            read = [(head, iterate(data[head.position : head.position + head.size])) for head in heads]
        except BrokenRecords:
            return found
        aborted = [(one.producer_id, one.first_offset) for one in said.aborted_transactions or ()]
        found |= {record.offset: record.value for record in visible(read, aborted) if record.offset >= offset}
        if not heads or heads[-1].last_offset < offset:
            return found
        offset = heads[-1].last_offset + 1
    return found


def read(client: Client, key: Key, since: int | None = None) -> Content:
    """Everything from the first offset to the last; a bad batch is noted and passed over by its header.

    Where the bytes are no batch at all, it goes on at `since`, if that is further on: there recovery has begun to read.
    So it does where a fetch answers KAFKA_STORAGE_ERROR. Of a segment that nobody scanned, that is the answer for what
    stands behind a batch whose end cannot be told; an error that is not of this segment alone is met again at `since`.
    """
    content = Content(0, 0, 0, {}, [], {}, {})
    error, start = ask_offset(client, key, -2)
    if not error:
        error, end = ask_offset(client, key, -1)
    if error:
        return content._replace(error=error)
    content = content._replace(start=start, end=end)
    offset = start
    while offset < end:
        error, data = fetch(client, key, offset)
        if error == KAFKA_STORAGE_ERROR and since is not None and offset < since:
            content.wrong.append(offset)
            offset = since
            continue
        if error:
            return content._replace(error=error)
        if not data:  # a hole before the end, as compaction leaves them; but nothing may stand behind it
            behind = [one for one in range(offset + 1, min(end, offset + 100)) if fetch(client, key, one)[1]]
            assert not behind, f"{key}: nothing at {offset}, and records at {behind[0]}: a consumer waits for ever"
            return content
        before = offset
        try:
            headers = batches(data, partial_tail=True)
        except BrokenRecords:
            content.wrong.append(offset)
            if since is None or since <= offset:
                return content
            offset = since
            continue
        offset = max([offset, *(_take(content, data, header) for header in headers)])
        if headers[-1].position + headers[-1].size != len(data):  # batches are sent whole: what is behind them is none
            content.wrong.append(max(before, offset - 1))
        if offset == before:
            return content
    return content


def _records(content: Content, data: bytes, header: BatchHeader) -> list[Record]:
    """Those that people produced; a transaction's marker goes into the content."""
    records = iterate(data[header.position : header.position + header.size])
    if not header.control:
        return records
    for one in records:
        if one.key is not None and len(one.key) == _MARKER_KEY.size:
            content.markers[one.offset] = (header.producer_id, _MARKER_KEY.unpack(one.key)[1] == _COMMIT)
    return []


def _take(content: Content, data: bytes, header: BatchHeader) -> int:
    """One batch into the content; the offset behind it."""
    if header.position + header.size > len(data):
        return -1
    try:
        for one in _records(content, data, header):
            if one.offset in content.records:  # a file that stands in for another
                content.wrong.append(one.offset)
            if one.offset >= content.start:
                content.records[one.offset] = (one.timestamp, one.key, one.value)
    except BrokenRecords:
        content.wrong.append(header.base_offset)
    return header.last_offset + 1
