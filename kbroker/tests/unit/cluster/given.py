"""Images and rules for tests of decisions."""

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

from kbroker.cluster.image import ClusterImage
from kbroker.cluster.topics import NewTopic, Rules, create_topics
from kbroker.config import Config
from kbroker.protocol.records import FeatureLevelRecord, RegisterBrokerRecord


def uuid_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def new_ids() -> Callable[[], bytes]:
    numbers: Iterator[int] = count(1)
    return lambda: uuid_of(next(numbers))


def rules(**settings: object) -> Rules:
    config = Config.load(settings=settings)
    return Rules(
        num_partitions=config.integer("num.partitions"),
        default_replication_factor=config.integer("default.replication.factor"),
        check_configs=config.check_topic_overrides,
        new_id=new_ids(),
        shuffle=lambda brokers: None,
    )


def cluster(
    *broker_ids: int,
    racks: Mapping[int, str] | None = None,
    elr: bool = False,
    log_dirs: Mapping[int, list[bytes]] | None = None,
) -> ClusterImage:
    image = ClusterImage()
    image.apply(FeatureLevelRecord(name="metadata.version", feature_level=30))
    if elr:
        image.apply(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    for broker_id in broker_ids or (1,):
        image.apply(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=10 + broker_id,
                incarnation_id=uuid_of(100 + broker_id),
                rack=(racks or {}).get(broker_id),
                fenced=False,
                log_dirs=(log_dirs or {}).get(broker_id) or [uuid_of(200 + broker_id)],
            )
        )
    return image


def with_topics(image: ClusterImage, *topics: NewTopic) -> ClusterImage:
    decision = create_topics(image, topics, rules())
    assert all(result.error_code == 0 for result in decision.results), decision.results
    for record in decision.records:
        image.apply(record)
    return image


class Lines:
    """Of the log: which partitions it called offline."""

    def __init__(self) -> None:
        self.offline: list[tuple[str, int]] = []

    def info(self, event: str, **fields: Any) -> None: ...

    def warning(self, event: str, **fields: Any) -> None: ...

    def error(self, event: str, cause: BaseException | None = None, **fields: Any) -> None:
        if event == "a partition is offline":
            self.offline.append((fields["topic"], fields["partition"]))
