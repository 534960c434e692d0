"""Attacks with a name: each is one thing that a hostile or broken client does, and what is expected of the broker then.

An attack raises AssertionError when the expectation fails. Around all of them stands the same bargain: the witness is
answered, and when the attackers have gone the broker holds nothing of theirs.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from bench import frames
from bench.campaigns import bombs
from bench.campaigns.anatomy import length, uvarint
from bench.campaigns.barrage import check
from bench.campaigns.seeds import SHELF, TOPIC, Corpus
from bench.campaigns.victim import NETWORK_THREADS, REQUEST_BYTES_MAX, Victim
from bench.campaigns.wire import ClosedError, Wire, ping, prefixed
from kbroker._core.record.records import Record, build_batch
from kbroker.protocol import codec, messages
from kbroker.protocol.message import Message
from kbroker.protocol.messages import FetchResponse, ProduceResponse

CROWD = 400  # connections of an attack by numbers
HUGE_COUNTS = (0x7FFFFFFE, 0x40000000, 10_000_000)
SESSIONS_MAX = 1_000
MIB = 1 << 20
FRAME_CLAIM = 100 * MIB
HALF_FRAME = 65_536
TURN_SECONDS = 60.0  # until whoever waits behind a crowd that fills the memory has had its turn
BATCH_MAX_MIB = 128.0  # DECOMPRESSED_BATCH_MAX_BYTES
HELD_PER_FRAME = 4  # a half frame may cost this often its arrived bytes
CORRUPT_MESSAGE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 2, 53


class Field(NamedTuple):
    """Where an attack takes place."""

    victim: Victim
    seeds: Corpus
    chance: random.Random
    patience: float  # seconds until an answer is a hang
    bystanders: int  # connections of others
    slack_mib: float  # of memory that is not the broker's own: a sanitizer's

    def wire(self) -> Wire:
        return Wire(self.victim.port, self.patience)

    @contextmanager
    def crowd(self, count: int) -> Iterator[list[Wire]]:
        with ExitStack() as held:
            yield [held.enter_context(self.wire()) for _ in range(count)]


Attack = Callable[[Field], str]
ATTACKS: list[Attack] = []


def attack(function: Attack) -> Attack:
    ATTACKS.append(function)
    return function


def answered_or_closed(field: Field, frames_of: Iterator[bytes]) -> str:
    """Each frame gets a whole answer or a closed connection, and never silence: a ping follows it."""
    answered = closed = 0
    wire: Wire | None = None
    for frame in frames_of:
        wire = wire or field.wire()
        try:
            wire.send(prefixed(frame) + ping(-7))
            while (reply := wire.receive())[:4] != b"\xff\xff\xff\xf9":
                check(frame, reply)
            answered += 1
        except ClosedError:
            closed += 1
            wire.close()
            wire = None
    if wire is not None:
        wire.close()
    return f"{answered} answered, {closed} closed"


@attack
def huge_counts(field: Field) -> str:
    """Every array, string and byte run of every served version claims to hold billions: closed, and nothing is held."""

    def made() -> Iterator[bytes]:
        for frame in field.seeds.filled:
            for span in frame.spans:
                if span.kind in ("array", "string", "bytes", "records"):
                    width = 2 if span.kind == "string" else 4
                    for count in HUGE_COUNTS:
                        said = length(count if span.flexible or width == 4 else 0x7FFF, span.flexible, width)
                        yield frame.data[: span.start] + said + frame.data[span.inner :]

    field.victim.forget_peak()
    level = field.victim.resident_mib()
    told = answered_or_closed(field, made())
    grown = field.victim.resident_mib("VmHWM") - level
    if grown > 32 + field.slack_mib:
        raise AssertionError(f"a claim alone took {grown:.0f} MiB")
    return f"{told}, at most {grown:+.1f} MiB"


@attack
def deep_nesting(field: Field) -> str:
    """Arrays within arrays repeated until the frame weighs a mebibyte, and old message sets 1,000 deep."""

    def made() -> Iterator[bytes]:
        deep = bombs.nested_message_sets()
        for version in range(3, 14):
            yield codec.encode_request(produce_of([deep]), version, 1, "deep")
        for frame in {(one.key, one.version): one for one in field.seeds.filled}.values():
            arrays = [span for span in frame.spans if span.kind == "array" and span.counted]
            if not arrays:
                continue
            outer = arrays[-1]  # noted after what it holds
            elements = frame.data[outer.inner : outer.end]
            times = min(MIB // max(len(elements), 1), 20_000)
            said = length(outer.counted * times, outer.flexible, 4)
            yield frame.data[: outer.start] + said + elements * times + frame.data[outer.end :]

    return answered_or_closed(field, made())


@attack
def many_questions_in_one(field: Field) -> str:
    """100,000 different names in one request of each kind that lists names: answered or refused within the bound."""
    names = [f"n{number}" for number in range(100_000)]
    configs, offsets, epochs = (
        messages.DescribeConfigsRequest,
        messages.ListOffsetsRequest,
        messages.OffsetForLeaderEpochRequest,
    )
    requests: list[tuple[Message, int]] = [
        (
            messages.MetadataRequest(
                topics=[messages.MetadataRequest.Topic(name=name) for name in names], allow_auto_topic_creation=False
            ),
            12,
        ),
        (
            configs(resources=[configs.DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]),
            4,
        ),
        (messages.FindCoordinatorRequest(coordinator_keys=names), 4),
        (messages.DeleteTopicsRequest(topic_names=names, timeout_ms=1_000), 5),
        (
            offsets(
                replica_id=-1,
                topics=[
                    offsets.ListOffsetsTopic(name=name, partitions=[offsets.ListOffsetsPartition(timestamp=-1)])
                    for name in names
                ],
            ),
            7,
        ),
        (
            epochs(
                replica_id=-1,
                topics=[
                    epochs.OffsetForLeaderTopic(topic=name, partitions=[epochs.OffsetForLeaderPartition()])
                    for name in names
                ],
            ),
            4,
        ),
    ]
    longest = 0.0
    for request, version in requests:
        began = time.monotonic()
        answered_or_closed(field, iter([codec.encode_request(request, version, 1, "many")]))
        longest = max(longest, time.monotonic() - began)
    return f"{len(requests)} requests, the longest took {longest:.1f} s"


@attack
def endless_tags(field: Field) -> str:
    """Tag sections that claim billions, hold thousands, repeat themselves or run past the end, in header and body."""

    def made() -> Iterator[bytes]:
        many = uvarint(200_000) + b"".join(uvarint(tag) + b"\0" for tag in range(200_000))
        sections = (
            uvarint(0xFFFFFFFF),
            uvarint(0x7FFFFFFF) + b"\0\0" * 1_000,
            b"\xff" * 10_000,
            many,
            uvarint(1_025) + b"".join(uvarint(tag) + b"\0" for tag in range(1_025)),
            b"\2" + b"\x63\0" * 2,
            b"\1\x63" + uvarint(0x7FFFFFFF),
            b"\1\x63" + uvarint(MIB) + bytes(MIB),
        )
        seen = set()
        for frame in field.seeds.filled:
            for span in frame.spans:
                if span.kind == "tags" and (frame.key, frame.version, span.name) not in seen:
                    seen.add((frame.key, frame.version, span.name))
                    for section in sections if len(seen) % 8 == 0 else sections[:3]:
                        yield frame.data[: span.start] + section + frame.data[span.end :]

    return answered_or_closed(field, made())


def produce_of(batches: list[bytes], acks: int = -1) -> messages.ProduceRequest:
    parts = [messages.ProduceRequest.PartitionProduceData(index=i, records=one) for i, one in enumerate(batches)]
    topic = messages.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=parts)
    return messages.ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[topic])


def error_of(reply: bytes) -> int:
    _, told = codec.decode_response(ProduceResponse, 9, reply)
    return int(told.responses[0].partition_responses[0].error_code)


@attack
def wrong_checksums(field: Field) -> str:
    """Batches with one bit of the checksum, or of what it covers, turned: refused each, and the connection stays.

    As CORRUPT_MESSAGE, except that a batch may say in its header that it belongs to a transaction, which comes first.
    """
    count = 0
    with field.wire() as wire:
        for batch in field.seeds.batches:
            for bit in range(17 * 8, min(len(batch), 300) * 8, 3):
                turned = bytearray(batch)
                turned[bit // 8] ^= 1 << bit % 8
                error = error_of(wire.ask(frames.produce(TOPIC, 0, bytes(turned))))
                if error != (TRANSACTIONAL_ID_AUTHORIZATION_FAILED if turned[22] & 16 else CORRUPT_MESSAGE):
                    raise AssertionError(f"error {error} for a wrong checksum: {turned.hex()}")
                count += 1
    return f"{count} refused"


@attack
def decompression_bombs(field: Field) -> str:
    """Batches that inflate to 256 MiB, lie about their size or are cut short: refused, and memory stays in bounds."""
    field.victim.forget_peak()
    level = field.victim.resident_mib()
    heaviest = 0.0
    with field.wire() as wire:
        for bomb in bombs.every():
            began = time.monotonic()
            error = error_of(wire.ask(frames.produce(TOPIC, 0, bomb.batch)))
            heaviest = max(heaviest, time.monotonic() - began)
            if error == 0 and not bomb.harmless:
                raise AssertionError(f"{bomb.name} was let in")
    peak = field.victim.resident_mib("VmHWM") - level
    if peak > BATCH_MAX_MIB + 64 + field.slack_mib:
        raise AssertionError(f"a bomb took {peak:.0f} MiB")
    return f"{len(bombs.every())} bombs, peak {peak:+.0f} MiB, the longest took {heaviest * 1e3:.0f} ms"


@attack
def a_byte_at_a_time(field: Field) -> str:
    """Requests that arrive byte by byte, many at once, are answered when they are whole."""
    request = frames.produce(SHELF, 0, field.seeds.batches[0])
    with field.crowd(20) as wires:
        for at in range(len(request)):
            for wire in wires:
                wire.send(request[at : at + 1])
        for wire in wires:
            if error_of(wire.receive()):
                raise AssertionError("a slow request was refused")
    return f"{len(wires)} times {len(request)} bytes"


def send_half_frames(wires: list[Wire], claim: int) -> int:
    """Each says the size of its frame and sends the first 64 KiB of it. How many bytes that is in all."""
    half = struct.pack(">i", claim) + frames.produce(TOPIC, 0, b"")[4:].ljust(HALF_FRAME, b"\0")
    for wire in wires:
        wire.send(half)
    return len(wires) * HALF_FRAME


@attack
def half_frames_held_open(field: Field) -> str:
    """Hundreds of frames that claim 1 MiB and stop after 64 KiB: they cost what has arrived, not what was claimed."""
    with field.crowd(CROWD) as wires:
        sent = send_half_frames(wires, MIB)
        held = field.victim.wait_until("half frames have arrived", lambda seen: seen["receive_buffer_bytes"] >= sent)[
            "receive_buffer_bytes"
        ]
    if held > HELD_PER_FRAME * sent:
        raise AssertionError(f"{held} bytes are held for {sent} that arrived")
    return f"{CROWD} connections sent {sent / MIB:.0f} MiB, {held / MIB:.0f} MiB were held"


def ask_for_much(wire: Wire) -> float:
    """How many seconds a large request takes."""
    began = time.monotonic()
    if error_of(wire.ask(frames.produce(SHELF, 0, build_batch([Record(value=bytes(5 * MIB))])))):
        raise AssertionError("a large request was refused")
    return time.monotonic() - began


@attack
def half_frames_that_claim_all_memory(field: Field) -> str:
    """Frames that claim 40 GiB together and stop: claims cost nothing. Nobody has to wait, nobody is closed, a large
    request is answered as ever."""
    before = field.victim.counters()
    with field.crowd(CROWD) as wires, field.wire() as wire:
        sent = send_half_frames(wires, FRAME_CLAIM)
        held = field.victim.wait_until("half frames have arrived", lambda seen: seen["receive_buffer_bytes"] >= sent)
        took = ask_for_much(wire)
        after = field.victim.counters()
    if held["receive_buffer_bytes"] > HELD_PER_FRAME * sent:
        raise AssertionError(f"{held['receive_buffer_bytes']} bytes are held for {sent} that arrived")
    if any(after[name] != before[name] for name in ("frames_starved", "connections_closed")):
        raise AssertionError("claims alone made someone wait")
    return f"{CROWD} connections; a large request took {took * 1e3:.0f} ms"


@attack
def half_frames_that_fill_the_memory(field: Field) -> str:
    """Frames that claim 100 MiB each, of which as much is sent as the broker takes: its bound and a frame per network
    thread at most. Those that stop are closed, and a large request is answered in bounded time."""
    half = struct.pack(">i", FRAME_CLAIM) + bytes(MIB)
    before = field.victim.counters()
    most = 0
    with field.crowd(CROWD) as wires, Wire(field.victim.port, TURN_SECONDS) as wire:
        for crowded in wires:
            crowded.socket.setblocking(False)
            with suppress(BlockingIOError):
                crowded.socket.send(half)
            most = max(most, field.victim.counters()["receive_buffer_bytes"])
        took = ask_for_much(wire)
        after = field.victim.counters()
    most = max(most, after["receive_buffer_bytes"])
    if most > REQUEST_BYTES_MAX + NETWORK_THREADS * FRAME_CLAIM:
        raise AssertionError(f"{most} bytes were held")
    waited = after["frames_starved"] - before["frames_starved"]
    if not waited:
        raise AssertionError("the memory was not filled")
    return f"{CROWD} connections; at most {most / MIB:.0f} MiB, {waited} had to wait, a large request took {took:.1f} s"


@attack
def abandoned_in_the_middle(field: Field) -> str:
    """Clients that leave inside a frame, politely or by reset, at every place of it."""
    request = frames.produce(TOPIC, 0, field.seeds.batches[1])
    for count in range(CROWD):
        wire = field.wire()
        wire.send(request * (count % 3) + request[: 1 + count % (len(request) - 1)])
        if count % 2:
            wire.reset()
        else:
            wire.close()
    return f"{CROWD} connections"


@attack
def silent_connections(field: Field) -> str:
    """Clients that connect and never say a word."""
    with field.crowd(CROWD):
        field.victim.wait_until("they are connected", lambda seen: seen["connections_open"] >= CROWD)
        with field.wire() as wire:
            wire.ask(ping(1))
    return f"{CROWD} connections"


def numbered(request: bytes, correlation_id: int) -> bytes:
    return request[:8] + struct.pack(">i", correlation_id) + request[12:]


@attack
def half_closed(field: Field) -> str:
    """Clients that finish sending with requests in flight get every answer, in order, and then the end."""
    for count in (1, 10, 300):
        with field.wire() as wire:
            wire.send(b"".join(ping(i) if i % 3 else numbered(frames.metadata(TOPIC), i) for i in range(count)))
            wire.finish_sending()
            for i in range(count):
                if wire.receive()[:4] != struct.pack(">i", i):
                    raise AssertionError(f"answer {i} of {count} is out of its turn")
            if not wire.is_closed_by_broker():
                raise AssertionError("the connection stayed open after its last answer")
    return "311 answers"


@attack
def half_closed_while_parked(field: Field) -> str:
    """A long poll whose client has finished sending: answered in its time or given up, never kept beyond it."""
    with field.crowd(50) as wires:
        for wire in wires:
            wire.send(long_poll(1_000))
            wire.finish_sending()
        for wire in wires:
            if not wire.is_closed_by_broker():
                raise AssertionError("a finished client is still connected")
    return f"{len(wires)} connections"


def long_poll(max_wait_ms: int, topic: str = SHELF) -> bytes:
    part = messages.FetchRequest.FetchPartition(partition=2, fetch_offset=0, partition_max_bytes=MIB)
    request = messages.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1 << 30,
        max_bytes=MIB,
        session_epoch=-1,
        topics=[messages.FetchRequest.FetchTopic(topic=topic, partitions=[part])],
    )
    return frames.frame(request, 12)


@attack
def abandoned_long_polls(field: Field) -> str:
    """Fetches that may wait for half an hour, whose clients reset: nothing stays parked."""
    wires = [field.wire() for _ in range(CROWD)]
    for wire in wires:
        wire.send(long_poll(1_800_000))
    field.victim.wait_until("they are parked", lambda seen: seen["requests_parked_now"] >= CROWD)
    for wire in wires:
        wire.reset()
    field.victim.wait_until("none is parked", lambda seen: seen["requests_parked_now"] <= field.bystanders)
    return f"{CROWD} parked and forgotten"


def fill_the_shelf(field: Field, mebibytes: int = 8) -> None:
    with field.wire() as wire:
        for _ in range(mebibytes):
            if error_of(wire.ask(frames.produce(SHELF, 1, frames.batch(MIB - 4_096)))):
                raise AssertionError("the shelf could not be filled")


@attack
def a_reader_that_never_reads(field: Field) -> str:
    """Fetches of mebibytes, pipelined by the hundred, of which no reply is read; then the readers reset."""
    fill_the_shelf(field)
    field.victim.forget_peak()
    level = field.victim.resident_mib()
    fetch = frames.fetch(SHELF, 1, 0, 8 * MIB)
    wires = [field.wire() for _ in range(20)]
    for wire in wires:
        wire.socket.setblocking(False)
        with suppress(BlockingIOError):
            wire.socket.send(fetch * 500)
    with field.wire() as other:  # on either network thread
        for number in range(200):
            other.ask(ping(number))
    grown = field.victim.resident_mib("VmHWM") - level
    for wire in wires:
        wire.reset()
    if grown > 64 + field.slack_mib:
        raise AssertionError(f"unread replies took {grown:.0f} MiB")
    return f"20 times 500 fetches of 8 MiB, at most {grown:+.1f} MiB"


@attack
def a_slow_reader(field: Field) -> str:
    """A fetch of 8 MiB read in small sips arrives whole."""
    fill_the_shelf(field, 1)
    with field.wire() as wire:
        wire.send(frames.fetch(SHELF, 1, 0, 8 * MIB))
        got = bytearray()
        while len(got) < 4 or len(got) < 4 + int.from_bytes(got[:4], "big"):
            got += wire.socket.recv(4_096)
        codec.decode_response(FetchResponse, frames.FETCH_VERSION, bytes(got[4:]))
    return f"{len(got)} bytes"


@attack
def pipelined_by_the_thousand(field: Field) -> str:
    """5,000 requests in one breath, of either plane, are answered in their order."""
    produce = frames.produce(TOPIC, 0, field.seeds.batches[0])
    with field.wire() as wire:
        plain = [ping(0), frames.metadata(TOPIC), produce, frames.fetch("nowhere", 0, 0, 1_024)]
        sent = b"".join(numbered(plain[i % 4], i) for i in range(5_000))
        wire.socket.setblocking(False)
        at = seen = 0
        deadline = time.monotonic() + 12 * field.patience
        while seen < 5_000:
            if time.monotonic() > deadline:
                raise AssertionError(f"{seen} of 5,000 answers")
            if at < len(sent):
                with suppress(BlockingIOError):
                    at += wire.socket.send(sent[at : at + 65_536])
            wire.socket.settimeout(0.0 if at < len(sent) else field.patience)
            with suppress(BlockingIOError):
                while seen < 5_000:
                    if wire.receive()[:4] != struct.pack(">i", seen):
                        raise AssertionError(f"answer {seen} is out of its turn")
                    seen += 1
    return "5,000 answers in order"


@attack
def sessions_without_end(field: Field) -> str:
    """3,000 fetch sessions opened and never used again: their number stays bounded."""
    body = messages.FetchRequest(max_wait_ms=0, max_bytes=1_024, session_id=0, session_epoch=0)
    body.topics = [messages.FetchRequest.FetchTopic(topic=SHELF, partitions=[messages.FetchRequest.FetchPartition()])]
    request = frames.frame(body, 12)
    with field.wire() as wire:
        for _ in range(3_000):
            wire.ask(request)
    held = field.victim.counters()["fetch_sessions"]
    if held > SESSIONS_MAX:
        raise AssertionError(f"{held} sessions")
    return f"{held} are kept"


@attack
def sizes_that_lie(field: Field) -> str:
    """Negative, tiny and enormous frame sizes: closed at once."""
    lies = (-1, -0x80000000, 0, 1, 7, FRAME_CLAIM + 1, 0x7FFFFFFF)
    for lie in lies:
        with field.wire() as wire:
            wire.send(struct.pack(">i", lie))
            if not wire.is_closed_by_broker():
                raise AssertionError(f"a frame of {lie} bytes did not close its connection")
    return f"{len(lies)} closed"


@attack
def other_protocols(field: Field) -> str:
    """TLS, HTTP and noise on a plaintext port: closed, or waiting for more of a frame; never answered."""
    greetings = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
        b"SSH-2.0-OpenSSH_9.0\r\n",
        *(field.chance.randbytes(field.chance.randrange(1, 2_000)) for _ in range(200)),
    )
    for greeting in greetings:
        with field.wire() as wire:
            wire.send(greeting)
            wire.finish_sending()
            if not wire.is_closed_by_broker():
                raise AssertionError(f"still open after {greeting[:40]!r}")
    return f"{len(greetings)} greetings"
