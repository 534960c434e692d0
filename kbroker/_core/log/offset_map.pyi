def hash_of(secret: bytes, key: bytes) -> bytes:
    """The hash by which a map knows `key`, for its tests; `secret` has sixteen bytes."""
