"""Temporary data directories: made by a broker that was given none, removed when it stops, reaped if it could not.

    <tmp>/kbroker-<random>/.kbroker-temporary    the marker, locked while the broker that made it lives
    <tmp>/kbroker-<random>/data/                 the data directory

A process that is killed, or that leaves with os._exit, removes nothing. Its lock goes with it, so the next broker of
the same user recognises such a directory by its marker and removes it. A directory without the marker, of another user,
behind a symbolic link or with a locked marker is never touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

PREFIX = "kbroker-"
MARKER = ".kbroker-temporary"
DATA = "data"


def new_name() -> Path:
    """A directory that does not exist yet, in the system's directory for temporary files."""
    return Path(tempfile.gettempdir()) / f"{PREFIX}{os.urandom(8).hex()}"


class TemporaryDirectory:
    """One directory with its marker locked. Only the process that made it can remove it: a forked child cannot."""

    def __init__(self, path: Path) -> None:
        """Makes the directory. FileExistsError if there is one; OSError if the system refuses."""
        self.path = path
        self._pid = os.getpid()
        os.mkdir(path, 0o700)
        self.marker = -1  # a descriptor, which holds the lock
        try:
            self.marker = os.open(path / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            # A reaper may have seen the marker before this lock: it removes the directory, and both calls fail.
            fcntl.flock(self.marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(self.marker), os.stat(path / MARKER)):
                raise FileExistsError(f"{path} was removed while it was made")
        except OSError:
            self._let_go()
            shutil.rmtree(path, ignore_errors=True)
            raise

    def remove(self) -> None:
        """Removes the directory and all in it. Calling it twice, or in a forked child, does nothing."""
        if self.marker < 0 or self._pid != os.getpid():
            return
        _remove(self.path)
        self._let_go()

    def _let_go(self) -> None:
        if self.marker >= 0:
            with contextlib.suppress(OSError):  # unlocked by hand: a copy of the descriptor may live on elsewhere
                fcntl.flock(self.marker, fcntl.LOCK_UN)
            os.close(self.marker)
        self.marker = -1


def make_temporary(path: Path) -> TemporaryDirectory:
    """The directory at `path`, or at a new name if that one is taken."""
    try:
        return TemporaryDirectory(path)
    except (FileExistsError, BlockingIOError, FileNotFoundError):
        return TemporaryDirectory(new_name())


def reap(parent: Path) -> list[Path]:
    """Removes the temporary directories of this user's dead brokers in `parent` and returns them. Never raises."""
    reaped = []
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and _is_ours(entry) and _remove_if_dead(Path(entry.path)):
                reaped.append(Path(entry.path))
    return reaped


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _remove_if_dead(path: Path) -> bool:
    try:
        marker = os.open(path / MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # no marker: not ours
        return False
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path)
    except OSError:  # locked: its broker lives
        return False
    finally:
        os.close(marker)
    return not path.exists()


def _remove(path: Path) -> None:
    """Removes the marker last: if the process dies before, the next broker finds it and removes the rest."""
    shutil.rmtree(path / DATA, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)
