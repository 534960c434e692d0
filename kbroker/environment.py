"""Settings in environment variables, by the rule of the apache/kafka image: KAFKA_NUM_PARTITIONS is num.partitions.

After the prefix `_` stands for a dot, `__` for an underscore and `___` for a dash. Only `kbroker start` reads them;
`kbroker.Broker()` never does. Variables with the prefix that hold no setting are sorted here: options of the JVM, and
addresses that Kubernetes injects into every pod of a namespace with a service named kafka.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

PREFIX = "KAFKA_"
CLUSTER_ID = "CLUSTER_ID"  # the image formats its directory with it

# Variables that Kafka's start scripts and images read for the JVM, its logging and its installation.
_JVM = re.compile(
    r"KAFKA_(OPTS|DEBUG|HOME|VERSION|SCALA_VERSION|(HEAP|JMX|LOG4J|GC_LOG|JVM_PERFORMANCE)_OPTS|JMX_(PORT|HOSTNAME)"
    r"|(TOOLS_)?LOG4J_\w+|DEBUG_\w+|CLASSPATH)"
)
_SERVICE = re.compile(
    r"KAFKA_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT = re.compile(r"KAFKA_(\w+_)?PORT")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")


class Environment(NamedTuple):
    """The KAFKA_ variables of one process, sorted by what they hold. Each list is in alphabetical order."""

    settings: list[tuple[str, str, str]]  # (variable, setting, value)
    without_effect: list[str]
    kubernetes: list[str]
    empty: list[str]


def read_environment(variables: Mapping[str, str]) -> Environment:
    """Sorts the variables that begin with KAFKA_; all others are left out."""
    found = Environment([], [], [], [])
    for variable in sorted(variables):
        value = variables[variable]
        if not variable.startswith(PREFIX) or variable == PREFIX:
            continue
        if _is_injected(variable, value):
            found.kubernetes.append(variable)
        elif _JVM.fullmatch(variable):
            found.without_effect.append(variable)
        elif not value.strip():
            found.empty.append(variable)
        else:
            found.settings.append((variable, setting_of(variable), value.strip()))
    if variables.get(CLUSTER_ID) and found.settings:
        found.without_effect.append(CLUSTER_ID)
    return found


def _is_injected(variable: str, value: str) -> bool:
    if _SERVICE.fullmatch(variable):
        return True
    return bool(_SERVICE_PORT.fullmatch(variable) and _SERVICE_ADDRESS.fullmatch(value))


def setting_of(variable: str) -> str:
    """Returns the name of the setting that a variable stands for."""
    dotted = variable.removeprefix(PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")
