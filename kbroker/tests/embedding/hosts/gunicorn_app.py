"""A WSGI application whose module starts a broker: with --preload that happens once, in gunicorn's master.

GET /produce/<value> produces a record in the worker and returns "<worker pid> <bootstrap servers>".
"""

import atexit
import os
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Producer

import kbroker

TOPIC = "gunicorn"

broker = kbroker.Broker().start()
atexit.register(broker.stop)  # runs in the master and in every worker that ends through sys.exit


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(TOPIC, environ["PATH_INFO"].rpartition("/")[2])
    acknowledged = producer.flush(20) == 0
    start_response("200 OK" if acknowledged else "503 Service Unavailable", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {broker.bootstrap_servers}".encode()]
