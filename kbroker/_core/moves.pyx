# A partition's log is exchanged while producers and consumers go on. moves.pxd says what holds; here is how.
import os

from libc.errno cimport EAGAIN, EBADMSG, ERANGE, ESTALE
from libc.stdint cimport int32_t, int64_t

from kbroker._core.c.prelude cimport load_int64, store_pointer
from kbroker._core.clock cimport BrokerClock, wall_ms
from kbroker._core.limits cimport MOVED_UNDER_LOCK_MAX_BYTES
from kbroker._core.log.handover cimport carrier_free, copy_next, hand_over
from kbroker._core.log.partition_log cimport (
    Log, log_awaits_sync, log_end_offset, log_flush, log_release, log_retain, log_syncs,
)
from kbroker._core.partitions cimport (
    Partition, PartitionHandle, maybe_advance_high_watermark, note_change, partition_sync, pthread_mutex_lock,
    pthread_mutex_unlock,
)


cdef enum:
    CHUNK_BYTES = 1048576
    CHASED_BYTES = 67108864


class MoveError(Exception):
    """Why a log cannot be copied: one of its batches does not match its checksum."""


class CutError(Exception):
    """The end of the source was cut off: a copy that was begun before must be made anew."""


cdef int64_t copy_some(Log *source, Log *copy, Carrier *carrier, int64_t max_bytes, int64_t now_ms) noexcept nogil:
    # Up to about max_bytes; the bytes, or -errno.
    cdef int64_t copied = 0
    cdef int64_t n = 1
    while n > 0 and copied < max_bytes:
        n = copy_next(source, copy, carrier, min(max_bytes - copied, CHUNK_BYTES), now_ms)
        if n > 0:
            copied += n
    return copied if n >= 0 else n


cdef int catch_up(Log *source, Log *copy, Carrier *carrier, int64_t now_ms) noexcept nogil:
    # With the partition's lock held, so only what came since the last step. -EAGAIN: that is too much to keep everyone waiting.
    # What the source had synced must be so in the copy: producers that wait for the disk were told that it is.
    cdef int64_t n = copy_some(source, copy, carrier, MOVED_UNDER_LOCK_MAX_BYTES, now_ms)
    if n < 0:
        return <int> n
    if log_end_offset(copy) < log_end_offset(source):
        return -EAGAIN
    return log_flush(copy) if log_syncs(source) else 0


cdef int swap_logs(Partition *p, Log *source, Log *copy, Carrier *carrier, const char *retired, int64_t now_ms) noexcept nogil:
    cdef int64_t n = copy_some(source, copy, carrier, CHASED_BYTES, now_ms)     # without a pause before the lock
    cdef int rc
    if n < 0:
        return <int> n
    pthread_mutex_lock(&p.lock)
    if p.log != source:
        rc = -ESTALE
    else:
        rc = catch_up(source, copy, carrier, now_ms)
        if rc == 0:
            rc = hand_over(source, copy, carrier, retired)
        if rc == 0:
            log_retain(copy)
            store_pointer(<void **> &p.log, copy)        # log_of reads it without the lock
            maybe_advance_high_watermark(p)
            note_change(p)
    pthread_mutex_unlock(&p.lock)
    if rc == 0:
        log_release(source)
    return rc


cdef class LogMove:
    """One log on its way into another directory: step() until nothing is missing, then swap()."""

    def __cinit__(self, PartitionLog source not None, PartitionLog copy not None):
        self.source = source
        self.copy = copy
        self.carrier.data = NULL
        self.carrier.capacity = 0
        self.carrier.cuts = load_int64(&source.log.cuts)

    def __dealloc__(self):
        carrier_free(&self.carrier)

    def step(self, int64_t max_bytes=1048576):
        """Copies some more, without the GIL; how many bytes. 0: the copy has all there is at this moment."""
        cdef int64_t now = wall_ms(&(<BrokerClock> self.source._clock).c)
        cdef int64_t n
        with nogil:
            n = copy_some(self.source.log, self.copy.log, &self.carrier, max_bytes, now)
        if n < 0:
            raise self.problem(<int> n)
        return n

    def swap(self, PartitionHandle handle not None, str retired not None):
        """The partition goes on with the copy, and the source's directory is called `retired`.

        False: too much came since the last step, or the partition has another log by now; nothing has changed.
        """
        cdef bytes encoded = os.fsencode(retired)
        cdef const char *name = encoded
        cdef int64_t now = wall_ms(&(<BrokerClock> self.source._clock).c)
        cdef int rc
        handle._next = self.copy
        with nogil:
            rc = swap_logs(handle.p, self.source.log, self.copy.log, &self.carrier, name, now)
        if rc == 0 and handle._log is self.source:       # else it went offline, or its topic went, since then
            handle._log = self.copy
        handle._next = None
        if rc == -EAGAIN or rc == -ESTALE:
            return False
        if rc != 0:
            raise self.problem(rc)
        self.source.directory = retired
        if log_awaits_sync(self.copy.log):
            with nogil:
                partition_sync(handle.p)     # whoever waits for the disk waits for this one's now
        return True

    cdef object problem(self, int rc):
        if rc == -EBADMSG:
            return MoveError(f"{self.source.directory}: the batch at offset {self.copy.log_end_offset} does not match its checksum")
        if rc == -ERANGE:
            return CutError(self.source.directory)
        if self.copy.offline_errno:
            return OSError(self.copy.offline_errno, os.strerror(self.copy.offline_errno), self.copy.directory)
        return OSError(-rc, os.strerror(-rc), self.source.directory)
