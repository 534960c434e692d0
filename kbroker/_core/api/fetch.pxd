# fetch: Fetch (1), versions 4-18, whole: full and incremental, by name (to v12) and by topic id (v13+).
# Owns        a request's items and the segment references of its plan, while it is answered or parked.
# Called by   dispatch.
# Threads     one network thread.
# v7+: sessions (KIP-227). v9+: current leader epoch (KIP-320). v11+: followers may answer (KIP-392). v12+: flexible, diverging
# epochs (KIP-595). v13+: topic ids (KIP-516). v15+: ReplicaState tag (KIP-903). v16+: CurrentLeader, NodeEndpoints (KIP-951).
from kbroker._core.api.request cimport Outcome, Request, Worker
from kbroker._core.wire.chain cimport Chain

cdef Outcome fetch(Worker *w, Request *r, Chain *reply) noexcept nogil
