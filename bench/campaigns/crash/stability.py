"""What readers of committed records find when a broker is back.

stuck       the last stable offset does not reach the end of the log, though everyone has come back or run out of time
shown       a record of a transaction that was aborted, or never ended
withheld    a record that others find, and that no aborted transaction wrote
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from bench.campaigns.crash.ledger import Broken, Shelf, name_of
from bench.campaigns.crash.talk import EARLIEST, LATEST, NOT_LEADER, OUT_OF_RANGE, READ_COMMITTED, Gone, Talk
from bench.campaigns.crash.transactor import Transactor
from bench.campaigns.transactional import visible
from kbroker._core.record.records import Record, batches, iterate

PATIENCE_S = 60.0
_AGAIN_S = 0.02


def await_stable(talk: Talk, shelves: Sequence[Shelf], transactors: Sequence[Transactor]) -> None:
    """Everyone comes back, time runs out for the others; then it is known what became of what the kill interrupted.

    The first shelf is the one that tells.
    """
    for one in transactors:
        one.come_back(talk)
    deadline = time.monotonic() + PATIENCE_S
    for shelf in shelves:
        end, _ = talk.offset(shelf.topic.name, shelf.partition, LATEST)
        while (stable := talk.offset(shelf.topic.name, shelf.partition, LATEST, READ_COMMITTED)[0]) < end:
            if time.monotonic() > deadline:
                raise Broken(f"{shelf.label}: the last stable offset stays at {stable}, and the log ends at {end}")
            time.sleep(_AGAIN_S)
    found = {name_of(record) for record in read_committed(talk, shelves[0])}
    for one in transactors:
        one.learn(found)
        one.judge_offset(talk)


def judge_committed(talk: Talk, shelf: Shelf) -> None:
    """After everything that is served was looked at: shelf.left."""
    found = read_committed(talk, shelf)
    start, _ = talk.offset(shelf.topic.name, shelf.partition, EARLIEST)
    due = {at for at in shelf.left or () if at >= start and shelf.owed[at] not in shelf.hidden}
    if shelf.topic.compacted:  # it goes on meanwhile: the newest of each key stays
        due &= {at for at in shelf.newest().values() if shelf.sent[shelf.owed[at]].value is not None}
    if withheld := due - {record.offset for record in found}:
        raise Broken(f"{shelf.label}: {len(withheld)} committed records are withheld, the first at {min(withheld)}")


class CommittedReader:
    """Reads from any offset what is committed, while others write, commit and abort."""

    def __init__(self, shelves: Sequence[Shelf], chance: random.Random) -> None:
        self._shelves, self._chance = shelves, chance

    def __call__(self, talk: Talk) -> None:
        shelf = self._chance.choice(self._shelves)
        offset = self._chance.randint(shelf.start, shelf.end)
        fetch_committed(talk, shelf, offset, self._chance.choice((1, 5_000, 60_000)))
        time.sleep(0.005)  # the load's pace


def read_committed(talk: Talk, shelf: Shelf) -> list[Record]:
    """From the beginning to the last stable offset."""
    name, partition = shelf.topic.name, shelf.partition
    position, _ = talk.offset(name, partition, EARLIEST)
    end, _ = talk.offset(name, partition, LATEST, READ_COMMITTED)
    found: list[Record] = []
    while position < end:
        fetched = fetch_committed(talk, shelf, position, 1 << 20)
        if fetched is None:  # retention went on meanwhile
            position, _ = talk.offset(name, partition, EARLIEST)
            continue
        records, behind = fetched
        if behind <= position:
            raise Broken(f"{shelf.label}: nothing is served at {position}, and the last stable offset is {end}")
        found += records
        position = behind
    return found


def fetch_committed(talk: Talk, shelf: Shelf, offset: int, max_bytes: int) -> tuple[list[Record], int] | None:
    """The records that a reader may see, and the offset behind the last batch; None: the log begins later."""
    answer = talk.fetch(shelf.topic.name, shelf.partition, offset, max_bytes, READ_COMMITTED)
    if answer.error_code == NOT_LEADER:
        raise Gone
    if answer.error_code == OUT_OF_RANGE:
        return None
    if answer.error_code:
        raise Broken(f"{shelf.label}: a fetch at {offset} was answered with error {answer.error_code}")
    data = answer.records or b""
    heads = [head for head in batches(data, partial_tail=True) if head.position + head.size <= len(data)]
    read = [(head, iterate(data[head.position : head.position + head.size])) for head in heads]
    aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
    found = [record for record in visible(read, aborted) if record.offset >= offset]
    with shelf.lock:
        shown = [record.offset for record in found if name_of(record) in shelf.hidden]
    if shown:
        raise Broken(f"{shelf.label}: {len(shown)} records that were not committed are shown, the first at {shown[0]}")
    return found, heads[-1].last_offset + 1 if heads else offset
