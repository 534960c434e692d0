"""The Broker of a program: started, stopped, many at once, its host left alone."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kbroker
from kbroker.broker import StartError
from kbroker.config import Config, ConfigError
from kbroker.observe.logging import BrokerLog

Start = Callable[..., kbroker.Broker]


def test_a_temporary_directory_goes_with_its_broker() -> None:
    with kbroker.Broker() as broker:
        directory = broker.data_dir
        assert (directory / "meta.properties").exists()
    assert not directory.exists()


def test_a_directory_that_was_given_stays(tmp_path: Path) -> None:
    with kbroker.Broker(tmp_path):
        pass
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_it_can_be_stopped_twice_and_its_directory_used_again(tmp_path: Path) -> None:
    broker = kbroker.Broker(tmp_path).start()
    broker.stop()
    broker.stop()
    with kbroker.Broker(tmp_path):
        pass


def test_a_running_broker_tells_what_it_holds(broker: kbroker.Broker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port)) as client:
        client.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
        assert client.recv(1)
        held = broker.counters()
    assert (held["connections_open"], held["requests_parked_now"], held["fetch_sessions"]) == (1, 0, 0)
    broker.stop()
    with pytest.raises(RuntimeError):
        broker.counters()


def test_starting_a_running_broker_is_refused(broker: kbroker.Broker) -> None:
    with pytest.raises(StartError):
        broker.start()


def test_a_directory_in_use_is_refused_and_leaves_no_thread_behind(start_broker: Start, tmp_path: Path) -> None:
    start_broker(tmp_path)
    before = threading.active_count()
    with pytest.raises(StartError, match="in use"):
        kbroker.Broker(tmp_path).start()
    assert threading.active_count() == before


def test_a_port_in_use_is_refused_and_the_directory_released(broker: kbroker.Broker, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=str(broker.port)):
        kbroker.Broker(tmp_path, port=broker.port).start()
    with kbroker.Broker(tmp_path):
        pass


def test_settings_are_taken_by_their_kafka_names_and_checked(start_broker: Start) -> None:
    assert start_broker(config={"num.partitions": 3}).config.integer("num.partitions") == 3
    assert start_broker(num_partitions=4).config.integer("num.partitions") == 4
    with pytest.raises(ConfigError):
        kbroker.Broker(config={"num.partitons": 3})
    with pytest.raises(ConfigError):
        kbroker.Broker(num_partitons=3)


def test_a_listener_on_every_address_must_say_what_clients_shall_use(start_broker: Start) -> None:
    with pytest.raises(StartError, match="advertised"):
        kbroker.Broker(listeners="PLAINTEXT://0.0.0.0:0").start()


def test_two_listeners_are_two_addresses(start_broker: Start) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT"
    broker = start_broker(
        listeners="PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0", config={"listener.security.protocol.map": protocols}
    )
    assert len(set(broker.bootstrap_servers.split(","))) == 2


def network_threads(data_dir: Path, **settings: str) -> int:
    """Of a broker with the settings of `kbroker start`, which has more threads than one within a program."""
    config = Config.load(settings={"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data_dir), **settings})
    log = BrokerLog()
    try:
        with kbroker.Broker.from_config(config, log=log):
            return sum(thread.name.startswith("kbroker-net-") for thread in threading.enumerate())
    finally:
        log.close()


def test_without_num_network_threads_a_relief_thread_is_added_to_half_the_cores(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    expected = min(4, cores // 2) + 1 if cores > 1 else 1
    assert network_threads(tmp_path) == expected


def test_num_network_threads_is_exactly_the_number_of_network_threads(tmp_path: Path) -> None:
    assert network_threads(tmp_path / "1", **{"num.network.threads": "1"}) == 1
    assert network_threads(tmp_path / "3", **{"num.network.threads": "3"}) == 3


def test_the_host_keeps_its_signals_logging_and_switch_interval(start_broker: Start) -> None:
    before = (sys.getswitchinterval(), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    handlers = list(logging.getLogger().handlers)
    start_broker()
    assert before == (sys.getswitchinterval(), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    assert logging.getLogger().handlers == handlers


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, kbroker; print({'asyncio', 'structlog', 'click', 'kbroker.broker'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "set()\n"
    )


def test_a_program_that_forgets_to_stop_ends_and_leaves_no_temporary_directory() -> None:
    program = "import kbroker; print(kbroker.Broker().start().data_dir)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not Path(ran.stdout.strip()).exists()
