"""The quorum that keeps `__cluster_metadata`: who leads it, and what of it is committed (KIP-595).

Doors: `driver` (the edge: Controller), `core` (the pure state machine). `store` and `snapshot` own its files.
A quorum of one voter runs the same code as one of three: it is its own majority.
"""
