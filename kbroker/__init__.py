"""A Kafka-wire-compatible broker: a Cython data plane that runs without the GIL, and Python around it that decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.broker import Broker as Broker
    from kbroker.broker import StartError as StartError
    from kbroker.config import ConfigError as ConfigError

    __version__: str

__all__ = ["Broker", "ConfigError", "StartError", "__version__"]


def __getattr__(name: str) -> object:
    # The broker and its data plane are loaded on first use: `import kbroker` alone stays cheap.
    if name in ("Broker", "StartError"):
        from kbroker import broker

        return getattr(broker, name)
    if name == "ConfigError":
        from kbroker.config import ConfigError

        return ConfigError
    if name == "__version__":
        from importlib.metadata import version

        return version("kbroker")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
