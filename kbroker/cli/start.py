"""`kbroker start`: a broker in the foreground until SIGTERM or SIGINT.

Standard output carries exactly one line, once clients can connect; everything else is the log, on standard error.
Exit codes: 0 after a clean stop, 1 when the broker could not run, 2 when it was told something it cannot use.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbroker.observe.logging import BrokerLog

SWITCH_INTERVAL_S = 0.0005  # the control thread waits at most this long for a busy Python thread
NEW_OBJECTS_PER_COLLECTION = 10_000  # a request that creates thousands of partitions makes a hundred thousand
STOPPING = {signal.SIGINT, signal.SIGTERM}
START_GRACE_S = 1.0  # a start that has received a signal may go on for this long


@click.command("start", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--listeners", metavar="NAME://HOST:PORT,…", help="Where to listen.  [default: PLAINTEXT://127.0.0.1:9092]"
)
@click.option("--port", type=click.IntRange(0, 65535), help="Short for --listeners PLAINTEXT://127.0.0.1:PORT.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where topics are kept.  [default: ~/.local/share/kbroker]",
)
@click.option(
    "--config", "-c", "pairs", multiple=True, metavar="KEY=VALUE", help="A setting by its Kafka name; repeatable."
)
@click.option("--config-file", type=click.Path(path_type=Path, dir_okay=False), help="A server.properties file.")
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(  # noqa: PLR0917 - click names them
    listeners: str | None,
    port: int | None,
    data_dir: Path | None,
    pairs: tuple[str, ...],
    config_file: Path | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run a broker in the foreground.

    Settings come from the defaults, --config-file, KAFKA_ variables of the environment (KAFKA_NUM_PARTITIONS is
    num.partitions), --config and the other options; a later source overrides an earlier one.
    """
    if port is not None and listeners:
        raise click.UsageError("--port and --listeners exclude each other.")
    # Blocked before the imports and before the broker's threads exist: they inherit the mask, so that no system call of
    # theirs is interrupted. The thread of StopSignal unblocks the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    from kbroker._core.allocator import keep_little
    from kbroker.broker import Broker, StartError
    from kbroker.config import ConfigError
    from kbroker.observe.logging import BrokerLog
    from kbroker.sources import gather

    options = {"listeners": listeners} if listeners else {}
    if port is not None:
        options["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    if data_dir is not None:
        options["log.dirs"] = str(data_dir)
    try:
        config, warnings = gather(file=config_file, variables=os.environ, pairs=pairs, options=options)
    except ConfigError as problem:
        click.echo(f"kbroker: {problem}", err=True)
        sys.exit(2)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if not _malloc_is_set():
        keep_little()
    log = BrokerLog(log_format, log_level)
    for event, fields in warnings:
        log.warning(event, **fields)
    stop_signal = StopSignal(log)
    broker = Broker.from_config(config, log=log, on_failure=stop_signal.received.set)
    try:
        broker.start()
    except StartError as problem:
        log.close()
        click.echo(f"kbroker: {problem}", err=True)
        sys.exit(1)
    stop_signal.started.set()
    gc.freeze()  # what a start made stays
    gc.set_threshold(NEW_OBJECTS_PER_COLLECTION)
    click.echo(f"kbroker is ready at {broker.bootstrap_servers}")
    stop_signal.received.wait()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the process without waiting for a clean stop
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    broker.stop()
    log.close()
    if broker.failure is not None:
        click.echo(f"kbroker: {broker.failure}", err=True)
    sys.exit(1 if broker.failed else 0)


class StopSignal:
    """Waits for SIGINT or SIGTERM in a thread of its own, from before the broker starts.

    A signal during the start ends the process if the start takes longer than START_GRACE_S, as the recovery of a large
    log does. The files are then as after a crash, and the next start recovers them; a shorter start is finished first
    and followed by a clean stop.
    """

    def __init__(self, log: BrokerLog) -> None:
        self.started = Event()  # set by the main thread
        self.received = Event()  # a signal, or a failure that the broker cannot go on with
        self._log = log
        self._arrivals, arrived = os.pipe()
        os.set_blocking(arrived, False)
        # A thread that a debugger or a profiler has started before may receive the signal instead of ours: whichever
        # thread it is, the interpreter's handler writes a byte into the pipe.
        signal.set_wakeup_fd(arrived, warn_on_full_buffer=False)
        for one in STOPPING:
            signal.signal(one, _do_nothing)
        Thread(target=self._wait, name="kbroker-signals", daemon=True).start()

    def _wait(self) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        os.read(self._arrivals, 1)
        if not self.started.wait(START_GRACE_S):
            self._log.close(timeout_s=1.0)
            click.echo("kbroker: The start was interrupted; the next start begins with recovery.", err=True)
            os._exit(1)
        self.received.set()


def _do_nothing(_number: int, _frame: object) -> None:
    """Stands for the default action, which would end the process."""


def _malloc_is_set() -> bool:
    """Whoever started us has set it up by the environment, and knows best."""
    return any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
