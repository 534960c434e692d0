"""Log lines: queued by anyone, written in order by one thread, shaped by structlog."""

import io
import json
import logging
import subprocess
import sys
from threading import Event

import pytest

from kbroker.observe import logging as broker_logging
from kbroker.observe.logging import BrokerLog


def lines_of(log_format: str, level: str = "info") -> tuple[BrokerLog, io.StringIO]:
    stream = io.StringIO()
    return BrokerLog(log_format, level, stream), stream


def test_json_lines_carry_event_level_time_and_fields() -> None:
    log, stream = lines_of("json")
    log.info("listening", port=9092)
    log.warning("slow")
    log.close()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["event"] == "listening"
    assert first["level"] == "info"
    assert first["port"] == 9092
    assert first["timestamp"].endswith("Z")
    assert second["level"] == "warning"


def test_console_lines_are_plain_when_the_stream_is_no_terminal() -> None:
    log, stream = lines_of("console")
    log.info("listening", port=9092)
    log.close()
    assert "listening" in stream.getvalue()
    assert "port=9092" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_what_lies_below_the_level_is_not_written() -> None:
    log, stream = lines_of("json", "warning")
    log.debug("one")
    log.info("two")
    log.error("three")
    log.close()
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["three"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_exception_is_written_with_its_traceback_and_without_local_variables(log_format: str) -> None:
    log, stream = lines_of(log_format)
    held_by_a_local = "x" * 7
    try:
        raise KeyError(len(held_by_a_local))
    except KeyError as error:
        log.error("a request failed", cause=error, api_key=3)
    log.close()
    assert "KeyError" in stream.getvalue()
    assert "api_key" in stream.getvalue()
    assert "xxxxxxx" not in stream.getvalue()


def test_the_host_format_leaves_the_decision_to_the_programs_own_logging(caplog: pytest.LogCaptureFixture) -> None:
    log = BrokerLog("host", "debug")
    with caplog.at_level(logging.INFO, logger="kbroker"):
        log.debug("not asked for")
        log.info("100% ready", port=1)
        log.close()
    assert [record.getMessage() for record in caplog.records] == ["100% ready port=1"]


def test_lines_past_the_bound_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocked(io.StringIO):
        """A stream whose reader is away until `released`."""

        def write(self, text: str) -> int:
            started.set()
            released.wait(10)
            return super().write(text)

    started, released = Event(), Event()
    monkeypatch.setattr(broker_logging, "QUEUED_MAX", 2)
    stream = Blocked()
    log = BrokerLog("json", "info", stream)
    log.info("line", number=0)
    assert started.wait(10)
    for number in range(1, 6):
        log.info("line", number=number)
    released.set()
    log.close()
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["number"] for line in written if line["event"] == "line"] == [0, 4, 5]
    assert [line["count"] for line in written if line["event"] != "line"] == [3]


def test_unknown_formats_and_levels_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match="xml"):
        BrokerLog("xml")
    with pytest.raises(ValueError, match="loud"):
        BrokerLog("json", "loud")


def test_structlog_is_not_loaded_before_the_first_line() -> None:
    program = """
import sys
from threading import Event
from kbroker.observe.logging import BrokerLog
BrokerLog().close()
print("structlog" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_a_log_speaks_although_every_descriptor_is_taken() -> None:
    """The first line is queued; before it is written, and structlog loaded for it, clients have come."""
    script = """
import os, resource
from kbroker.observe.logging import BrokerLog
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
log = BrokerLog("json")
log.info("started")
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError as problem:
    log.error("no descriptors are left", reason=str(problem))
log.close()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    told = [json.loads(line)["event"] for line in ended.stderr.splitlines()]
    assert told == ["started", "no descriptors are left"], ended.stderr
