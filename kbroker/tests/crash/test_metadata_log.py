"""kill -9 while topics are created and deleted: what was answered is there, what was not is whole or absent."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.tests.unit.quorum.node import running

# Creates topics t0, t1, ... and deletes every third again; says so on its output once it is answered.
CHURN = """
import asyncio, sys
from pathlib import Path
from kbroker.cluster.topics import NewTopic
from kbroker.tests.unit.quorum.node import start

async def main(directory, first):
    node = await start(Path(directory))
    print("ready", flush=True)
    for number in range(first, first + 100_000):
        await node.controller.create_topics([NewTopic(f"t{number}", 2, 1, configs={"retention.ms": "77"})])
        print("created", number, flush=True)
        if number % 3 == 0:
            await node.controller.delete_topics([f"t{number}"])
            print("deleted", number, flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def churn_and_kill(directory: Path, first: int, answers: int) -> list[tuple[str, int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHURN, str(directory), str(first)], stdout=subprocess.PIPE, text=True
    )
    said = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line != "ready\n":
                what, number = line.split()
                said.append((what, int(number)))
            if len(said) >= answers:
                break
    finally:
        os.kill(process.pid, signal.SIGKILL)
        rest, _ = process.communicate()
    for line in rest.splitlines(keepends=True):
        if line.endswith("\n"):
            what, number = line.split()
            said.append((what, int(number)))
    return said


@pytest.mark.parametrize("answers", [1, 7, 20])
def test_what_was_answered_survives_kill_9(tmp_path: Path, answers: int) -> None:
    expected: dict[int, bool] = {}
    for round_number in range(3):
        first = round_number * 1000
        said = churn_and_kill(tmp_path, first, answers)
        for what, number in said:
            expected[number] = what == "created"

        async def look(newest: int = max(number for _, number in said)) -> None:
            async with running(tmp_path) as node:
                topics = node.controller.image.topics
                if newest % 3 == 0:  # its delete may have been under way
                    expected[newest] = f"t{newest}" in topics
                for number, exists in expected.items():
                    assert (f"t{number}" in topics) == exists, number
                for topic in topics.values():
                    assert len(topic.partitions) == 2
                    assert node.controller.image.topic_configs(topic.name) == {"retention.ms": "77"}
                    assert all(node.replicas.find(topic.name, index).is_leader for index in (0, 1))

        asyncio.run(look())
