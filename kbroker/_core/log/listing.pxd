# listing: what lies in a partition's directory, by the offsets in its names.
# Owns        the four lists until listing_free.
# Called by   log/recovery, log/replay.
# Returns     0 or -errno.
from libc.stdint cimport int64_t
from kbroker._core.log.directory cimport Offsets

cdef struct Listing:
    Offsets logs             # ascending, as the snapshots
    Offsets snapshots
    Offsets indexes          # a .index or .timeindex lies there
    Offsets txn_indexes

cdef int listing_read(Listing *l, const char *directory) noexcept nogil
cdef void listing_free(Listing *l) noexcept nogil
cdef bint holds(const Offsets *o, int64_t offset) noexcept nogil
