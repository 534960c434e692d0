# leader_epochs: which leader epoch began at which offset (KIP-101), and the file leader-epoch-checkpoint.
# Owns        the entries, in memory. The file holds the first `written` of them; `dirty`: it does not, or is not there.
# Called by   log/append (an epoch's first batch), log/recovery, log/upkeep, log/lookup.
# Threads     under the log's lock.
# Invariants  epochs and start offsets strictly ascend.
#
# The file, text: "0", the number of entries, then "epoch start_offset" a line.
from libc.stdint cimport int32_t, int64_t

cdef struct EpochStart:
    int32_t epoch
    int64_t start_offset

cdef struct LeaderEpochs:
    EpochStart *entries
    int32_t count
    int32_t capacity
    int32_t written
    bint dirty

cdef void epochs_free(LeaderEpochs *e) noexcept nogil
cdef int32_t epochs_latest(const LeaderEpochs *e) noexcept nogil                        # -1: none
cdef int epochs_assign(LeaderEpochs *e, int32_t epoch, int64_t start_offset) noexcept nogil   # 0 or -ENOMEM
cdef void epochs_end_offset(const LeaderEpochs *e, int32_t epoch, int64_t log_end_offset,
                            int32_t *found_epoch, int64_t *end_offset) noexcept nogil
cdef int32_t epochs_at(const LeaderEpochs *e, int64_t offset) noexcept nogil            # of a record; -1: unknown
cdef void epochs_cut_end(LeaderEpochs *e, int64_t end_offset) noexcept nogil            # nothing begins at or past it
cdef void epochs_cut_start(LeaderEpochs *e, int64_t start_offset) noexcept nogil        # nothing ends before it
cdef int epochs_read(LeaderEpochs *e, const char *directory) noexcept nogil             # -EINVAL: not such a file
# Entries that begin below `end_offset`, if the file does not say so yet. At a stop that is the log's end: an epoch that has no
# record yet is cut off by whoever opens the log, and thousands of logs need not be touched for it.
cdef int epochs_write(LeaderEpochs *e, const char *directory, int64_t end_offset) noexcept nogil
