# The end of a log directory, told once.
import os

from libc.errno cimport ENOMEM, errno
from libc.stdlib cimport calloc, free
from libc.string cimport strdup
from posix.unistd cimport close, write

from kbroker._core.c.prelude cimport raise_flag, release_count, retain_count, store_int32
from kbroker._core.c.readiness cimport open_pipe


cdef int health_new(HealthState **out) noexcept nogil:
    cdef int ends[2]
    cdef HealthState *h = <HealthState *> calloc(1, sizeof(HealthState))
    if h == NULL:
        return -ENOMEM
    if open_pipe(ends) != 0:
        free(h)
        return -errno
    h.references = 1
    h.wait_fd = ends[0]
    h.ring_fd = ends[1]
    out[0] = h
    return 0


cdef void health_retain(HealthState *h) noexcept nogil:
    retain_count(&h.references)


cdef void health_release(HealthState *h) noexcept nogil:
    if release_count(&h.references):
        close(h.wait_fd)
        close(h.ring_fd)
        free(h.where)
        free(h)


cdef bint health_fail(HealthState *h, int rc, const char *where) noexcept nogil:
    if not is_disks_fault(rc):
        return False
    if h != NULL and raise_flag(&h.claimed):
        h.where = strdup(where) if where != NULL else NULL
        store_int32(&h.failed_errno, -rc)
        write(h.ring_fd, b"!", 1)            # the pipe is empty: this is said once
    return True


cdef class Health:
    """Whether a log directory works: give the same one to all logs in it."""

    def __cinit__(self):
        cdef int rc = health_new(&self.state)
        if rc != 0:
            raise OSError(-rc, os.strerror(-rc))

    def __dealloc__(self):
        if self.state != NULL:
            health_release(self.state)

    @property
    def failure(self):
        """The first thing that failed, as an OSError; None while all is well. From any thread."""
        cdef int32_t code = failure_of(self.state)
        if code == 0:
            return None
        where = os.fsdecode(<bytes> self.state.where) if self.state.where != NULL else None
        return OSError(code, os.strerror(code), where)

    def fail(self, problem, where=None):
        """Takes the directory offline for an OSError. False: it is not the disk's fault, and nothing has changed."""
        cdef bytes name = os.fsencode(where or problem.filename or "")
        cdef const char *text = name
        cdef int rc = -(problem.errno or 0)
        cdef bint failed
        with nogil:
            failed = health_fail(self.state, rc, text)
        return failed

    def fileno(self):
        """Readable once the directory has failed."""
        return self.state.wait_fd

    @property
    def descriptors(self):
        """Both ends of the pipe, for a forked child to close."""
        return self.state.wait_fd, self.state.ring_fd
