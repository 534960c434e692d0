# metadata: Metadata (3), versions 0-13, as far as the published table can tell: known topics whose brokers are all alive.
# Everything else (creation, unknown or invalid names, authorized operations, missing brokers) is posted to the control side.
# Owns        nothing.
# Called by   dispatch, when the control side says that it published what is needed.
# Threads     one network thread.
from kbroker._core.api.request cimport Outcome, Request, Worker
from kbroker._core.wire.chain cimport Chain

cdef Outcome metadata(Worker *w, Request *r, Chain *reply) noexcept nogil
