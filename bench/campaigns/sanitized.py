"""Both halves of the fuzz campaign against a build with gcc's address and undefined-behaviour sanitizers.

The build lives in a tree of its own (`make sanitize` makes it), so that the ordinary one is not touched. The parsers
get their share of input in processes that run that build; then a broker of that build is attacked through its sockets
by the same campaign as every other. Any report of a sanitizer ends its process, and so the campaign.

Leaks are judged by resident memory and by the broker's own counters: LeakSanitizer sees the interpreter's, not ours.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.campaigns import fuzz

HOME = Path(__file__).parents[2] / "build" / "sanitized"
PROCESSES = os.cpu_count() or 1
KINDS = ("frame", "message", "batch", "stream")
ASAN = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:quarantine_size_mb=16:handle_abort=1"
UBSAN = "print_stacktrace=1:halt_on_error=1:abort_on_error=1"


def environment() -> dict[str, str]:
    """What makes the interpreter, which is not sanitized, run modules that are. Its own memory comes from malloc, so
    that a read past the end of a bytes object is seen too."""
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": ASAN,
        "UBSAN_OPTIONS": UBSAN,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(HOME),
    }


def parse(count: int, seed: int, number: int) -> Counter[str]:
    """`count` inputs, shared among the processors."""
    with tempfile.TemporaryDirectory(prefix="kbroker-sanitized-") as directory:
        running = []
        for i in range(PROCESSES):
            in_hand = Path(directory) / f"input-{i}"
            command = [sys.executable, "-m", "bench.campaigns.parsers", "--in-hand", str(in_hand)]
            command += ["--inputs", str(count // PROCESSES + (i < count % PROCESSES))]
            command += ["--seed", f"{seed}/parsers/{i}", "--corpus", str(number)]
            child = subprocess.Popen(
                command,
                cwd=HOME,
                env={**os.environ, **environment()},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            running.append((child, in_hand))
        score: Counter[str] = Counter()
        failures = []
        for child, in_hand in running:
            told, complaint = child.communicate()
            if child.returncode != 0:
                held = in_hand.read_bytes()
                kind, size = int.from_bytes(held[:4], "big"), int.from_bytes(held[4:8], "big")
                failures.append(f"{complaint[-6000:]}\nthe {KINDS[kind]} in hand: {held[8 : 8 + size].hex()}")
            else:
                score += Counter(json.loads(told))
    if failures:
        raise AssertionError("\n".join(failures))
    return score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000_000, help="for the parsers")
    parser.add_argument("--frames", type=int, default=200_000, help="through sockets")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    arguments = parser.parse_args()
    print(f"sanitized: {arguments.inputs} inputs, {arguments.frames} frames, seed {arguments.seed}", flush=True)
    began = time.monotonic()
    score = parse(arguments.inputs, arguments.seed, arguments.seed)
    print(f"sanitized: parsers, {time.monotonic() - began:.0f} s: {dict(sorted(score.items()))}", flush=True)
    if arguments.frames:
        fuzz.campaign(arguments.frames, arguments.seed, fuzz.Terms.sanitized(HOME, environment()))
    print("sanitized: nothing was reported")


if __name__ == "__main__":
    main()
