"""Installs the sdist and the wheel of `make dist`, each in an empty environment, and runs the installed command.

The wheel is installed where every C compiler fails: neither kbroker nor a dependency may need one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

INSTALLED = Path(__file__).with_name("installed.py").resolve()
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "x86_64-linux-gnu-gcc")


def failing_compilers(place: Path) -> dict[str, str]:
    """Return an environment in which each compiler's name runs a command that fails."""
    place.mkdir(parents=True)
    for name in COMPILERS:
        stub = place / name
        stub.write_text("#!/bin/sh\necho 'no compiler here' >&2\nexit 1\n")
        stub.chmod(0o755)
    assert subprocess.run([str(place / "cc"), "--version"], check=False, capture_output=True).returncode == 1
    return {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "CC": "false", "CXX": "false"}


def try_out(package: Path, place: Path, variables: dict[str, str], *options: str) -> None:
    """Install the package in an empty environment and let installed.py start and stop its broker."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    python = str(place / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options, str(package)]
    subprocess.run(pip, env=variables, cwd=place, check=True)
    subprocess.run([python, str(INSTALLED), "bin/kbroker"], env=variables, cwd=place, check=True)


def main(dist: Path, place: Path) -> None:
    (sdist,) = dist.glob("kbroker-*.tar.gz")
    tag = "cp{}{}".format(*sys.version_info[:2])
    (wheel,) = dist.glob(f"kbroker-*-{tag}-{tag}-manylinux*_x86_64.whl")
    print(f"wheel {wheel.name}, no compiler", flush=True)
    try_out(wheel, place / "wheel", failing_compilers(place / "stubs"), "--only-binary", ":all:")
    print(f"sdist {sdist.name}", flush=True)
    try_out(sdist, place / "sdist", dict(os.environ))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
