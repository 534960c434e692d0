"""Differences that are meant. Each says for which client and scenario, which part of the answer, and why."""

from __future__ import annotations

import re
from typing import NamedTuple


class Accepted(NamedTuple):
    client: str  # a pattern, as are the next two
    scenario: str
    line: str
    reason: str


ACCEPTED: tuple[Accepted, ...] = (
    Accepted(
        "data directory",
        "partitions that no topic owns",
        r"^(first|second) start, of the deleted topic",
        "what a kill left of a deleted topic is removed; Apache renames it to -stray and keeps it for ever",
    ),
    Accepted(
        "wire Fetch",
        "v\\d+, where the last batch is cut",
        "^bytes: ",
        "kbroker sends whole batches only; Apache fills the limit with a part that clients drop",
    ),
    Accepted(
        "wire Fetch",
        "v1\\d, from a topic that is gone and back",
        r", in the session\.responses",
        "a session that outlives its topic is told UNKNOWN_TOPIC_ID; Apache says 3, and 103 once the name is back",
    ),
    Accepted(
        "wire group migration",
        "a policy holds: upgrade",
        r"^\d+: b beats \.error_code: kbroker 27, apache 0",
        "where the last consumer left and no way back is allowed, classic members join again for what it had; Apache "
        "leaves those partitions unread",
    ),
    Accepted(
        "wire JoinGroup",
        "v\\d+, first and second generation",
        r"^named twice\.",
        "a protocol that is named twice counts once; Apache fails with UNKNOWN_SERVER_ERROR",
    ),
    Accepted(
        "wire ConsumerGroupHeartbeat",
        "v1, expressions that are absurd",
        "^counted: kbroker 128, apache 0",
        "RE2 refuses an expression whose repetitions multiply beyond its memory; Apache's RE2/J compiles it",
    ),
    Accepted(
        "wire Metadata",
        "v\\d+, auto creation",
        r"^first\.",
        "a topic is created before the answer (ADR 0006); Apache answers 3 first",
    ),
    Accepted(
        "wire Metadata",
        "v\\d+, by id",
        r"^zero id, no name\.",
        "a topic without name and id is INVALID_REQUEST; Apache fails with UNKNOWN_SERVER_ERROR",
    ),
    Accepted(
        "wire Metadata",
        "v\\d+, by id",
        r"^mixed\.",
        "ids and names may be mixed in one request; Apache then leaves the names out",
    ),
    Accepted(
        "wire ApiVersions",
        "v0, broken frames hang up",
        '^client id not utf-8: kbroker "closed"',
        "text that is not UTF-8 is refused; Apache reads it with replacement characters",
    ),
    Accepted(
        "wire ApiVersions",
        "v0, broken frames hang up",
        '^compact count huge: kbroker "closed"',
        "a count beyond what an array can have is refused; Apache reads it as null",
    ),
    Accepted(
        "wire IncrementalAlterConfigs",
        "v\\d+, a topic wrongly",
        r"^operation 9\.",
        "an operation that does not exist is INVALID_REQUEST; Apache fails with UNKNOWN_SERVER_ERROR",
    ),
    Accepted(
        "wire IncrementalAlterConfigs",
        "v\\d+, brokers wrongly",
        r"^unknown name\.",
        "a broker setting that does not exist is refused; Apache stores it for plug-ins, which kbroker has none of",
    ),
    Accepted(
        "wire DescribeConfigs",
        ".*",
        r'documentation: kbroker null, apache "some text"',
        "kbroker has no documentation texts of settings to send",
    ),
)


def reason_for(client: str, scenario: str, line: str) -> str | None:
    for accepted in ACCEPTED:
        if (
            re.fullmatch(accepted.client, client)
            and re.fullmatch(accepted.scenario, scenario)
            and re.search(accepted.line, line)
        ):
            return accepted.reason
    return None
