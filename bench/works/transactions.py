"""Transactions: how many a second, and how long the request that commits one takes to be answered."""

from __future__ import annotations

import time

from bench.servers import Server
from bench.transactors import Shape, Transactor, run
from bench.works.latency import p50_p99
from bench.works.measure import SECONDS, Figures, Meter, Work, new_name, topic


def commits(producers: int, shape: Shape) -> Work:
    """Producers on the wire, one transaction behind the other, or each at its pace."""

    def work(server: Server) -> Figures:
        with topic(server) as name:
            apart_s = shape.every_s / producers
            transactors = [Transactor(server.port, new_name(), name, shape, i * apart_s) for i in range(producers)]
            try:
                with Meter(server) as meter:
                    run(transactors, SECONDS)
            finally:
                for one in transactors:
                    one.close()
        return _figures(meter, [took for one in transactors for took in one.commits_us])

    return work


def librdkafka(records: int, record_bytes: int) -> Work:
    """What a real client sees: commit_transaction() waits for the records as well."""

    def work(server: Server) -> Figures:
        from confluent_kafka import Producer

        with topic(server) as name:
            producer = Producer(
                {"bootstrap.servers": server.bootstrap, "log_level": 0, "transactional.id": new_name(), "linger.ms": 0}
            )
            producer.init_transactions(60)
            commits_us = []
            with Meter(server) as meter:
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    producer.begin_transaction()
                    for number in range(records):
                        producer.produce(name, b"x" * record_bytes, partition=number % 4)
                    began = time.perf_counter()
                    producer.commit_transaction(60)
                    commits_us.append((time.perf_counter() - began) * 1e6)
        return _figures(meter, commits_us)

    return work


def _figures(meter: Meter, commits_us: list[float]) -> Figures:
    commits = len(commits_us)
    latencies = {f"commit {name}": value for name, value in p50_p99(commits_us).items()}
    return {"transactions/s": commits / meter.wall, **latencies, "CPU µs per transaction": meter.cpu / commits * 1e6}
