def acks(port: int, frame: bytes, *, error_at: int, samples: int, pause_us: int = 0) -> list[float]: ...
def relays(
    port: int,
    produce: bytes,
    fetch: bytes,
    *,
    produce_error_at: int,
    fetch_error_at: int,
    fetch_offset_at: int,
    first_offset: int,
    records_bytes: int,
    samples: int,
    pause_us: int = 0,
) -> list[float]: ...
