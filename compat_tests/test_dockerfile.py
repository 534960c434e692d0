"""The Dockerfile and docs/compose.yaml: the image is built, its broker is healthy, a client on the host reaches it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from compat_tests.dockerfile import CHECKOUT, Image, build
from compat_tests.until import until

DOCKERFILE = CHECKOUT / "Dockerfile"
SERVES_WITHIN = 30.0


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    place = Path(tempfile.mkdtemp(prefix="kbroker-image-"))
    place.chmod(0o755)  # the image's user passes through it
    try:
        yield build(DOCKERFILE, place)
    finally:
        shutil.rmtree(place)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def on_free_ports(values: dict[str, str]) -> tuple[dict[str, str], dict[str, int]]:
    """Return the variables with each port replaced by a free one, and the free port for each of them."""
    wanted = re.findall(r"(?<=:)\d+", values["KAFKA_LISTENERS"])
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in wanted]
        ports = dict(zip(wanted, (one.getsockname()[1] for one in sockets), strict=True))
    text = {key: re.sub(r"(?<=:)\d+\b", lambda found: str(ports[found[0]]), value) for key, value in values.items()}
    return text, ports


def compose_variables() -> dict[str, str]:
    text = (CHECKOUT / "docs" / "compose.yaml").read_text()
    return dict(re.findall(r'^      (KAFKA_\w+): "?([^"\n]*)"?$', text, re.M))


@contextmanager
def container(image: Image, variables: dict[str, str]) -> Iterator[None]:
    """Run the image's command on a volume of its own until the block ends, then stop it as `docker stop` does."""
    for volume in image.volumes:
        folder = Path(image.here(volume))
        owner = folder.stat().st_uid
        shutil.rmtree(folder)
        (folder / "lost+found").mkdir(parents=True)  # as in a new file system
        if os.getuid() == 0:
            os.chown(folder, owner, owner)
    broker = image.popen([*image.entrypoint, *image.command], variables)
    try:
        until(lambda: health(image, variables) == 0 or broker.poll() is not None, SERVES_WITHIN)
        assert broker.poll() is None, broker.communicate()
        yield
    finally:
        broker.send_signal(signal.SIGTERM)
        _, log = broker.communicate(timeout=30)
    assert broker.returncode == 0, log


def health(image: Image, variables: dict[str, str]) -> int:
    check = image.popen(image.health, variables)
    check.communicate(timeout=30)
    return check.returncode


def round_trip(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", key="42", value="two teapots")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    assert (message.error(), message.key(), message.value()) == (None, b"42", b"two teapots")
    consumer.close()


def test_builder_stage_installs_a_compiler_and_the_image_exposes_the_port_it_listens_on(image: Image) -> None:
    text = DOCKERFILE.read_text()
    assert re.search(r"apt-get install [^\n]*\bgcc libc6-dev\b", text.split("\nFROM ")[1])
    assert image.packages == []
    version = re.search(r"^ARG PYTHON=(.*)$", text, re.M)
    assert version is not None
    assert f"\n{version[1]} x86_64:tested " in (CHECKOUT / ".ci" / "pythons.txt").read_text()
    assert image.environment["KAFKA_LISTENERS"] == ",".join(f"PLAINTEXT://0.0.0.0:{port}" for port in image.ports)


def test_compose_file_binds_every_listener_to_all_addresses_and_publishes_an_advertised_port() -> None:
    variables = compose_variables()
    hosts = re.findall(r"://(.*?):\d+", variables["KAFKA_LISTENERS"])
    assert set(hosts) == {"0.0.0.0"}
    published = re.search(r'- "127\.0\.0\.1:(\d+):(\d+)"', (CHECKOUT / "docs" / "compose.yaml").read_text())
    assert published is not None
    assert f"://localhost:{published[1]}" in variables["KAFKA_ADVERTISED_LISTENERS"]
    assert f"://0.0.0.0:{published[2]}" in variables["KAFKA_LISTENERS"]


def test_image_runs_as_a_user_that_writes_nowhere_but_to_its_volume(image: Image) -> None:
    assert image.user in image.users
    assert image.users[image.user] != 0
    if os.getuid() != 0:
        pytest.skip("only root can run the image's command as another user")
    (volume,) = image.volumes
    for folder, allowed in ((volume, True), ("/opt/kbroker", False), ("/", False)):
        probe = image.popen(["touch", f"{image.here(folder)}/probe"], {})
        probe.communicate(timeout=30)
        assert (probe.returncode == 0) is allowed, folder


def test_health_check_follows_the_broker_and_a_client_on_the_host_produces_and_consumes(image: Image) -> None:
    settings = {key: value for key, value in image.environment.items() if key.startswith("KAFKA_")}
    variables, ports = on_free_ports(settings)
    assert health(image, variables) == 1
    with container(image, variables):
        round_trip(f"localhost:{ports['9092']}")
        assert (Path(image.environment["KAFKA_LOG_DIRS"]) / "orders-0").is_dir()
    assert health(image, variables) == 1


def test_compose_file_serves_the_host_and_other_services_at_different_addresses(image: Image) -> None:
    variables, ports = on_free_ports(compose_variables())
    with container(image, variables):
        round_trip(f"localhost:{ports['9092']}")
        inside = AdminClient({"bootstrap.servers": f"localhost:{ports['19092']}", "log_level": 0})
        metadata = inside.list_topics(timeout=30)
        assert [f"{one.host}:{one.port}" for one in metadata.brokers.values()] == [f"kbroker:{ports['19092']}"]
        assert len(metadata.topics["orders"].partitions) == 3


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], check=False, capture_output=True, text=True)


if shutil.which("docker") is not None and docker("info").returncode == 0:  # without a daemon: only the steps above

    def test_container_daemon_builds_an_image_that_is_healthy_and_serves_the_host() -> None:
        version = re.search(r"^ARG PYTHON=(.*)$", DOCKERFILE.read_text(), re.M)
        assert version is not None
        if docker("pull", "--quiet", f"python:{version[1]}-slim").returncode != 0:
            pytest.skip("the base image cannot be had")
        built = docker("build", "--quiet", str(CHECKOUT))
        assert built.returncode == 0, built.stderr
        port = free_port()
        advertised = f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port}"
        started = docker("run", "--detach", "-p", f"127.0.0.1:{port}:9092", "-e", advertised, built.stdout.strip())
        assert started.returncode == 0, started.stderr
        container_id = started.stdout.strip()
        try:
            state = "{{.State.Health.Status}}"
            until(lambda: docker("inspect", "--format", state, container_id).stdout.strip() == "healthy", 60)
            round_trip(f"localhost:{port}")
            docker("stop", container_id)
            assert docker("inspect", "--format", "{{.State.ExitCode}}", container_id).stdout.strip() == "0"
        finally:
            docker("rm", "--force", "--volumes", container_id)
