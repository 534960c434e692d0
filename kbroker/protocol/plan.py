"""Schema + version -> plan: the flat list of fields that one version of a message has, ready for the walker.

A plan is built when a (class, version) is first read or written and kept for the life of the process; it never changes.
"""

from __future__ import annotations

from kbroker._core.wire.codec import DecodeError, EncodeError, Plan
from kbroker.protocol.message import Message, Struct

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from kbroker._core.wire.codec import Step

_PLANS: dict[tuple[type[Message], int], Plan] = {}


def plan_of(message: type[Message], version: int) -> Plan | None:
    """The plan of one version, or None if the message has no such version."""
    plan = _PLANS.get((message, version))
    if plan is None and message.VERSIONS[0] <= version <= message.VERSIONS[1]:
        plan = _PLANS.setdefault((message, version), _build(message, message, version, {}))
    return plan


def reading(message: type[Message], version: int) -> Plan:
    plan = _PLANS.get((message, version)) or plan_of(message, version)
    if plan is None:
        raise DecodeError(f"there is no version {version} of it", message.__name__, 0)
    return plan


def writing(message: type[Message], version: int) -> Plan:
    plan = _PLANS.get((message, version)) or plan_of(message, version)
    if plan is None:
        raise EncodeError(f"{message.__name__} has no version {version}")
    return plan


def _build(root: type[Message], struct: type[Struct], version: int, shared: dict[str, Plan]) -> Plan:
    flexible = version >= root.FLEXIBLE_FROM
    body: list[Step] = []
    tagged: list[Step] = []
    absent: list[Step] = []
    for name, shape, first, last, nullable, tag, default, ignorable in struct.FIELDS:
        array = shape.startswith("[")
        base = shape.strip("[]")
        nested: Plan | None = None
        if base[0].isupper():
            nested = shared.get(base)
            if nested is None:
                nested = shared[base] = _build(root, getattr(root, base), version, shared)
        may_be_null = nullable is not None and nullable[0] <= version <= nullable[1]
        step = (name, base, array, may_be_null, flexible, tag, default, ignorable, nested)
        if not first <= version <= last:
            absent.append(step)
        elif tag >= 0:
            tagged.append(step)
        else:
            body.append(step)
    tagged.sort(key=lambda step: step[5])
    return Plan(struct, f"{root.__name__} v{version}", flexible, body, tagged, absent)
