# warmer: reads cold file slices into the page cache, so that no network thread waits for a disk.
# Owns        one native thread, started by the first cold slice, and the bounded ring of its errands.
# Called by   net/egress (is_resident), net/service (warmer_send), core (open, close).
# Threads     warmer_send, is_resident: network threads. `done` is called in the warmer's thread.
# Fails by    False: the ring is full or there is no thread; the network thread then reads, and waits, itself.
# Invariants  an errand reads through a descriptor of its own, so the segment may be closed meanwhile.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kbroker._core.limits cimport WARM_ERRANDS
from kbroker._core.partitions cimport pthread_mutex_t

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    ctypedef struct pthread_cond_t:
        pass

cdef struct Errand:
    int fd
    int32_t loop_index
    uint64_t key             # the waiting connection, as the poller knows it
    int64_t position
    int64_t length

cdef struct Warmer:
    pthread_mutex_t lock
    pthread_cond_t some
    pthread_t thread
    bint started
    bint stopping
    int32_t first
    int32_t count
    Errand ring[WARM_ERRANDS]
    uint8_t *scratch
    uint64_t slices          # warmed so far
    void *context
    void (*done)(void *context, const Errand *errand) noexcept nogil

cdef bint is_resident(int fd, int64_t position, int64_t length) noexcept nogil     # also where it cannot be known

cdef void warmer_open(Warmer *w, void (*done)(void *context, const Errand *errand) noexcept nogil, void *context) noexcept nogil
cdef void warmer_close(Warmer *w) noexcept nogil
cdef bint warmer_send(Warmer *w, const Errand *errand) noexcept nogil       # duplicates the descriptor
