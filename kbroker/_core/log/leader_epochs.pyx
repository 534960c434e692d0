# The leader epochs of a log: a short sorted array, and its text file.
from libc.errno cimport EINVAL, ENOENT, ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc

from kbroker._core.log.files cimport PATH_BYTES, path_in, read_whole, replace_file

cdef enum:
    CHECKPOINT_MAX_BYTES = 67108864
    LINE_MAX_BYTES = 40


cdef void epochs_free(LeaderEpochs *e) noexcept nogil:
    free(e.entries)
    e.entries = NULL
    e.count = 0
    e.capacity = 0


cdef int32_t epochs_latest(const LeaderEpochs *e) noexcept nogil:
    return e.entries[e.count - 1].epoch if e.count > 0 else -1


cdef int push(LeaderEpochs *e, int32_t epoch, int64_t start_offset) noexcept nogil:
    cdef void *moved
    cdef int32_t capacity
    if e.count == e.capacity:
        capacity = e.capacity * 2 if e.capacity > 0 else 4
        moved = realloc(e.entries, capacity * sizeof(EpochStart))
        if moved == NULL:
            return -ENOMEM
        e.entries = <EpochStart *> moved
        e.capacity = capacity
    e.entries[e.count].epoch = epoch
    e.entries[e.count].start_offset = start_offset
    e.count += 1
    return 0


cdef void drop_last(LeaderEpochs *e) noexcept nogil:
    e.count -= 1
    if e.count < e.written:
        e.dirty = True


cdef int epochs_assign(LeaderEpochs *e, int32_t epoch, int64_t start_offset) noexcept nogil:
    # The newest word wins: entries that contradict it (as new, or beginning as late) go.
    cdef EpochStart *last
    if epoch < 0 or start_offset < 0:
        return 0
    if e.count > 0:
        last = &e.entries[e.count - 1]
        if epoch == last.epoch and start_offset >= last.start_offset:
            return 0
    while e.count > 0:
        last = &e.entries[e.count - 1]
        if last.epoch < epoch and last.start_offset < start_offset:
            break
        drop_last(e)
    return push(e, epoch, start_offset)


cdef void epochs_end_offset(const LeaderEpochs *e, int32_t epoch, int64_t log_end_offset,
                            int32_t *found_epoch, int64_t *end_offset) noexcept nogil:
    cdef int32_t i = e.count
    found_epoch[0] = -1
    end_offset[0] = -1
    if epoch < 0 or e.count == 0:
        return
    if e.entries[e.count - 1].epoch == epoch:
        found_epoch[0] = epoch
        end_offset[0] = log_end_offset
        return
    while i > 0 and e.entries[i - 1].epoch > epoch:
        i -= 1
    if i == e.count:
        return                               # newer than anything known here
    end_offset[0] = e.entries[i].start_offset
    found_epoch[0] = e.entries[i - 1].epoch if i > 0 else epoch


cdef int32_t epochs_at(const LeaderEpochs *e, int64_t offset) noexcept nogil:
    cdef int32_t i = e.count
    while i > 0 and e.entries[i - 1].start_offset > offset:
        i -= 1
    return e.entries[i - 1].epoch if i > 0 else -1


cdef void epochs_cut_end(LeaderEpochs *e, int64_t end_offset) noexcept nogil:
    while e.count > 0 and e.entries[e.count - 1].start_offset >= end_offset:
        drop_last(e)


cdef void epochs_cut_start(LeaderEpochs *e, int64_t start_offset) noexcept nogil:
    # The epoch that is still going on at start_offset stays and now begins there.
    cdef int32_t gone = 0
    cdef int32_t i
    while gone + 1 < e.count and e.entries[gone + 1].start_offset <= start_offset:
        gone += 1
    if gone > 0:
        for i in range(gone, e.count):
            e.entries[i - gone] = e.entries[i]
        e.count -= gone
        e.dirty = True
    if e.count > 0 and e.entries[0].start_offset < start_offset:
        e.entries[0].start_offset = start_offset
        e.dirty = True


cdef const uint8_t *take_number(const uint8_t *p, int64_t *value) noexcept nogil:
    # Decimal digits, skipping the white space before them; NULL when there are none or too many.
    cdef int64_t v = 0
    cdef int digits = 0
    cdef int digit
    while p[0] == c' ' or p[0] == c'\n' or p[0] == c'\r':
        p += 1
    while p[0] >= c'0' and p[0] <= c'9':
        digit = <int> p[0] - <int> c'0'
        if v > (<int64_t> 0x7fffffffffffffff - digit) // 10:
            return NULL
        v = v * 10 + digit
        digits += 1
        p += 1
    value[0] = v
    return p if digits > 0 else NULL


cdef int parse(LeaderEpochs *e, const uint8_t *p) noexcept nogil:
    cdef int64_t version = 0, count = 0, epoch = 0, start = 0
    p = take_number(p, &version)
    if p == NULL or version != 0:
        return -EINVAL
    p = take_number(p, &count)
    if p == NULL:
        return -EINVAL
    while count > 0:
        p = take_number(p, &epoch)
        if p == NULL or epoch > 0x7fffffff:
            return -EINVAL
        p = take_number(p, &start)
        if p == NULL:
            return -EINVAL
        if epochs_assign(e, <int32_t> epoch, start) != 0:
            return -ENOMEM
        count -= 1
    e.written = e.count
    e.dirty = False
    return 0


cdef int epochs_read(LeaderEpochs *e, const char *directory) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int64_t length = 0
    cdef uint8_t *text
    cdef int rc = path_in(path, directory, "leader-epoch-checkpoint")
    if rc != 0:
        return rc
    text = read_whole(path, CHECKPOINT_MAX_BYTES, &length)
    if text == NULL:
        e.dirty = True                       # Kafka's directories always have the file
        return 0 if length == -ENOENT else <int> length
    rc = parse(e, text)
    free(text)
    if rc != 0:
        e.count = 0
        e.dirty = True
    return rc


cdef int epochs_write(LeaderEpochs *e, const char *directory, int64_t end_offset) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int32_t count = e.count
    cdef char *text
    cdef size_t room, used
    cdef int32_t i
    cdef int rc
    while count > 0 and e.entries[count - 1].start_offset >= end_offset:
        count -= 1
    if not e.dirty and count == e.written:
        return 0
    rc = path_in(path, directory, "leader-epoch-checkpoint")
    if rc != 0:
        return rc
    room = <size_t> (count + 1) * LINE_MAX_BYTES
    text = <char *> malloc(room)
    if text == NULL:
        return -ENOMEM
    used = snprintf(text, room, "0\n%d\n", count)
    for i in range(count):
        used += snprintf(text + used, room - used, "%d %lld\n", e.entries[i].epoch,
                         <long long> e.entries[i].start_offset)
    rc = replace_file(path, text, used)
    free(text)
    if rc == 0:
        e.written = count
        e.dirty = False
    return rc
