"""ApiVersions, and frames that are not what they should be."""

from __future__ import annotations

import struct
from typing import Any

from compat_tests.raw.batches import Batch
from compat_tests.raw.cases import case
from compat_tests.raw.connection import CLOSED, decode_body, key_of, versions_of
from compat_tests.raw.talk import Talk, produce_body

SERVED = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "CreatePartitions",
    "DescribeCluster",
    "DescribeTopicPartitions",
    "ListPartitionReassignments",
    "DeleteGroups",
    "OffsetDelete",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "WriteTxnMarkers",
    "DescribeProducers",
    "SaslHandshake",
    "SaslAuthenticate",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
    "DescribeTransactions",
    "ListTransactions",
)
_KEYS = {key_of(api) for api in SERVED}


def _served_only(answer: Any) -> Any:
    """What kbroker serves today; features are compared for those it has."""
    if isinstance(answer, dict):
        answer["api_keys"] = sorted(
            (one for one in answer["api_keys"] if one["api_key"] in _KEYS), key=lambda one: one["api_key"]
        )
        for field in ("supported_features", "finalized_features"):
            held = {one["name"]: one for one in answer.get(field, [])}  # in whatever order
            answer[field] = [held[name] for name in ("metadata.version", "transaction.version") if name in held]
        if answer.get("finalized_features_epoch", -1) >= 0:
            answer["finalized_features_epoch"] = "an offset"
    return answer


@case("ApiVersions")
def of_the_broker(talk: Talk, version: int) -> None:
    body = {"client_software_name": "raw", "client_software_version": "1.0"}
    talk.say("answer", _served_only(talk.connection.ask("ApiVersions", version, body)))
    talk.say("again", _served_only(talk.connection.ask("ApiVersions", version, body)))


@case("ApiVersions", [3, 4])
def software_names(talk: Talk, version: int) -> None:
    for name, number in (("", "1"), ("a b", "1"), ("-a", "1"), ("a", ""), ("a", "1 2"), ("a.b-c", "1.0-x"), ("a", "é")):
        body = {"client_software_name": name, "client_software_version": number}
        talk.say(f"{name!r} {number!r}", _served_only(talk.connect().ask("ApiVersions", version, body)))


@case("ApiVersions", [0])
def from_the_future(talk: Talk, version: int) -> None:
    for future in (5, 60, 32767, -1):
        connection = talk.connect()
        header = struct.pack(">hhih", key_of("ApiVersions"), future, 77, 3) + b"raw\0"
        connection.send(header + b"\x02a\x02b\0")
        frame = connection.receive()
        talk.say(f"version {future}", frame if isinstance(frame, str) else decode_body("ApiVersions", 0, frame))
        talk.say(
            f"then, {future}",
            _served_only(
                connection.ask("ApiVersions", 3, {"client_software_name": "raw", "client_software_version": "1"})
            ),
        )


def _header(key: int, version: int, *, client: bytes | None = b"raw", flexible: bool = False) -> bytes:
    head = struct.pack(">hhi", key, version, 9)
    head += struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    return head + (b"\0" if flexible else b"")


def _fate(talk: Talk, label: str, data: bytes, *, framed: bool = True) -> None:
    """What becomes of a connection that gets these bytes: closed, or answered."""
    connection = talk.connect()
    if framed:
        connection.send(data)
    else:
        connection.send_bytes(data)
    frame = connection.receive()
    talk.say(label, frame if isinstance(frame, str) else f"answered with {len(frame)} bytes")


@case("ApiVersions", [0])
def unknown_keys_and_versions_hang_up(talk: Talk, version: int) -> None:
    for key in (4, 5, 6, 7, 93, 500, 32767, -1, 52, 59):
        _fate(talk, f"key {key}", _header(key, 0) + bytes(40))
    for api in SERVED:
        if api == "ApiVersions":
            continue
        versions = versions_of(api)
        for wrong in (versions[0] - 1, versions[-1] + 1, 99, -1):
            label = f"{api} v{wrong}"
            if label not in talk.said:
                _fate(talk, label, _header(key_of(api), wrong, flexible=True) + bytes(40))
    for old in (0, 1, 2):
        if f"Produce v{old}" not in talk.said:
            _fate(talk, f"Produce v{old}", _header(0, old) + struct.pack(">hii", 1, 1000, 0))


@case("ApiVersions", [0])
def broken_frames_hang_up(talk: Talk, version: int) -> None:
    for size in (-1, -2147483648, 104857601, 2147483647):
        _fate(talk, f"size {size}", struct.pack(">i", size) + b"\0" * 16, framed=False)
    _fate(talk, "size 0", b"")
    for cut in range(1, 10):
        _fate(talk, f"header of {cut} bytes", _header(3, 1)[:cut])
    _fate(talk, "client id longer than the frame", struct.pack(">hhih", 3, 1, 1, 3000) + b"abc")
    _fate(talk, "client id length -2", struct.pack(">hhih", 3, 1, 1, -2) + bytes(8))
    _fate(talk, "client id not utf-8", struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe" + struct.pack(">i", 0))
    _fate(talk, "body missing", _header(3, 1))
    _fate(talk, "array count beyond the frame", _header(3, 1) + struct.pack(">i", 1000))
    _fate(talk, "array count huge", _header(3, 1) + struct.pack(">i", 2147483647))
    _fate(talk, "array count -2", _header(3, 1) + struct.pack(">i", -2))
    _fate(talk, "string beyond the frame", _header(3, 1) + struct.pack(">ih", 1, 100) + b"abc")
    _fate(talk, "compact count huge", _header(3, 12, flexible=True) + b"\xff\xff\xff\xff\x0f" + bytes(10))
    _fate(talk, "varint without end", _header(3, 12, flexible=True) + b"\xff" * 8)
    _fate(talk, "fetch cut short", _header(1, 4) + bytes(10))
    _fate(talk, "produce cut short", _header(0, 9, flexible=True) + b"\0\0\1\0\0\3\xe8\2")


@case("ApiVersions", [0])
def odd_frames_are_answered(talk: Talk, version: int) -> None:
    answer = talk.connection.ask("Metadata", 1, {"topics": []})
    assert isinstance(answer, dict)
    everything = struct.pack(">i", 0)
    _fate_decoded(talk, "null client id", _header(3, 1, client=None) + everything, 1)
    _fate_decoded(talk, "empty client id", _header(3, 1, client=b"") + everything, 1)
    _fate_decoded(talk, "bytes left over", _header(3, 1) + everything + b"left over", 1)
    tags = b"\1" + b"\x63\4abcd"  # one unknown tag, number 99, of four bytes
    head = _header(3, 9)
    _fate_decoded(talk, "unknown tag in the header", head + tags + b"\1\0\0\0\0", 9, skip=1)
    _fate_decoded(talk, "unknown tag in the body", head + b"\0" + b"\1\0\0\0" + tags, 9, skip=1)
    _fate(talk, "tag beyond the frame", head + b"\1\x63\x7fab")


def _fate_decoded(talk: Talk, label: str, frame: bytes, version: int, *, skip: int = 0) -> None:
    connection = talk.connect()
    connection.send(frame)
    got = connection.receive()
    if isinstance(got, str):
        talk.say(label, got)
    else:
        talk.say(label, decode_body("Metadata", version, got[:4] + got[4 + skip :]))


@case("ApiVersions", [0])
def pipelined_requests_are_answered_in_order(talk: Talk, version: int) -> None:
    topic = talk.topic()
    connection = talk.connect()
    sent: list[tuple[str, int, int]] = []
    batch = Batch().encode()
    place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fetch = {"topic": topic.name, "topic_id": topic.topic_id, "partitions": [place]}
    stream = b""
    for _ in range(5):
        for api, asked, body in (
            ("Produce", 9, produce_body(topic, batch)),
            ("Metadata", 12, {"topics": [{"name": topic.name}]}),
            ("Fetch", 12, {"max_wait_ms": 0, "topics": [fetch]}),
            ("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [{"timestamp": -1}]}]}),
        ):
            frame = connection.request_frame(api, asked, body)
            stream += struct.pack(">i", len(frame)) + frame
            sent.append((api, asked, connection.correlation_id))
    connection.send_bytes(stream)
    for turn, (api, asked, correlation_id) in enumerate(sent):
        answer = connection.answer(api, asked, correlation_id)
        talk.say(f"{turn} {api}", answer)
        if answer == CLOSED:
            break


@case("ApiVersions", [0])
def a_frame_may_come_byte_by_byte(talk: Talk, version: int) -> None:
    connection = talk.connect()
    frame = connection.request_frame("Metadata", 12, {"topics": []})
    for byte in struct.pack(">i", len(frame)) + frame:
        connection.send_bytes(bytes([byte]))
    talk.say("answer", connection.answer("Metadata", 12, connection.correlation_id))


@case("SaslHandshake")
def a_plaintext_listener_has_no_sasl(talk: Talk, version: int) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", ""):
        talk.ask(f"mechanism {mechanism}", "SaslHandshake", version, {"mechanism": mechanism})


@case("SaslAuthenticate")
def authentication_is_not_expected(talk: Talk, version: int) -> None:
    talk.ask("answer", "SaslAuthenticate", version, {"auth_bytes": b"\0user\0secret"})
