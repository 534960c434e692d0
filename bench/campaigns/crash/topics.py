"""The topics of an era: what each is set to, and so what may be gone of it."""

from __future__ import annotations

from dataclasses import dataclass, field

PARTITIONS = 2


@dataclass(frozen=True)
class Topic:
    """Sizes are small and times short, so that one second sees rolls, compaction and retention."""

    name: str
    configs: dict[str, str] = field(default_factory=dict)
    partitions: int = PARTITIONS
    keys: int = 0  # how many there are; 0: records without one
    transactional: bool = False  # transactions write to it, too
    keeps: bool = False  # nobody deletes any of its records
    alterable: dict[str, tuple[str, ...]] = field(default_factory=dict)  # settings that change while it is written to
    idempotent: bool = False
    pace_s: float = 0.0  # between two batches of one producer

    @property
    def compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "delete")

    @property
    def trims(self) -> bool:
        """DeleteRecords is refused by topics that are only compacted."""
        return not self.keeps and self.configs.get("cleanup.policy", "delete") != "compact"

    def limit(self, name: str) -> int:
        return int(self.configs.get(name, "-1"))


_SPARSE = {"index.interval.bytes": "200", "file.delete.delay.ms": "150"}
_FOREVER = {"retention.ms": "-1"}
_COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", **_SPARSE}

TOPICS = (
    Topic(
        "plain",
        {"internal.segment.bytes": "40000", **_SPARSE, **_FOREVER},
        idempotent=True,
        alterable={
            "internal.segment.bytes": ("20000", "40000", "120000"),
            "index.interval.bytes": ("1", "200", "4096"),
            "flush.messages": ("1", "50", "9223372036854775807"),
        },
    ),
    Topic("by-time", {"segment.ms": "120", "segment.jitter.ms": "40", **_SPARSE, **_FOREVER}),
    Topic("full-index", {"segment.index.bytes": "256", "index.interval.bytes": "100", **_FOREVER}, partitions=1),
    Topic(
        "synced",
        {"flush.messages": "1", "internal.segment.bytes": "60000", **_SPARSE, **_FOREVER},
        idempotent=True,
        pace_s=0.002,
    ),
    Topic(
        "recoded",
        {"compression.type": "zstd", "internal.segment.bytes": "15000", **_SPARSE, **_FOREVER},
        partitions=1,
        alterable={"compression.type": ("zstd", "lz4", "gzip", "snappy", "uncompressed", "producer")},
    ),
    Topic("preallocated", {"preallocate": "true", "internal.segment.bytes": "80000", **_SPARSE, **_FOREVER}, 1),
    Topic("few-bytes", {"retention.bytes": "120000", "internal.segment.bytes": "25000", **_SPARSE, **_FOREVER}),
    Topic(
        "short-lived",
        {"retention.ms": "1500", "internal.segment.bytes": "30000", **_SPARSE},
        idempotent=True,
        alterable={"internal.segment.bytes": ("10000", "30000")},
    ),
    Topic(
        "compacted",
        {"internal.segment.bytes": "15000", "delete.retention.ms": "700", **_COMPACT},
        keys=60,
        idempotent=True,
        alterable={"min.cleanable.dirty.ratio": ("0.01", "0.1", "0.5"), "delete.retention.ms": ("700", "1500")},
    ),
    Topic(
        "both",
        {
            "internal.segment.bytes": "15000",
            **_COMPACT,
            "cleanup.policy": "compact,delete",
            "retention.ms": "2500",
            "delete.retention.ms": "1000",
        },
        keys=80,
    ),
    Topic(
        "transactions",
        {"internal.segment.bytes": "12000", "delete.retention.ms": "700", **_COMPACT},
        partitions=1,
        keys=40,
        transactional=True,
    ),
    Topic(
        "transactions-kept",
        {"internal.segment.bytes": "20000", **_SPARSE, **_FOREVER},
        partitions=1,
        transactional=True,
        keeps=True,
    ),
    Topic("transactions-trimmed", {"internal.segment.bytes": "9000", **_SPARSE, **_FOREVER}, transactional=True),
)
MAYFLIES = ("mayfly-0", "mayfly-1")  # created, written to, deleted and created again
CLIENTS = "clients"  # written to by a real client that lives through the kills
CLIENTS_CONFIGS = {"internal.segment.bytes": "400000", **_FOREVER}

INTERNAL = ("__consumer_offsets", "__transaction_state")  # of groups and of transactions, as FindCoordinator counts
INTERNAL_CONFIGS = {"internal.segment.bytes": "12000", "min.cleanable.dirty.ratio": "0.1", **_SPARSE}

DIRECTORIES = ("one", "two")  # partitions move between them

BROKER = {
    "log.cleaner.backoff.ms": "40",
    "log.retention.check.interval.ms": "150",
    "log.initial.task.delay.ms": "60",
    "log.segment.delete.delay.ms": "150",
    "replica.high.watermark.checkpoint.interval.ms": "250",
    "log.flush.scheduler.interval.ms": "400",
    "log.flush.interval.ms": "900",
    "num.network.threads": "2",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
