"""The Python examples of the README run as they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbroker import Broker

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_readme_examples_produce_a_record_and_list_its_topic(capfd: pytest.CaptureFixture[str]) -> None:
    embedded, listing = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(embedded, {})
    with Broker() as broker:
        address = f"'{broker.bootstrap_servers}'"
        into = embedded.replace("with kbroker.Broker() as broker:", "if True:").replace(
            "broker.bootstrap_servers", address
        )
        exec(into, {})
        exec(listing.replace('"localhost:9092"', address), {})
    assert "orders 1" in capfd.readouterr().out.splitlines()
