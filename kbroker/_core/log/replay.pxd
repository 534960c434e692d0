# replay: what producers did, from the newest good snapshot and the batch headers behind it; and from that, which
# transactions were aborted.
# Called by   log/recovery, log/upkeep (after a cut), log/aborted.
# Threads     under the log's lock.
# Returns     0 or -errno. Damaged snapshots go, with a note.
from libc.stdint cimport int32_t, int64_t
from kbroker._core.log.listing cimport Listing
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.state cimport Log

# The producers as they were before the segment at `index`. Without any snapshot: by what the log tells from `start_offset` on.
cdef int producers_before(Log *log, const Listing *names, int32_t index, int64_t start_offset, int64_t now_ms) noexcept nogil
# The producers at the end. `replay_all`: even if no snapshot tells that there were any.
cdef int restore_producers(Log *log, const Listing *names, bint replay_all, int64_t now_ms) noexcept nogil
cdef int reload_producers(Log *log, bint replay_all, int64_t now_ms) noexcept nogil
cdef void remove_stray_snapshots(const Log *log, const Listing *names) noexcept nogil
# The transaction index of the segment at `index`, read, or made anew when it is damaged.
cdef int open_txns(Log *log, int32_t index) noexcept nogil
cdef void note(Log *log, int64_t segment_base_offset, int64_t offset, int64_t position, int64_t bytes,
               const char *reason) noexcept nogil
