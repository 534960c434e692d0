"""A run over several processes: which tests stay together, which are begun first, and what all may do only so often.

Every worker has brokers and clients of its own. Without workers none of this is needed, and tests run as they stand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# Tests that share a server of their file's stay together. Every other is done by whoever is free.
TOGETHER = (
    "test_transactions.py",
    "test_data_directory.py",
    "test_decay.py",
    "test_consumer_protocol.py",
    "test_dockerfile.py",
)
# What takes longest is begun first: begun late, it would keep one worker busy while the others have nothing left to do.
# Hundreds of short tests come last, for the same reason.
FIRST = (
    "test_exactly_once.py",
    "test_unclean_directory.py",
    "test_consumer_protocol.py",
    "test_transactions.py",
    "test_transaction_state.py",
    "test_log_dirs.py",
    "test_metadata_log.py",
    "test_data_directory.py",
    "test_decay.py",
    "test_tools.py",
    "test_restart.py",
    "test_retention.py",
    "test_strays.py",
    "test_group_tools.py",
)
LAST = ("test_wire.py", "test_clients.py")


def in_a_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def longest_first(items: list[pytest.Item]) -> None:
    ranks = {file: rank for rank, file in enumerate([*FIRST, "any other", *LAST])}
    items.sort(key=lambda item: ranks.get(item.path.name, ranks["any other"]))


def scheduling(config: pytest.Config, log: object) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file.endswith(TOGETHER) else nodeid

    config.option.loadscopereorder = False  # by the number of tests, which says nothing of their time
    return Shares(config, log)


def one_of_few(run_directory: Path, name: str, most: int) -> bool:
    """Whether this is among the first so many of its name in the whole run."""
    for number in range(most):
        try:
            (run_directory / f"{name}-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False
