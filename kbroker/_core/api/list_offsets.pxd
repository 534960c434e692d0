# list_offsets: ListOffsets (2) as consumers ask it all the time: where one partition begins, or ends.
# Owns        nothing.
# Called by   api/dispatch.
# Threads     one network thread. Takes the partition's lock, then its log's, each for a moment.
# Returns     READY, or POST with nothing written: several partitions, a time, another replica, anything that is an error
#             or cannot be read is the control side's, in api/k02_list_offsets, which gives the same answers to these, too.
from kbroker._core.api.request cimport Outcome, Request, Worker
from kbroker._core.wire.chain cimport Chain

cdef Outcome list_offsets(Worker *w, Request *r, Chain *reply) noexcept nogil
