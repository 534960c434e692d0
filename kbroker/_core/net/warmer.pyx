# The thread that waits for disks in the network threads' stead.
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset
from posix.unistd cimport close, pread

from kbroker._core.c.filesystem cimport (
    F_DUPFD_CLOEXEC, cached_pages, fcntl, page_bytes, pread_resident, read_ahead,
)
from kbroker._core.limits cimport WARM_BYTES_AT_ONCE, WARM_ERRANDS
from kbroker._core.partitions cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock

cdef extern from "<pthread.h>" nogil:
    int pthread_create(pthread_t *thread, void *attributes, void *(*run)(void *) noexcept nogil, void *argument) noexcept
    int pthread_join(pthread_t thread, void **result) noexcept
    int pthread_cond_init(pthread_cond_t *c, void *attributes) noexcept
    int pthread_cond_destroy(pthread_cond_t *c) noexcept
    int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) noexcept
    int pthread_cond_signal(pthread_cond_t *c) noexcept

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t *set) noexcept
    int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) noexcept
    int SIG_BLOCK


cdef bint is_resident(int fd, int64_t position, int64_t length) noexcept nogil:
    cdef uint8_t one
    cdef int64_t page = page_bytes()
    cdef int64_t cached = cached_pages(fd, position, length)
    if cached >= 0:
        return cached > (position + length - 1) // page - position // page
    return pread_resident(fd, &one, 1, position) >= 0 or errno != EAGAIN


cdef void warmer_open(Warmer *w, void (*done)(void *context, const Errand *errand) noexcept nogil, void *context) noexcept nogil:
    memset(w, 0, sizeof(Warmer))
    pthread_mutex_init(&w.lock, NULL)
    pthread_cond_init(&w.some, NULL)
    w.done = done
    w.context = context


cdef void warmer_close(Warmer *w) noexcept nogil:
    cdef bint started
    pthread_mutex_lock(&w.lock)
    w.stopping = True
    started = w.started
    pthread_cond_signal(&w.some)
    pthread_mutex_unlock(&w.lock)
    if started:
        pthread_join(w.thread, NULL)
    while w.count > 0:
        close(w.ring[w.first].fd)
        w.first = (w.first + 1) % WARM_ERRANDS
        w.count -= 1
    free(w.scratch)
    w.scratch = NULL
    pthread_cond_destroy(&w.some)
    pthread_mutex_destroy(&w.lock)


cdef bint start(Warmer *w) noexcept nogil:
    # Under the lock. A broker whose data is warm never has this thread.
    if w.started or w.stopping:
        return w.started
    w.scratch = <uint8_t *> malloc(WARM_BYTES_AT_ONCE)
    if w.scratch == NULL:
        return False
    w.started = pthread_create(&w.thread, NULL, run, w) == 0
    if not w.started:
        free(w.scratch)
        w.scratch = NULL
    return w.started


cdef bint warmer_send(Warmer *w, const Errand *errand) noexcept nogil:
    cdef Errand *slot
    cdef int fd = fcntl(errand.fd, F_DUPFD_CLOEXEC, 0)
    cdef bint sent = False
    if fd < 0:
        return False
    pthread_mutex_lock(&w.lock)
    if w.count < WARM_ERRANDS and start(w):
        slot = &w.ring[(w.first + w.count) % WARM_ERRANDS]
        slot[0] = errand[0]
        slot.fd = fd
        w.count += 1
        sent = True
        pthread_cond_signal(&w.some)
    pthread_mutex_unlock(&w.lock)
    if not sent:
        close(fd)
    return sent


cdef void warm(Warmer *w, const Errand *errand) noexcept nogil:
    cdef int64_t at = errand.position
    cdef int64_t end = errand.position + errand.length
    cdef ssize_t n = 1
    while at < end and n > 0:
        n = pread(errand.fd, w.scratch, min(end - at, <int64_t> WARM_BYTES_AT_ONCE), at)
        at += n
    # A reader of cold data goes on reading it.
    read_ahead(errand.fd, end, errand.length)


cdef void *run(void *argument) noexcept nogil:
    cdef Warmer *w = <Warmer *> argument
    cdef Errand errand
    cdef sigset_t all_signals
    sigfillset(&all_signals)
    pthread_sigmask(SIG_BLOCK, &all_signals, NULL)
    while True:
        pthread_mutex_lock(&w.lock)
        while w.count == 0 and not w.stopping:
            pthread_cond_wait(&w.some, &w.lock)
        if w.stopping:
            pthread_mutex_unlock(&w.lock)
            return NULL
        errand = w.ring[w.first]
        w.first = (w.first + 1) % WARM_ERRANDS
        w.count -= 1
        pthread_mutex_unlock(&w.lock)
        warm(w, &errand)
        close(errand.fd)
        w.slices += 1
        w.done(w.context, &errand)
