"""A well-behaved client beside an attack: it is answered every time, without an error and in bounded time.

It lives in a process of its own, so that what it measures is the broker and the machine, not the attackers'
interpreter. Produce and Fetch go through the data plane; Metadata, each time by another client id so that no kept
answer serves it, goes through the control plane.
"""

from __future__ import annotations

import multiprocessing as mp
import struct
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench import frames
from bench.campaigns.wire import Wire
from kbroker._core.record import records
from kbroker._core.record.records import Record
from kbroker.protocol import codec, messages
from kbroker.protocol.messages import MetadataResponse, ProduceResponse

TOPIC = "witness"
CONNECTIONS = 2
PAUSE_SECONDS = 0.002  # between rounds: a witness, not a load


class Testimony(NamedTuple):
    """Milliseconds to the answers of one kind of request."""

    answers: int
    p50: float
    p99: float
    longest: float

    def __str__(self) -> str:
        return f"{self.answers} answers, p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms, max {self.longest:.0f} ms"


def testimony(taken: list[float]) -> Testimony:
    ordered = sorted(taken)
    if not ordered:
        raise AssertionError("the witness was never answered")
    return Testimony(
        len(ordered), ordered[len(ordered) // 2] * 1e3, ordered[len(ordered) * 99 // 100] * 1e3, ordered[-1] * 1e3
    )


def metadata(number: int) -> bytes:
    request = messages.MetadataRequest(topics=[messages.MetadataRequest.Topic(name=TOPIC)])
    payload = codec.encode_request(request, 12, number, f"witness-{number}")
    return struct.pack(">i", len(payload)) + payload


def watch(port: int, bound_seconds: float, door: Connection) -> None:
    """Until told to stop; then what was seen is sent through the door, or the failure."""
    taken: dict[str, list[float]] = {"produce": [], "fetch": [], "metadata": []}
    produce = frames.produce(TOPIC, 0, records.build_batch([Record(key=b"k", value=b"v")]))
    fetch = frames.fetch(TOPIC, 0, 0, 1 << 10)
    number = 0
    try:
        with Wire(port, bound_seconds) as data, Wire(port, bound_seconds) as control:
            door.send("watching")
            while not door.poll(PAUSE_SECONDS):
                number += 1
                for name, wire, request in (
                    ("produce", data, produce),
                    ("fetch", data, fetch),
                    ("metadata", control, metadata(number)),
                ):
                    began = time.monotonic()
                    reply = wire.ask(request)
                    taken[name].append(time.monotonic() - began)
                    judge(name, reply)
        door.send({name: testimony(times) for name, times in taken.items()})
    except BaseException as failure:
        door.send(f"{type(failure).__name__} after {number} rounds: {failure}")


def judge(name: str, reply: bytes) -> None:
    if name == "produce":
        _, produced = codec.decode_response(ProduceResponse, frames.PRODUCE_VERSION, reply)
        error = produced.responses[0].partition_responses[0].error_code
    elif name == "metadata":
        _, told = codec.decode_response(MetadataResponse, 12, reply)
        error = told.topics[0].error_code
    else:
        error = int.from_bytes(reply[9:11], "big")
    if error:
        raise AssertionError(f"the witness was refused: {name}, error {error}")


class Witness:
    """Starts on construction; `ask` ends it and says what it saw. A reply later than the bound is a hang."""

    def __init__(self, port: int, bound_seconds: float) -> None:
        self._door, inner = mp.Pipe()
        context = mp.get_context("spawn")
        self._process = context.Process(target=watch, args=(port, bound_seconds, inner), daemon=True)
        self._process.start()
        inner.close()
        self._hear("watching")

    def _hear(self, wanted: object = None) -> object:
        heard: object = self._door.recv()
        if isinstance(heard, str) and heard != wanted:
            raise AssertionError(f"the witness failed: {heard}")
        return heard

    def check(self) -> None:
        """Raises at once if the witness has failed already."""
        if self._door.poll():
            self._hear()

    def ask(self) -> dict[str, Testimony]:
        self.check()
        self._door.send("stop")
        heard = self._hear()
        self._process.join()
        assert isinstance(heard, dict)
        return heard
