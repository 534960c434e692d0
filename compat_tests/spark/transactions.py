"""Spark reads what producers wrote in transactions: all of it by default, what was committed where it is asked to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.spark.stage import Stage, numbered, ranges, rows, scenario, values


class _Transactions:
    """A producer; each of its transactions is left open, committed or aborted."""

    def __init__(self, stage: Stage) -> None:
        from confluent_kafka import Producer

        self._topic = stage.topic
        settings = {"bootstrap.servers": stage.broker.bootstrap, "transactional.id": f"{stage.topic}-writer"}
        self._producer = Producer({**settings, "log_level": 0})
        self._producer.init_transactions(WAIT_SECONDS)

    def begin(self, numbers: Iterable[int], partition: int = 0) -> None:
        self._producer.begin_transaction()
        for record in numbered(numbers, partition):
            self._producer.produce(self._topic, record.value, record.key, partition, timestamp=record.timestamp_ms or 0)
        assert self._producer.flush(WAIT_SECONDS) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(WAIT_SECONDS)


_COMMITTED = {"kafka__isolation__level": "read_committed"}


@scenario
def aborted_transactions_are_not_read(stage: Stage) -> Any:
    stage.create(partitions=2)
    writer = _Transactions(stage)
    for turn in range(6):
        writer.begin(range(turn * 10, turn * 10 + 10), partition=turn // 3)
        if turn % 3 == 1:
            writer.abort()
        else:
            writer.commit()
    committed = rows(stage.batch(**_COMMITTED))
    everything = rows(stage.batch())
    wanted = [n for n in range(60) if n // 10 % 3 != 1]
    assert [int(row[3]) for row in committed] == wanted
    assert [int(row[3]) for row in everything] == [*range(60)]
    split = values(stage.batch(**_COMMITTED, minPartitions="8"))
    assert split == wanted
    return [committed, everything]


@scenario
def an_open_transaction_holds_readers_back(stage: Stage) -> Any:
    """Readers of committed records end where it begins; the others read on."""
    stage.create()
    writer = _Transactions(stage)
    writer.begin(range(10))
    writer.commit()
    writer.begin(range(10, 20))
    stage.send(numbered(range(20, 30)))
    before = [values(stage.batch(**_COMMITTED)), values(stage.batch())]
    writer.commit()
    after = values(stage.batch(**_COMMITTED))
    assert before == [[*range(10)], [*range(30)]]
    assert after == [*range(30)]
    return [before, after]


@scenario
def a_stream_of_committed_records(stage: Stage) -> Any:
    stage.create()
    writer = _Transactions(stage)
    told: list[Any] = []

    def run() -> None:
        told.append(ranges(stage.collect_stream(stage.stream(**_COMMITTED))))
        told.append(values(stage.collected()))

    writer.begin(range(10))
    writer.commit()
    writer.begin(range(10, 20))
    run()
    assert told[-1] == [*range(10)]
    writer.abort()
    run()
    assert told[-1] == [*range(10)]
    writer.begin(range(20, 30))
    writer.commit()
    run()
    assert told[-1] == [*range(10), *range(20, 30)]
    return told


@scenario
def nothing_but_aborted_records(stage: Stage) -> Any:
    stage.create()
    writer = _Transactions(stage)
    for turn in range(3):
        writer.begin(range(turn * 10, turn * 10 + 10))
        writer.abort()
    assert values(stage.batch(**_COMMITTED)) == []
    told = ranges(stage.collect_stream(stage.stream(**_COMMITTED)))
    stage.send(numbered(range(100, 105)))
    told += ranges(stage.collect_stream(stage.stream(**_COMMITTED)))
    assert values(stage.collected()) == [*range(100, 105)]
    return told
