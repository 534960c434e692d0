"""Scenarios: what a client does, told once for every client, with an outcome that two brokers are compared by."""

from compat_tests.scenarios.catalogue import SCENARIOS, Scenario

__all__ = ["SCENARIOS", "Scenario"]
