"""A Celery application whose worker keeps a broker in its parent process; tasks run in the forked pool.

Queue, results and the address of the broker are files below the directory CELERY_FILES.
"""

import os
from pathlib import Path
from typing import Any

from celery import Celery, signals
from confluent_kafka import Producer

import kbroker

FILES = Path(os.environ["CELERY_FILES"])
TOPIC = "celery"

app = Celery("celery_app", broker="filesystem://", backend=f"file://{FILES}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{FILES}/queue",
    "data_folder_out": f"{FILES}/queue",
    "control_folder": f"{FILES}/control",
    "polling_interval": 0.05,
}
broker = kbroker.Broker()


@signals.worker_init.connect
def start_broker(**_: Any) -> None:
    broker.start()
    (FILES / "address").write_text(broker.bootstrap_servers)


@signals.worker_shutdown.connect
@signals.worker_process_shutdown.connect
def stop_broker(**_: Any) -> None:
    broker.stop()
    with (FILES / "stopped").open("a") as file:
        file.write(f"{os.getpid()}\n")


@app.task(name="produce")
def produce(value: str) -> int:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(TOPIC, value)
    if producer.flush(20) != 0:
        raise RuntimeError(f"{value} was not acknowledged")
    return os.getpid()
