"""Kafka's own command-line tools, each in a JVM of its own, as an operator runs them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from compat_tests.oracle.jars import java, kafka_class_path, quick_start

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
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
}


@dataclass(frozen=True, slots=True)
class ToolResult:
    exit_code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run_tool(tool: str, *arguments: str, stdin: bytes | None = None) -> ToolResult:
    """Runs the tool to its end. The exit code is part of the answer, so nothing is raised for it."""
    main = TOOLS[tool]
    command = [
        java(),
        "-Xmx512M",
        *quick_start(main),
        "-Dlog4j2.level=ERROR",
        "-cp",
        kafka_class_path(),
        main,
        *arguments,
    ]
    done = subprocess.run(
        command, input=stdin if stdin is not None else b"", capture_output=True, timeout=_TOOL_SECONDS, check=False
    )
    return ToolResult(done.returncode, done.stdout.decode(), done.stderr.decode())
