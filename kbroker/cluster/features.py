"""Feature levels: what this node can do, and what the cluster has agreed on.

A level is finalised, and advertised as supported, only when its behaviour exists here. `metadata.version` 30 (4.3-IV0)
does: every record of it can be read and kept; so does `transaction.version` 2. Eligible leader replicas, groups, share
groups and streams groups do not yet. A directory in which Apache finalised them keeps those levels, for they are the
cluster's decision and its records need them, but clients are not told of them.
"""

from __future__ import annotations

from kbroker.cluster.image import ClusterImage
from kbroker.protocol.records import FeatureLevelRecord

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"

# (lowest, highest) level whose behaviour exists. The lowest metadata version is 3.3-IV3, as Apache's.
SUPPORTED: dict[str, tuple[int, int]] = {
    "kraft.version": (0, 1),  # 1, dynamic voters (KIP-853), in directories that have it
    METADATA_VERSION: (7, 30),
    TRANSACTION_VERSION: (0, 2),  # 2: KIP-890
}

# Levels whose records are understood and kept, so that a directory which finalised them can be opened.
READABLE: dict[str, tuple[int, int]] = {
    **SUPPORTED,
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}

# What a new directory starts with, and an older one is raised to.
FINALISED: dict[str, int] = {METADATA_VERSION: 30, TRANSACTION_VERSION: 2}


def raise_levels(image: ClusterImage) -> list[FeatureLevelRecord]:
    """Records that lift an older directory to what this version finalises. Nothing is ever lowered."""
    return [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in FINALISED.items()
        if image.features.get(name, 0) < level
    ]


def unreadable_levels(image: ClusterImage) -> list[str]:
    """Finalised levels whose records this node may not understand: the directory belongs to a newer version."""
    return [
        f"{name} {level}"
        for name, level in sorted(image.features.items())
        if name not in READABLE or level > READABLE[name][1]
    ]


def registered(image: ClusterImage) -> dict[str, tuple[int, int]]:
    """What a node says of itself when it registers: what it does, and what the cluster it joins has finalised."""
    return {name: levels for name, levels in READABLE.items() if name in SUPPORTED or name in image.features}
