# Which segments go, and how they leave.
from libc.errno cimport ENOENT, ERANGE
from libc.stdint cimport int32_t, int64_t

from kbroker._core.c.prelude cimport store_int64
from kbroker._core.log.append cimport roll
from kbroker._core.log.directory cimport add_offset
from kbroker._core.log.files cimport (
    LOG_FILE, PATH_BYTES, SEGMENT_FILES, modified_ms, path_of_file, pthread_mutex_lock, pthread_mutex_unlock, rename_file,
)
from kbroker._core.log.leader_epochs cimport epochs_cut_start
from kbroker._core.log.lookup cimport load_max_timestamp
from kbroker._core.log.segment cimport Segment
from kbroker._core.log.state cimport active, first_unstable, go_offline, refusal, usable
from kbroker._core.log.upkeep cimport forget_segment

cdef enum Rule:
    BY_SIZE = 0
    BY_TIME = 1

cdef enum:
    NOTHING = -1


cdef void raise_start(Log *log, int64_t offset) noexcept nogil:
    # leader-epoch-checkpoint follows with the next roll, flush or close; until then a start cuts it again.
    if offset > log.start_offset:
        store_int64(&log.start_offset, offset)
        store_int64(&log.first_unstable_offset, first_unstable(log))
        epochs_cut_start(&log.epochs, offset)


cdef int log_raise_start(Log *log, int64_t offset) noexcept nogil:
    cdef int rc = 0
    pthread_mutex_lock(&log.lock)
    if not usable(log):
        rc = refusal(log)
    elif offset > log.high_watermark:
        rc = -ERANGE
    else:
        raise_start(log, offset)
    pthread_mutex_unlock(&log.lock)
    return rc


cdef int age_of(Log *log, Segment *s, int64_t now_ms, int64_t *age_ms) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int64_t newest
    cdef int rc = load_max_timestamp(log, s)
    path[0] = 0
    if rc == 0 and s.max_timestamp < 0 and s.directory != NULL:
        rc = path_of_file(path, s.directory, s.base_offset, LOG_FILE, "")
    if rc != 0:
        return rc
    newest = s.max_timestamp if s.max_timestamp >= 0 else modified_ms(s.fd, path)
    if newest < 0:
        return <int> newest
    age_ms[0] = now_ms - newest              # negative when a record is dated ahead: it keeps its segment
    return 0


cdef int end_of_expired(Log *log, Rule rule, int64_t now_ms, int64_t *end_offset) noexcept nogil:
    # The first offset that stays; NOTHING when the oldest segment does.
    cdef Segment *s
    cdef int64_t above = 0                   # how much more than retention.bytes there is
    cdef int64_t upper, age_ms = 0
    cdef int32_t i
    cdef bint last
    cdef int rc
    end_offset[0] = NOTHING
    if rule == BY_SIZE:
        above = -log.config.retention_bytes
        for i in range(log.segment_count):
            above += log.segments[i].size_bytes
    for i in range(log.segment_count):
        s = log.segments[i]
        last = i + 1 == log.segment_count
        upper = log.end_offset if last else log.segments[i + 1].base_offset
        if upper > log.high_watermark or (last and s.size_bytes == 0):
            break
        if rule == BY_SIZE:
            if s.size_bytes > above:
                break
            above -= s.size_bytes
        else:
            rc = age_of(log, s, now_ms, &age_ms)
            if rc != 0:
                return rc
            if age_ms <= log.config.retention_ms:
                break
        end_offset[0] = upper
    return 0


cdef int expire(Log *log, Rule rule, int64_t now_ms, int64_t *end_offset) noexcept nogil:
    # As end_of_expired; when all of the log is old, a new segment stands behind it.
    cdef int64_t limit
    cdef int rc = 0
    end_offset[0] = NOTHING
    pthread_mutex_lock(&log.lock)
    limit = log.config.retention_bytes if rule == BY_SIZE else log.config.retention_ms
    if usable(log) and log.config.delete_old and limit >= 0:
        rc = end_of_expired(log, rule, now_ms, end_offset)
        if rc == 0 and end_offset[0] == log.end_offset and active(log).base_offset < end_offset[0]:
            rc = roll(log, end_offset[0], now_ms)
    pthread_mutex_unlock(&log.lock)
    return rc


cdef int rename_files(const Segment *s) noexcept nogil:
    cdef int i, rc
    if s.directory == NULL:
        return 0
    for i in range(SEGMENT_FILES):
        rc = rename_file(s.directory, s.base_offset, i, "", ".deleted")
        if rc != 0 and rc != -ENOENT:
            return rc
    return 0


cdef int retire_below(Log *log, int64_t offset, Offsets *retired) noexcept nogil:
    # Segments wholly below `offset` or below the start. The start follows each rename: were it ahead, a kill would set it back.
    cdef bint found = True
    cdef int64_t next_offset
    cdef int rc = 0
    while found and rc == 0:
        pthread_mutex_lock(&log.lock)
        found = usable(log) and log.segment_count > 1 and log.segments[1].base_offset <= max(offset, log.start_offset)
        if found:
            rc = add_offset(retired, log.segments[0].base_offset)
        if found and rc == 0:
            next_offset = log.segments[1].base_offset
            rc = rename_files(log.segments[0])
            if rc == 0:
                raise_start(log, next_offset)
                forget_segment(log, 0)
            else:
                retired.count -= 1
                go_offline(log, rc)
        pthread_mutex_unlock(&log.lock)
    return rc


cdef int log_retire(Log *log, int64_t now_ms, Offsets *retired) noexcept nogil:
    cdef int64_t end_offset = NOTHING
    cdef int rc = retire_below(log, NOTHING, retired)
    if rc == 0:
        rc = expire(log, BY_SIZE, now_ms, &end_offset)
    if rc == 0:
        rc = retire_below(log, end_offset, retired)
    if rc == 0:
        rc = expire(log, BY_TIME, now_ms, &end_offset)
    if rc == 0:
        rc = retire_below(log, end_offset, retired)
    return rc
