"""The two brokers of a run, the table of its results and the summary of what could not run."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from compat_tests.harness import Broker, Results, Row, compare
from compat_tests.kbroker_server import KBroker
from compat_tests.leash import stop_leashed_clients
from compat_tests.oracle import ApacheKafka, MissingToolError, kafka_class_path
from compat_tests.oracle.jars import java
from compat_tests.shares import in_a_worker, longest_first, one_of_few, scheduling
from compat_tests.table import write_table

# A member of the consumer protocol learns of changes by its next heartbeat, for which it would be told five seconds.
_SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
}
# On a machine that is very busy Apache's broker misses its own controller's nine seconds, and is fenced.
_APACHES_OWN = {"broker.session.timeout.ms": "60000"}
_RESULTS = pytest.StashKey[Results]()  # of the test that runs; its reports take them along
_PLACE = pytest.StashKey[int]()  # of a test among all that were collected
_AGAIN = pytest.StashKey[str]()  # of a test that is run once more
_RUN_DIRECTORY = pytest.StashKey[Path]()  # of the whole run, of however many processes
_UNSTEADY_MOST = 3  # of the hundreds of a run; with more of them something is wrong, and the run fails
_TOLD = "compat"
REPOSITORY_ROOT = Path(__file__).resolve().parents[1]
Compare = Callable[[str, str, Callable[[Broker], Any]], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("compat")
    group.addoption("--brokers", default="apache,kbroker", help="which brokers to run on; both, to compare")
    group.addoption("--rehearse", action="store_true", help="a second Apache plays kbroker: all must be the same")
    group.addoption("--write-table", action="store_true", help="write docs/compatibility.md from this run")
    group.addoption("--table", default=REPOSITORY_ROOT / "docs" / "compatibility.md", type=Path, help="another file")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = Results()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for place, item in enumerate(items):
        item.stash[_PLACE] = place
    if in_a_worker(config):
        longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    return scheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture(scope="session", autouse=True)
def run_directory(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for every process of the run."""
    own = tmp_path_factory.getbasetemp()
    pytestconfig.stash[_RUN_DIRECTORY] = directory = own.parent if in_a_worker(pytestconfig) else own
    return directory


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
    apaches = {**broker_settings, **_APACHES_OWN}
    running: dict[str, Any] = {}
    try:
        if "apache" in wanted:
            running["apache"] = ApacheKafka(tmp_path_factory.mktemp("apache"), settings=apaches).start()
        if "kbroker" in wanted:
            directory = tmp_path_factory.mktemp("kbroker")
            options = tuple(part for name, value in broker_settings.items() for part in ("--config", f"{name}={value}"))
            understudy = pytestconfig.getoption("--rehearse")
            kind = ApacheKafka(directory, settings=apaches) if understudy else KBroker(directory, options=options)
            running["kbroker"] = kind.start()
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


@pytest.fixture
def again(request: pytest.FixtureRequest) -> str:
    """For names that a test gives by itself, on brokers that outlive it: another ending when it is run once more."""
    return request.node.stash.get(_AGAIN, "")  # type: ignore[no-any-return]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """A test that fails is run once more, with a topic of another name.

    There are two brokers and other people's clients in it, whose own races we cannot mend: a consumer that joins before
    it has heard of its topic, an Apache that does not stop. One that passes then is named at the end, and why.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = next((report for report in reports if report.when == "call" and report.failed), None)
    if failed is not None and one_of_few(item.config.stash[_RUN_DIRECTORY], "run-once-more", _UNSTEADY_MOST):
        item.stash[_AGAIN] = "-again"
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        _tell(reports[0], item, failure=failed.longreprtext)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    results = item.config.stash[_RESULTS]
    client, scenario = getattr(item, "compat_row", (None, ""))
    if report.skipped and client is not None:
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        results.add(Row(client, scenario, "skipped", reason))
    taken = results.taken()
    if taken.rows or taken.client_versions:
        _tell(report, item, rows=[astuple(row) for row in taken.rows.values()], versions=taken.client_versions)


def _tell(report: pytest.TestReport, item: pytest.Item, **facts: object) -> None:
    """A report goes to the process that writes the last lines, whichever made it."""
    report.user_properties.append((_TOLD, {"place": item.stash[_PLACE], "name": item.nodeid, **facts}))


def _told(terminalreporter: pytest.TerminalReporter) -> list[dict[str, Any]]:
    """What the reports of all tests tell, in the order in which one process runs them."""
    reports = (report for kind in terminalreporter.stats.values() for report in kind)
    properties = (one for report in reports for one in getattr(report, "user_properties", ()))
    return sorted((facts for name, facts in properties if name == _TOLD), key=lambda facts: facts["place"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    told = ", ".join(f"{count} of {reason}" for reason, count in sorted(reasons.items())) or "nothing"
    terminalreporter.write_line(f"skipped: {told}")
    results = Results()
    for facts in _told(terminalreporter):
        if "failure" in facts:
            terminalreporter.write_sep("-", f"run once more: {facts['name']}")
            terminalreporter.write_line(facts["failure"])
        for row in facts.get("rows", ()):
            results.add(Row(*row))
        results.client_versions |= facts.get("versions", {})
    verdicts = Counter(row.verdict for row in results.rows.values())
    if verdicts:
        terminalreporter.write_line(
            "compared: " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(verdicts.items()))
        )
    if config.getoption("--write-table") and verdicts:
        write_table(results, config.getoption("--table"))
        terminalreporter.write_line(f"wrote {config.getoption('--table').name}")
