# health: whether a log directory still takes and keeps what its logs write. One for all the logs in it: the first that meets
# a failing disk ends the writing and the reading of all, before anyone has been told.
# Owns        what failed first, and the pipe that wakes whoever is to hear of it.
# Called by   log/* by way of state.go_offline; the control side through the Health door.
# Threads     any. A failure is told once: `claimed` says by whom, `failed_errno` publishes it.
# Invariants  once failed, failed for good: a disk that was mended is looked at by the next start.
from libc.errno cimport (
    EBADMSG, EFBIG, EINTR, EINVAL, EISDIR, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENOMEM, ENOTDIR, ERANGE,
)
from libc.stdint cimport int32_t
from kbroker._core.c.prelude cimport load_int32

cdef struct HealthState:
    int32_t references
    int32_t claimed
    int32_t failed_errno     # 0: fine
    int wait_fd              # readable once it has failed
    int ring_fd
    char *where              # what failed; before failed_errno is published, then for good

cdef void health_retain(HealthState *h) noexcept nogil
cdef void health_release(HealthState *h) noexcept nogil
# What failed with `rc` at `where`. False: it is no disk's fault, and nothing is changed.
cdef bint health_fail(HealthState *h, int rc, const char *where) noexcept nogil

cdef inline int32_t failure_of(const HealthState *h) noexcept nogil:
    return load_int32(&h.failed_errno) if h != NULL else 0

cdef inline bint is_disks_fault(int rc) noexcept nogil:
    # The others speak of this process, of one name, or of what stands in one file.
    return rc < 0 and rc not in (
        -ENOMEM, -EMFILE, -ENFILE, -EINTR, -ENAMETOOLONG, -EISDIR, -ENOTDIR, -ELOOP, -EINVAL, -ERANGE, -EFBIG, -EBADMSG)

cdef class Health:
    cdef HealthState *state
