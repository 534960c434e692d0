# syncer: fsyncs partitions whose flush.messages lets no acknowledgement go before the disk has the records.
# Owns        its native threads, started as they are needed, and the queue of partitions that wait for one.
# Called by   partitions, through the door that SyncThreads.serve gave them; the control side: one for all partitions of a broker.
# Threads     want: any, with no lock held. A partition is synced in one of the threads here, with no lock held either.
#             Lock order: Syncer.lock is taken alone.
# Invariants  a partition stands in the queue once at most, however many appends asked; one fsync serves every append that was
#             made before it began, so producers of one partition share it.
from libc.stdint cimport int32_t, uint64_t
from kbroker._core.limits cimport SYNC_THREADS_MAX
from kbroker._core.partitions cimport Partition, SyncDoor, pthread_mutex_t

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_cond_t:
        pass

cdef struct Syncer:
    SyncDoor door                  # first: a door is its syncer
    pthread_mutex_t lock
    pthread_cond_t some
    pthread_t threads[SYNC_THREADS_MAX]
    int32_t thread_count
    int32_t idle
    bint stopping
    Partition *first               # each holds a reference
    Partition *last
    uint64_t synced                # how many times a partition was

cdef class SyncThreads:
    cdef Syncer *s
