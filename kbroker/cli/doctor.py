"""`kbroker doctor`: can a broker run here, and what is the state of its data directory? One line a check; exit code 1
if one fails.

`--deep` reads all of a data directory instead: 0 when it is sound, 1 when something was found, 2 when it cannot be
looked at, because a broker has it, or because it is none.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

OPEN_FILES_MIN = 1024  # below it a broker with a few hundred partitions and clients runs out


class Finding(NamedTuple):
    good: bool
    subject: str
    text: str


@click.command("doctor", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="The data directory to look at.  [default: where `kbroker start` keeps it]",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="The port a broker would listen on."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address it would listen on.")
@click.option("--deep", is_flag=True, help="Read the whole data directory instead, and name what is damaged in it.")
def command(data_dir: Path | None, port: int, host: str, deep: bool) -> None:
    """Check whether a broker can run here, and what a data directory holds."""
    from kbroker.config import Config

    directory = data_dir if data_dir is not None else Config().log_dirs[0]
    if deep:
        from kbroker.cli.deep import look

        sys.exit(look(directory))
    findings = [
        *check_python(),
        *check_codecs(),
        check_open_files(),
        check_port(host, port),
        *check_data_dir(directory),
    ]
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        mark = click.style("✓", fg="green") if finding.good else click.style("✗", fg="red")
        click.echo(f"{mark} {finding.subject:{width}}  {finding.text}")
    sys.exit(0 if all(finding.good for finding in findings) else 1)


def check_python() -> Iterator[Finding]:
    yield Finding(
        sys.version_info >= (3, 10), "python", f"{platform.python_implementation()} {platform.python_version()}"
    )
    try:
        from kbroker._core import core
    except ImportError as problem:
        yield Finding(False, "data plane", f"the compiled modules do not load: {problem}")
        return
    yield Finding(True, "data plane", f"compiled ({Path(core.__file__).suffixes[0].strip('.')})")


def check_codecs() -> Iterator[Finding]:
    try:
        from kbroker._core.record import compression, crc32c
    except ImportError as problem:
        yield Finding(False, "codecs", f"the compiled modules do not load: {problem}")
        return
    yield Finding(True, "crc32c", crc32c.engine())
    for codec, engine in compression.engines().items():
        yield Finding(True, codec, engine)


def check_open_files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} may be open at once (hard limit {hard})"
    if soft < OPEN_FILES_MIN:
        return Finding(False, "open files", f"only {text}: raise it with `ulimit -n`")
    return Finding(True, "open files", text)


def check_port(host: str, port: int) -> Finding:
    subject = f"port {port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the broker: a closed connection's rest does not count
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                return Finding(False, subject, f"is in use on {host}: stop what listens there, or choose another port")
            return Finding(False, subject, f"cannot be listened on at {host}: {os.strerror(problem.errno or 0)}")
    return Finding(True, subject, f"is free on {host}")


def check_data_dir(directory: Path) -> Iterator[Finding]:
    from kbroker.storage.identity import DataDirectoryError
    from kbroker.storage.log_dir import CLEAN_SHUTDOWN, identify
    from kbroker.storage.strays import strays_in

    subject = "data directory"
    if not directory.exists():
        nearest = next(parent for parent in directory.absolute().parents if parent.exists())
        if os.access(nearest, os.W_OK):
            yield Finding(True, subject, f"{directory} does not exist yet; the first start makes it")
        else:
            yield Finding(False, subject, f"{directory} does not exist and cannot be made in {nearest}")
        return
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        yield Finding(False, subject, f"{directory} is not a directory that this user may write")
        return
    try:
        meta = identify(directory)
    except DataDirectoryError as problem:
        yield Finding(False, subject, str(problem))
        return
    if meta is None:
        yield Finding(True, subject, f"{directory} is not formatted yet; the first start does it")
        return
    yield Finding(True, subject, f"{directory} belongs to node {meta.node_id} of cluster {meta.cluster_id}")
    if is_locked(directory):
        yield Finding(False, "lock", "another broker has the directory open")
    else:
        yield Finding(True, "lock", "no broker has the directory open")
        clean = (directory / CLEAN_SHUTDOWN).exists()
        text = "clean" if clean else "not clean: the next start checks what may be torn"
        yield Finding(True, "last stop", text)
    for path in strays_in(directory):
        yield Finding(True, "stray", f"{path.name} belongs to no topic: remove it, unless somebody misses its records")


def is_locked(directory: Path) -> bool:
    """Whether a broker, ours or Apache's, has the directory. Nothing is created and nothing stays locked."""
    import fcntl

    from kbroker.storage.log_dir import LOCK

    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
