"""Any run of changes leaves what a dictionary of lists would hold; what is refused leaves everything as it was."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbroker.cluster.configs import Alteration, Change, Operation, alter_configs, dynamic_of
from kbroker.cluster.image import ClusterImage
from kbroker.cluster.topics import NewTopic
from kbroker.config import Config
from kbroker.quorum.snapshot import image_records
from kbroker.tests.unit.cluster.given import cluster, with_topics

TOPIC, BROKER = 2, 4
DEFAULTS = {
    (TOPIC, "cleanup.policy"): ["delete"],
    (TOPIC, "leader.replication.throttled.replicas"): [],
    (BROKER, "log.cleanup.policy"): ["delete"],
}
POLICIES = ("compact", "delete")
REPLICAS = ("0:1", "0:2", "1:1", "2:3")
PLACES = st.sampled_from([(TOPIC, "t"), (TOPIC, "u"), (BROKER, "1"), (BROKER, "")])

Model = dict[tuple[int, str], dict[str, str]]


@st.composite
def changes(draw: st.DrawFn) -> tuple[tuple[int, str], list[Change], bool]:
    place = draw(PLACES)
    kind = place[0]
    lists = [setting for owner, setting in DEFAULTS if owner == kind]
    whole = draw(st.booleans())
    found = []
    for setting in draw(st.lists(st.sampled_from(lists), unique=True, max_size=2)):
        parts = draw(st.lists(st.sampled_from(REPLICAS if "replicas" in setting else POLICIES), min_size=1, max_size=4))
        operation = Operation.SET if whole else draw(st.sampled_from(list(Operation)))
        found.append(Change(setting, None if operation == Operation.DELETE else ",".join(parts), operation))
    numbers = draw(st.lists(st.integers(-3, 3), max_size=1))
    retention = "retention.ms" if kind == TOPIC else "log.retention.ms"
    return place, [*found, *(Change(retention, str(number)) for number in numbers)], whole


def expected(model: Model, place: tuple[int, str], wanted: list[Change], whole: bool) -> dict[str, str] | None:
    """What the resource holds afterwards; None: it is refused."""
    held = {} if whole else dict(model.get(place, {}))
    for one in wanted:
        if one.name == "retention.ms" and int(one.value or 0) < -1:
            return None
        if one.operation == Operation.DELETE:
            held.pop(one.name, None)
            continue
        assert one.value is not None
        asked = one.value.split(",")
        if one.operation != Operation.SET:
            current = model.get(place, {}).get(one.name)
            old = DEFAULTS[place[0], one.name] if current is None else [part for part in current.split(",") if part]
            if one.operation == Operation.APPEND:
                asked = [*old, *(part for part in dict.fromkeys(asked) if part not in old)]
            else:
                asked = list(old)
                for part in one.value.split(","):
                    if part in asked:
                        asked.remove(part)
        held[one.name] = ",".join(asked)
    brokers = {**model.get((BROKER, ""), {}), **model.get((BROKER, "1"), {})}
    if place == (BROKER, "1"):
        brokers = {**model.get((BROKER, ""), {}), **held}
    elif place == (BROKER, ""):
        brokers = {**held, **model.get((BROKER, "1"), {})}
    return None if brokers.get("log.retention.ms") == "0" else held  # what holds for this broker in the end is judged


def of_brokers(name: str, *retention_ms: str) -> tuple[tuple[int, str], list[Change], bool]:
    return (BROKER, name), [Change("log.retention.ms", one) for one in retention_ms], True


@given(st.lists(changes(), max_size=12))
@example([of_brokers("1", "1"), of_brokers("", "0"), of_brokers("1")])  # what was hidden would hold
@example([of_brokers("1", "1"), of_brokers("", "0"), of_brokers("1", "2"), of_brokers(""), of_brokers("1")])
@settings(deadline=None)
def test_a_run_of_changes_leaves_what_the_model_holds(steps: list[tuple[tuple[int, str], list[Change], bool]]) -> None:
    config, model = Config(), Model()
    image = with_topics(cluster(1), NewTopic("t", 1, 1), NewTopic("u", 1, 1))
    for place, wanted, whole in steps:
        decision = alter_configs(image, [Alteration(*place, wanted, whole)], config)
        for record in decision.records:
            image.apply(record)
        held = expected(model, place, wanted, whole)
        assert (decision.results[0].error_code == 0) == (held is not None)
        if held is not None:
            model[place] = held
        assert image.configs == {one: values for one, values in model.items() if values}
    told = ClusterImage()
    for record in image_records(image):
        told.apply(record)
    assert told.configs == image.configs


TEXTS = st.text(max_size=12) | st.sampled_from(["0", "-1", "1,2", "compact", "*", "0:1", "PLAINTEXT://:1", "a:b"])
NAMES = st.sampled_from(
    [
        "cleanup.policy",
        "leader.replication.throttled.replicas",
        "min.cleanable.dirty.ratio",
        "retention.ms",
        "listeners",
        "log.cleaner.io.max.bytes.per.second",
        "log.dirs",
        "log.retention.ms",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "num.io.threads",
        "ssl.protocol",
    ]
)


@given(
    st.lists(
        st.builds(
            Alteration,
            st.sampled_from([2, 4, 8, 16, 32, -1]),
            st.sampled_from(["t", "", "1", "9", "a/b", "\u0661"]),
            st.lists(st.builds(Change, NAMES | st.text(max_size=6), TEXTS | st.none(), st.integers(-1, 4)), max_size=3),
            st.booleans(),
        ),
        max_size=3,
    )
)
@settings(deadline=None)
def test_any_request_is_answered_and_what_it_leaves_can_be_used(wanted: list[Alteration]) -> None:
    config = Config()
    image = with_topics(cluster(1), NewTopic("t", 1, 1))
    decision = alter_configs(image, wanted, config)
    assert len(decision.results) == len(wanted)
    for record in decision.records:
        image.apply(record)
    dynamic = dynamic_of(image, 1)
    config.topic_config(image.topic_configs("t"), dynamic)
    config.describe_topic(image.topic_configs("t"), dynamic)
    config.describe_broker(dynamic)
    config.describe_cluster_default(dynamic)
    config.unsupported_dynamic({**dynamic.default, **dynamic.broker})
