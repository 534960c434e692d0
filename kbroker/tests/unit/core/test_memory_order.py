"""What threads read without a lock is written with a release: docs/memory-order.md says why each variable is right."""

from __future__ import annotations

import re
from pathlib import Path

import kbroker

CORE = Path(kbroker.__file__).parent / "_core"
# Of these structs, by the names that variables of them have: the fields that other threads read without a lock.
LOG = r"(?:self\.|c\.)?(?:log|copy|source)"
LOG_FIELDS = (
    "end_offset|start_offset|high_watermark|first_unstable_offset|recovery_point|sync_target|offline_errno|cuts|"
    "damaged_offset|directory"
)
SHARED = r"(?:self\.s|l\.shared)"
SHARED_FIELDS = "draining|stopping|apis_version|view_count"
# Here a log is filled before another thread can know it.
BUILDS_THE_LOG = {"log/recovery.pyx", "log/partition_log.pyx"}
HAS_NO_SHARED = {"syncer.pyx"}  # its `stopping` is read under its lock


def plain_writes(variable: str, fields: str, spared: set[str]) -> list[str]:
    """Return file and text of each assignment to one of the fields that is not an atomic store."""
    write = re.compile(rf"^ *{variable}\.(?:{fields}) (?:=|\+=|-=) .*$", re.M)
    found = []
    for path in sorted([*CORE.rglob("*.pyx"), *CORE.rglob("*.pxd")]):
        name = str(path.relative_to(CORE))
        if name not in spared:
            found += [f"{name}: {line.strip()}" for line in write.findall(path.read_text())]
    return found


def test_offsets_and_state_of_a_log_are_stored_atomically() -> None:
    # These two assign PartitionLog's str, not Log's pointer.
    of_python = {"log/handover.pyx: log.directory = directory", "moves.pyx: self.source.directory = retired"}
    assert set(plain_writes(LOG, LOG_FIELDS, BUILDS_THE_LOG)) - of_python == set()


def test_state_shared_by_the_network_threads_is_stored_atomically() -> None:
    assert plain_writes(SHARED, SHARED_FIELDS, HAS_NO_SHARED) == []


def test_a_bell_is_lowered_by_an_exchange() -> None:
    # A store would not acquire what a thread wrote that found the bell rung already and rang no second time.
    mailbox = (CORE / "net/mailbox.pyx").read_text()
    assert re.findall(r"(\w+)\(&\w\.rung\b", mailbox) == ["raise_flag", "lower_flag", "raise_flag", "lower_flag"]
    assert "__atomic_exchange_n((p), 0, __ATOMIC_ACQ_REL)" in (CORE / "c/atomics.h").read_text()
