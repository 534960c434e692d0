"""Kafka's own command-line tools, as an operator runs them.

Those that ask and end share a warm JVM, which runs their main method again and again; the others have one each.
"""

from __future__ import annotations

import atexit
import base64
import queue
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from compat_tests.oracle.jars import compiled, java, kafka_class_path, quick_start

_TOOL_SECONDS = 120

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}


# A start of the JVM costs most of a second, and a story of an operator asks dozens of times.
_WARM = {
    "kafka-topics",
    "kafka-get-offsets",
    "kafka-delete-records",
    "kafka-broker-api-versions",
    "kafka-consumer-groups",
    "kafka-configs",
    "kafka-dump-log",
    "kafka-cluster",
}
_SERVER = Path(__file__).with_name("ToolServer.java")


@dataclass(frozen=True, slots=True)
class ToolResult:
    exit_code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class _WarmTools:
    """One JVM and one tool at a time."""

    def __init__(self) -> None:
        classes = compiled(_SERVER, kafka_class_path())
        options = ("-Xmx512M", *quick_start(f"{_SERVER.stem}-{classes.stem}"), "-Dlog4j2.level=ERROR")
        self._process = subprocess.Popen(
            [java(), *options, "-cp", f"{kafka_class_path()}:{classes}", _SERVER.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._process.communicate)  # closes its stdin, which is its signal to end

    def run(self, main: str, arguments: tuple[str, ...], stdin: bytes) -> ToolResult:
        words = [_word(main.encode()), _word(stdin), *(_word(one.encode()) for one in arguments)]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        patience = threading.Timer(_TOOL_SECONDS, self._process.kill)
        patience.start()
        try:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            patience.cancel()
        assert line, f"{main} has not ended in {_TOOL_SECONDS} s, or has ended its JVM"
        code, out, err = line.split()
        return ToolResult(int(code), _told(out), _told(err))


_idle: queue.LifoQueue[_WarmTools] = queue.LifoQueue()


def _word(data: bytes) -> str:
    return base64.b64encode(data).decode() or "-"


def _told(word: str) -> str:
    return "" if word == "-" else base64.b64decode(word).decode()


def run_tool(tool: str, *arguments: str, stdin: bytes | None = None) -> ToolResult:
    """Runs the tool to its end. The exit code is part of the answer, so nothing is raised for it."""
    if tool not in _WARM:
        return _run_alone(tool, arguments, stdin or b"")
    try:
        server = _idle.get_nowait()
    except queue.Empty:
        server = _WarmTools()
    result = server.run(TOOLS[tool], arguments, stdin or b"")
    _idle.put(server)
    return result


def tool_command(tool: str, *arguments: str) -> list[str]:
    """The tool as a process of its own."""
    main = TOOLS[tool]
    options = ("-Xmx512M", *quick_start(main), "-Dlog4j2.level=ERROR")
    return [java(), *options, "-cp", kafka_class_path(), main, *arguments]


def _run_alone(tool: str, arguments: tuple[str, ...], stdin: bytes) -> ToolResult:
    done = subprocess.run(
        tool_command(tool, *arguments), input=stdin, capture_output=True, timeout=_TOOL_SECONDS, check=False
    )
    return ToolResult(done.returncode, done.stdout.decode(), done.stderr.decode())
