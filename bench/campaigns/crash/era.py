"""Twenty cycles on one data directory."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from pathlib import Path

from bench.campaigns.crash import damage
from bench.campaigns.crash.events import Events
from bench.campaigns.crash.judge import judge, look_through
from bench.campaigns.crash.ledger import FAITHFUL, Broken, Ledger, Shelf
from bench.campaigns.crash.load import Alterer, Faithful, Feeder, Mover, Reader, Shift, Trimmer, mayflies
from bench.campaigns.crash.plan import Plan, chance_of
from bench.campaigns.crash.server import KILLED, Server
from bench.campaigns.crash.stability import CommittedReader, await_stable, judge_committed
from bench.campaigns.crash.survivor import Survivor
from bench.campaigns.crash.talk import Gone, Talk
from bench.campaigns.crash.topics import CLIENTS, CLIENTS_CONFIGS, INTERNAL, INTERNAL_CONFIGS, PARTITIONS, TOPICS, Topic
from bench.campaigns.crash.transactor import Transactor, Walker
from bench.campaigns.crash.verdict import dump_all
from bench.campaigns.transactional import find_coordinator

FEEDERS = 9
TRANSACTORS = 4
READERS = 2
GRACE_S = 2.5  # for a call that the load may never make; then the clock kills


class Era:
    def __init__(self, number: int, seed: int, home: Path, library: Path, events: Events) -> None:
        self.number, self.seed, self.home, self.events = number, seed, home, events
        self.server = Server(home, library, port=0)
        self.ledger = Ledger()
        self.judged = 0
        self._flies = mayflies(self.ledger)
        self._survivor: Survivor | None = None
        self._faithful: list[Faithful] = []
        self._transactors: list[Transactor] = []
        self._harmed: dict[Path, int] = {}  # cut short or removed, and when (`_state_of`): untouched since

    @property
    def data(self) -> Path:
        return self.server.data

    def begin(self) -> None:
        """A new directory, the topics, and those who live through all of it."""
        if not self.server.start():
            raise Broken("a broker that nobody killed has died")
        talk = Talk(self.server.port)
        for topic in (*TOPICS, Topic(CLIENTS, CLIENTS_CONFIGS)):
            talk.create_topic(topic.name, topic.partitions, topic.configs)
            self.ledger.add(topic)
        for kind, name in enumerate(INTERNAL):
            find_coordinator(talk.ask, "whoever is the first", kind)  # makes the topic
            for setting, value in INTERNAL_CONFIGS.items():
                talk.alter(name, setting, value)
        talk.close()
        shelves = [self.ledger.shelves[CLIENTS, partition] for partition in range(PARTITIONS)]
        chance = chance_of(self.seed, self.number, 0, "survivor")
        self._survivor = Survivor(f"127.0.0.1:{self.server.port}", shelves, f"survivor-{self.number}", chance)
        self._faithful = [
            Faithful(shelf, f"{FAITHFUL}-{shelf.label}")
            for shelf in self.ledger.shelves.values()
            if shelf.topic.idempotent
        ]
        self._transactors = [
            Transactor(self._transactional(), f"txn-{self.number}-{number}", implicit=bool(number % 2))
            for number in range(TRANSACTORS)
        ]
        self._survivor.start()

    def _transactional(self) -> list[Shelf]:
        """That of which nothing is deleted first."""
        found = [shelf for shelf in self.ledger.shelves.values() if shelf.topic.transactional]
        return sorted(found, key=lambda shelf: not shelf.topic.keeps)

    def live(self, plan: Plan) -> None:
        """Recover, be judged, work, die."""
        chance = chance_of(self.seed, self.number, plan.cycle, "files")
        if not self.server.alive():
            self._while_down(plan, chance)
            self._start(plan)
        try:
            self._judge(plan)
        except Gone:
            self._start_once_more(plan)
            self._judge(plan)
        self._work(plan)
        if self._survivor is not None:
            self._survivor.check()
        self.server.lines()

    def finish(self) -> None:
        """The last start, judgement and stop; the files are left as a clean stop leaves them."""
        self._start(Plan(0))
        self._judge(Plan(0))
        if self._survivor is not None:
            self._survivor.end()
            self._survivor = None
        for kind, count in (
            ("settings changed", self.ledger.altered),
            ("topics created", sum(f.lives for f in self._flies)),
        ):
            self.events.note(kind, count)
        self.events.note("transactions committed", sum(one.committed for one in self._transactors))
        self.events.note("transactions aborted", sum(one.aborted for one in self._transactors))
        self.events.note("batches sent twice, kept once", sum(one.again for one in self._faithful))
        self.server.ask_to_stop()
        if (code := self.server.await_end()) != 0:
            raise Broken(f"the broker ended its clean stop with {code}")
        self.server.lines()
        self.events.read(self.server.wire.take_told(), starting=False)

    def close(self) -> None:
        self.server.close()
        if self._survivor is not None:
            survivor, self._survivor = self._survivor, None
            with contextlib.suppress(Broken):  # told already, by check
                survivor.end()

    def dump(self) -> int:
        """How many files Apache has read; not those that were harmed and that the broker had no use for since."""
        unmet = {path for path in self._harmed if self._is_harmed(path)}
        self.events.note("harmed files that nobody needed", len(unmet))
        return dump_all(self.data, unmet)

    def _is_harmed(self, path: Path) -> bool:
        return _state_of(path) == self._harmed[path]

    # ---- a cycle's parts ----

    def _while_down(self, plan: Plan, chance: random.Random) -> None:
        if plan.harm:
            harmed = damage.harm(self.data, chance)
            self.events.harmed(harmed)
            self._harmed.update({path: _state_of(path) for path in harmed})
        left = self.home / "left"
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(self.data, left)  # for whoever has to find out what went wrong

    def _start(self, plan: Plan) -> None:
        for kill in plan.starts:
            if isinstance(kill, float):
                self.server.start(kill_after_s=kill)
                started = False
            else:
                self.server.wire.arm(kill)
                started = self.server.start()
            self.server.wire.disarm()
            told = self.server.wire.take_told()
            self.events.read(told, starting=True)
            if started and not any(line.startswith("died") for line in told):
                return  # nothing was left to do that would have met the wire
            self.server.await_end()
            self.events.note("kills while recovering")
        if not self.server.start():
            raise Broken("a broker that nobody killed has died")
        self.events.note("recoveries")
        self.events.read(self.server.wire.take_told(), starting=True)

    def _start_once_more(self, plan: Plan) -> None:
        """The moment of a start may come when the broker has just told that it is ready, and be told later still."""
        told = self.server.wire.take_told()
        code = self.server.await_end()
        if not plan.starts or code != KILLED or not any(line.startswith("died") for line in told):
            raise Broken(f"the broker ended by itself with {code}:\n{self.server.log.read_text()[-3000:]}")
        self.events.read(told, starting=True)
        self.events.note("kills while recovering")
        self._start(Plan(plan.cycle))

    def _judge(self, plan: Plan) -> None:
        talk = Talk(self.server.port)
        await_stable(talk, self._transactional(), self._transactors)
        self.judged += judge(talk, self.ledger, self._flies, chance_of(self.seed, self.number, plan.cycle, "judge"))
        for shelf in self._transactional():
            judge_committed(talk, shelf)
        for path in list(self._harmed):
            look_through(talk, self.ledger, path)
        talk.close()
        self.events.look_for_healed()
        self._harmed = {path: at for path, at in self._harmed.items() if self._is_harmed(path)}

    def _work(self, plan: Plan) -> None:
        shift = Shift(self.server.port)
        walker = Walker(
            shift,
            self._transactional(),
            f"walker-{plan.cycle}",
            chance_of(self.seed, self.number, plan.cycle, "walker"),
        )
        shift.add(walker)
        trimmer = self._hire(shift, plan)
        if plan.moment is not None:
            self.server.wire.arm(plan.moment)
        shift.start()
        try:
            self._end(plan, shift)
        finally:
            if self.server.alive():
                self.server.kill()
            self.server.wire.disarm()
            self.events.read(self.server.wire.take_told(), starting=False)
            self.events.look(self.data)
            shift.end()
        self.events.note("deletions of records", trimmer.done)
        self.events.note("transactions walked away from", walker.left)
        left = [one.left for one in self._transactors if one.left is not None]
        self.events.note("transactions open at a kill", sum(not one.commit_asked for one in left))
        self.events.note("commits unanswered at a kill", sum(one.commit_asked for one in left))

    def _hire(self, shift: Shift, plan: Plan) -> Trimmer:
        def chance(who: str) -> random.Random:
            return chance_of(self.seed, self.number, plan.cycle, who)

        shelves = [shelf for shelf in self.ledger.shelves.values() if shelf.topic in TOPICS]
        loose = [shelf for shelf in shelves if not shelf.topic.idempotent]
        for number in range(FEEDERS):
            shelf = loose[(number + plan.cycle) % len(loose)]
            shift.add(Feeder(shift, shelf, f"feeder-{plan.cycle}-{number}", chance(f"feeder-{number}")))
        for one in self._faithful:
            shift.add(one.work(shift, chance(one.who)))
        for transactor in self._transactors:
            shift.add(transactor.work(shift, chance(transactor.who)))
        shift.add(CommittedReader(self._transactional(), chance("committed-reader")))
        for number in range(READERS):
            shift.add(Reader(shelves, chance(f"reader-{number}")))
        for fly in self._flies:
            shift.add(fly.work(chance(fly.name)))
        trimmer = Trimmer(shelves, chance("trimmer"))
        shift.add(trimmer)
        shift.add(Mover(shelves, [str(one.absolute()) for one in self.server.dirs], chance("mover")))
        shift.add(Alterer(self.ledger, TOPICS, chance("alterer")))
        return trimmer

    def _end(self, plan: Plan, shift: Shift) -> None:
        if plan.moment is not None:
            if self._dies_within(plan.load_s + GRACE_S, shift):
                return None
            self.server.wire.disarm()
        else:
            self._dies_within(plan.load_s, shift)
        if not plan.stop:
            self.events.note("kills by the clock")
            return self.server.kill()
        shift.stopping = True
        if plan.stop == "wire" and plan.stop_moment is not None:
            self.server.wire.arm(plan.stop_moment)
        self.server.ask_to_stop()
        if plan.stop == "clock":
            time.sleep(plan.stop_s)  # the moment of the kill is what is wanted
            self.server.kill()
        code = self.server.await_end()
        if code not in (0, KILLED):
            raise Broken(f"the broker ended its stop with {code}")
        self.events.note("clean stops" if code == 0 else "kills while stopping")
        return None

    def _dies_within(self, seconds: float, shift: Shift) -> bool:
        """Whether the wire has killed it; waiting ends early when someone has found it broken."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and shift.broken is None:
            if not self.server.alive():
                code = self.server.await_end()
                if code != KILLED:
                    raise Broken(f"the broker ended by itself with {code}:\n{self.server.log.read_text()[-3000:]}")
                return True
            time.sleep(0.01)
        return False


def _state_of(path: Path) -> int:
    """When it was written last; 0: it is not there."""
    return path.stat().st_mtime_ns if path.exists() else 0
