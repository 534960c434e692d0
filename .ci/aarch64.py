"""Installs the aarch64 wheel of `make dist`, starts its broker and runs the unit layer under qemu's user emulation.

    python .ci/aarch64.py [--python 3.11] [--jobs 2] [-- arguments for pytest]

build/aarch64 holds Debian's qemu, a root of Debian's arm64 packages with that CPython, and an environment whose
`bin/python` is a script that starts the root's CPython in qemu. Child processes that a test starts with
`sys.executable` run that script too. No root privileges and no binfmt_misc are needed; apt-get and dpkg-deb are.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from dist import DIST, ROOT, environment, interpreter, step

WORK = ROOT / "build" / "aarch64"
SUITES = {"3.11": "bookworm", "3.13": "trixie"}  # which release of Debian has which CPython
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LIBRARIES = ("libstdc++6", "liblz4-1", "libsnappy1v5", "libzstd1", "zlib1g")  # google-re2 and the codecs open these
PLATFORMS = [f"manylinux_2_{minor}_aarch64" for minor in (28, 26, 24, 17)] + ["manylinux2014_aarch64"]
NOT_NEEDED = ("mypy", "pyspark", "ruff")  # of the test extra: no unit test imports them
TESTS = ("kbroker/tests", "bench/campaigns", "bench/test_picture.py")
# Tests that cannot pass in qemu's user emulation, each with the reason.
NO_RESIDENCY = "qemu has no cachestat; without it the first byte of a slice decides, which planning the fetch has read"
COLD_SLICES = "kbroker/tests/unit/net/test_data.py::test_cold_slices_are_read_by_another_thread"
DESELECTED = {f"{COLD_SLICES}[{way}]": NO_RESIDENCY for way in ("epoll", "moving")}


def apt(suite: str, machine: str, *arguments: str) -> Path:
    """Run apt-get with package lists of its own, as if nothing were installed, and return the folder of its files."""
    place = WORK / f"apt-{suite}-{machine}"
    for folder in ("lists/partial", "archives/partial"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    (place / "status").touch()
    sources = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {suite} main\n"
    (place / "sources.list").write_text(sources)
    settings = {
        "Dir::State": place,
        "Dir::State::lists": place / "lists",
        "Dir::State::status": place / "status",
        "Dir::Cache": place,
        "Dir::Cache::archives": place / "archives",
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": machine,
        "APT::Architectures": machine,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Debug::NoLocking": "1",
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", "-qq", *options, *arguments], check=True, cwd=place, stdout=subprocess.DEVNULL)
    return place


def unpacked(suite: str, machine: str, place: Path, *packages: str) -> Path:
    """Unpack Debian's packages with everything they depend on into a folder, once; return the folder."""
    if (place / ".ready").exists():
        return place
    step(f"{', '.join(packages)} of Debian {suite} for {machine}")
    apt(suite, machine, "update")
    store = apt(suite, machine, "install", "--download-only", "--yes", "--no-install-recommends", *packages)
    shutil.rmtree(place, ignore_errors=True)
    for package in sorted((store / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(package), str(place)], check=True)
    for name in ("bin", "lib"):  # links that the package base-files would bring
        if not (place / name).exists():
            (place / name).symlink_to(f"usr/{name}")
    (place / ".ready").touch()
    return place


def requirements(wheel: Path) -> list[str]:
    """Return what the wheel needs and what its test extra names, without the tools that no unit test imports."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = re.findall(r"^Requires-Dist: ([^;\n]+?)(?:; extra == \"(\w+)\")?$", archive.read(name).decode(), re.M)
    return [text for text, extra in lines if extra in ("", "test") and not text.startswith(NOT_NEEDED)]


def make_environment(qemu: Path, root: Path, version: str, host: Path, wheel: Path) -> Path:
    """Return `bin/python` of an environment with the wheel and the requirements; those are installed once."""
    place = WORK / f"env-{version}"
    site = place / "lib" / f"python{version}" / "site-packages"
    python = place / "bin" / "python"
    pip = [str(host), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    pip += ["--target", str(site), "--python-version", version, "--implementation", "cp", "--only-binary", ":all:"]
    pip += [part for platform in PLATFORMS for part in ("--platform", platform)]
    needed = requirements(wheel)
    noted = place / "requirements.txt"
    if not noted.exists() or noted.read_text() != "\n".join(needed):
        step("wheels of the dependencies for aarch64")
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([*pip, *needed], check=True)
        noted.write_text("\n".join(needed))
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    python.parent.mkdir(exist_ok=True)
    real = root / "usr" / "bin" / f"python{version}"
    (place / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = false\n")
    python.write_text(f'#!/bin/sh\nexec {qemu} -L {root} -0 {python} {real} "$@"\n')
    command = python.with_name("kbroker")
    command.write_text(f"#!{python}\nfrom kbroker.cli import main\n\nmain()\n")
    for script in (python, command):
        script.chmod(0o755)
    return python


def make_tree(wheel: Path, version: str) -> Path:
    """Return a copy of what git tracks with the wheel unpacked over it: the tests beside the wheel's modules."""
    tree = WORK / f"tree-{version}"
    shutil.rmtree(tree, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name)
    (tree / ".git").write_text(f"gitdir: {ROOT / '.git'}\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)
    return tree


def run_tests(python: Path, tree: Path, jobs: int, arguments: list[str]) -> None:
    for test, reason in DESELECTED.items():
        print(f"   deselected: {test}: {reason}", flush=True)
    chosen = arguments if any(not argument.startswith("-") for argument in arguments) else [*arguments, *TESTS]
    deselect = [part for test in DESELECTED for part in ("--deselect", test)]
    pytest = [str(python), "-m", "pytest", "-n", str(jobs), "-rs", "-p", "no:cacheprovider", "-o", "timeout=1800"]
    began = time.monotonic()
    subprocess.run([*pytest, *deselect, *chosen], cwd=tree, check=True)
    print(f"   {len(DESELECTED)} tests deselected by name; {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", choices=list(SUITES), default="3.11", help="the CPython to run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("pytest", nargs="*", help="arguments for pytest instead of the unit layer's folders")
    options = parser.parse_args()
    version: str = options.python
    tag = "cp" + version.replace(".", "")
    found = interpreter(version)
    if found is None or shutil.which("apt-get") is None or not KEYRING.exists():
        raise SystemExit(f"needs CPython {version} with headers, apt-get and {KEYRING}")
    (wheel,) = DIST.glob(f"kbroker-*-{tag}-*_aarch64.whl")
    host = environment(found, version)
    qemu = unpacked("trixie", "amd64", WORK / "qemu", "qemu-user") / "usr" / "bin" / "qemu-aarch64"
    root = unpacked(SUITES[version], "arm64", WORK / f"root-{version}", f"python{version}", *LIBRARIES)
    python = make_environment(qemu, root, version, host, wheel)
    tree = make_tree(wheel, version)
    # The CPython here writes the same bytecode, ten times as fast as the emulated one.
    folders = [str(root / "usr" / "lib" / f"python{version}"), str(python.parents[1] / "lib"), str(tree)]
    subprocess.run([str(host), "-m", "compileall", "-qq", "-j", str(options.jobs), *folders], check=False)
    step(f"{wheel.name}: the installed command")
    installed = ROOT / "compat_tests" / "installed.py"
    subprocess.run([sys.executable, str(installed), str(python.with_name("kbroker"))], check=True, cwd=WORK)
    step(f"{wheel.name}: the unit layer")
    run_tests(python, tree, options.jobs, options.pytest)


if __name__ == "__main__":
    main()
