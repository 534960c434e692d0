"""A Kafka-wire-compatible broker: a Cython data plane that runs without the GIL, and Python around it that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.broker import Broker as Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    # The broker and its data plane are loaded when someone asks for them: `import kbroker` alone stays cheap.
    if name == "Broker":
        from kbroker.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
