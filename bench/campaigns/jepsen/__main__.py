"""The command: a run, its troubles line by line, and the verdict."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.campaigns.jepsen.checker import Anomaly, check
from bench.campaigns.jepsen.history import History, Outcome
from bench.campaigns.jepsen.stage import Stage, Stuck
from bench.campaigns.jepsen.trouble import KINDS, troubles

SHOWN = 40


def play(asked: argparse.Namespace, home: Path) -> tuple[History, list[Anomaly]]:
    seconds, seed = asked.seconds, asked.seed
    stage = Stage(home, seed, asked.broker)
    try:
        stage.begin()
        for actor in stage.actors:
            stage.go_on(actor.id, 1)
        began = time.monotonic()
        for trouble in troubles(seed, seconds, asked.spare):
            time.sleep(max(0.0, began + trouble.at_s - time.monotonic()))
            if time.monotonic() > began + seconds:
                break  # on a slow machine everything takes longer than it should
            print(f"jepsen: {time.monotonic() - began:7.1f} s  {trouble}", flush=True)
            stage.suffer(trouble)
            stage.revive()
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        history = stage.finish()
        if stage.hung:
            print(f"jepsen: hung: {', '.join(stage.hung)}", flush=True)
        return history, check(history)
    finally:
        stage.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="jepsen")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--broker", choices=("kbroker", "apache"), default="kbroker")
    parser.add_argument("--spare", action="append", choices=sorted(KINDS), default=[], help="trouble that is left out")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    home = asked.keep or Path(tempfile.mkdtemp(prefix="kbroker-jepsen-"))
    home.mkdir(parents=True, exist_ok=True)
    print(f"jepsen: seed {asked.seed}, {asked.seconds:.0f} s on {asked.broker}", flush=True)
    try:
        history, found = play(asked, home)
    except Stuck as stuck:
        print(f"jepsen: {stuck}\njepsen: everything is kept in {home}")
        return 1
    told = Counter(one.outcome for one in history.operations if one.transactional and one.sends)
    held = sum(len(records) for records in history.final.values())
    print(
        f"jepsen: {told[Outcome.OK]} transactions committed, {told[Outcome.FAILED]} failed, "
        f"{told[Outcome.UNKNOWN]} unknown; {held} records at the end"
    )
    for anomaly in found[:SHOWN]:
        print(f"jepsen: {anomaly}")
    if found:
        print(f"jepsen: {len(found)} anomalies; diaries and data are kept in {home}; --seed {asked.seed} is its seed")
        return 1
    if not told[Outcome.OK]:
        print("jepsen: nothing was committed, so nothing was seen")
        return 1
    print("jepsen: no anomalies")
    if asked.keep is None:
        shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
