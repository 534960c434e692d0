from dataclasses import dataclass

@dataclass
class Outcome:
    replies: int
    reply_bytes: int
    sent_bytes: int
    seconds: float
    latencies_us: list[int]

def run(
    port: int,
    frames: list[list[bytes]],
    *,
    depth: int = 1,
    seconds: float = 2.0,
    requests: int = 0,
    interval_us: int = 0,
    check_offset: int = -1,
    reply_min_bytes: int = 0,
    latency_samples: int = 0,
) -> Outcome: ...
