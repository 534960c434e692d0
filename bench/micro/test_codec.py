"""The plan walker: a Metadata reply of 1,000 partitions, there and back."""

from pytest_benchmark.fixture import BenchmarkFixture

from kbroker.protocol import codec
from kbroker.protocol.messages import MetadataResponse

VERSION = 13


def metadata_of(partitions: int) -> MetadataResponse:
    topic = MetadataResponse.Topic
    partition = MetadataResponse.Partition
    return MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="127.0.0.1", port=9092)],
        cluster_id="5L6g3nShT-eMCtK--X86sw",
        controller_id=1,
        topics=[
            topic(
                name="orders",
                topic_id=bytes(range(16)),
                partitions=[
                    partition(partition_index=i, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2])
                    for i in range(partitions)
                ],
            )
        ],
    )


def test_write_metadata_of_1000_partitions(benchmark: BenchmarkFixture) -> None:
    reply = metadata_of(1_000)
    assert len(benchmark(codec.encode, reply, VERSION)) > 30_000


def test_read_metadata_of_1000_partitions(benchmark: BenchmarkFixture) -> None:
    written = codec.encode(metadata_of(1_000), VERSION)
    read, end = benchmark(codec.decode, MetadataResponse, VERSION, written)
    assert end == len(written)
    assert len(read.topics[0].partitions) == 1_000
