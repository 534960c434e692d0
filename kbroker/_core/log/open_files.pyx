# A ring of segments with open files and a hand that passes over it: what was not used since the hand's last round closes.
from libc.errno cimport EINVAL, ENOENT
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, realloc

from kbroker._core.c.prelude cimport load_int32, release_count, retain_count, store_int32
from kbroker._core.log.files cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_unlock,
)
from kbroker._core.log.segment cimport (
    Segment, segment_close_files, segment_open_indexes, segment_open_log, segment_rebuild_indexes,
)


cdef OpenFiles *files_new(int32_t limit) noexcept nogil:
    cdef OpenFiles *f = <OpenFiles *> calloc(1, sizeof(OpenFiles))
    if f == NULL:
        return NULL
    f.references = 1
    f.limit = limit if limit > 8 else 8
    pthread_mutex_init(&f.lock, NULL)
    return f


cdef void files_retain(OpenFiles *f) noexcept nogil:
    retain_count(&f.references)


cdef void files_release(OpenFiles *f) noexcept nogil:
    if release_count(&f.references):
        pthread_mutex_destroy(&f.lock)
        free(f.ring)
        free(f)


cdef void leave_ring(OpenFiles *f, Segment *s) noexcept nogil:
    cdef Segment *last = f.ring[f.count - 1]
    # Atomic because `last` may be another log's, which asks only whether it is in the ring at all.
    f.ring[s.ring_slot] = last
    store_int32(&last.ring_slot, s.ring_slot)
    store_int32(&s.ring_slot, -1)
    f.count -= 1


cdef bint close_one(OpenFiles *f, const Segment *spared) noexcept nogil:
    # Two rounds of the hand: the first may only lower every flag. True when a segment was closed.
    cdef int32_t steps = 2 * f.count
    cdef Segment *s
    cdef bint ours
    while steps > 0 and f.count > 0:
        steps -= 1
        f.hand = f.hand + 1 if f.hand + 1 < f.count else 0
        s = f.ring[f.hand]
        if s == spared:
            continue
        if load_int32(&s.in_use):
            store_int32(&s.in_use, 0)
            continue
        ours = s.lock == spared.lock         # held by the caller
        if not ours and pthread_mutex_trylock(s.lock) != 0:
            continue
        if load_int32(&s.references) == 1:
            segment_close_files(s)
            leave_ring(f, s)
            steps = -1
        if not ours:
            pthread_mutex_unlock(s.lock)
    return steps < 0


cdef void files_note(OpenFiles *f, Segment *s) noexcept nogil:
    cdef void *moved
    cdef int32_t capacity
    store_int32(&s.in_use, 1)
    if load_int32(&s.ring_slot) >= 0 or s.directory == NULL:
        return
    pthread_mutex_lock(&f.lock)
    while f.count >= f.limit and close_one(f, s):
        pass                                 # more than one when readers held too many for a while
    if f.count == f.capacity:
        capacity = f.capacity * 2 if f.capacity > 0 else 64
        moved = realloc(f.ring, capacity * sizeof(Segment *))
        if moved != NULL:
            f.ring = <Segment **> moved
            f.capacity = capacity
    if f.count < f.capacity:                 # without memory for its name a segment simply stays open
        f.ring[f.count] = s
        store_int32(&s.ring_slot, f.count)
        f.count += 1
    pthread_mutex_unlock(&f.lock)


cdef void files_forget(OpenFiles *f, Segment *s) noexcept nogil:
    if load_int32(&s.ring_slot) < 0:
        return
    pthread_mutex_lock(&f.lock)
    if s.ring_slot >= 0:
        leave_ring(f, s)
    pthread_mutex_unlock(&f.lock)


cdef bint files_make_room(OpenFiles *f, const Segment *s, int rc) noexcept nogil:
    cdef bint closed
    if not out_of_files(rc):
        return False
    pthread_mutex_lock(&f.lock)
    closed = close_one(f, s)
    pthread_mutex_unlock(&f.lock)
    return closed


cdef int files_open_log(OpenFiles *f, Segment *s) noexcept nogil:
    cdef int rc
    if s.fd >= 0:
        store_int32(&s.in_use, 1)
        return 0
    rc = segment_open_log(s)
    while files_make_room(f, s, rc):
        rc = segment_open_log(s)
    if rc == 0:
        files_note(f, s)
    return rc


cdef int files_open_indexes(OpenFiles *f, Segment *s, int32_t index_interval_bytes) noexcept nogil:
    cdef int rc = segment_open_indexes(s)
    while files_make_room(f, s, rc):
        rc = segment_open_indexes(s)
    if rc == -ENOENT or rc == -EINVAL:
        rc = segment_rebuild_indexes(s, index_interval_bytes)
    if rc == 0:
        files_note(f, s)
    return rc


cdef class FileBudget:
    """How many segments of one broker may have their files open at once. Give the same one to all its logs."""

    def __cinit__(self, limit: int | None = None) -> None:
        if limit is None:
            import resource

            limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 20000) // 6
        self.files = files_new(limit)
        if self.files == NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        if self.files != NULL:
            files_release(self.files)

    @property
    def open_segments(self) -> int:
        return self.files.count

    @property
    def limit(self) -> int:
        return self.files.limit
