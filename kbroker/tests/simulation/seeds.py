"""The command of a simulation: many seeds, or one of them again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable


def main(what: str, troubles: str, run: Callable[[int], None]) -> int:
    parser = argparse.ArgumentParser(description=f"{what} under {troubles}")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--seed", type=int, help="this one only")
    wanted = parser.parse_args()
    seeds = range(wanted.seeds) if wanted.seed is None else [wanted.seed]
    began = time.monotonic()
    for seed in seeds:
        try:
            run(seed)
        except Exception:
            print(f"seed {seed} failed; again with --seed {seed}", file=sys.stderr)
            raise
    print(f"{len(seeds)} seeds of {what} held in {time.monotonic() - began:.0f} s")
    return 0
