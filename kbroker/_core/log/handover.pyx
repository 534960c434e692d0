# One log takes another's place. handover.pxd says what holds; here is how.
import os

from libc.errno cimport EAGAIN, EBADMSG, EIO, ENOMEM, ERANGE
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport strlen, memcpy

from kbroker._core.c.prelude cimport load_int64, store_int64, store_pointer
from kbroker._core.errors cimport CORRUPT_MESSAGE, NONE, OFFSET_OUT_OF_RANGE
from kbroker._core.log.append cimport log_append, roll
from kbroker._core.log.files cimport pthread_mutex_lock, pthread_mutex_unlock, read_at, rename_path
from kbroker._core.log.health cimport is_disks_fault
from kbroker._core.log.leader_epochs cimport LeaderEpochs
from kbroker._core.log.lookup cimport log_read
from kbroker._core.log.open_files cimport out_of_files
from kbroker._core.log.partition_log cimport PartitionLog, log_end_offset, log_start_offset
from kbroker._core.log.producer_state cimport ProducerTable, producers_write_snapshot
from kbroker._core.log.segment cimport segment_release
from kbroker._core.log.state cimport FORMER_DIRECTORIES, Append, ReadPlan, active, go_offline, refusal, usable
from kbroker._core.log.verification cimport Verifications
from kbroker._core.record.batch cimport FROM_LEADER
from kbroker._core.record.compression cimport Scratch, empty_scratch, scratch_free


cdef void carrier_free(Carrier *c) noexcept nogil:
    free(c.data)
    c.data = NULL
    c.capacity = 0


cdef bint carrier_reserve(Carrier *c, int64_t length) noexcept nogil:
    cdef void *moved
    if length <= c.capacity:
        return True
    moved = realloc(c.data, length)
    if moved == NULL:
        return False
    c.data = <uint8_t *> moved
    c.capacity = length
    return True


cdef int roll_copy(Log *copy, int64_t base_offset, int64_t now_ms) noexcept nogil:
    # Under the copy's lock. A disk that takes no new file takes nothing more.
    cdef int rc = roll(copy, base_offset, now_ms)
    if rc != 0 and not out_of_files(rc):
        go_offline(copy, rc)
    return rc


cdef int begin_segment(Log *copy, int64_t base_offset, int64_t now_ms) noexcept nogil:
    # Where the source has a segment's beginning, so has the copy: what retention and the cleaner see stays the same.
    cdef int rc = 0
    pthread_mutex_lock(&copy.lock)
    if not usable(copy):
        rc = refusal(copy)
    elif copy.end_offset > active(copy).base_offset and base_offset >= copy.end_offset:
        rc = roll_copy(copy, base_offset, now_ms)
    pthread_mutex_unlock(&copy.lock)
    return rc


cdef int skip_to(Log *copy, int64_t end_offset, int64_t now_ms) noexcept nogil:
    # Every record up to there is deleted: an empty segment tells where the next one belongs.
    cdef int rc = 0
    pthread_mutex_lock(&copy.lock)
    if not usable(copy):
        rc = refusal(copy)
    elif copy.end_offset < end_offset:
        rc = roll_copy(copy, end_offset, now_ms)
        if rc == 0:
            store_int64(&copy.end_offset, end_offset)
    pthread_mutex_unlock(&copy.lock)
    return rc


cdef int append_copied(Log *copy, uint8_t *data, int64_t length, int64_t now_ms) noexcept nogil:
    cdef Append append
    cdef Scratch scratch = empty_scratch()
    append.records = data
    append.length = <int32_t> length
    append.inflated = NULL
    append.inflated_length = -1
    log_append(copy, &append, 1, FROM_LEADER, -1, &scratch, now_ms)
    scratch_free(&scratch)
    if append.out.error == CORRUPT_MESSAGE:
        return -EBADMSG
    if append.out.error != NONE:
        return refusal(copy)
    return 0


cdef int blame(Log *source, int rc) noexcept nogil:
    # A disk that cannot be read is no better for clients than for a copy.
    if is_disks_fault(rc):
        pthread_mutex_lock(&source.lock)
        go_offline(source, rc)
        pthread_mutex_unlock(&source.lock)
    return rc


cdef int64_t copy_next(Log *source, Log *copy, Carrier *c, int64_t max_bytes, int64_t now_ms) noexcept nogil:
    # What lies below the source's start is left out; the copy then has a gap there, as a compacted log has.
    cdef ReadPlan plan
    cdef int64_t n = 0
    cdef int64_t base_offset
    cdef int rc
    log_read(source, max(log_end_offset(copy), log_start_offset(source)), INT64_MAX, max_bytes, True, &plan)
    if load_int64(&source.cuts) != c.cuts or plan.error == OFFSET_OUT_OF_RANGE:
        if plan.segment != NULL:
            segment_release(plan.segment)
        return -ERANGE
    if plan.error != NONE:
        return refusal(source)
    if plan.segment == NULL:
        return skip_to(copy, plan.log_end_offset, now_ms)
    base_offset = plan.segment.base_offset
    if not carrier_reserve(c, plan.length):
        n = -ENOMEM
    else:
        n = read_at(plan.segment.fd, c.data, plan.length, plan.position)
    segment_release(plan.segment)
    if n < 0:
        return blame(source, <int> n)
    if n != plan.length:
        return -EBADMSG                          # shorter than it was
    rc = begin_segment(copy, base_offset, now_ms) if plan.position == 0 else 0
    if rc == 0:
        rc = append_copied(copy, c.data, plan.length, now_ms)
    return plan.length if rc == 0 else rc


cdef int take_name(Log *log, const char *old, const char *new) noexcept nogil:
    # Under the log's lock. Whoever syncs may just be reading the old name, so it stays until the log goes.
    cdef size_t length = strlen(new) + 1
    cdef char *name
    cdef int32_t i
    cdef int rc
    if log.former_count == FORMER_DIRECTORIES:
        return -EIO
    name = <char *> malloc(length)
    if name == NULL:
        return -ENOMEM
    memcpy(name, new, length)
    rc = rename_path(old, new)
    if rc != 0:
        free(name)
        return go_offline(log, rc) if is_disks_fault(rc) else rc
    log.former[log.former_count] = log.directory
    log.former_count += 1
    store_pointer(<void **> &log.directory, name)    # log/swap reads it without the lock
    for i in range(log.segment_count):
        log.segments[i].directory = name
    return 0


cdef int log_rename(Log *log, const char *directory) noexcept nogil:
    cdef int rc
    pthread_mutex_lock(&log.lock)
    rc = take_name(log, log.directory, directory)
    pthread_mutex_unlock(&log.lock)
    return rc


cdef void take_over(Log *source, Log *copy) noexcept nogil:
    # The copy knows only of producers and epochs whose batches it was given; the source remembers more. Whoever has asked
    # the source about a transaction may come with its first batch to the copy.
    cdef ProducerTable producers = copy.producers
    cdef LeaderEpochs epochs = copy.epochs
    cdef Verifications verifications = copy.verifications
    copy.producers = source.producers
    copy.producers.snapshot_offset = -1      # the copy's tell less: the next one is written whatever there is
    source.producers = producers
    copy.verifications = source.verifications
    source.verifications = verifications
    copy.epochs = source.epochs
    copy.epochs.dirty = True
    source.epochs = epochs
    copy.config = source.config
    store_int64(&copy.start_offset, source.start_offset)
    store_int64(&copy.first_unstable_offset, source.first_unstable_offset)
    store_int64(&copy.high_watermark, source.high_watermark)
    if source.sync_target > copy.sync_target:
        store_int64(&copy.sync_target, source.sync_target)


cdef int hand_over(Log *source, Log *copy, const Carrier *c, const char *retired) noexcept nogil:
    cdef int rc = 0
    pthread_mutex_lock(&source.lock)
    pthread_mutex_lock(&copy.lock)
    if not usable(source):
        rc = refusal(source)
    elif not usable(copy):
        rc = refusal(copy)
    elif source.cuts != c.cuts:
        rc = -ERANGE
    elif source.end_offset != copy.end_offset or copy.fresh:
        rc = -EAGAIN
    else:
        rc = take_name(source, source.directory, retired)
        if rc == 0:
            take_over(source, copy)
            source.handed_over = True
    pthread_mutex_unlock(&copy.lock)
    pthread_mutex_unlock(&source.lock)
    return rc


def rename(PartitionLog log not None, str directory not None):
    """Gives a log's directory another name, while it is appended to and read."""
    cdef bytes encoded = os.fsencode(directory)
    cdef const char *name = encoded
    cdef int rc
    with nogil:
        rc = log_rename(log.log, name)
    if rc != 0:
        raise OSError(-rc, os.strerror(-rc), log.directory)
    log.directory = directory


def write_snapshot(PartitionLog log not None):
    """Writes down what is known of producers now: of those whose batches are gone no scan could tell."""
    cdef int rc = 0
    with nogil:
        pthread_mutex_lock(&log.log.lock)
        if usable(log.log):
            rc = producers_write_snapshot(&log.log.producers, log.log.directory, log.log.end_offset)
            if is_disks_fault(rc):
                go_offline(log.log, rc)
        pthread_mutex_unlock(&log.log.lock)
    if rc != 0:
        raise OSError(-rc, os.strerror(-rc), log.directory)
