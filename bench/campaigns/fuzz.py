"""The fuzz campaign: hostile input through real sockets. No crash, no leak, no hang, memory back to its level, others
undisturbed.

First the attacks that have a name, then rounds of mutated requests from several processes; a witness watches all the
while. The attacks are repeated until they leave memory where they found it. Each round has fresh topics, so that logs
stay small. At the end the broker must hold nothing: its own counters, its descriptors and its resident memory are
compared with their level before. An error in its log is a failure too.

The seed is printed; with it, and the round, the same frames are made again. What was sent last before a failure is kept
in build/fuzz-offence.txt.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import random
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench import frames
from bench.campaigns import absurd_groups, hostile  # noqa: F401 - the former for its attack
from bench.campaigns.barrage import OffenceError, volley
from bench.campaigns.seeds import PARTITIONS, SHELF, TOPIC, Corpus
from bench.campaigns.victim import Victim
from bench.campaigns.wire import Wire
from bench.campaigns.witness import CONNECTIONS, Testimony, Witness
from bench.campaigns.witness import TOPIC as WITNESSED
from kbroker.protocol import codec
from kbroker.protocol.messages import MetadataResponse

OFFENCE = Path(__file__).parents[2] / "build" / "fuzz-offence.txt"
PROCESSES = 2
ROUND = 50_000  # frames
WARM = 10_000  # frames before the level of memory is taken
PASSES_MAX = 8  # of the attacks, until memory stands: each network thread's pools fill only when it meets the largest
SEGMENTS = 4  # files of a log that one round opens and another does not
BYSTANDERS = CONNECTIONS + 2  # the witness, and what the admin client keeps open


@dataclass(frozen=True)
class Terms:
    """What is asked of the broker. A sanitized one is slow, and keeps freed memory for a while."""

    hang_seconds: float = 5.0
    growth_max_mib: float = 24.0  # from warm to the end: a leak
    stands_mib: float = 4.0  # from one pass of the attacks to the next: memory stands
    kept_max_mib: float = 128.0  # from cold to warm: what allocator and interpreter keep of the largest requests
    slack_mib: float = 0.0
    home: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def sanitized(cls, home: Path, environment: dict[str, str]) -> Terms:
        return cls(
            hang_seconds=30.0,
            growth_max_mib=96.0,
            stands_mib=32.0,
            kept_max_mib=512.0,
            slack_mib=96.0,
            home=home,
            environment=environment,
        )


@dataclass
class Level:
    """What the broker takes when nobody asks anything of it."""

    resident_mib: float
    kept_mib: float  # by the allocator, on top of that
    descriptors: int

    @classmethod
    def of(cls, victim: Victim, connections: int) -> Level:
        renew(victim)
        victim.wait_until_nothing_is_held(connections)
        before = victim.resident_mib()
        victim.trim()
        return cls(victim.resident_mib(), before - victim.resident_mib(), victim.descriptors())


def renew(victim: Victim) -> tuple[bytes, bytes]:
    """Fresh topics under the old names, and their ids."""
    victim.fresh_topics({TOPIC: PARTITIONS, SHELF: PARTITIONS}, {WITNESSED})
    found = []
    for name in (TOPIC, SHELF):
        with Wire(victim.port) as wire:
            _, told = codec.decode_response(MetadataResponse, 12, wire.ask(frames.metadata(name)))
        found.append(told.topics[0].topic_id)
    return found[0], found[1]


def attack_by_name(victim: Victim, seed: int, terms: Terms, only: str | None, *, quiet: bool = False) -> None:
    place = hostile.Field(
        victim, Corpus(seed), random.Random(seed), 2 * terms.hang_seconds, BYSTANDERS, terms.slack_mib
    )
    for attack in hostile.ATTACKS:
        if only in (None, attack.__name__):
            began = time.monotonic()
            told = attack(place)
            victim.wait_until_nothing_is_held(BYSTANDERS)
            took, holds = time.monotonic() - began, victim.resident_mib()
            if not quiet:
                print(f"fuzz: {attack.__name__}: {told} ({took:.1f} s, then {holds:.0f} MiB)", flush=True)


def warm_up(victim: Victim, witness: Witness, seed: int, terms: Terms, *, level: Level, only: str | None) -> Level:
    """The attacks again and again, until a pass of them leaves memory as it was before. A leak never does."""
    for count in range(2, PASSES_MAX + 1):
        before = level
        attack_by_name(victim, seed, terms, only, quiet=True)
        witness.check()
        level = Level.of(victim, BYSTANDERS)
        grown = level.resident_mib - before.resident_mib
        print(f"fuzz: pass {count} of the attacks: {level.resident_mib:.1f} MiB, {grown:+.1f}", flush=True)
        if grown <= terms.stands_mib:
            return level
    raise AssertionError(f"memory grew by {grown:.1f} MiB in pass {PASSES_MAX} of the same attacks")


def one_round(pool: ProcessPoolExecutor, victim: Victim, seed: int, number: int | str, count: int) -> Counter[str]:
    ids = renew(victim)
    shares = [count // PROCESSES + (i < count % PROCESSES) for i in range(PROCESSES)]
    running = [
        pool.submit(volley, victim.port, f"{seed}/{number}/{i}", seed, share, ids) for i, share in enumerate(shares)
    ]
    score: Counter[str] = Counter()
    for one in running:
        try:
            score += one.result()
        except OffenceError as offence:
            victim.check_alive()
            OFFENCE.write_text(f"seed {seed}, round {number}\n{offence.args[0]}\n{offence.args[1]}\n")
            raise AssertionError(f"{offence.args[0]}; the last frames are in {OFFENCE}") from None
    if found := victim.errors():
        raise AssertionError(f"round {number}: the broker logged {len(found)} errors:\n{found[0]}")
    return score


def campaign(count: int, seed: int, terms: Terms, *, first_round: int = 0, only: str | None = None) -> None:
    OFFENCE.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    score: Counter[str] = Counter()
    pool = ProcessPoolExecutor(PROCESSES, mp_context=mp.get_context("spawn"))
    with Victim(terms.home, terms.environment) as victim, pool:
        victim.fresh_topics({WITNESSED: 1}, set())
        cold = Level.of(victim, BYSTANDERS - CONNECTIONS)
        witness = Witness(victim.port, terms.hang_seconds)
        # First everything that only grows to its size: pools, caches, what the allocator keeps of a large request.
        if first_round == 0:
            attack_by_name(victim, seed, terms, only)
            witness.check()
        one_round(pool, victim, seed, "warm", min(count, WARM))
        level = Level.of(victim, BYSTANDERS)
        if first_round == 0:
            level = warm_up(victim, witness, seed, terms, level=level, only=only)
        for number, start in enumerate(range(0, count, ROUND), first_round):
            score += one_round(pool, victim, seed, number, min(ROUND, count - start))
            witness.check()
            print(f"fuzz: round {number}: {sum(score.values())} frames, {victim.resident_mib():.1f} MiB", flush=True)
        after = Level.of(victim, BYSTANDERS)
        seen = witness.ask()
        victim.wait_until_nothing_is_held(BYSTANDERS - CONNECTIONS)
        held = victim.counters()
        victim.stop()
    print(f"fuzz: {time.monotonic() - began:.0f} s")
    report(score, seen, (cold, level, after), held)
    if after.resident_mib - level.resident_mib > terms.growth_max_mib:
        raise AssertionError(f"memory grew by {after.resident_mib - level.resident_mib:.1f} MiB")
    if level.resident_mib - cold.resident_mib > terms.kept_max_mib:
        raise AssertionError(f"{level.resident_mib - cold.resident_mib:.1f} MiB stayed after the first attacks")
    if after.descriptors > level.descriptors + SEGMENTS:
        raise AssertionError(f"{after.descriptors} descriptors, {level.descriptors} before")


def report(score: Counter[str], seen: dict[str, Testimony], levels: tuple[Level, ...], held: dict[str, object]) -> None:
    print(f"fuzz: {sum(score.values())} frames: {dict(sorted(score.items()))}")
    for name, testimony in seen.items():
        print(f"fuzz: witness, {name}: {testimony}")
    still = {name: held[name] for name in ("connections_open", "requests_parked_now", "receive_buffer_bytes")}
    print(f"fuzz: held at the end: {still}, fetch sessions {held['fetch_sessions']}")
    for when, level in zip(("cold", "warm", "at the end"), levels, strict=True):
        kept = f"{level.kept_mib:.1f} MiB more were kept by the allocator"
        print(f"fuzz: {when}: {level.resident_mib:.1f} MiB, {kept}; {level.descriptors} descriptors", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--first-round", type=int, default=0, help="begin there, without the named attacks")
    parser.add_argument("--attack", help="only this one of the named attacks")
    arguments = parser.parse_args()
    print(f"fuzz: {arguments.frames} frames, seed {arguments.seed}, {os.cpu_count()} processors", flush=True)
    campaign(arguments.frames, arguments.seed, Terms(), first_round=arguments.first_round, only=arguments.attack)
    print("fuzz: no crash, no leak, no hang; memory back to its level, the witness undisturbed")


if __name__ == "__main__":
    main()
