"""What a broker on a damaged directory may serve, partition by partition, and what it must have said.

nobody touched it          every record of it, as before
somebody did               what is served was produced; or the partition is offline with KAFKA_STORAGE_ERROR
... and recovery read it   every checksum matches, and what is missing was told: topic, partition, offset, reason;
                           readers of committed records see none that was aborted, as far as the log still tells
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from bench.campaigns.decay import nursery, payers
from bench.campaigns.decay.reading import KAFKA_STORAGE_ERROR, Content, Key
from bench.campaigns.decay.rot import METADATA, Harm
from kbroker.storage.checkpoints import RECOVERY_POINTS, BrokenCheckpointError, read_offsets

UNKNOWN_TOPIC = 3
OFFSET_OUT_OF_RANGE = 1
_MAY_ANSWER = {0, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC, OFFSET_OUT_OF_RANGE}
_LOSES = {"remove", "empty", "truncate", "lose_contents", "swap_files"}  # and what is left may be without a fault
_STARTS_OF_LOGS = "log-start-offset-checkpoint"
_SEGMENT = re.compile(r"(\d{20})\.log")


def room_of(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def scanned_from(data_dir: Path, key: Key) -> int | None:
    """The first offset that recovery will read through, as the files say before the start; None: it will trust them."""
    if (data_dir / ".kafka_cleanshutdown").is_file():
        return None
    try:
        point = read_offsets(data_dir / RECOVERY_POINTS).get(key, 0)
    except BrokenCheckpointError:
        point = 0
    names = [_SEGMENT.fullmatch(path.name) for path in data_dir.glob(f"{room_of(key)}/*")]
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
        now, room = found[key], room_of(key)
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
                assert _is_as_before(key, before, now, rooms), (
                    f"{where}{now.start}..{now.end} with {len(now.records)} records, {len(now.committed)} committed, "
                    f"instead of {before.start}..{before.end} with {len(before.records)}, {len(before.committed)} "
                    "committed, though nobody touched it"
                )
            continue
        if now.error == KAFKA_STORAGE_ERROR and not now.records:
            assert any(event["level"] == "error" for event in told), f"{where}offline, and nobody was told"
            continue
        invented = [offset for offset, (_, _, value) in now.records.items() if value not in nursery.PRODUCED]
        assert not invented or key in nursery.INTERNAL, f"{where}records that nobody produced at {invented[:3]}"
        since = scanned[key]
        if since is not None:
            wrong = [offset for offset in now.wrong if offset >= since]
            assert not wrong, f"{where}recovery read from {since} on, and wrong checksums are served at {wrong[:3]}"
            assert now.error == 0, f"{where}error {now.error} at the reading of what recovery has let pass"
            lost = any(harm.how in _LOSES and harm.room == room for harm in harms)  # before the broker could see it
            shown = [at for at in _shown_though_aborted(now) if at >= since]
            shown = [at for at in shown if not lost or not _now_reads_as_committed(at, before, now)]
            assert not shown, f"{where}recovery read from {since} on, and aborted records are shown at {shown[:3]}"
            missing = [offset for offset in before.records if offset >= since and offset not in now.records]
            assert not missing or told or lost, (
                f"{where}offsets {missing[0]} to {missing[-1]} are gone, and nobody was told"
            )
        elif now.end < before.end:
            assert told, f"{where}it ends at {now.end} instead of {before.end}, and nobody was told"


def _shown_though_aborted(now: Content) -> list[int]:
    return [at for at, value in now.committed.items() if value in payers.ABORTED]


def _now_reads_as_committed(at: int, before: Content, now: Content) -> bool:
    """The abort marker went with its file, and the producer's next one, of a later transaction, commits.

    A log tells where a transaction ends by its producer's next marker and by nothing else: without the file this one
    reaches up to the later marker, and whoever reads the log takes it for committed. So does Apache Kafka 4.3.1 on the
    same directory, record by record. Where no marker follows, the transaction is open, and nothing of it may be shown.
    """
    value = now.committed[at]
    assert value is not None
    ended, ends = (one.end_of_transaction(payers.ABORTED[value], at) for one in (before, now))
    return ended is not None and ends is not None and ended[0] not in now.markers and ends[1]


def _is_as_before(key: Key, before: Content, now: Content, rooms: set[str]) -> bool:
    """Of a coordinator that has lost its last word, it may be said once more: markers are written twice, then."""
    if key in nursery.WITH_MARKERS and room_of(nursery.TRANSACTIONS) in rooms:
        return (now.start, now.records) == (before.start, before.records) and now.end >= before.end
    return now == before
