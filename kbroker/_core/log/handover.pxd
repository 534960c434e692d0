# handover: a log is copied batch by batch into a second one, which takes its place when both end at the same offset.
# Owns        nothing: both logs are the caller's, and so is the buffer between them.
# Called by   moves (a replica goes from one data directory to another).
# Threads     copy_next: one at a time for a copy. hand_over: while nobody appends to either (under the partition's lock).
#             Locks: the source's, then the copy's; nobody takes them the other way round.
# Returns     0, a count or -errno. -EBADMSG: a batch of the source does not match its checksum. -ERANGE: the source was
#             cut since the copy was begun, or is shorter: the copy is of no use.
# Invariants  every batch of the copy is the source's, byte for byte; its segments begin where the source's do.
from libc.stdint cimport int64_t, uint8_t
from kbroker._core.log.state cimport Log

cdef struct Carrier:
    uint8_t *data
    int64_t capacity
    int64_t cuts               # the source's when the copy was begun

cdef void carrier_free(Carrier *c) noexcept nogil
# Copies what follows in the source: whole batches of about `max_bytes`, one at least. The bytes; 0: nothing follows.
cdef int64_t copy_next(Log *source, Log *copy, Carrier *c, int64_t max_bytes, int64_t now_ms) noexcept nogil
# The source's directory is renamed to `retired`; the copy takes over what is known of producers and epochs, start, high
# watermark and settings. -EAGAIN: they do not end at the same offset. The caller goes on with the copy alone.
cdef int hand_over(Log *source, Log *copy, const Carrier *c, const char *retired) noexcept nogil
cdef int log_rename(Log *log, const char *directory) noexcept nogil
