"""Signals before a broker is ready, in a host with threads of its own, and twice: when and how the process ends."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
ENTRY = re.search(r'^kbroker = "([\w.]+):(\w+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
assert ENTRY is not None
MODULE = "import runpy; runpy.run_module('kbroker', run_name='__main__')"
CONSOLE_SCRIPT = f"from {ENTRY[1]} import {ENTRY[2]}; sys.exit({ENTRY[2]}())"  # as pip writes it

# Sends SIGINT to the process when it imports the module that the first argument names.
INTERRUPT_AT_IMPORT = """
import os, signal, sys
at = sys.argv.pop(1)
sys.argv[0] = "kbroker"
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == at:
            print("interrupted", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
"""

# Stands in for the recovery of a large log.
RECOVER_FOR_EVER = """
import sys, threading
from kbroker.cli import start
from kbroker.server.broker_server import LogDirs
def open(*arguments, **options):
    print("recovering", flush=True)
    threading.Event().wait()
LogDirs.open = open
start.START_GRACE_S = 0.05
sys.argv[0] = "kbroker"
"""

THREAD_OF_A_DEBUGGER = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.argv[0] = "kbroker"
"""

WAIT_BEFORE_THE_STOP = """
import sys
from kbroker.broker import Broker
def stop(broker, stop=Broker.stop):
    print("stopping", flush=True)
    sys.stdin.readline()
    stop(broker)
Broker.stop = stop
sys.argv[0] = "kbroker"
"""

STOP_FOR_EVER = """
import sys, threading
from kbroker.broker import Broker
def stop(broker):
    print("stopping", flush=True)
    threading.Event().wait()
Broker.stop = stop
sys.argv[0] = "kbroker"
"""


@pytest.mark.parametrize(
    ("way_in", "at"),
    [
        (MODULE, "click"),
        (MODULE, "kbroker.broker"),
        (CONSOLE_SCRIPT, "click"),
        (CONSOLE_SCRIPT, "kbroker.cli.start"),
    ],
)
def test_ctrl_c_during_an_import_prints_no_traceback(way_in: str, at: str, tmp_path: Path) -> None:
    arguments = ["start", "--port", "0", "--data-dir", str(tmp_path / "data")]
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPT_AT_IMPORT + way_in, at, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.stdout.startswith("interrupted\n"), ran
    assert ran.returncode in {0, 1}  # 0: the start was nearly over, and a clean stop followed it
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_long_recovery_ends_the_start_with_one_sentence(sign: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RECOVER_FOR_EVER + CONSOLE_SCRIPT, "start", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "recovering\n"
            process.send_signal(sign)
            _, errors = process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == 1
    assert errors == "kbroker: The start was interrupted; the next start begins with recovery.\n"


def test_a_second_ctrl_c_ends_a_stop_that_takes_long(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STOP_FOR_EVER + CONSOLE_SCRIPT, "start", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("kbroker is ready")
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "stopping\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == -signal.SIGINT
        finally:
            process.kill()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_clean_stop_also_beside_threads_that_existed_before(sign: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", THREAD_OF_A_DEBUGGER + CONSOLE_SCRIPT, "start", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("kbroker is ready")
            process.send_signal(sign)
            assert process.wait(timeout=10) == 0
        finally:
            process.kill()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_second_sigterm_does_not_cut_the_stop_short(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAIT_BEFORE_THE_STOP + CONSOLE_SCRIPT, "start", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("kbroker is ready")
            process.terminate()
            assert process.stdout.readline() == "stopping\n"
            process.terminate()
            process.communicate("go on\n", timeout=10)
        finally:
            process.kill()
    assert process.returncode == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
