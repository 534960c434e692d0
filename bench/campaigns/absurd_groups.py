"""The attack on groups: members that nobody needs, under the longest names there are, and lies about generations."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator

from bench.campaigns.hostile import Field, answered_or_closed, attack
from kbroker.protocol import codec, messages
from kbroker.protocol.message import Message

LONG = "x" * 30_000
MEMBERS = 400
GROWTH_MIB = 64.0


def _frame(request: Message, version: int, client: str = "absurd") -> bytes:
    return codec.encode_request(request, version, 1, client)


def _joining(group: str, metadata: bytes = b"", **more: str) -> messages.JoinGroupRequest:
    join = messages.JoinGroupRequest
    return join(
        group_id=group,
        session_timeout_ms=1_800_000,  # to be remembered for half an hour
        rebalance_timeout_ms=1_800_000,
        protocol_type=more.get("kind", "consumer"),
        member_id=more.get("member", ""),
        protocols=[join.Protocol(name=more.get("protocol", "range"), metadata=metadata)],
    )


def _beating(group: str, epoch: int, **more: str) -> messages.ConsumerGroupHeartbeatRequest:
    return messages.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=more.get("member", str(uuid.uuid4())),
        member_epoch=epoch,
        rebalance_timeout_ms=-1 if epoch else 1000,
        subscribed_topic_names=None if epoch or "pattern" in more else [],
        subscribed_topic_regex=more.get("pattern"),
        server_assignor=more.get("assignor"),
        topic_partitions=[],
    )


@attack
def absurd_groups(field: Field) -> str:
    """Ids asked for and never used, unknown protocols, unreadable metadata, old generations: refused or forgotten."""

    def made() -> Iterator[bytes]:
        yield codec.encode_request(messages.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, 1, "absurd")
        for number in range(MEMBERS):
            yield _frame(_joining("group-0"), 9, LONG)  # an id of 30 KB, which is never used
            yield _frame(_joining("group-0", member=f"{number}{LONG}"), 9)
            yield _frame(_joining("group-0", kind=f"kind-{number}", protocol=LONG), 9)
            yield _frame(_beating(f"modern-{number % 5}", 0, assignor=LONG), 1)
            yield _frame(_beating(f"modern-{number % 5}", 0, pattern="(" * 30_000), 1)
            yield _frame(_beating(f"modern-{number % 5}", number + 1), 1)
        for generation, version in itertools.product(range(-2, 50), (0, 4)):
            beat = messages.HeartbeatRequest(group_id="group-0", generation_id=generation, member_id="gone")
            yield _frame(beat, version)
            sync = messages.SyncGroupRequest(group_id="group-0", generation_id=generation, member_id="gone")
            yield _frame(sync, version)

    field.victim.trim()
    field.victim.forget_peak()
    level = field.victim.resident_mib()
    told = answered_or_closed(field, made())
    grown = field.victim.resident_mib("VmHWM") - level
    if grown > GROWTH_MIB + field.slack_mib:
        raise AssertionError(f"groups that nobody is in took {grown:.0f} MiB")
    return f"{told}, at most {grown:+.1f} MiB"
