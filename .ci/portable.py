"""Builds the portable core in build/portable, with an environment of its own: build/portable/.venv/bin/python.

    .venv/bin/python .ci/portable.py

The portable core uses no system call that macOS lacks (KBROKER_PORTABLE=1, see kbroker/_core/c/platform.h). Only the
modules whose C includes platform.h differ from the native build, so only they are compiled; the others are copied from
this checkout. The environment finds kbroker in build/portable and everything else in the environment that runs this
script, also in a process that a test starts in another directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREE = ROOT / "build" / "portable"
CORE = Path("kbroker/_core")
LEFT_OUT = (".git", ".venv", ".cache", ".*_cache", ".hypothesis", "build", "dist", "*.egg-info", "__pycache__")


def copy_tree() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.copytree(ROOT, TREE, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (ROOT / ".cache").mkdir(exist_ok=True)
    (TREE / ".cache").symlink_to(ROOT / ".cache")  # Apache Kafka and clients that the compat tests download
    for libraries in (ROOT / "build").glob("lib.*"):  # setup.py compiles the modules that are missing here
        shutil.copytree(libraries, TREE / "build" / libraries.name)
    shutil.copy2(ROOT / "build" / "recipe.txt", TREE / "build")  # and all modules if this file changes


def platform_modules(root: Path) -> list[Path]:
    """Return the C files that include platform.h, directly or through a header beside it."""
    headers = [path for path in (root / CORE / "c").glob("*.h") if '"kbroker/_core/c/platform.h"' in path.read_text()]
    names = [f'"{CORE}/c/{header.name}"' for header in (*headers, Path("platform.h"))]
    sources = [path for path in (root / CORE).rglob("*.c") if path.parent != root / CORE / "c"]
    return [source for source in sources if any(name in source.read_text() for name in names)]


def compile_core() -> None:
    modules = platform_modules(TREE)
    if not modules:
        sys.exit("no C file includes platform.h: run `make build` first")
    for source in modules:
        for library in (TREE / "build").glob(f"lib.*/{source.relative_to(TREE).with_suffix('')}.*.so"):
            library.unlink()
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=TREE,
        env={**os.environ, "CFLAGS": f"{os.environ.get('CFLAGS', '')} -DKBROKER_PORTABLE=1"},
        check=True,
    )
    print(f"      {len(modules)} modules compiled without Linux's system calls", flush=True)


def make_environment() -> None:
    place = TREE / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "portable.pth").write_text(f"{TREE}\n{sysconfig.get_path('purelib')}\n")
    for name in ("kbroker", "py.test", "pytest"):
        script = Path(sys.executable).with_name(name)
        if script.exists():
            body = script.read_text().split("\n", 1)[1]
            copy = place / "bin" / name
            copy.write_text(f"#!{place / 'bin' / 'python'}\n{body}")
            copy.chmod(0o755)
    code = "import kbroker._core.core as core; print(core.__file__); assert core.IS_PORTABLE_BUILD"
    command = [str(place / "bin" / "python"), "-c", code]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout.strip()
    if not found.startswith(str(TREE)):
        sys.exit(f"the environment imports {found} instead of the portable core")


if __name__ == "__main__":
    copy_tree()
    compile_core()
    make_environment()
