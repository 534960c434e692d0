# listener: accepting, and who is let in.
# Owns        the listening descriptor of a Listener (the loop closes it); the counts per address in Admission.
# Called by   net/loop: the first loop accepts for all, and every loop tells Admission when a connection is gone.
# Threads     Listener: the first loop. Admission: any, one mutex, a leaf.
# Returns     accept_next: a descriptor, or -errno. Never raises, never takes the GIL.
# Invariants  one exclusive listening socket per listener: SO_REUSEPORT would let a second broker bind the same port unnoticed.
#             Accepted sockets are non-blocking and close-on-exec; they inherit the rest (no delay, keep-alive, buffer sizes)
#             from the listening socket, which saves their system calls.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker._core.net.mailbox cimport Address
from kbroker._core.partitions cimport pthread_mutex_t

cdef struct Listener:
    int fd                     # -1: closed
    bint watched               # the poller reports it readable

cdef enum:
    ADDRESS_BUCKETS = 1024

cdef struct AddressCount:
    AddressCount *next
    int32_t count
    int32_t own_max            # of max.connections.per.ip.overrides; -1: the general one. One with its own stays
    uint8_t v6
    uint8_t host[16]

cdef struct Admission:
    pthread_mutex_t lock
    int32_t connections_max        # max.connections: further ones wait in the backlog
    int32_t per_address_max        # max.connections.per.ip: further ones are closed at once
    int32_t open
    int32_t waiting                # accepting stands still until someone leaves
    AddressCount **buckets         # counted whatever the limits are: they may come later
    int32_t rate                   # max.connection.creation.rate, a second; INT32_MAX: any
    double allowance               # connections that may come at once, by now
    int64_t reckoned_us            # when `allowance` was

cdef int accept_next(int listening_fd, Address *address) noexcept nogil

cdef int admission_open(Admission *a, int32_t connections_max, int32_t per_address_max, int32_t rate) noexcept nogil
# Other limits from now on, without the overrides there were. Whoever is in stays in.
cdef void admission_limit(Admission *a, int32_t connections_max, int32_t per_address_max, int32_t rate) noexcept nogil
cdef int admission_override(Admission *a, const Address *address, int32_t own_max) noexcept nogil   # 0 or -errno
# Milliseconds until one more may come (KIP-612); 0: now. admission_enter counts it.
cdef int64_t admission_delay_ms(Admission *a, int64_t now_us) noexcept nogil
cdef void admission_close(Admission *a) noexcept nogil
cdef bint admission_full(Admission *a) noexcept nogil                             # then `waiting` is noted
cdef bint admission_enter(Admission *a, const Address *address) noexcept nogil    # False: too many from there
cdef bint admission_leave(Admission *a, const Address *address) noexcept nogil    # True: someone waits for the room
