"""The two brokers of a run, the table of its results and the summary of what could not run."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from compat_tests.harness import Broker, Results, Row, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.leash import stop_leashed_clients
from compat_tests.oracle import ApacheKafka, MissingToolError, kafka_class_path
from compat_tests.oracle.jars import java
from compat_tests.table import write_table

# A member of the consumer protocol learns of changes by its next heartbeat, for which it would be told five seconds.
_SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
}
_RESULTS = pytest.StashKey[Results]()
_UNSTEADY = pytest.StashKey[dict[str, str]]()
_UNSTEADY_MOST = 3  # of the hundreds of a run; with more of them something is wrong, and the run fails
REPOSITORY_ROOT = Path(__file__).resolve().parents[1]
Compare = Callable[[str, str, Callable[[Broker], Any]], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compat")
    group.addoption("--brokers", default="apache,kbroker", help="which brokers to run on; both, to compare")
    group.addoption("--rehearse", action="store_true", help="a second Apache plays kbroker: all must be the same")
    group.addoption("--write-table", action="store_true", help="write docs/compatibility.md from this run")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = Results()
    config.stash[_UNSTEADY] = {}


@pytest.fixture(scope="session")
def results(pytestconfig: pytest.Config) -> Results:
    return pytestconfig.stash[_RESULTS]


@pytest.fixture(scope="session")
def java_tools() -> None:
    """Skips, by name, what cannot run without Java and Maven."""
    try:
        kafka_class_path()
    except MissingToolError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark_tools() -> None:
    """The same for Java and Spark's Kafka connector."""
    from spark_integration import ConnectorError, connector_jars

    try:
        java()
        connector_jars()
    except (MissingToolError, ConnectorError) as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def broker_settings() -> dict[str, str]:
    """What both brokers of the run are told; a folder whose scenarios need more has a fixture of this name."""
    return _SETTINGS


@pytest.fixture(scope="session")
def brokers(
    request: pytest.FixtureRequest,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    broker_settings: dict[str, str],
) -> Iterator[dict[str, Broker]]:
    wanted = pytestconfig.getoption("--brokers").split(",")
    if "apache" in wanted or pytestconfig.getoption("--rehearse"):
        request.getfixturevalue("java_tools")
    running: dict[str, Any] = {}
    try:
        if "apache" in wanted:
            running["apache"] = ApacheKafka(tmp_path_factory.mktemp("apache"), settings=broker_settings).start()
        if "kbroker" in wanted:
            directory = tmp_path_factory.mktemp("kbroker")
            options = tuple(part for name, value in broker_settings.items() for part in ("--config", f"{name}={value}"))
            made: Any = KBroker(directory, options=options)
            if pytestconfig.getoption("--rehearse"):
                made = ApacheKafka(directory, settings=broker_settings)
            running["kbroker"] = made.start()
        yield running
    finally:
        stop_leashed_clients()
        for broker in running.values():
            # Thousands of topics later a clean stop of Apache takes half a minute; its directory is not looked at.
            if isinstance(broker, ApacheKafka):
                broker.kill()
            else:
                broker.stop()


@pytest.fixture(scope="session")
def comparing(results: Results, brokers: dict[str, Broker]) -> Compare:
    return lambda client, scenario, run: compare(results, client, scenario, brokers, run)


@pytest.fixture(scope="session")
def comparing_together(results: Results, brokers: dict[str, Broker]) -> Compare:
    """For scenarios that mostly wait, and look only at what they made themselves."""
    return lambda client, scenario, run: compare(results, client, scenario, brokers, run, together=True)


_numbers = itertools.count(1)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test alone, the same on both brokers."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name.partition("[")[2]).strip("-")
    return f"t{next(_numbers)}-{words}"[:120]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """A test that fails is run once more, with a topic of another name.

    There are two brokers and other people's clients in it, whose own races we cannot mend: a consumer that joins before
    it has heard of its topic, an Apache that does not stop. One that passes then is named at the end, and why.
    """
    unsteady = item.config.stash[_UNSTEADY]
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = next((report for report in reports if report.when == "call" and report.failed), None)
    if failed is not None and len(unsteady) < _UNSTEADY_MOST:
        unsteady[item.nodeid] = failed.longreprtext
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    client, scenario = getattr(item, "compat_row", (None, ""))
    if report.skipped and client is not None:
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        item.config.stash[_RESULTS].add(Row(client, scenario, "skipped", reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    told = ", ".join(f"{count} of {reason}" for reason, count in sorted(reasons.items())) or "nothing"
    terminalreporter.write_line(f"skipped: {told}")
    for name, problem in config.stash[_UNSTEADY].items():
        terminalreporter.write_sep("-", f"run once more: {name}")
        terminalreporter.write_line(problem)
    rows = config.stash[_RESULTS].rows.values()
    verdicts = Counter(row.verdict for row in rows)
    if rows:
        terminalreporter.write_line(
            "compared: " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items()))
        )
    if config.getoption("--write-table") and rows:
        target = REPOSITORY_ROOT / "docs" / "compatibility.md"
        write_table(config.stash[_RESULTS], target)
        terminalreporter.write_line(f"wrote {target.relative_to(REPOSITORY_ROOT)}")
