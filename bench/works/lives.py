"""Works that start brokers of their own: from nothing to the first record, many topics, memory."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from bench import frames
from bench.client import Client
from bench.servers import Server
from bench.works.latency import CONNECTIONS, at_rest
from bench.works.measure import Figures, new_name

TOPICS, PARTITIONS = 500, 4
ONE_BY_ONE = 25


def fresh(server: Server) -> Figures:
    """A broker on an empty directory, until it has given back its first record; then its memory.

    The clock starts with the process. What Apache Kafka needs before, the formatting of its directory, is not counted.
    """
    born = server.another()
    try:
        topic = new_name()
        with Client(born.port) as client:
            client.create_topics([topic], 1)
            client.await_writable(topic)
            while not client.fetch_one(topic):
                pass
        first_record_s = time.monotonic() - born.spawned_at
        at_rest(born)
        idle_mib = born.resident_mib()
        return {
            "seconds to first record": first_record_s,
            "MiB idle": idle_mib,
            "KiB per connection": (with_connections(born, topic) - idle_mib) * 1024 / CONNECTIONS,
        }
    finally:
        born.stop()


def with_connections(server: Server, topic: str) -> float:
    """MiB resident while 1,000 connections are open, each of which has said hello and produced one record."""
    requests = [frames.api_versions(), frames.produce(topic, 0, frames.batch(100, 100))]
    clients: list[Client] = []
    try:
        for _ in range(CONNECTIONS):
            clients.append(Client(server.port))
            for request in requests:
                clients[-1].exchange(request)
        return server.resident_mib()
    finally:
        for client in clients:
            client.close()


def resident(server: Server) -> Figures:
    return {"MiB": server.resident_mib()}


def create_topics(server: Server) -> Figures:
    """500 topics in one request, until Metadata gives every partition a leader; then 25 topics, a request each."""
    together = [new_name() for _ in range(TOPICS)]
    one_by_one = [new_name() for _ in range(ONE_BY_ONE)]
    with Client(server.port) as client:
        began = time.monotonic()
        client.create_topics(together, PARTITIONS)
        answered_s = time.monotonic() - began
        client.await_leaders(set(together), PARTITIONS)
        listed_s = time.monotonic() - began
        began = time.monotonic()
        for name in one_by_one:
            client.create_topics([name], PARTITIONS)
        each_s = (time.monotonic() - began) / ONE_BY_ONE
        client.delete_topics(together + one_by_one)
    server.await_deleted({*together, *one_by_one})
    return {"seconds to answer": answered_s, "seconds to all led": listed_s, "ms each, one by one": each_s * 1000}


class Restart:
    """A clean stop and a start on the same directory of 500 topics, until Metadata gives all partitions a leader."""

    def __init__(self) -> None:
        self.directories: dict[str, Path] = {}
        self.topics = {f"kept{number:03d}" for number in range(TOPICS)}

    def __call__(self, server: Server) -> Figures:
        if server.name not in self.directories:
            self.directories[server.name] = self.populate(server)
        born = server.another(self.directories[server.name])
        try:
            with Client(born.port) as client:
                client.await_leaders(self.topics, PARTITIONS)
            return {"seconds": time.monotonic() - born.spawned_at}
        finally:
            born.stop()

    def populate(self, server: Server) -> Path:
        """The directory that a broker with 500 topics, some of which hold records, leaves behind."""
        born = server.another()
        with Client(born.port) as client:
            client.create_topics(sorted(self.topics), PARTITIONS)
            client.await_leaders(self.topics, PARTITIONS)
            for name in sorted(self.topics)[::10]:
                client.await_writable(name, PARTITIONS)
        born.stop(keep_data=True)
        return born.data_dir

    def clear(self) -> None:
        for directory in self.directories.values():
            shutil.rmtree(directory, ignore_errors=True)
