"""Fetch (1), versions 4-18: answered in the data plane (_core/api/fetch); never posted to the control loop."""

from kbroker.api.registry import answered_in_core

answered_in_core(1, versions="4-18")
