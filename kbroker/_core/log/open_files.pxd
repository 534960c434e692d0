# open_files: a bound on the descriptors that all logs of one broker hold open. Thousands of partitions with three files
# each would pass any limit, and most of them rest.
# Owns        the ring of segments with open files, shared by the logs of a broker.
# Called by   log/* before a segment's files are used (under that log's lock), and when a log lets a segment go.
# Threads     any. Locks: the caller's log, then `lock`, then a try at another log's: never a wait in that order reversed.
# Invariants  only a segment that its log alone references is closed, so a reply in flight keeps its descriptor.
from libc.errno cimport EMFILE, ENFILE
from libc.stdint cimport int32_t
from kbroker._core.log.files cimport pthread_mutex_t
from kbroker._core.log.segment cimport Segment

cdef struct OpenFiles:
    int32_t references
    pthread_mutex_t lock
    int32_t limit            # segments, each with up to three files
    int32_t count
    int32_t capacity
    int32_t hand
    Segment **ring

cdef OpenFiles *files_new(int32_t limit) noexcept nogil
cdef void files_retain(OpenFiles *f) noexcept nogil
cdef void files_release(OpenFiles *f) noexcept nogil
cdef int files_open_log(OpenFiles *f, Segment *s) noexcept nogil          # 0 or -errno
# Both indexes; missing or damaged ones are made anew.
cdef int files_open_indexes(OpenFiles *f, Segment *s, int32_t index_interval_bytes) noexcept nogil
cdef void files_note(OpenFiles *f, Segment *s) noexcept nogil             # s has open files now
cdef void files_forget(OpenFiles *f, Segment *s) noexcept nogil           # its log lets it go

# After a call that failed with `rc`: closes some other segment if that may help; True: try again.
cdef bint files_make_room(OpenFiles *f, const Segment *s, int rc) noexcept nogil

cdef inline bint out_of_files(int rc) noexcept nogil:
    return rc == -EMFILE or rc == -ENFILE

cdef class FileBudget:
    cdef OpenFiles *files
