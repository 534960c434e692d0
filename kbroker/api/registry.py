"""The table of APIs this node serves. A row is made by the decorator of one handler and by nothing else; ApiVersions is
answered from the table, so what is not implemented is not advertised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

# (request, context) -> response, or a coroutine of it: a handler that may wait for the disk or the quorum is a
# coroutine function, one that must only sometimes wait returns a coroutine then. What can be answered at once is.
Handler = Callable[[Any, Any], Any]
Failure = Callable[[Any, int, int], Any]  # (request, error code, version)


class Row(NamedTuple):
    """One API key: the versions that parse, the versions that ApiVersions names, and who answers."""

    key: int
    min_version: int
    max_version: int
    advertised_min: int  # below min_version only where Kafka itself does so (Produce)
    handler: Handler | None  # None: answered in _core and never posted to the control loop
    failed: Failure | None  # the reply when the handler broke: every item of the request with this error code
    native: bool  # answered in _core; a handler beside it serves what _core hands over
    steady: bool = False  # an answer given at once stays right until the cluster image changes: it may be kept
    followed: Callable[[Any], bool] | None = None  # whether its client, once answered, asks for more at once


class Registry:
    """The rows by API key. Filled while kbroker.api imports its modules, only read afterwards."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}

    def add(self, row: Row) -> None:
        if row.key in self._rows:
            raise ValueError(f"API key {row.key} is registered twice")
        self._rows[row.key] = row

    def find(self, key: int) -> Row | None:
        return self._rows.get(key)

    def __iter__(self) -> Iterator[Row]:
        return iter(sorted(self._rows.values(), key=lambda row: row.key))

    def __len__(self) -> int:
        return len(self._rows)


REGISTRY = Registry()


def _version_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def api(
    key: int,
    *,
    versions: str,
    failed: Failure | None = None,
    native: bool = False,
    steady: bool = False,
    followed: Callable[[Any], bool] | None = None,
    advertised: str | None = None,
) -> Callable[[Handler], Handler]:
    """Registers the decorated handler for `key`. `versions` are those it really answers, as "low-high"."""
    low, high = _version_range(versions)
    advertised_low, advertised_high = _version_range(advertised or versions)
    if advertised_high != high or advertised_low > low:
        raise ValueError(f"API key {key} parses {versions} but would advertise {advertised}")

    def register(handler: Handler) -> Handler:
        REGISTRY.add(Row(key, low, high, advertised_low, handler, failed, native, steady, followed))
        return handler

    return register


def answered_in_core(key: int, *, versions: str) -> None:
    """Registers a key whose every request is answered by the data plane."""
    low, high = _version_range(versions)
    REGISTRY.add(Row(key, low, high, low, None, None, native=True))
