"""The metadata log for `kbroker doctor --deep`: whether a broker would start on it. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kbroker.quorum.frames import BrokenMetadataError
from kbroker.quorum.integrity import find_torn_tail, segments_of
from kbroker.quorum.snapshot import find_snapshots, read_snapshot
from kbroker.quorum.store import FILE_NAME, BrokenQuorumStateError, read_election
from kbroker.storage.examine import ADVICE_RESTORE, ADVICE_TAIL, Finding
from kbroker.storage.log_dir import BOOTSTRAP, CLEAN_SHUTDOWN, METADATA_DIRECTORY


def examine_metadata(directory: Path) -> Iterator[Finding]:
    """What stands in `directory` of the metadata log, if this is where it is kept."""
    home = directory / METADATA_DIRECTORY
    if not home.is_dir():
        return
    if not any(path.is_file() and path.stat().st_size for _, path in segments_of(home)):
        yield Finding(home, -1, 0, "holds no metadata log", ADVICE_RESTORE)
    try:
        torn = find_torn_tail(home, clean=(directory / CLEAN_SHUTDOWN).is_file())
        if torn is not None:
            yield Finding(torn.path, torn.position, torn.offset, f"its end is torn ({torn.reason})", ADVICE_TAIL)
    except (BrokenMetadataError, OSError) as problem:
        yield Finding(home, -1, -1, str(problem), ADVICE_RESTORE)
    newest = [one.file_name for one in find_snapshots(home)]
    for path in [*(home / name for name in newest), directory / BOOTSTRAP]:
        try:
            read_snapshot(path)
        except BrokenMetadataError as problem:
            needed = path.name == newest[-1] if newest and path.parent == home else False
            unneeded = "nothing to do: it is not read any more"
            yield Finding(path, -1, -1, str(problem), ADVICE_RESTORE if needed else unneeded)
    try:
        read_election(home)
    except BrokenQuorumStateError as problem:
        yield Finding(home / FILE_NAME, -1, -1, str(problem).rstrip("."), ADVICE_RESTORE)
