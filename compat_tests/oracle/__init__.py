"""Apache Kafka 4.3.1, fetched by Maven coordinates, started and stopped by the tests: the judge of every scenario."""

from compat_tests.oracle.apache import ApacheKafka
from compat_tests.oracle.jars import KAFKA_VERSION, MissingToolError, kafka_class_path, maven_jars
from compat_tests.oracle.tools import ToolResult, run_tool, tool_command

__all__ = [
    "KAFKA_VERSION",
    "ApacheKafka",
    "MissingToolError",
    "ToolResult",
    "kafka_class_path",
    "maven_jars",
    "run_tool",
    "tool_command",
]
