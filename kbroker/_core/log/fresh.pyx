# The files of a new log: directory, partition.metadata and the first segment.
from libc.errno cimport EEXIST, EIO, errno
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from posix.stat cimport mkdir

from kbroker._core.log.files cimport PATH_BYTES, path_in, replace_file
from kbroker._core.log.open_files cimport files_make_room, files_note, out_of_files
from kbroker._core.log.segment cimport Segment, segment_create
from kbroker._core.log.state cimport Log, active, go_offline


cdef int write_topic_id(const char *directory, const char *topic_id_text) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef char text[64]
    cdef int length
    cdef int rc = path_in(path, directory, "partition.metadata")
    if rc != 0 or topic_id_text[0] == 0:
        return rc
    length = snprintf(text, sizeof(text), "version: 0\ntopic_id: %s", topic_id_text)
    return replace_file(path, text, length)


cdef int make_files(Log *log) noexcept nogil:
    # Every step may be done again.
    cdef int64_t reserve_bytes = log.config.segment_bytes if log.config.preallocate else 0
    cdef int rc
    if mkdir(log.directory, 0o777) != 0 and errno != EEXIST:
        return -errno if errno > 0 else -EIO
    rc = write_topic_id(log.directory, log.topic_id_text)
    return segment_create(active(log), reserve_bytes) if rc == 0 else rc


cdef int fresh_make(Log *log) noexcept nogil:
    cdef Segment *s
    cdef int rc
    if not log.fresh:
        return 0
    s = active(log)
    rc = make_files(log)
    while files_make_room(log.files, s, rc):
        rc = make_files(log)
    if rc != 0:
        return rc if out_of_files(rc) else go_offline(log, rc)
    log.fresh = False
    log.names_changed = True
    log.epochs.dirty = True              # the file is not there yet
    files_note(log.files, s)
    return 0
