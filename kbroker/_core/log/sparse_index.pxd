# sparse_index: what .index and .timeindex have in common: sorted entries of one width, grown at the end.
# Owns        the descriptor of the index file and the entries that are not, or not only, in it.
# Called by   offset_index and time_index (which say what an entry means), segment (files and their life).
# Threads     under the log's lock.
# Returns     0, a count or an entry's number; -errno when the file refused.
# Invariants  stored <= written <= count. Entries below `stored` are in the file alone, the others in `tail` as well, so a
#             large index costs no memory after its segment was rolled or opened. Nothing here is protected by a checksum:
#             a damaged index is made anew from the log.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef struct SparseIndex:
    int fd                 # -1: closed; opened by the segment before entries below `stored` are read
    int32_t width          # bytes per entry: 8 or 12
    int32_t stored
    int32_t written
    int32_t count
    int32_t capacity       # entries that `tail` has room for
    uint8_t *tail          # entries stored..count, in the file's byte order

cdef enum:
    ENTRY_MAX_BYTES = 12
    NO_ENTRY = -1000000    # no errno is that large

cdef void index_init(SparseIndex *x, int32_t width) noexcept nogil
cdef void index_free(SparseIndex *x) noexcept nogil                       # the memory, not the descriptor
# Room for one more entry, already counted; NULL when memory ran out.
cdef uint8_t *index_grow(SparseIndex *x) noexcept nogil
cdef int index_entry(const SparseIndex *x, int32_t number, uint8_t *out) noexcept nogil
# The last entry whose field (4 or 8 bytes at `field_at`, ascending over the index) is <= key; NO_ENTRY when none is.
cdef int32_t index_floor(const SparseIndex *x, int field_at, int field_bytes, int64_t key) noexcept nogil
cdef int index_cut(SparseIndex *x, int32_t count) noexcept nogil          # keeps the first `count`
cdef int index_write(SparseIndex *x) noexcept nogil                       # brings the open file up to date, and to its size
cdef void index_settle(SparseIndex *x) noexcept nogil                     # gives back the memory of what is written
# Takes over a file of `size` bytes: an index of a killed Apache broker is preallocated and ends in zeros, which are left out.
# -EINVAL when its size or its order is not that of an index.
cdef int index_adopt(SparseIndex *x, int64_t size, int order_at, int order_bytes) noexcept nogil
