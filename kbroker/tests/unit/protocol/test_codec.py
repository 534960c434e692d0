import struct

import pytest

from kbroker.protocol import codec
from kbroker.protocol.codec import DecodeError, EncodeError
from kbroker.protocol.messages import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ShareFetchResponse,
)
from kbroker.protocol.records import (
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    NoOpRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionRecord,
    TopicRecord,
    TransactionLogKey,
)


def test_a_message_has_the_fields_of_every_version_at_their_defaults() -> None:
    request = FetchRequest()
    assert request.max_bytes == 0x7FFFFFFF
    assert request.cluster_id is None
    assert request.topics == []
    assert request.replica_state == FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert FetchResponse.PartitionData().records is None


def test_defaults_that_can_change_are_not_shared() -> None:
    assert FetchRequest().topics is not FetchRequest().topics
    assert FetchRequest().replica_state is not FetchRequest().replica_state


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(MetadataRequest(topics=[MetadataRequest.Topic(name="t")])) == (
        "MetadataRequest(topics=[MetadataRequest.Topic(name='t')])"
    )


def test_a_null_array_and_an_empty_one_are_told_apart() -> None:
    assert codec.encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert codec.encode(MetadataRequest(topics=[]), 1) == b"\0\0\0\0"
    assert codec.decode(MetadataRequest, 1, b"\xff\xff\xff\xff")[0].topics is None


def test_null_is_refused_where_the_version_does_not_allow_it() -> None:
    with pytest.raises(EncodeError, match="MetadataRequest v0: topics is null"):
        codec.encode(MetadataRequest(topics=None), 0)
    with pytest.raises(DecodeError, match="topics at byte 4: is null"):
        codec.decode(MetadataRequest, 0, b"\xff\xff\xff\xff")


def test_a_null_struct_is_a_signed_byte_in_the_body_and_a_varint_in_a_tag() -> None:
    body = codec.encode(DescribeTopicPartitionsRequest(cursor=None), 0)
    assert body == b"\x01" + struct.pack(">i", 2000) + b"\xff" + b"\0"
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=1)
    request = DescribeTopicPartitionsRequest(cursor=cursor)
    assert codec.decode(DescribeTopicPartitionsRequest, 0, codec.encode(request, 0))[0] == request

    tagged = codec.encode(ConsumerGroupMemberMetadataValue(classic_member_metadata=None), 0)
    assert tagged.endswith(b"\x01" + b"\0" + b"\x01" + b"\0")  # one field, tag 0, one byte, null
    assert codec.decode(ConsumerGroupMemberMetadataValue, 0, tagged)[0].classic_member_metadata is None


def test_a_field_that_the_version_lacks_must_be_ignorable_or_at_its_default() -> None:
    codec.encode(FetchRequest(rack_id="r"), 4)  # ignorable: dropped
    codec.encode(MetadataRequest(allow_auto_topic_creation=True), 0)
    with pytest.raises(EncodeError, match=r"MetadataRequest v0: allow_auto_topic_creation is not in this version"):
        codec.encode(MetadataRequest(allow_auto_topic_creation=False), 0)


def test_a_tagged_field_at_its_default_takes_no_bytes() -> None:
    with_default = codec.encode(FetchRequest(), 12)
    assert with_default == codec.encode(FetchRequest(cluster_id=None), 12)
    assert len(codec.encode(FetchRequest(cluster_id="c"), 12)) == len(with_default) + 4


def test_a_tagged_field_longer_than_127_bytes_has_a_longer_size() -> None:
    request = FetchRequest(cluster_id="c" * 20000)
    assert codec.decode(FetchRequest, 12, codec.encode(request, 12))[0] == request


def test_unknown_tags_are_passed_over_and_not_kept() -> None:
    plain = codec.encode(HeartbeatRequest(group_id="g"), 4)
    assert plain.endswith(b"\0")
    tags = b"\x02" + b"\x63\x03abc" + b"\x64\x00"
    request, end = codec.decode(HeartbeatRequest, 4, plain[:-1] + tags + b"rest")
    assert request == HeartbeatRequest(group_id="g")
    assert end == len(plain) - 1 + len(tags)


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        (b"", "ends before"),
        (b"\x01", "ends before"),
        (b"\xff\xff\xff\xff\x0f", "ends before"),
        (b"\x01\x63\x05abc", "inside a tagged field"),
        (b"\x81\x10" + b"\x63\x00" * 2049, "2049 tagged fields"),
        (b"\x01\x00\x05\x02cabc", "shorter than its tag"),
        (b"\x01\x00\x01\x04cab", "cluster_id at byte .* past the end"),
    ],
)
def test_broken_tags_are_refused(tags: bytes, complaint: str) -> None:
    plain = codec.encode(FetchRequest(), 12)
    with pytest.raises(DecodeError, match=complaint):
        codec.decode(FetchRequest, 12, plain[:-1] + tags)


def test_an_error_names_the_field_the_element_and_the_byte() -> None:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name="a"),
            CreateTopicsRequest.CreatableTopic(
                name="b", configs=[CreateTopicsRequest.CreatableTopicConfig(name="k", value="v")]
            ),
        ]
    )
    data = codec.encode(request, 5)
    cut = data.rindex(b"k")
    with pytest.raises(DecodeError) as caught:
        codec.decode(CreateTopicsRequest, 5, data[:cut] + b"\xff" + data[cut + 1 :])
    assert caught.value.path == "CreateTopicsRequest v5: topics[1].configs[0].name"
    assert caught.value.reason == "is not UTF-8"
    assert caught.value.offset == cut + 1


def test_an_offset_outside_the_data_and_an_unknown_version_are_refused() -> None:
    with pytest.raises(DecodeError, match="outside"):
        codec.decode(HeartbeatRequest, 4, b"", 1)
    with pytest.raises(DecodeError, match="no version 9"):
        codec.decode(HeartbeatRequest, 9, b"")
    with pytest.raises(EncodeError, match="no version 9"):
        codec.encode(HeartbeatRequest(), 9)


def test_a_count_is_checked_against_the_bytes_that_remain() -> None:
    with pytest.raises(DecodeError, match="more elements than there are bytes"):
        codec.decode(MetadataRequest, 1, b"\x7f\xff\xff\xff" + b"\0" * 1000)


def test_a_frame_within_its_bytes_can_still_exceed_its_budget() -> None:
    data = codec.encode(MetadataRequest(topics=[MetadataRequest.Topic() for _ in range(1000)]), 9)
    codec.decode(MetadataRequest, 9, data)
    with pytest.raises(DecodeError, match="more memory than one request may"):
        codec.decode(MetadataRequest, 9, data, budget=10_000)


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (HeartbeatRequest(generation_id=1 << 31), "outside -2147483648 to 2147483647"),
        (HeartbeatRequest(generation_id="1"), "is a str, not an int"),  # type: ignore[arg-type]
        (HeartbeatRequest(generation_id=None), "is a NoneType, not an int"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id=b"g"), "is a bytes, not a str"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="\ud800"), "cannot be written as UTF-8"),
        (HeartbeatRequest(group_id="g" * 32768), "a string of 32768 bytes"),
        (MetadataRequest(topics="abc"), "is a str, not a list"),  # type: ignore[arg-type]
        (MetadataRequest(topics=["abc"]), "MetadataRequest.Topic is wanted, not str"),  # type: ignore[list-item]
        (MetadataRequest(topics=[MetadataRequest.Topic(topic_id=b"short")]), "is not 16 bytes"),
    ],
)
def test_a_value_that_does_not_fit_its_field_is_refused(
    request_: HeartbeatRequest | MetadataRequest, complaint: str
) -> None:
    version = request_.VERSIONS[1]
    with pytest.raises(EncodeError, match=complaint):
        codec.encode(request_, version)


def test_a_record_set_must_be_there_where_it_may_not_be_null() -> None:
    partition = ShareFetchResponse.PartitionData()
    response = ShareFetchResponse(responses=[ShareFetchResponse.ShareFetchableTopicResponse(partitions=[partition])])
    with pytest.raises(EncodeError, match="records is null"):
        codec.encode(response, 1)
    partition.records = b"x"
    assert codec.decode(ShareFetchResponse, 1, codec.encode(response, 1))[0] == response


def test_a_request_header_is_flexible_when_its_request_is() -> None:
    for version, header_bytes in ((3, 10 + 6), (4, 10 + 6 + 1)):
        frame = codec.encode_request(HeartbeatRequest(group_id="g"), version, 77, "client")
        header, at = codec.decode_request_header(frame)
        assert (header.request_api_key, header.request_api_version, header.correlation_id) == (12, version, 77)
        assert header.client_id == "client"
        assert at == header_bytes
        assert codec.decode(HeartbeatRequest, version, frame, at)[0].group_id == "g"


def test_a_client_id_keeps_its_16_bit_length_in_a_flexible_header() -> None:
    frame = codec.encode_request(HeartbeatRequest(), 4, 1, None)
    assert frame[8:11] == b"\xff\xff\x00"


def test_the_header_of_an_unknown_key_or_version_can_be_read() -> None:
    header, _ = codec.decode_request_header(struct.pack(">hhih", 999, 3, 5, -1))
    assert header.request_api_key == 999
    header, _ = codec.decode_request_header(struct.pack(">hhihb", 18, 60, 5, -1, 0))
    assert (header.request_api_version, header.correlation_id) == (60, 5)
    with pytest.raises(DecodeError):
        codec.decode_request_header(b"\0")


def test_a_response_header_is_flexible_except_for_api_versions() -> None:
    assert codec.encode_response(HeartbeatResponse(), 3, 5)[:4] == struct.pack(">i", 5)
    assert codec.encode_response(HeartbeatResponse(), 4, 5)[:5] == struct.pack(">ib", 5, 0)
    assert codec.encode_response(ApiVersionsResponse(error_code=35), 4, 5)[:6] == struct.pack(">ih", 5, 35)
    for response, version in ((HeartbeatResponse(error_code=3), 4), (ApiVersionsResponse(error_code=35), 4)):
        frame = codec.encode_response(response, version, 5)
        assert codec.decode_response(type(response), version, frame) == (5, response)


def test_a_prefix_stands_before_the_body() -> None:
    assert codec.encode(ApiVersionsRequest(), 0, b"prefix") == b"prefix"


def test_a_message_is_read_from_a_memoryview_at_an_offset() -> None:
    response = MetadataResponse(cluster_id="c")
    data = memoryview(b"xx" + codec.encode(response, 12) + b"yy")
    assert codec.decode(MetadataResponse, 12, data, 2) == (response, len(data) - 2)


def test_metadata_records_carry_frame_version_key_and_version() -> None:
    record = TopicRecord(name="t", topic_id=bytes(range(16)))
    value = codec.encode_metadata_record(record)
    assert value[:3] == bytes((1, 2, 0))
    assert codec.decode_metadata_record(value) == (record, 0)
    partition = PartitionRecord(partition_id=1, directories=[bytes(16)])
    assert codec.decode_metadata_record(codec.encode_metadata_record(partition, 1)) == (partition, 1)
    assert codec.encode_metadata_record(NoOpRecord()) == bytes((1, 20, 0, 0))


@pytest.mark.parametrize("value", [b"", b"\x02\x02\x00", b"\x01\x7f\x00", b"\x01\x02\x09", b"\xff" * 9, b"\x01\x02"])
def test_a_broken_metadata_record_is_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        codec.decode_metadata_record(value)


def test_coordinator_records_carry_the_number_of_the_key_and_the_version_of_the_value() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=9)
    key_bytes, value_bytes = codec.encode_coordinator_key(key), codec.encode_coordinator_value(value, 3)
    assert key_bytes[:2] == b"\0\x01"
    assert value_bytes[:2] == b"\0\x03"
    read = codec.decode_coordinator_key("group", key_bytes)
    assert read == key
    assert codec.decode_coordinator_value("group", key, value_bytes) == value
    assert codec.decode_coordinator_value("group", key, None) is None
    assert codec.encode_coordinator_value(GroupMetadataValue())[:2] == b"\0\x04"
    assert codec.decode_coordinator_key("transaction", codec.encode_coordinator_key(TransactionLogKey())) is not None


def test_a_coordinator_key_from_the_future_is_none_and_a_broken_one_is_refused() -> None:
    assert codec.decode_coordinator_key("group", b"\x7f\x00rest") is None
    with pytest.raises(DecodeError):
        codec.decode_coordinator_key("group", b"\x00")
    with pytest.raises(DecodeError):
        codec.decode_coordinator_value("group", GroupMetadataKey(), b"\x00\x63")


def test_numbers_that_are_subclasses_of_int_are_written() -> None:
    from kbroker._core.errors import Err

    response = HeartbeatResponse(error_code=Err.UNKNOWN_MEMBER_ID)
    assert codec.decode(HeartbeatResponse, 4, codec.encode(response, 4))[0].error_code == 25


def test_an_unset_slot_is_refused() -> None:
    request = AddRaftVoterRequest()
    del request.timeout_ms
    with pytest.raises(EncodeError, match="timeout_ms is not set"):
        codec.encode(request, 0)
