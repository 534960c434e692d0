# dispatch: the first look at a frame: which api, which version, answered here or by the control loop.
# Owns        nothing; writes the reply of ApiVersions itself, the rest is api/produce, api/fetch and api/list_offsets.
# Called by   net/loop, once per frame. The caller fills frame, length, peer, listener_index, view and principal; dispatch fills
#             the rest of the Request. w.table is the request's view's table of this turn.
# Threads     one network thread.
# Returns     an Outcome. READY: the reply is sealed in the chain. CLOSE: r.reason says why, in a static text.
#             PARKED: nothing of the frame is needed any more; the purgatory answers later through purgatory_collect.
# Never raises, never takes the GIL.
from kbroker._core.api.request cimport Outcome, Request, Worker
from kbroker._core.wire.chain cimport Chain

cdef Outcome dispatch(Worker *w, Request *r, Chain *reply) noexcept nogil
