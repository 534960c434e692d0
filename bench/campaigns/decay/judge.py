"""What a broker on a damaged directory may serve, partition by partition, and what it must have said.

nobody touched it          every record of it, as before
somebody did               what is served was produced; or the partition is offline with KAFKA_STORAGE_ERROR
... and recovery read it   every checksum matches, and what is missing was told: topic, partition, offset, reason
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bench import frames
from bench.campaigns.decay import nursery
from bench.campaigns.decay.rot import METADATA, Harm
from bench.client import Client
from kbroker._core.record.records import BatchHeader, BrokenRecords, batches, iterate
from kbroker.protocol import codec, messages
from kbroker.storage.checkpoints import RECOVERY_POINTS, BrokenCheckpointError, read_offsets

KAFKA_STORAGE_ERROR = 56
UNKNOWN_TOPIC = 3
OFFSET_OUT_OF_RANGE = 1
_MAY_ANSWER = {0, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC, OFFSET_OUT_OF_RANGE}
_FETCH_BYTES = 1 << 20
_LOSES = {"remove", "empty", "truncate", "lose_contents", "swap_files"}  # and what is left may be without a fault
_STARTS_OF_LOGS = "log-start-offset-checkpoint"
_SEGMENT = re.compile(r"(\d{20})\.log")
Key = tuple[str, int]


class Content(NamedTuple):
    """A partition as a client sees it."""

    error: int  # of the first answer that had one
    start: int
    end: int
    records: dict[int, tuple[int, bytes | None, bytes | None]]  # offset -> timestamp, key, value
    wrong: list[int]  # offsets of batches that do not match their checksums, or where the bytes are no batch


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


def fetch(client: Client, key: Key, offset: int) -> tuple[int, bytes]:
    request = frames.fetch_request(key[0], key[1], offset, _FETCH_BYTES)
    request.max_wait_ms = 0
    answer = client.exchange(frames.frame(request, frames.FETCH_VERSION))
    _, said = codec.decode_response(messages.FetchResponse, frames.FETCH_VERSION, answer)
    partition = said.responses[0].partitions[0]
    return partition.error_code, bytes(partition.records or b"")


def read(client: Client, key: Key, since: int | None = None) -> Content:
    """Everything from the first offset to the last; a bad batch is noted and passed over by its header.

    Where the bytes are no batch at all, it goes on at `since`, if that is further on.
    """
    content = Content(0, 0, 0, {}, [])
    error, start = ask_offset(client, key, -2)
    if not error:
        error, end = ask_offset(client, key, -1)
    if error:
        return content._replace(error=error)
    content = content._replace(start=start, end=end)
    offset = start
    while offset < end:
        error, data = fetch(client, key, offset)
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
        if offset == before:
            return content
    return content


def _take(content: Content, data: bytes, header: BatchHeader) -> int:
    """One batch into the content; the offset behind it."""
    if header.position + header.size > len(data):
        return -1
    try:
        for one in iterate(data[header.position : header.position + header.size]):
            if one.offset in content.records:  # a file that stands in for another
                content.wrong.append(one.offset)
            if one.offset >= content.start:
                content.records[one.offset] = (one.timestamp, one.key, one.value)
    except BrokenRecords:
        content.wrong.append(header.base_offset)
    return header.last_offset + 1


def scanned_from(data_dir: Path, key: Key) -> int | None:
    """The first offset that recovery will read through, as the files say before the start; None: it will trust them."""
    if (data_dir / ".kafka_cleanshutdown").is_file():
        return None
    try:
        point = read_offsets(data_dir / RECOVERY_POINTS).get(key, 0)
    except BrokenCheckpointError:
        point = 0
    names = [_SEGMENT.fullmatch(path.name) for path in data_dir.glob(f"{key[0]}-{key[1]}/*")]
    bases = sorted(int(name[1]) for name in names if name is not None)
    return next((base for base, behind in pairwise(bases) if behind > point), bases[-1] if bases else 0)


def judge(  # noqa: PLR0917 - what was, what was done, what is
    data_dir: Path,
    harms: list[Harm],
    truth: dict[Key, Content],
    scanned: dict[Key, int | None],
    found: dict[Key, Content],
    events: list[dict[str, object]],
) -> None:
    """AssertionError, with the partition, when one of the rules at the top is broken."""
    rooms = {harm.room for harm in harms}
    names = {harm.where for harm in harms}
    for key, before in truth.items():
        now, room = found[key], f"{key[0]}-{key[1]}"
        where = f"{room}: "
        assert now.error in _MAY_ANSWER, f"{where}error {now.error}"
        told = [event for event in events if event.get("topic") == key[0] and event.get("partition") == key[1]]
        if now.error == UNKNOWN_TOPIC:
            assert METADATA in rooms, f"{where}the topic is gone"
            kept = list(data_dir.glob(f"{room}.*-stray/*.log"))
            assert kept, f"{where}its topic and its data are gone"
            continue
        touched = room in rooms or any(name.startswith(room) for name in names)
        if not touched:
            assert now.error == 0, f"{where}error {now.error} though nobody touched it"
            assert not now.wrong, f"{where}wrong checksums at {now.wrong[:3]} though nobody touched it"
            if _STARTS_OF_LOGS not in names:
                assert (now.start, now.end, now.records) == (before.start, before.end, before.records), (
                    f"{where}{now.start}..{now.end} with {len(now.records)} records instead of "
                    f"{before.start}..{before.end} with {len(before.records)} though nobody touched it"
                )
            continue
        if now.error == KAFKA_STORAGE_ERROR and not now.records:
            assert any(event["level"] == "error" for event in told), f"{where}offline, and nobody was told"
            continue
        invented = [offset for offset, (_, _, value) in now.records.items() if value not in nursery.PRODUCED]
        assert not invented, f"{where}records that nobody produced at {invented[:3]}"
        since = scanned[key]
        if since is not None:
            wrong = [offset for offset in now.wrong if offset >= since]
            assert not wrong, f"{where}recovery read from {since} on, and wrong checksums are served at {wrong[:3]}"
            assert now.error == 0, f"{where}error {now.error} at the reading of what recovery has let pass"
            missing = [offset for offset in before.records if offset >= since and offset not in now.records]
            lost = any(harm.how in _LOSES and harm.room == room for harm in harms)  # before the broker could see it
            assert not missing or told or lost, (
                f"{where}offsets {missing[0]} to {missing[-1]} are gone, and nobody was told"
            )
        elif now.end < before.end:
            assert told, f"{where}it ends at {now.end} instead of {before.end}, and nobody was told"
