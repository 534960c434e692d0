"""The installed command, outside of any checkout: it says where it listens, answers a client, and stops cleanly."""

from __future__ import annotations

import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 7, -1)


def main(command: str) -> None:
    subprocess.run([command, "--version"], check=True)
    with tempfile.TemporaryDirectory() as data_dir:
        broker = subprocess.Popen(
            [command, "start", "--listeners", "PLAINTEXT://127.0.0.1:0", "--data-dir", data_dir],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert broker.stdout is not None
        place = re.search(r"127\.0\.0\.1:(\d+)", broker.stdout.readline())
        assert place is not None, "no ready line"
        with socket.create_connection(("127.0.0.1", int(place.group(1))), timeout=30) as client:
            client.sendall(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
            _size, correlation_id, error = struct.unpack(">iih", client.recv(10, socket.MSG_WAITALL))
        assert (correlation_id, error) == (7, 0), (correlation_id, error)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0, broker.returncode
        assert (Path(data_dir) / ".kafka_cleanshutdown").exists()
    print("the installed command works")


if __name__ == "__main__":
    main(sys.argv[1])
