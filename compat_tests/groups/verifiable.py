"""kafka-verifiable-consumer: processes that tell each event of their group's life as a line of JSON."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from compat_tests.client import WAIT_SECONDS
from compat_tests.groups.members import PARTITIONS, RECORDS, make_topic, produce_to
from compat_tests.harness import Broker
from compat_tests.oracle import tool_command
from compat_tests.until import until

MORE = 2 * PARTITIONS


class VerifiableConsumer:
    """One process. Its events are read as they come; what follows from them is told here."""

    def __init__(self, broker: Broker, topic: str, protocol: str) -> None:
        self.events: list[dict[str, Any]] = []
        with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
            file.write("heartbeat.interval.ms=200\n" if protocol == "classic" else "\n")
        self._settings = Path(file.name)
        self._process = subprocess.Popen(
            tool_command(
                *("kafka-verifiable-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic),
                *("--group-id", f"g-{topic}", "--group-protocol", protocol, "--reset-policy", "earliest"),
                *("--command-config", file.name),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    def stop(self) -> int:
        """SIGTERM: it leaves its group and says so."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(WAIT_SECONDS)
        self._reader.join()
        self._settings.unlink(missing_ok=True)
        return code

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._settings.unlink(missing_ok=True)

    def owns(self) -> set[int]:
        owned: set[int] = set()
        for event in list(self.events):
            named = {one["partition"] for one in event.get("partitions", [])}
            if event["name"] == "partitions_assigned":
                owned |= named
            elif event["name"] == "partitions_revoked":
                owned -= named
        return owned

    def ranges(self) -> dict[int, list[tuple[int, int]]]:
        """Per partition, first and last offset of what was read at a time."""
        found: dict[int, list[tuple[int, int]]] = {}
        for event in list(self.events):
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
        for event in list(self.events):
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
        "said": sorted({event["name"] for event in [*first.events, *second.events]}),
        "last words": [one.events[-1]["name"] for one in (first, second)],
    }
