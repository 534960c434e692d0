"""What a running broker may be told about its own settings, and what not: Kafka's DynamicBrokerConfig.

What a request sets is judged, alone and together with everything else that would hold then; and so is what comes to
light when it takes a value away. What is stored already may come from another broker's directory: that it is odd must
not stand in the way of a request that only takes away.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.config import Config, ConfigError, Dynamic, table, unknown_setting
from kbroker.errors import InvalidConfigError, InvalidRequestError, KafkaError

# Pools that Kafka resizes: at most doubled or halved in one step.
_THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
_AT_LEAST_ONE = ("max.connections", "max.connection.creation.rate")
_ADDRESSES = ("listeners", "listener.security.protocol.map")
_PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)


def broker_settings_error(
    given: Mapping[str, str], config: Config, current: Dynamic, changed: Dynamic, *, for_all: bool
) -> KafkaError | None:
    """Why `given` cannot be set, in Kafka's words where it has any. `changed` is what would hold then."""
    known = {**table().broker, **table().dynamic}
    unknown = sorted(set(given) - set(known))
    if (
        unknown
    ):  # Kafka would keep it for a plug-in; there are none here, and a misspelt name must not pass for a change
        return InvalidConfigError(unknown_setting(unknown[0], known))
    fixed = sorted(name for name in given if known[name].read_only)
    if fixed:
        return InvalidRequestError(f"Cannot update these configs dynamically: {_set_of(fixed)}")
    unprefixed = sorted(_PER_LISTENER.intersection(given))
    if unprefixed:
        return InvalidRequestError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            + _set_of(unprefixed)
        )
    own = sorted(name for name in given if known[name].mode == "broker")
    try:
        for name, text in given.items():
            known[name].parse(text)
        if own and for_all:
            return InvalidRequestError(
                f"Cannot update these configs at default cluster level, broker id must be specified: {_set_of(own)}"
            )
        for name in given:
            _check_step(name, config, current, changed)
        sound = _is_sound(config, current)
        if sound:
            for name in _taken_away(current, changed):
                _check_step(name, config, current, changed)
        if given or sound:
            config.with_dynamic(changed)
    except ConfigError as problem:
        return InvalidRequestError(str(problem))
    return None


def _taken_away(current: Dynamic, changed: Dynamic) -> list[str]:
    return sorted({*current.broker} - {*changed.broker} | {*current.default} - {*changed.default})


def _is_sound(config: Config, dynamic: Dynamic) -> bool:
    try:
        config.with_dynamic(dynamic)
    except ConfigError:
        return False
    return True


def _check_step(name: str, config: Config, current: Dynamic, changed: Dynamic) -> None:
    """What depends on the value that holds now."""
    if name not in table().broker:
        return
    old, new = config.broker_value(name, current), config.broker_value(name, changed)
    if name in _ADDRESSES and new != old:
        raise ConfigError(f"{name} cannot be changed while the broker runs.")
    if name in _AT_LEAST_ONE and new == 0:
        raise ConfigError(f"Invalid {name} {new}")
    if name in _THREAD_COUNTS and new != old:
        assert isinstance(old, int), (name, old)
        assert isinstance(new, int), (name, new)
        failed = f"Dynamic thread count update validation failed for {name}={new}"
        if new < 1:
            raise ConfigError(f"{failed}, value should be at least 1")
        if new < old // 2:
            raise ConfigError(f"{failed}, value should be at least half the current value {old}")
        if new > old * 2:
            raise ConfigError(f"{failed}, value should not be greater than double the current value {old}")


def _set_of(names: list[str]) -> str:
    return f"[{', '.join(names)}]"
