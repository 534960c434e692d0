"""Jars by Maven coordinates, copied once into a cache. Maven itself decides where they come from."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

KAFKA_VERSION = "4.3.1"
REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
_POM = Path(__file__).with_name("pom.xml")
_MINIMUM_JAVA = 17


class MissingToolError(Exception):
    """Java or Maven is not there: whatever needs it is skipped, by this name."""


def cache_directory() -> Path:
    """XDG_CACHE_HOME/kbroker where that is set, else .cache in the repository."""
    xdg = os.environ.get("XDG_CACHE_HOME")
    return Path(xdg) / "kbroker" if xdg else REPOSITORY_ROOT / ".cache"


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Two test runs, or two workers of one, may start at once: one makes what is missing, the other finds it made."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with open(cache_directory() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@lru_cache(maxsize=1)
def java() -> str:
    """The path of a Java that is new enough, or MissingToolError."""
    home = os.environ.get("JAVA_HOME")
    candidate = Path(home) / "bin" / "java" if home else None
    found = str(candidate) if candidate is not None and candidate.exists() else shutil.which("java")
    if found is None:
        raise MissingToolError("java is not installed")
    banner = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', banner)
    if version is None or int(version.group(1)) < _MINIMUM_JAVA:
        raise MissingToolError(f"java is older than {_MINIMUM_JAVA}")
    return found


def maven_jars(pom: Path, name: str) -> Path:
    """The directory that holds every jar the pom names and needs. Filled by `mvn` on first use, then only read."""
    target = cache_directory() / name
    done = target / ".complete"
    if done.exists() and done.read_text() == pom.read_text():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingToolError("mvn is not installed")
    with one_at_a_time(name):
        if done.exists() and done.read_text() == pom.read_text():
            return target
        shutil.rmtree(target, ignore_errors=True)
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        fetched = subprocess.run(command, capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            raise MissingToolError(f"mvn could not bring {name}: {fetched.stdout.strip()[-400:]}")
        done.write_text(pom.read_text())
    return target


def compiled(source: Path, class_path: str) -> Path:
    """The classes of one Java file as a jar, named by what they were made from; made on first use.

    A JVM keeps no archive of classes for a path with directories.
    """
    target = cache_directory() / source.stem / f"{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.jar"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as made:
            compiler = Path(java()).resolve().with_name("javac")
            command = [str(compiler), "-cp", class_path, "-d", f"{made}/classes", str(source)]
            subprocess.run(command, check=True, capture_output=True)
            shutil.make_archive(f"{made}/jar", "zip", f"{made}/classes")
            Path(made, "jar.zip").rename(target)
    return target


def quick_start(main_class: str) -> list[str]:
    """JVM options that halve the start of a short program: small collector, quick compiler, an archive of classes.

    The first run of a class leaves the archive when it exits; a JVM that cannot use one starts without it.
    """
    archives = cache_directory() / f"apache-kafka-{KAFKA_VERSION}-classes"
    archives.mkdir(parents=True, exist_ok=True)
    archive = _archive(archives, main_class)
    own = archives / f"{main_class}.{uuid.uuid4().hex}.jsa-made"
    share = f"-XX:SharedArchiveFile={archive}" if archive.exists() else f"-XX:ArchiveClassesAtExit={own}"
    # What the JVM has to say about archives would stand on stdout, among the answers.
    return [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        share,
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
    ]


def _archive(archives: Path, main_class: str) -> Path:
    """Where the archive of a class is, or will be: JVMs that exit at the same moment each write one of their own.

    The first that is whole is taken. A JVM writes the header last; until then zeros stand in its place.
    """
    archive = archives / f"{main_class}.jsa"
    for made in archives.glob(f"{main_class}.*.jsa-made"):
        with suppress(FileNotFoundError):  # another process is at it, too
            if archive.exists():
                made.unlink()
            elif _begins(made):
                made.rename(archive)
    return archive


def _begins(archive: Path) -> bool:
    with archive.open("rb") as file:
        return file.read(4).strip(b"\0") != b""


@lru_cache(maxsize=1)
def kafka_class_path() -> str:
    java()
    return str(maven_jars(_POM, f"apache-kafka-{KAFKA_VERSION}") / "*")
