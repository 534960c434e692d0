from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from compat_tests.leash import Leash, LeashedClient
from compat_tests.oracle.jars import MissingToolError, one_at_a_time

_SOURCE = Path(__file__).with_name("kafkajs")


def _command() -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingToolError("node is not installed")
    lock, done = _SOURCE / "package-lock.json", _SOURCE / "node_modules" / ".complete"
    with one_at_a_time("kafkajs"):
        if not done.exists() or done.read_text() != lock.read_text():
            fetched = subprocess.run([npm, "ci"], cwd=_SOURCE, capture_output=True, text=True, check=False)
            if fetched.returncode != 0:
                raise MissingToolError(f"npm could not bring kafkajs: {fetched.stderr.strip()[-400:]}")
            done.write_text(lock.read_text())
    return [node, str(_SOURCE / "client.js")]


class KafkaJsClient(LeashedClient):
    name = "kafkajs"
    version: str = json.loads((_SOURCE / "package.json").read_text())["dependencies"]["kafkajs"]
    sends_null_headers = False
    leash = Leash("kafkajs", _command)
