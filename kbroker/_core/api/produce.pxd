# produce: Produce (0), versions 3-13, whole. Answered here except when a batch's codec has no engine in this process, or the
# coordinator of a transaction has to be asked before its first batch.
# Owns        a request's items while it is held, answered or parked; each network thread's run of held requests.
# Called by   dispatch, and net for the run.
# Threads     one network thread.
# Invariants  a held request is fit to be appended and nothing of it is. All of a run come from one connection, and only the
#             last one may have to wait for replicas, so that replies leave in the order of the requests.
# v9+: flexible. v8+: RecordErrors, ErrorMessage (KIP-467). v10+: CurrentLeader, NodeEndpoints (KIP-951). v13: topic ids (KIP-516).
from libc.stdint cimport int32_t
from kbroker._core.api.produce_request cimport ProduceWork
from kbroker._core.api.request cimport Outcome, Request, Worker
from kbroker._core.limits cimport APPENDS_AT_ONCE
from kbroker._core.wire.chain cimport Chain

cdef struct Held:
    Request r
    Chain *reply
    ProduceWork work
    Outcome outcome                # of run_settle

# Pipelined requests of one connection, whose batches are written together.
cdef struct Run:
    Held held[APPENDS_AT_ONCE]
    int32_t count
    int32_t items
    bint full                      # to be settled before another joins

cdef bint run_create(Worker *w) noexcept nogil                     # sets w.run; False: no memory
cdef void run_destroy(Worker *w) noexcept nogil
cdef Outcome produce(Worker *w, Request *r, Chain *reply) noexcept nogil   # HELD, POST or CLOSE
# Appends what is held and answers it: held[i].outcome and held[i].reply for i < count. The caller sets count back to 0.
cdef void run_settle(Worker *w) noexcept nogil
