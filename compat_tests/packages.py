"""Installs what `make dist` built, in empty environments, and runs the installed command.

The wheel is installed where every C compiler fails: neither kbroker nor a dependency may need one. `pip install` of an
sdist builds a wheel from it and installs that wheel. `make dist` has let pip do the first half; the second half is done
here. With --compile the sdist itself is installed, in pip's isolated build environment and with the system's compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the checkout in which `make dist` ran")
    parser.add_argument("--compile", action="store_true", help="install the sdist itself, not the wheel built from it")
    options = parser.parse_args()
    root: Path = options.root.resolve()
    place = root / "build" / "empty"
    version = "{}.{}".format(*sys.version_info[:2])
    (sdist,) = (root / "dist").glob("kbroker-*.tar.gz")
    tag = "cp" + version.replace(".", "")
    (wheel,) = (root / "dist").glob(f"kbroker-*-{tag}-{tag}-manylinux*_x86_64.whl")
    (from_sdist,) = (root / "build" / "dist" / f"source-{version}").rglob(f"kbroker-*-{tag}-{tag}-linux_x86_64.whl")
    package = sdist if options.compile else from_sdist
    print(f"wheel {wheel.name}, no compiler\nsdist {sdist.name}: {package.name}", flush=True)
    no_compiler = failing_compilers(place / "stubs")
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(try_out, wheel, place / "wheel", no_compiler, "--only-binary", ":all:"),
            pool.submit(try_out, package, place / "sdist", dict(os.environ)),
        ]
    for run in runs:
        run.result()


if __name__ == "__main__":
    main()
