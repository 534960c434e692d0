# leader_epochs: which leader epoch began at which offset (KIP-101), and the file leader-epoch-checkpoint.
# Owns        the entries, in memory; `dirty` says that the file is behind them.
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
cdef int epochs_write(LeaderEpochs *e, const char *directory) noexcept nogil            # when dirty
