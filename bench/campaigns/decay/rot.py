"""What can happen to a file: bits flip, blocks are zeroed, swapped or lost, names point to the wrong thing.

What is done follows from the draw alone, a text of seed and round: each harm draws by itself, files are chosen by their
names, whichever others lie beside them, and places in them by fractions of their sizes. So the same draw does the same
again to another directory that was made the same way, whatever ids and contents that one has.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

METADATA = "__cluster_metadata-0"
_BLOCK = 512
_SEGMENT_FILE = re.compile(r"\d{20}(\.\w+)")
_RETIRED = ".0123456789abcdef0123456789abcdef"


class Harm(NamedTuple):
    """One thing that was done."""

    how: str
    kind: str  # of the file, as kind_of names it
    where: str  # relative to the data directory

    def __str__(self) -> str:
        return f"{self.how} {self.where}"

    @property
    def room(self) -> str:
        """The directory inside the data directory; empty: the data directory itself."""
        return self.where.split("/")[0] if "/" in self.where or self.kind == "directory" else ""


def kind_of(path: Path, data_dir: Path) -> str:
    """Files of one kind are read by the same code."""
    if path.is_dir():
        return "directory"
    inside = path.parent != data_dir
    metadata = f"{METADATA}/" if path.parent.name == METADATA else ""
    found = _SEGMENT_FILE.match(path.name)
    if inside and found is not None:
        return metadata + found[1]
    if path.name.endswith(".checkpoint"):
        return f"{metadata}*.checkpoint" if metadata else path.name
    return metadata + path.name


def targets(data_dir: Path) -> dict[str, list[Path]]:
    """Every file and every directory, by kind."""
    found: dict[str, list[Path]] = {}
    for path in sorted(_walk(data_dir)):
        found.setdefault(kind_of(path, data_dir), []).append(path)
    return found


def _walk(data_dir: Path) -> Iterator[Path]:
    for one in data_dir.iterdir():
        yield one
        if one.is_dir():
            yield from one.iterdir()


def choose(names: Iterable[str], chance: random.Random, count: int = 1) -> list[str]:
    """The ones that win the draw. A name more or less changes nothing, unless it is itself among the winners."""
    salt = chance.getrandbits(64)
    return sorted(names, key=lambda name: hashlib.blake2b(f"{salt}/{name}".encode()).digest())[:count]


def choose_paths(paths: Iterable[Path], data_dir: Path, chance: random.Random, count: int = 1) -> list[Path]:
    return [data_dir / name for name in choose((str(path.relative_to(data_dir)) for path in paths), chance, count)]


def _edit(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def _span(chance: random.Random, size: int) -> tuple[int, int]:
    start = int(chance.random() * size)
    return start, min(size, start + 1 + int(chance.random() ** 3 * 4 * _BLOCK))


def flip(path: Path, chance: random.Random) -> None:
    def change(data: bytearray) -> None:
        for _ in range(chance.choice((1, 1, 1, 2, 8))):
            if data:
                data[int(chance.random() * len(data))] ^= 1 << chance.randrange(8)

    _edit(path, change)


def zero(path: Path, chance: random.Random) -> None:
    def change(data: bytearray) -> None:
        start, end = _span(chance, len(data))
        data[start:end] = bytes(end - start)

    _edit(path, change)


def overwrite(path: Path, chance: random.Random) -> None:
    def change(data: bytearray) -> None:
        start, end = _span(chance, len(data))
        data[start:end] = chance.randbytes(end - start)

    _edit(path, change)


def truncate(path: Path, chance: random.Random) -> None:
    os.truncate(path, int(path.stat().st_size * chance.choice((0.0, chance.random(), 1 - chance.random() ** 4))))


def extend(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(1 + chance.randrange(3 * _BLOCK)))


def extend_by_zeros(path: Path, chance: random.Random) -> None:
    grown = chance.choice((1, 61, _BLOCK, 10 * 1024 * 1024, 3 << 30))  # the last is more than a segment can be
    os.truncate(path, path.stat().st_size + grown)


def extend_by_itself(path: Path, chance: random.Random) -> None:
    """An old block under a new address: right checksums in the wrong place."""
    _edit(path, lambda data: data.extend(data[int(chance.random() * len(data)) :]))


def cut_out(path: Path, chance: random.Random) -> None:
    def change(data: bytearray) -> None:
        start, end = _span(chance, len(data))
        del data[start:end]

    _edit(path, change)


def swap_blocks(path: Path, chance: random.Random) -> None:
    def change(data: bytearray) -> None:
        if len(data) > 2:
            size = max(1, min(_BLOCK, len(data) // 2))
            one = int(chance.random() * (len(data) - 2 * size + 1))
            two = one + size + int(chance.random() * (len(data) - one - 2 * size + 1))
            data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]

    _edit(path, change)


def replace(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(int(chance.random() ** 2 * 5000)))


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def remove(path: Path, _: random.Random) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def become_directory(path: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()
    if chance.random() < 0.5:
        (path / "something").touch()


def become_loop(path: Path, _: random.Random) -> None:
    """A link to itself: nobody can read it, not even root."""
    path.unlink()
    path.symlink_to(path.name)


def become_dangling(path: Path, _: random.Random) -> None:
    path.unlink()
    path.symlink_to("nowhere/at-all")


def become_unreadable(path: Path, _: random.Random) -> None:
    path.chmod(0)  # root reads it nevertheless


def become_file(path: Path, chance: random.Random) -> None:
    shutil.rmtree(path)
    path.write_bytes(chance.randbytes(chance.randrange(100)))


def lose_contents(path: Path, _: random.Random) -> None:
    for one in path.iterdir():
        shutil.rmtree(one) if one.is_dir() else one.unlink()


OF_FILES = (
    flip,
    flip,
    flip,
    zero,
    overwrite,
    truncate,
    truncate,
    extend,
    extend_by_zeros,
    extend_by_itself,
    cut_out,
    swap_blocks,
    replace,
    empty,
    remove,
    remove,
    become_directory,
    become_loop,
    become_dangling,
    become_unreadable,
)
OF_DIRECTORIES = (remove, become_file, lose_contents)


def swap_files(data_dir: Path, chance: random.Random) -> list[Harm]:
    """Two files of one kind under each other's names."""
    kinds = {kind: paths for kind, paths in targets(data_dir).items() if len(paths) > 1 and kind != "directory"}
    (kind,) = choose(kinds, chance)
    one, two = choose_paths(kinds[kind], data_dir, chance, 2)
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)
    return [Harm("swap_files", kind, str(path.relative_to(data_dir))) for path in (one, two)]


def leave_strays(data_dir: Path, chance: random.Random) -> list[Harm]:
    """What a crash in the middle of something leaves, with noise or with somebody's old bytes in it."""
    rooms = [path for path in targets(data_dir).get("directory", []) if any(path.glob("*.log"))]
    (room,) = choose_paths(rooms, data_dir, chance)
    (segment,) = choose_paths(room.glob("*.log"), data_dir, chance)
    content = chance.choice((b"", chance.randbytes(300), segment.read_bytes()))
    base = chance.choice((segment.name[:20], f"{chance.randrange(10_000):020d}", "9" * 20))
    suffix = chance.choice(
        (
            ".log.cleaned",
            ".index.cleaned",
            ".log.swap",
            ".index.swap",
            ".timeindex.swap",
            ".log.deleted",
            ".snapshot.deleted",
            ".snapshot",
            ".index",
            ".txnindex",
            ".tmp",
            ".log.swap",
        )
    )
    made = [room / f"{base}{suffix}"]
    made[0].write_bytes(content)
    for ending in chance.sample(("-delete", "-stray", "-future"), 2):
        made.append(data_dir / f"{room.name}{_RETIRED}{ending}")
        made[-1].mkdir(exist_ok=True)
        (made[-1] / segment.name).write_bytes(content)
    made.append(data_dir / chance.choice(("nobody-0", "x-99999999999999999999", "-0", "0", "noise.tmp", "a-b-c")))
    made[-1].mkdir(exist_ok=True)
    return [Harm("leave", suffix if path == made[0] else "directory", str(path.relative_to(data_dir))) for path in made]


def harm(data_dir: Path, draw: str) -> list[Harm]:
    """One to three things, each to a kind of file chosen without regard to how many files are of it."""
    done: list[Harm] = []
    for turn in range(random.Random(draw).choice((1, 1, 1, 2, 3))):
        done += _harm_once(data_dir, random.Random(f"{draw}/{turn}"))
    return done


def _harm_once(data_dir: Path, chance: random.Random) -> list[Harm]:
    lot = chance.random()
    if lot < 0.08:
        return swap_files(data_dir, chance)
    if lot < 0.16:
        return leave_strays(data_dir, chance)
    kinds = targets(data_dir)
    (kind,) = choose(kinds, chance)
    (path,) = choose_paths(kinds[kind], data_dir, chance)
    if path.is_symlink():
        return []
    change = chance.choice(OF_DIRECTORIES if path.is_dir() else OF_FILES)
    change(path, chance)
    return [Harm(change.__name__, kind, str(path.relative_to(data_dir)))]
