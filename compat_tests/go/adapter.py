from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from compat_tests.leash import Leash, LeashedClient
from compat_tests.oracle.jars import MissingToolError, cache_directory, one_at_a_time

_SOURCE = Path(__file__).with_name("franz")
_VERSION = re.search(r"twmb/franz-go v(\S+)", (_SOURCE / "go.mod").read_text())


def _command() -> list[str]:
    go = shutil.which("go")
    if go is None:
        raise MissingToolError("go is not installed")
    program = cache_directory() / "franz-go-client"
    command = [go, "build", "-o", str(program)]  # which leaves a program alone that is up to date
    with one_at_a_time(program.name):
        built = subprocess.run(command, cwd=_SOURCE, capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise MissingToolError(f"go could not build the client: {built.stderr.strip()[-400:]}")
    return [str(program)]


class FranzGoClient(LeashedClient):
    name = "franz-go"
    version = _VERSION.group(1) if _VERSION else "unknown"
    leash = Leash("franz-go", _command)
