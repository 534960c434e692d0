"""Transcripts of transactions: a command, then exactly what happened.

    add a t-0 t-1                        the producer of transactional id `a` adds partitions, with the id and epoch
    ----                                 that it was told last; `epoch=-1` takes one less, `producer=7` another id
    a: added                             what it is told
    record Ongoing 100/0 t-0,t-1         what is written: state, producer id and epoch, and what else is not as usual
    Ongoing 100/0 t-0,t-1 open=0         the transaction afterwards

    given a PrepareCommit                a new log, in which `a` has come to this state with epoch 1 at least

`make transcripts` writes what happens now; the diff is the review.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from kbroker.coordinator.frames import TRANSACTION, decode_record
from kbroker.coordinator.step import Step
from kbroker.coordinator.txn.settings import TransactionSettings
from kbroker.coordinator.txn.shard import Found, Markers, Producer
from kbroker.coordinator.txn.transaction import STATES_BY_TITLE, Place, State, Transaction, transaction_of
from kbroker.errors import KafkaError, name_of
from kbroker.protocol.messages import EndTxnResponse, InitProducerIdResponse, ListTransactionsRequest
from kbroker.protocol.records import TransactionLogKey, TransactionLogValue
from kbroker.tests.transcripts.script import rewrite
from kbroker.tests.unit.coordinator.boards import START_MS
from kbroker.tests.unit.coordinator.txn_stage import Stage

FOLDER = Path(__file__).parent / "transactions"


class TxnScript:
    def __init__(self) -> None:
        self.stage = Stage()
        self.known: dict[str, tuple[int, int]] = {}  # producer id and epoch, as told last
        self._whose = "a"
        self._said: list[str] = []

    def play(self, line: str) -> list[str]:
        """What the command brings about, a line each."""
        verb, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        self._said, stage, before = [], self.stage, len(self.stage.log)
        if names and verb not in ("settings", "wait"):
            self._whose = names[0]
        getattr(self, f"do_{verb}")(*names, **options)
        if self.stage is not stage:
            return [self._state()]
        return [*self._said, *self._records(before), *self._errands(), self._state()]

    # ---- commands ----

    def do_settings(self, level: str = "2", **changes: str) -> None:
        settings = TransactionSettings()._replace(**{name: int(value) for name, value in changes.items()})
        self.stage = Stage(settings, int(level))

    def do_given(self, who: str, title: str) -> None:
        self.do_settings()
        state = STATES_BY_TITLE[title]
        self.do_init(who)
        self.do_init(who)
        if state != State.EMPTY:
            self.do_add(who, "t-0")
        if state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT):
            self.do_commit(who)
        elif state in (State.PREPARE_ABORT, State.COMPLETE_ABORT):
            self.do_abort(who)
        if state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            self.do_written(who)

    def do_init(self, who: str, timeout: str = "60000", **claim: str) -> None:
        expected = None
        if "going" in claim:
            known = self._claim(who, **{name: value for name, value in claim.items() if name != "going"})
            expected = (known.producer_id, known.epoch)
        answer = self.stage.init(who, int(timeout), expected)
        if isinstance(answer, InitProducerIdResponse):
            self.known[who] = (answer.producer_id, answer.producer_epoch)
        self._tell(who, answer)

    def do_add(self, who: str, *places: str, version: str = "2", **claim: str) -> None:
        self._tell(who, self.stage.add(self._claim(who, **claim), _places(places), int(version)))

    def do_verify(self, who: str, *places: str, **claim: str) -> None:
        self._tell(who, self.stage.verify(self._claim(who, **claim), _places(places)))

    def do_commit(self, who: str, version: str = "2", **claim: str) -> None:
        self._end(who, True, int(version), claim)

    def do_abort(self, who: str, version: str = "2", **claim: str) -> None:
        self._end(who, False, int(version), claim)

    def _end(self, who: str, commit: bool, version: int, claim: dict[str, str]) -> None:
        heard = claim.pop("heard", "yes") == "yes"
        answer = self.stage.end(self._claim(who, **claim), commit=commit, version=version)
        if isinstance(answer, EndTxnResponse) and heard and version >= 2:
            self.known[who] = (answer.producer_id, answer.producer_epoch)
        self._tell(who, answer)

    def do_written(self, who: str) -> None:
        """The markers of its transaction are in all partitions."""
        for errand in [one for one in self.stage.errands if one.transactional_id == who]:
            self.stage.finish(errand)

    def do_late(self, who: str) -> None:
        """The same told once more, for a transaction that is over."""
        producer_id, epoch = self.known[who]
        markers = Markers(who, producer_id, epoch, True, frozenset(), 2)
        self.stage.carry_out(self.stage.shard.on_markers_written(markers, self.stage.now_ms))

    def do_wait(self, by_ms: str) -> None:
        self.stage.advance(int(by_ms))

    def do_reload(self) -> None:
        self.stage.reload()

    def do_epochs(self, who: str, to: str) -> None:
        """So many epochs later."""
        transaction = self.stage.shard.transactions[who]._replace(epoch=int(to))
        record = transaction.record(who, self.stage.level)
        self.stage.carry_out(Step([record]))
        self.known[who] = (transaction.producer_id, int(to))

    def do_describe(self, who: str) -> None:
        answer = self.stage.ask(lambda shard, token, now: shard.on_describe(token, who))
        if isinstance(answer, KafkaError):
            self._tell(who, answer)
        else:
            topics = ",".join(f"{topic.topic}{topic.partitions}" for topic in answer.topics)
            self._said.append(
                f"{who}: {answer.transaction_state} {answer.producer_id}/{answer.producer_epoch} {topics}"
            )

    def do_list(self, **filters: str) -> None:
        request = ListTransactionsRequest(
            state_filters=filters["states"].split(",") if "states" in filters else [],
            producer_id_filters=[int(one) for one in filters["producers"].split(",")] if "producers" in filters else [],
            duration_filter=int(filters.get("longer", "-1")),
        )
        named = filters.get("named")
        matches = None if named is None else named.__eq__
        answer = self.stage.ask(lambda shard, token, now: shard.on_list(token, request, matches, now))
        for one in answer.transaction_states:
            self._said.append(f"{one.transactional_id} {one.producer_id} {one.transaction_state}")

    # ---- what is seen ----

    def _claim(self, who: str, epoch: str = "+0", producer: str | None = None) -> Producer:
        producer_id, known = self.known.get(who, (-1, -1))
        return Producer(who, producer_id if producer is None else int(producer), known + int(epoch))

    def _tell(self, who: str, answer: Any) -> None:
        if isinstance(answer, KafkaError):
            self._said.append(f"{who}: {name_of(answer.code)}")
        elif isinstance(answer, InitProducerIdResponse | EndTxnResponse):
            self._said.append(f"{who}: {answer.producer_id}/{answer.producer_epoch}")
        elif isinstance(answer, Found):
            told = {f"{topic}-{index}": name_of(code) for (topic, index), code in sorted(answer.codes.items())}
            self._said.append(f"{who}: " + " ".join(f"{place}={code}" for place, code in told.items()))
        else:
            self._said.append(f"{who}: {answer}")

    def _records(self, before: int) -> list[str]:
        found = []
        for key, value, _ in self.stage.log[before:]:
            record = decode_record(TRANSACTION, key, value)
            assert record is not None
            assert isinstance(record.key, TransactionLogKey)
            whose = record.key.transactional_id
            if record.value is None:
                found.append(f"record {whose} gone")
            else:
                assert isinstance(record.value, TransactionLogValue)
                found.append(f"record {whose} {_shown(transaction_of(record.value))} v{value[1] if value else 0}")
        return found

    def _errands(self) -> list[str]:
        found = []
        for one in self.stage.errands:
            if isinstance(one, Markers):
                places = ",".join(f"{topic}-{index}" for topic, index in sorted(one.places)) or "nowhere"
                word = "commit" if one.commit else "abort"
                found.append(f"markers {one.transactional_id} {word} {one.producer_id}/{one.epoch} {places}")
            else:
                found.append(f"overdue {one.transactional_id}")
        return found

    def _state(self) -> str:
        transaction = self.stage.shard.transactions.get(self._whose)
        return f"{self._whose} is unknown" if transaction is None else _shown(transaction)


def _shown(one: Transaction) -> str:
    words = [one.state.title, f"{one.producer_id}/{one.epoch}"]
    words += [",".join(f"{topic}-{index}" for topic, index in sorted(one.places))] if one.places else []
    words += [f"was={one.previous_producer_id}"] if one.previous_producer_id != one.producer_id else []
    words += [f"next={one.next_producer_id}"] if one.next_producer_id >= 0 else []
    words += [f"open={one.start_ms - START_MS}"] if one.start_ms >= 0 else []
    words += [f"version={one.client_version}"] if one.client_version else []
    return " ".join(words)


def _places(words: tuple[str, ...]) -> list[Place]:
    return [(word.rpartition("-")[0], int(word.rpartition("-")[2])) for word in words]


if __name__ == "__main__":
    for one in sorted(FOLDER.glob("*.txt")):
        rewrite(one, TxnScript().play)
