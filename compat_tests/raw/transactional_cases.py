"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit, DescribeTransactions, ListTransactions:
what a transaction's coordinator answers in each of its states."""

from __future__ import annotations

from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.raw.cases import case
from compat_tests.raw.commit_cases import fetch
from compat_tests.raw.group_cases import Member, a_group, know
from compat_tests.raw.talk import Talk, Topic
from compat_tests.until import until

CONCURRENT, LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 51, 14, 15, 16  # ask again
TIMEOUT_MS = 60_000
OLD, NEW = 3, 5  # of EndTxn: before and with transaction version 2


class Producer:
    """A transactional id, and the producer id and epoch that it has now. Ids are told as names."""

    def __init__(self, talk: Talk, *, init: bool = True) -> None:
        self.talk = talk
        self.transactional_id = talk.name()
        self.producer_id, self.epoch = -1, -1
        self._names: dict[int, str] = {-1: "none"}
        talk.quietly("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": [self.transactional_id]})
        if init:
            self.init()

    # ---- what is compared ----

    def ask(self, label: str, api: str, version: int, body: dict[str, Any]) -> Any:
        answer = self.talk.connection.ask(api, version, body)
        self.talk.say(label, self.named(answer))
        return answer

    def named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._field(name, held) for name, held in value.items()}
        return [self.named(one) for one in value] if isinstance(value, list) else value

    def _field(self, name: str, value: Any) -> Any:
        if name == "producer_id":
            return self._names.setdefault(value, f"producer {len(self._names)}")
        if name == "transaction_start_time_ms":
            return "then" if value > 0 else value
        if name in ("results_by_topic_v3_and_below", "topic_results", "topics") and isinstance(value, list):
            return sorted((self.named(one) for one in value), key=str)
        if name in ("results_by_partition", "partitions") and isinstance(value, list):
            return sorted((self.named(one) for one in value), key=str)
        return self.named(value)

    def take(self, answer: Any) -> None:
        """Goes on as what an answer made it."""
        if answer["error_code"] == 0:
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]

    # ---- requests ----

    def init_body(self, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS) -> dict[str, Any]:
        body: dict[str, Any] = {"transactional_id": self.transactional_id, "transaction_timeout_ms": timeout_ms}
        return body if expected is None else {**body, "producer_id": expected[0], "producer_epoch": expected[1]}

    def claim(self, producer_id: int | None = None, epoch: int | None = None) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id if producer_id is None else producer_id,
            "producer_epoch": self.epoch if epoch is None else epoch,
        }

    def end_body(self, commit: bool, **claim: Any) -> dict[str, Any]:
        return {**self.claim(**claim), "committed": commit}

    def add_body(
        self, version: int, *topics: tuple[str, list[int]], verify: bool = False, **claim: Any
    ) -> dict[str, Any]:
        named = [{"name": name, "partitions": partitions} for name, partitions in topics]
        if version >= 4:
            return {"transactions": [{**self.claim(**claim), "verify_only": verify, "topics": named}]}
        old = {f"v3_and_below_{name}": value for name, value in self.claim(**claim).items()}
        return {**old, "v3_and_below_topics": named}

    # ---- scenes ----

    def init(self, **more: Any) -> None:
        def done() -> bool:
            answer = self.talk.quietly("InitProducerId", 4, self.init_body(**more))
            assert answer["error_code"] in (0, CONCURRENT, LOADING, NOT_AVAILABLE, NOT_COORDINATOR), answer
            self.take(answer)
            return bool(answer["error_code"] == 0)

        until(done, WAIT_SECONDS)
        self._names.setdefault(self.producer_id, f"producer {len(self._names)}")

    def begin(self, topic: Topic, partition: int = 0, version: int = 3) -> None:
        """A transaction is open, as far as the coordinator knows."""

        def done() -> bool:
            answer = self.talk.quietly("AddPartitionsToTxn", version, self.add_body(version, (topic.name, [partition])))
            found = (
                answer["results_by_transaction"][0]["topic_results"]
                if version >= 4
                else answer["results_by_topic_v3_and_below"]
            )
            code = found[0]["results_by_partition"][0]["partition_error_code"]
            assert code in (0, CONCURRENT), answer
            return bool(code == 0)

        until(done, WAIT_SECONDS)

    def end(self, commit: bool, version: int = OLD) -> None:
        answer = self.talk.quietly("EndTxn", version, self.end_body(commit))
        assert answer["error_code"] == 0, answer
        if version >= NEW:
            self.take(answer)
        self.rest()

    def state(self) -> str:
        told = self.talk.quietly("DescribeTransactions", 0, {"transactional_ids": [self.transactional_id]})
        return str(told["transaction_states"][0]["transaction_state"])

    def rest(self) -> None:
        until(lambda: not self.state().startswith("Prepare") and self.state() != "Ongoing", WAIT_SECONDS)

    def describe(self, label: str) -> None:
        self.ask(f"{label}, described", "DescribeTransactions", 0, {"transactional_ids": [self.transactional_id]})


def resting(talk: Talk, topic: Topic) -> list[tuple[str, Producer]]:
    """A producer in each state in which it can stay."""
    found = [("empty", Producer(talk))]
    for title, commit, version in (
        ("committed", True, OLD),
        ("aborted", False, OLD),
        ("committed, version 2", True, NEW),
        ("aborted, version 2", False, NEW),
    ):
        one = Producer(talk)
        one.begin(topic, version=5 if version == NEW else 3)
        one.end(commit, version)
        found.append((title, one))
    return found


def opened(talk: Talk, topic: Topic) -> list[tuple[str, Producer]]:
    found = []
    for title, version in (("ongoing", 3), ("ongoing, version 2", 5)):
        one = Producer(talk)
        one.begin(topic, version=version)
        found.append((title, one))
    return found


# ---- InitProducerId ----


@case("InitProducerId")
def of_a_transactional_id(talk: Talk, version: int) -> None:
    one = Producer(talk, init=False)
    api = "InitProducerId"
    until(lambda: talk.quietly(api, 4, one.init_body())["error_code"] == 0, WAIT_SECONDS)
    for label in ("second", "third"):
        one.take(one.ask(label, api, version, one.init_body()))
    one.ask("no id", api, version, {"transactional_id": "", "transaction_timeout_ms": TIMEOUT_MS})
    for timeout_ms in (0, -1, 1, 900_000, 900_001):
        one.ask(f"timeout {timeout_ms}", api, version, one.init_body(timeout_ms=timeout_ms))
    one.describe("afterwards")


@case("InitProducerId")
def in_each_state(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for title, one in resting(talk, topic):
        one.ask(title, "InitProducerId", version, one.init_body())
        one.describe(title)
    for title, one in opened(talk, topic):
        one.ask(title, "InitProducerId", version, one.init_body())
        one.rest()
        one.describe(f"{title}, rested")
        one.ask(f"{title}, again", "InitProducerId", version, one.init_body())


@case("InitProducerId", versions=range(3, 6))
def going_on(talk: Talk, version: int) -> None:
    """With an id and epoch (KIP-360)."""
    one = Producer(talk)
    api = "InitProducerId"
    first = (one.producer_id, one.epoch)
    one.take(one.ask("current", api, version, one.init_body(first)))
    one.take(one.ask("its answer was lost", api, version, one.init_body(first)))
    one.ask("too new", api, version, one.init_body((one.producer_id, one.epoch + 1)))
    one.ask("another id", api, version, one.init_body((one.producer_id + 100_000, one.epoch)))
    one.ask("id without epoch", api, version, one.init_body((one.producer_id, -1)))
    one.ask("epoch without id", api, version, one.init_body((-1, one.epoch)))
    one.take(one.ask("anew", api, version, one.init_body()))
    one.ask("from before that", api, version, one.init_body((one.producer_id, one.epoch - 1)))
    fresh = Producer(talk, init=False)
    until(lambda: talk.quietly(api, 4, Producer(talk, init=False).init_body())["error_code"] == 0, WAIT_SECONDS)
    fresh.ask("never seen", api, version, fresh.init_body((4242, 7)))
    topic = talk.topic()
    for title, held in opened(talk, topic):
        claimed = (held.producer_id, held.epoch)
        held.ask(title, api, version, held.init_body(claimed))
        held.rest()
        held.describe(f"{title}, rested")
        held.ask(f"{title}, again", api, version, held.init_body(claimed))
    for title, held in resting(talk, topic):
        claimed = (held.producer_id, held.epoch)
        held.ask(f"{title}, before", api, version, held.init_body((held.producer_id, held.epoch - 1)))
        held.ask(f"{title}, now", api, version, held.init_body(claimed))
        held.describe(title)


@case("InitProducerId", versions=range(5, 6))
def fenced_by_another(talk: Talk, version: int) -> None:
    """A second producer takes the id while the first one's transaction is open; then the first comes back."""
    topic = talk.topic()
    api = "InitProducerId"
    for title, one in opened(talk, topic):
        one.ask(f"{title}, taken", api, version, one.init_body())
        one.rest()
        one.ask(f"{title}, the first goes on", api, version, one.init_body((one.producer_id, one.epoch)))
        one.describe(title)
        for label, commit in (("commit", True), ("abort", False)):
            for end in (OLD, NEW):
                one.ask(f"{title}, the first {label}s, v{end}", "EndTxn", end, one.end_body(commit))
                one.rest()


# ---- AddPartitionsToTxn ----


@case("AddPartitionsToTxn")
def added(talk: Talk, version: int) -> None:
    topic, other = talk.topic(3), talk.topic()
    one = Producer(talk)
    api = "AddPartitionsToTxn"

    def ask(label: str, *topics: tuple[str, list[int]], **more: Any) -> None:
        one.ask(label, api, version, one.add_body(version, *topics, **more))

    ask("first", (topic.name, [0]))
    one.describe("first")
    ask("more", (topic.name, [0, 2]), (other.name, [0]))
    ask("again", (topic.name, [0]))
    ask("nothing")
    ask("unknown topic", ("no-such-topic", [0]), (topic.name, [1]))
    ask("unknown partition", (topic.name, [1, 3]))
    ask("another id", (topic.name, [1]), producer_id=one.producer_id + 100_000)
    ask("old epoch", (topic.name, [1]), epoch=one.epoch - 1)
    ask("new epoch", (topic.name, [1]), epoch=one.epoch + 1)
    one.describe("afterwards")
    stranger = Producer(talk, init=False)
    stranger.ask("no such id", api, version, stranger.add_body(version, (topic.name, [0])))
    nameless = one.add_body(version, (topic.name, [0]))
    (nameless["transactions"][0] if version >= 4 else nameless)[
        "transactional_id" if version >= 4 else "v3_and_below_transactional_id"
    ] = ""
    one.ask("no name", api, version, nameless)


@case("AddPartitionsToTxn")
def in_each_resting_state(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for title, one in [*resting(talk, topic), *opened(talk, topic)]:
        one.ask(title, "AddPartitionsToTxn", version, one.add_body(version, (topic.name, [0])))
        one.describe(title)


@case("AddPartitionsToTxn", versions=range(4, 6))
def verified(talk: Talk, version: int) -> None:
    topic = talk.topic(2)
    api = "AddPartitionsToTxn"
    for title, one in [*resting(talk, topic), *opened(talk, topic)]:
        body = one.add_body(version, (topic.name, [0, 1]), verify=True)
        one.ask(f"{title}, verified", api, version, body)
        for label, claim in (
            ("another id", {"producer_id": one.producer_id + 100_000}),
            ("old epoch", {"epoch": one.epoch - 1}),
            ("new epoch", {"epoch": one.epoch + 1}),
        ):
            one.ask(f"{title}, {label}", api, version, one.add_body(version, (topic.name, [0]), verify=True, **claim))
        one.describe(title)
    one, other = Producer(talk), Producer(talk)
    one.begin(topic)
    bodies = [
        one.add_body(version, (topic.name, [0]), verify=True),
        other.add_body(version, (topic.name, [1])),
        Producer(talk, init=False).add_body(version, (topic.name, [1])),
        one.add_body(version, ("no-such-topic", [0]), (topic.name, [0]), verify=True),
    ]
    one.ask("several", api, version, {"transactions": [body["transactions"][0] for body in bodies[:3]]})
    one.ask("unknown topic, verified", api, version, bodies[3])
    # No transactions at all: Apache never answers, kbroker tells of none.


# ---- AddOffsetsToTxn ----


@case("AddOffsetsToTxn")
def offsets_added(talk: Talk, version: int) -> None:
    topic, group = talk.topic(), a_group(talk)
    api = "AddOffsetsToTxn"
    for title, one in [*resting(talk, topic), *opened(talk, topic)]:
        one.ask(title, api, version, {**one.claim(), "group_id": group})
        one.describe(title)
    one = Producer(talk)
    one.ask("old epoch", api, version, {**one.claim(epoch=one.epoch - 1), "group_id": group})
    one.ask("another id", api, version, {**one.claim(producer_id=one.producer_id + 100_000), "group_id": group})
    one.ask("no group", api, version, {**one.claim(), "group_id": ""})
    one.ask("no name", api, version, {**one.claim(), "transactional_id": "", "group_id": group})


# ---- EndTxn ----


@case("EndTxn")
def ended_in_each_state(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for commit in (True, False):
        word = "commit" if commit else "abort"
        for offset, whose in ((0, "current"), (-1, "before"), (-2, "long before"), (1, "after")):
            for title, one in [*resting(talk, topic), *opened(talk, topic)]:
                label = f"{title}, {word}, {whose} epoch"
                one.ask(label, "EndTxn", version, one.end_body(commit, epoch=one.epoch + offset))
                if (offset in (0, -1) and not title.startswith("ongoing")) or offset == 0:
                    one.rest()
                one.describe(label)


@case("EndTxn")
def ended_twice(talk: Talk, version: int) -> None:
    topic = talk.topic()
    for commit in (True, False):
        for title, one in opened(talk, topic):
            body = one.end_body(commit)
            one.ask(f"{title}, {commit}", "EndTxn", version, body)
            one.rest()
            one.ask(f"{title}, {commit}, again", "EndTxn", version, body)
            one.ask(f"{title}, {commit}, the opposite", "EndTxn", version, {**body, "committed": not commit})
            one.rest()
            one.describe(f"{title}, {commit}")
    one = Producer(talk)
    one.ask("another id", "EndTxn", version, one.end_body(True, producer_id=one.producer_id + 100_000))
    one.ask("no name", "EndTxn", version, {**one.end_body(True), "transactional_id": ""})
    one.ask("unknown", "EndTxn", version, {**one.end_body(True), "transactional_id": talk.name()})


# ---- TxnOffsetCommit ----


def offsets(one: Producer, group: str, *topics: tuple[str, list[int]], offset: int = 7, **more: Any) -> dict[str, Any]:
    named = [
        {
            "name": name,
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"} for index in indexes
            ],
        }
        for name, indexes in topics
    ]
    claim = {name: more.pop(name) for name in ("producer_id", "epoch") if name in more}
    return {**one.claim(**claim), "group_id": group, "topics": named, **more}


def offsets_found(talk: Talk, label: str, group: str, topic: Topic) -> None:
    for stable in (True, False):
        body = {**fetch(7, group, [(topic, [0, 1])]), "require_stable": stable}
        talk.ask(f"{label}, {'stable' if stable else 'any'}", "OffsetFetch", 7, body)


@case("TxnOffsetCommit")
def offsets_in_a_transaction(talk: Talk, version: int) -> None:
    group, topic = a_group(talk), talk.topic(2)
    api = "TxnOffsetCommit"
    for commit in (True, False):
        for end in (OLD, NEW):
            one = Producer(talk)
            what = f"{'commit' if commit else 'abort'}, v{end}"
            offset = 10 * end + commit
            if version < 5:
                talk.quietly("AddOffsetsToTxn", 3, {**one.claim(), "group_id": group})
            one.ask(what, api, version, offsets(one, group, (topic.name, [0]), offset=offset))
            one.ask(f"{what}, second", api, version, offsets(one, group, (topic.name, [1]), offset=offset + 1))
            one.ask(f"{what}, third", api, version, offsets(one, group, (topic.name, [1]), offset=offset + 2))
            one.describe(what)
            offsets_found(talk, f"{what}, open", group, topic)
            one.end(commit, end)
            offsets_found(talk, f"{what}, ended", group, topic)


@case("TxnOffsetCommit")
def who_may_commit(talk: Talk, version: int) -> None:
    group, topic = a_group(talk), talk.topic(2)
    api = "TxnOffsetCommit"
    one = Producer(talk)
    place = (topic.name, [0])
    one.ask("not added", api, version, offsets(one, group, place))
    one.init()
    talk.quietly("AddOffsetsToTxn", 3, {**one.claim(), "group_id": group})
    one.ask("old epoch", api, version, offsets(one, group, place, epoch=one.epoch - 1))
    one.ask("new epoch", api, version, offsets(one, group, place, epoch=one.epoch + 1))
    one.ask("another id", api, version, offsets(one, group, place, producer_id=one.producer_id + 100_000))
    one.ask("no name", api, version, {**offsets(one, group, place), "transactional_id": ""})
    one.ask("no group", api, version, offsets(one, "", place))
    one.ask("unknown topic", api, version, offsets(one, group, ("no-such-topic", [0]), place))
    one.ask("unknown partition", api, version, offsets(one, group, (topic.name, [0, 5])))
    one.ask("only unknown", api, version, offsets(one, group, ("no-such-topic", [0]), producer_id=77))
    one.ask("nothing", api, version, offsets(one, group))
    if version >= 3:
        one.ask("generation, unknown group", api, version, offsets(one, group, place, generation_id=3, member_id="m"))
        one.ask("member, unknown group", api, version, offsets(one, group, place, member_id="m"))
    member = Member(talk, group)
    member.join()
    know(talk, member.member_id)
    told: dict[str, Any] = {"member_id": member.member_id, "generation_id": 1}
    one.ask("nobody, rebalancing", api, version, offsets(one, group, place))
    if version >= 3:
        one.ask("before sync", api, version, offsets(one, group, place, **told))
    member.sync()
    one.ask("nobody", api, version, offsets(one, group, place))
    if version >= 3:
        one.ask("member", api, version, offsets(one, group, place, **told))
        one.ask("old generation", api, version, offsets(one, group, place, **{**told, "generation_id": 0}))
        one.ask("no generation", api, version, offsets(one, group, place, **{**told, "generation_id": -1}))
        one.ask("unknown member", api, version, offsets(one, group, place, **{**told, "member_id": "else"}))
        one.ask("unknown instance", api, version, offsets(one, group, place, **told, group_instance_id="i"))
    one.end(True)
    one.ask("ended", api, version, offsets(one, group, place))


# ---- operators ----


@case("DescribeTransactions")
def described(talk: Talk, version: int) -> None:
    topic = talk.topic(2)
    found = [*resting(talk, topic), *opened(talk, topic)]
    for title, one in found:
        one.describe(title)
    ids = [found[0][1].transactional_id, "no-such-id", "", found[5][1].transactional_id]
    found[0][1].ask("several", "DescribeTransactions", version, {"transactional_ids": ids})
    found[0][1].ask("none", "DescribeTransactions", version, {"transactional_ids": []})


@case("ListTransactions")
def listed(talk: Talk, version: int) -> None:
    topic = talk.topic()
    found = [*resting(talk, topic), *opened(talk, topic)]
    ours = {one.transactional_id: title for title, one in found}
    names = {one.producer_id: title for title, one in found}

    def ask(label: str, **filters: Any) -> None:
        body = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = talk.connection.ask("ListTransactions", version, body)
        assert isinstance(answer, dict), answer
        listed = [
            {**one, "transactional_id": ours[one["transactional_id"]], "producer_id": names[one["producer_id"]]}
            for one in answer["transaction_states"]
            if one["transactional_id"] in ours
        ]
        talk.say(label, {**answer, "transaction_states": sorted(listed, key=str)})

    ask("all")
    ask("one state", state_filters=["Ongoing"])
    ask("two states", state_filters=["Ongoing", "CompleteCommit"])
    ask("unknown states", state_filters=["ongoing", "Nonsense", "Empty"])
    ask("only unknown states", state_filters=["Nonsense"])
    ask("dead", state_filters=["Dead", "PrepareEpochFence"])
    ask("producers", producer_id_filters=[found[0][1].producer_id, found[5][1].producer_id, 1 << 40])
    if version >= 1:
        for duration_ms in (-1, 0, 3_600_000):
            ask(f"longer than {duration_ms}", duration_filter=duration_ms)
    if version >= 2:
        first = found[0][1].transactional_id
        for label, pattern in (
            ("empty", ""),
            ("one", first),
            ("prefix", first[:-1]),
            ("anything", ".*"),
            ("group", f"({first}|{found[5][1].transactional_id})"),
            ("broken", "(["),
        ):
            ask(f"pattern, {label}", transactional_id_pattern=pattern)
