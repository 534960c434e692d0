"""frame.writeStream into topics: Spark's sink is at least once, so these scenarios let no batch fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compat_tests.spark.batch_writes import shown
from compat_tests.spark.stage import Stage, numbered, scenario

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@scenario
def a_stream_from_topic_to_topic(stage: Stage) -> Any:
    out = f"{stage.topic}-out"
    stage.create(stage.topic, out)
    found: list[Any] = []
    for turn in range(2):
        stage.send(numbered(range(turn * 50, turn * 50 + 50)))
        stage.now(stage.to_kafka(stage.stream().select("key", "value").writeStream, topic=out))
        found.append(stage.end_of(out))
    received = stage.client.consume(out, 0, 0, 100)
    assert [int(r.value or b"") for r in received] == [*range(100)]
    assert found == [50, 100]
    return shown(received)


@scenario
def a_stream_chooses_topic_partition_and_headers(stage: Stage) -> Any:
    names = [f"{stage.topic}-{suffix}" for suffix in ("even", "odd")]
    stage.create()
    stage.create(*names, partitions=2)
    stage.send(numbered(range(40)))
    chosen = stage.stream().selectExpr(
        f"if(cast(cast(value as string) as int) % 2 = 0, '{names[0]}', '{names[1]}') as topic",
        "cast(offset div 2 % 2 as int) as partition",
        "key",
        "value",
        "array(named_struct('key', 'from', 'value', cast(cast(offset as string) as binary))) as headers",
    )
    stage.now(stage.to_kafka(chosen.writeStream))
    found = {}
    for parity, name in enumerate(names):
        for partition in range(2):
            wanted = [n for n in range(40) if n % 2 == parity and n // 2 % 2 == partition]
            received = stage.client.consume(name, partition, 0, len(wanted))
            assert [int(r.value or b"") for r in received] == wanted
            assert [r.headers for r in received] == [(("from", b"%d" % n),) for n in wanted]
            found[f"{name} {partition}"] = shown(received)
    return found


@scenario
def batches_handed_to_a_function(stage: Stage) -> Any:
    """foreachBatch: each batch is written to two topics, with its number."""
    names = [f"{stage.topic}-{suffix}" for suffix in ("one", "two")]
    stage.create(stage.topic, *names)
    stage.send(numbered(range(30)))

    def write(batch: DataFrame, number: int) -> None:
        for name in names:
            stage.save(batch.selectExpr("value", f"'{number}' as key").coalesce(1), topic=name)

    stage.now(stage.stream(maxOffsetsPerTrigger="10").writeStream.foreachBatch(write))
    found = [shown(stage.client.consume(name, 0, 0, 30)) for name in names]
    wanted = [[n, repr(b"%d" % (n // 10)), repr(b"%d" % n), "()"] for n in range(30)]
    assert found == [wanted, wanted]
    return found
