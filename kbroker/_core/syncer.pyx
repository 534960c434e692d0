# The threads that wait for disks in the producers' stead.
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free

from kbroker._core.c.prelude cimport add_counter, load_counter, release_count, retain_count
from kbroker._core.limits cimport SYNC_THREADS_MAX
from kbroker._core.partitions cimport (
    Partition, PartitionHandle, partition_release, partition_retain, partition_sync, pthread_mutex_destroy,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)

cdef extern from "<pthread.h>" nogil:
    int pthread_create(pthread_t *thread, void *attributes, void *(*run)(void *) noexcept nogil, void *argument) noexcept
    int pthread_join(pthread_t thread, void **result) noexcept
    int pthread_cond_init(pthread_cond_t *c, void *attributes) noexcept
    int pthread_cond_destroy(pthread_cond_t *c) noexcept
    int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) noexcept
    int pthread_cond_signal(pthread_cond_t *c) noexcept
    int pthread_cond_broadcast(pthread_cond_t *c) noexcept

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *set) noexcept
    int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) noexcept
    int SIG_BLOCK


cdef void destroy(SyncDoor *door) noexcept nogil:
    cdef Syncer *s = <Syncer *> door
    pthread_cond_destroy(&s.some)
    pthread_mutex_destroy(&s.lock)
    free(s)


cdef bint someone_comes(Syncer *s) noexcept nogil:
    # Under the lock. A broker that never syncs for a producer never has a thread here.
    if s.idle == 0 and s.thread_count < SYNC_THREADS_MAX and \
            pthread_create(&s.threads[s.thread_count], NULL, run, s) == 0:
        s.thread_count += 1
    return s.thread_count > 0


cdef bint want(SyncDoor *door, Partition *p) noexcept nogil:
    cdef Syncer *s = <Syncer *> door
    cdef bint wanted = True
    pthread_mutex_lock(&s.lock)
    if s.stopping:
        wanted = False
    elif not p.wants_sync:
        wanted = someone_comes(s)
        if wanted:
            partition_retain(p)
            p.wants_sync = True
            p.next_to_sync = NULL
            if s.last != NULL:
                s.last.next_to_sync = p
            else:
                s.first = p
            s.last = p
            pthread_cond_signal(&s.some)
    pthread_mutex_unlock(&s.lock)
    return wanted


cdef Partition *next_partition(Syncer *s) noexcept nogil:
    # NULL: it is over.
    cdef Partition *p
    pthread_mutex_lock(&s.lock)
    s.idle += 1
    while s.first == NULL and not s.stopping:
        pthread_cond_wait(&s.some, &s.lock)
    s.idle -= 1
    p = s.first
    if p != NULL:
        s.first = p.next_to_sync
        if s.first == NULL:
            s.last = NULL
        p.wants_sync = False       # whoever appends from here on may come too late for this fsync, and asks for another
    pthread_mutex_unlock(&s.lock)
    return p


cdef void *run(void *argument) noexcept nogil:
    cdef Syncer *s = <Syncer *> argument
    cdef Partition *p
    cdef sigset_t all_signals
    sigfillset(&all_signals)
    pthread_sigmask(SIG_BLOCK, &all_signals, NULL)
    while True:
        p = next_partition(s)
        if p == NULL:
            return NULL
        partition_sync(p)
        add_counter(&s.synced, 1)
        partition_release(p)


cdef class SyncThreads:
    """The threads that wait for disks where flush.messages asks for it: one for all partitions of a broker."""

    def __cinit__(self):
        self.s = <Syncer *> calloc(1, sizeof(Syncer))
        if self.s == NULL:
            raise MemoryError
        self.s.door.references = 1
        self.s.door.want = want
        self.s.door.destroy = destroy
        pthread_mutex_init(&self.s.lock, NULL)
        pthread_cond_init(&self.s.some, NULL)

    def __dealloc__(self):
        if self.s != NULL:
            self.close()
            if release_count(&self.s.door.references):
                destroy(&self.s.door)

    def serve(self, PartitionHandle handle not None):
        """From now on this partition's syncs are done here."""
        if handle.p.sync_door != NULL:
            raise ValueError("someone else syncs this partition")
        retain_count(&self.s.door.references)
        handle.p.sync_door = &self.s.door

    @property
    def synced(self):
        """How many times a partition was synced here."""
        return load_counter(&self.s.synced)

    def close(self):
        """Ends the threads when the queue is empty. A partition that wants a sync afterwards does it itself."""
        cdef int32_t i
        with nogil:
            pthread_mutex_lock(&self.s.lock)
            self.s.stopping = True
            pthread_cond_broadcast(&self.s.some)
            pthread_mutex_unlock(&self.s.lock)
            for i in range(self.s.thread_count):
                pthread_join(self.s.threads[i], NULL)
            self.s.thread_count = 0
