"""kafka-verifiable-consumer: processes that tell each event of their group's life as a line of JSON."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.members import PARTITIONS, RECORDS, make_topic, produce_to
from compat_tests.harness import Broker
from compat_tests.oracle import tool_command
from compat_tests.telling import Telling
from compat_tests.until import until

MORE = 2 * PARTITIONS


class VerifiableConsumer(Telling[dict[str, Any]]):
    """One process, and what follows from the events it tells."""

    def __init__(self, broker: Broker, topic: str, protocol: str) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
            file.write("heartbeat.interval.ms=200\n" if protocol == "classic" else "\n")
        self._settings = Path(file.name)
        command = tool_command(
            *("kafka-verifiable-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic),
            *("--group-id", f"g-{topic}", "--group-protocol", protocol, "--reset-policy", "earliest"),
            *("--command-config", file.name),
        )
        super().__init__(command, json.loads)

    def stop(self) -> int:
        """It leaves its group and says so."""
        self.ask_to_end()
        return self.end(WAIT_SECONDS)

    def close(self) -> None:
        super().close()
        self._settings.unlink(missing_ok=True)

    def owns(self) -> set[int]:
        owned: set[int] = set()
        for event in list(self.told):
            named = {one["partition"] for one in event.get("partitions", [])}
            if event["name"] == "partitions_assigned":
                owned |= named
            elif event["name"] == "partitions_revoked":
                owned -= named
        return owned

    def ranges(self) -> dict[int, list[tuple[int, int]]]:
        """Per partition, first and last offset of what was read at a time."""
        found: dict[int, list[tuple[int, int]]] = {}
        for event in list(self.told):
            if event["name"] == "records_consumed":
                assert event["count"] == sum(one["count"] for one in event["partitions"]), event
                for one in event["partitions"]:
                    found.setdefault(one["partition"], []).append((one["minOffset"], one["maxOffset"]))
        return found

    def offsets_read(self) -> Counter[tuple[int, int]]:
        return Counter(
            (partition, offset)
            for partition, parts in self.ranges().items()
            for first, last in parts
            for offset in range(first, last + 1)
        )

    def committed(self) -> dict[int, int]:
        """The last offset that the broker took, by partition."""
        taken: dict[int, int] = {}
        for event in list(self.told):
            if event["name"] == "offsets_committed":
                assert event["success"], event
                taken.update({one["partition"]: one["offset"] for one in event["offsets"]})
        return taken


def a_group_of_verifiable_consumers(broker: Broker, topic: str, protocol: str) -> Any:
    """One reads all; a second shares with it; more is read by both; the first leaves and the second has everything."""
    make_topic(broker, topic)
    with ExitStack() as stack:

        def begun() -> VerifiableConsumer:
            one = VerifiableConsumer(broker, topic, protocol)
            stack.callback(one.close)
            return one

        first = begun()
        until(lambda: first.committed() == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS), WAIT_SECONDS)
        alone = sorted(first.owns())
        second = begun()
        until(lambda: len(first.owns()) == len(second.owns()) == PARTITIONS // 2, WAIT_SECONDS)
        apart = not first.owns() & second.owns()
        produce_to(broker, topic, MORE)
        end = (RECORDS + MORE) // PARTITIONS
        until(
            lambda: {**first.committed(), **second.committed()} == dict.fromkeys(range(PARTITIONS), end), WAIT_SECONDS
        )
        read = first.offsets_read() + second.offsets_read()
        codes = [first.stop()]
        until(lambda: len(second.owns()) == PARTITIONS, WAIT_SECONDS)
        taken_over = sorted(second.owns())
        codes.append(second.stop())
    return {
        "alone": alone,
        "apart": apart,
        "read": sorted([*place, times] for place, times in read.items()),
        "taken over": taken_over,
        "exit codes": codes,
        "said": sorted({event["name"] for event in [*first.told, *second.told]}),
        "last words": [one.told[-1]["name"] for one in (first, second)],
    }
