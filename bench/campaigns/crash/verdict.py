"""Apache's kafka-dump-log on every file of a stopped broker: batches deep, indexes sound and matching."""

from __future__ import annotations

from pathlib import Path

from bench.campaigns.crash.damage import partition_files
from bench.campaigns.crash.ledger import Broken
from compat_tests.oracle.dump import complaints
from compat_tests.oracle.jars import MissingToolError, kafka_class_path


def is_possible() -> str:
    """Empty, or why not."""
    try:
        kafka_class_path()
    except MissingToolError as problem:
        return str(problem)
    return ""


def dump_all(data: Path, unmet: set[Path]) -> int:
    """How many files Apache has read without complaint. To read a time index it needs the offset index, too."""
    unmet = unmet | {path.with_suffix(".timeindex") for path in unmet if path.suffix == ".index"}
    there = [path for path in partition_files(data) if path.stat().st_size > 0 and path not in unmet]
    logs = [path for path in there if path.suffix == ".log"]
    indexes = [path for path in there if path.suffix in (".index", ".timeindex")]
    snapshots = [path for path in there if path.suffix == ".snapshot"]
    wrong = complaints(logs, "--deep-iteration")
    wrong += complaints(indexes, "--index-sanity-check")
    wrong += complaints(indexes, "--verify-index-only")
    transactions = [path for path in there if path.suffix == ".txnindex"]
    wrong += complaints(snapshots)
    wrong += complaints(transactions)
    if wrong:
        raise Broken("kafka-dump-log has something to say:\n" + "\n".join(wrong[:20]))
    return len(logs) + len(indexes) + len(snapshots) + len(transactions)
