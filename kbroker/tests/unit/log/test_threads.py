"""One log, many threads: appends, reads, syncs and closed files at once."""

import threading
from pathlib import Path

from kbroker._core.clock import BrokerClock
from kbroker._core.log.open_files import FileBudget
from kbroker._core.log.partition_log import PartitionLog
from kbroker._core.record.records import iterate
from kbroker.tests.unit.log.batches import batch, offsets

BATCHES = 400


def test_readers_see_only_whole_batches_while_writers_append(tmp_path: Path, clock: BrokerClock) -> None:
    budget = FileBudget(8)
    logs = [
        PartitionLog.open(
            tmp_path / f"t-{i}", clock, {"segment.bytes": 2000, "index.interval.bytes": 200}, files=budget
        )
        for i in range(4)
    ]
    done = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: object) -> threading.Thread:
        def run() -> None:
            try:
                work()  # type: ignore[operator]
            except BaseException as failure:
                failures.append(failure)
                done.set()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write(log: PartitionLog) -> None:
        for _ in range(BATCHES):
            assert log.append(batch(2)).error == 0
            log.high_watermark = log.log_end_offset

    def follow() -> None:
        at = [0] * len(logs)
        while min(at) < 2 * BATCHES and not (done.is_set() and failures):
            for i, log in enumerate(logs):
                if at[i] < log.high_watermark:
                    records = iterate(log.read(at[i], 700, log.high_watermark))
                    assert [record.offset for record in records] == list(range(at[i], at[i] + len(records)))
                    at[i] += len(records)

    def sync() -> None:
        while not done.is_set():
            for log in logs:
                log.flush()
                log.segments()

    def look_back() -> None:
        while not done.is_set():
            for log in logs:
                assert log.offset_for_timestamp(0) is None or log.log_end_offset > 0
                if log.log_end_offset:
                    log.read(0, 500)

    writers = [guarded(lambda log=log: write(log)) for log in logs]
    followers = [guarded(follow), guarded(follow)]
    others = [guarded(sync), guarded(look_back)]
    for thread in [*writers, *followers]:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    assert failures == []
    logs[0].roll()  # while others hold their locks the limit may be passed; the next file to be opened makes up for it
    assert budget.open_segments <= budget.limit
    for log in logs:
        assert offsets(log) == list(range(2 * BATCHES))
        log.close(sync=False)


def test_a_slice_outlives_the_segment_it_was_cut_from(tmp_path: Path, clock: BrokerClock) -> None:
    log = PartitionLog.open(tmp_path / "t-0", clock, {"segment.bytes": 500})
    for _ in range(50):
        log.append(batch(2))
    log.high_watermark = 100
    stop = threading.Event()

    def delete() -> None:
        for offset in range(0, 100, 4):
            log.raise_start(offset)
            log.retire()
        stop.set()

    deleter = threading.Thread(target=delete)
    deleter.start()
    while not stop.is_set():
        start = log.log_start_offset
        try:
            records = iterate(log.read(start, 1000))
        except Exception as refused:
            assert getattr(refused, "code", None) == 1, refused  # noqa: PT017 - the start moved on
        else:
            assert records[0].offset <= start <= records[-1].offset
    deleter.join()
    log.close(sync=False)


def test_a_log_that_is_being_opened_keeps_its_files(tmp_path: Path, clock: BrokerClock) -> None:
    budget = FileBudget(8)
    whole = PartitionLog.open(tmp_path / "whole-0", clock, {})
    for _ in range(300):
        whole.append(batch(size=10_000))
    whole.close()
    others = [PartitionLog.open(tmp_path / f"t-{i}", clock, {}, files=budget) for i in range(24)]
    for log in others:
        log.append(batch())
    done = threading.Event()

    def use_the_others() -> None:
        while not done.is_set():
            for log in others:
                log.read(0, 500)

    threads = [threading.Thread(target=use_the_others) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            log = PartitionLog.open(tmp_path / "whole-0", clock, {}, clean=False, files=budget)
            assert (log.log_end_offset, log.recovery_notes) == (300, [])
            log.close()
    finally:
        done.set()
        for thread in threads:
            thread.join()
