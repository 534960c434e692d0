"""What the cluster is and how it may change: the image, and decisions that return records. No IO, clock or chance.

Doors: `image` (what is), `delta` (what changed), `topics`, `brokers`, `producer_ids`, `features` (decisions);
`runtime` is the edge that makes a committed change true on this node.
"""
