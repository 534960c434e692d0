"""What a group may be told: each setting within the broker's bounds, a session longer than a heartbeat's interval."""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.config import Config, ConfigError, Dynamic, table

BOUNDED = {
    "consumer": ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"),
    "share": (
        "assignment.interval.ms",
        "delivery.count.limit",
        "heartbeat.interval.ms",
        "partition.max.record.locks",
        "record.lock.duration.ms",
        "session.timeout.ms",
    ),
    "streams": ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms"),
}
STANDBYS, MAX_STANDBYS = "streams.num.standby.replicas", "group.streams.max.standby.replicas"


def group_settings_error(overrides: Mapping[str, str], config: Config, dynamic: Dynamic) -> str | None:
    """Why a group cannot have these settings, or None."""
    known = table().group
    values: dict[str, object] = {}
    for name, text in overrides.items():
        if name not in known:
            return f"Unknown group config name: {name}"
        try:
            values[name] = known[name].parse(text)
        except ConfigError as problem:
            return str(problem)

    def number(name: str, otherwise: str) -> int:
        value = values[name] if name in values else config.broker_value(otherwise, dynamic)
        assert isinstance(value, int), (name, value)
        return value

    for kind, names in BOUNDED.items():
        for name in names:
            value = number(f"{kind}.{name}", f"group.{kind}.{name}")
            for side, wrong in (("min", value.__lt__), ("max", value.__gt__)):
                bound = f"group.{kind}.{side}.{name}"
                if f"{kind}.{name}" in values and wrong(number("", bound)):
                    than = "greater" if side == "min" else "less"
                    return f"{kind}.{name} must be {than} than or equal to {bound}"
    if STANDBYS in values and number(STANDBYS, "") > number("", MAX_STANDBYS):
        return f"{STANDBYS} must be less than or equal to {MAX_STANDBYS}"
    for kind in BOUNDED:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if number(session, f"group.{session}") <= number(heartbeat, f"group.{heartbeat}"):
            return f"{session} must be greater than {heartbeat}"
    return None
