"""Runs a function in a forked child and reports how the child ended."""

import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable

import kbroker

API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def answers(bootstrap_servers: str) -> bool:
    """Whether a broker at this address answers ApiVersions."""
    host, _, port = bootstrap_servers.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(API_VERSIONS_V0)
            return client.recv(12, socket.MSG_WAITALL)[4:8] == b"\0\0\0\x07"
    except ConnectionRefusedError:
        return False


def fork(work: Callable[[], object]) -> tuple[int, int]:
    """(pid, the read end of a pipe that closes when the child ends). A child's exception is exit code 1."""
    alive_read, alive_write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(alive_write)
        return pid, alive_read
    os.close(alive_read)
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int, alive: int, seconds: float = 20.0) -> int:
    """The exit code of a child; one that hangs is killed and counts as -9."""
    if not select.select([alive], [], [], seconds)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(alive)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_forked(work: Callable[[], object]) -> int:
    return ended(*fork(work))


def serve_round(broker: kbroker.Broker) -> None:
    assert answers(broker.bootstrap_servers)
    assert broker.data_dir.is_dir()
    assert broker.failure is None
