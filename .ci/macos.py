"""Compiles every C file of the core for macOS, arm64 and x86_64, with zig's C compiler, which bundles Apple's headers.

    python .ci/macos.py [--quick]

Nothing is linked and nothing runs: the check finds calls, constants and struct fields that macOS does not have, and a
layout that Python code assumes and macOS does not use. Python.h is this machine's, configured for Linux. Its pyconfig.h
defines _POSIX_C_SOURCE, which hides Apple's extensions. CPython's pyconfig.h on macOS also defines _DARWIN_C_SOURCE,
which shows them, and so does this script. Nothing else of pyconfig.h had to change: all three systems are LP64.

--quick compiles only the files that use the system calls of kbroker/_core/c/platform.h.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from dist import environment
from portable import platform_modules

ROOT = Path(__file__).resolve().parents[1]
CORE = Path("kbroker/_core")
WORK = ROOT / "build" / "macos"
TARGETS = ("aarch64-macos", "x86_64-macos")
FLAGS = ("-std=gnu11", "-fno-strict-aliasing", "-Wall", "-Wno-unused-function", "-Wno-unreachable-code", "-Werror")

# kbroker/storage/log_dir.py packs a struct flock by hand.
LAYOUTS = """
#include <fcntl.h>
#include <stddef.h>
_Static_assert(sizeof(struct flock) == 24 && offsetof(struct flock, l_start) == 0 &&
               offsetof(struct flock, l_len) == 8 && offsetof(struct flock, l_pid) == 16 &&
               offsetof(struct flock, l_type) == 20 && offsetof(struct flock, l_whence) == 22,
               "struct flock is not packed as qqihh");
"""


def failure(python: Path, target: str, source: Path) -> str:
    """Compile one file; return the compiler's messages, or an empty string if it compiles."""
    output = WORK / target / ("-".join(source.with_suffix(".o").parts))
    answer = subprocess.run(
        [
            *(str(python), "-m", "ziglang", "cc", "-target", target, "-c", "-O0", "-o", str(output)),
            *("-D_DARWIN_C_SOURCE=1", "-I.", f"-I{sysconfig.get_path('include')}", *FLAGS, str(source)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stderr if answer.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the files that use platform.h")
    found = platform_modules(ROOT) if parser.parse_args().quick else (ROOT / CORE).rglob("*.c")
    sources = sorted(path.relative_to(ROOT) for path in found)
    python = environment(sys.executable, "{}.{}".format(*sys.version_info[:2]))
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "layouts.c").write_text(LAYOUTS)
    layouts = (WORK / "layouts.c").relative_to(ROOT)
    if not sources:
        sys.exit("no C files: run `make build` first")
    for target in TARGETS:
        (WORK / target).mkdir(exist_ok=True)
        check = partial(failure, python, target)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            failures = [messages for messages in pool.map(check, [layouts, *sources]) if messages]
        if failures:
            sys.exit(f"{target}: {len(failures)} of {len(sources)} C files do not compile\n" + "\n".join(failures))
        print(f"{target}: {len(sources)} C files compile", flush=True)


if __name__ == "__main__":
    main()
