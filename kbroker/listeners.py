"""Listeners as `listeners` and `advertised.listeners` write them: NAME://host:port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

# SecurityProtocol ids, as RegisterBrokerRecord and UpdateMetadata carry them.
PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
AVAILABLE = ("PLAINTEXT",)


class Listener(NamedTuple):
    name: str
    host: str  # "" binds every interface
    port: int  # 0 takes a free one
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    def at_port(self, port: int) -> Listener:
        return Listener(self.name, self.host, port, self.protocol)


def parse_protocol_map(text: str) -> dict[str, str]:
    pairs = (item.strip().partition(":") for item in text.split(",") if item.strip())
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def parse_listeners(setting: str, items: Iterable[str], protocols: Mapping[str, str]) -> list[Listener]:
    """ValueError, with one sentence, for what cannot be listened on."""
    found: list[Listener] = []
    for item in items:
        listener = _parse(setting, item, protocols)
        if any(other.name == listener.name for other in found):
            raise ValueError(f"{setting} names {listener.name} twice: every listener needs its own name.")
        if listener.port and any(other.port == listener.port and other.host == listener.host for other in found):
            raise ValueError(f"{setting} uses {listener.host}:{listener.port} twice.")
        found.append(listener)
    return found


def _parse(setting: str, item: str, protocols: Mapping[str, str]) -> Listener:
    name, separator, address = item.partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not colon or not port.isdecimal():
        raise ValueError(f"{setting} holds {item!r}: write it as NAME://host:port.")
    if int(port) > 65535:
        raise ValueError(f"{setting} holds {item!r}: port {port} is above 65535, the highest port.")
    name = name.strip().upper()
    protocol = protocols.get(name)
    if protocol not in PROTOCOL_IDS:
        raise ValueError(f"{setting} holds {item!r}, but listener.security.protocol.map has no protocol for {name}.")
    if protocol not in AVAILABLE:
        raise ValueError(f"{setting} holds {item!r}, but {protocol} listeners are not available yet: use PLAINTEXT.")
    return Listener(name, host.strip("[]"), int(port), protocol)


def advertised_of(
    listeners: list[Listener], controllers: list[Listener], items: list[str] | None, protocols: Mapping[str, str]
) -> list[Listener]:
    """What clients are told to connect to; not given, the listeners themselves. Controllers' are left out."""
    if items is None:
        return list(listeners)
    own = {listener.name for listener in controllers}
    advertised = [one for one in parse_listeners("advertised.listeners", items, protocols) if one.name not in own]
    for one in advertised:
        if one.name not in {listener.name for listener in listeners}:
            raise ValueError(f"advertised.listeners names {one.name}, which is not one of the listeners.")
        if one.host in ("", "0.0.0.0", "::"):
            raise ValueError(f"advertised.listeners holds {one}: clients cannot connect to that address.")
    return advertised
