# Accepting connections, and the counts that limit them.
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from kbroker._core.c.sockets cimport (
    AF_INET,
    AF_INET6,
    accept_socket,
    sockaddr,
    sockaddr_in,
    sockaddr_in6,
    sockaddr_storage,
    socklen_t,
)
from kbroker._core.limits cimport CONNECTION_RATE_WINDOW_S
from kbroker._core.partitions cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock
from kbroker._core.wire.cursor cimport load_be16


cdef void read_address(const sockaddr_storage *from_, Address *address) noexcept nogil:
    cdef const sockaddr_in *v4
    cdef const sockaddr_in6 *v6
    cdef const uint8_t *text
    memset(address, 0, sizeof(Address))
    if from_.ss_family == AF_INET:
        v4 = <const sockaddr_in *> from_
        address.port = load_be16(<const uint8_t *> &v4.sin_port)
        memcpy(address.host, &v4.sin_addr, 4)
    elif from_.ss_family == AF_INET6:
        v6 = <const sockaddr_in6 *> from_
        text = <const uint8_t *> &v6.sin6_addr
        address.port = load_be16(<const uint8_t *> &v6.sin6_port)
        # An IPv4 client of a dual-stack socket comes as ::ffff:a.b.c.d; it is counted and named as what it is.
        if memcmp(text, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0:
            memcpy(address.host, text + 12, 4)
        else:
            address.v6 = 1
            memcpy(address.host, text, 16)


cdef int accept_next(int listening_fd, Address *address) noexcept nogil:
    cdef sockaddr_storage from_
    cdef socklen_t length = sizeof(from_)
    cdef int fd
    memset(&from_, 0, sizeof(from_))
    fd = accept_socket(listening_fd, <sockaddr *> &from_, &length)
    if fd < 0:
        return -errno
    read_address(&from_, address)
    return fd


cdef int admission_open(Admission *a, int32_t connections_max, int32_t per_address_max, int32_t rate) noexcept nogil:
    memset(a, 0, sizeof(Admission))
    pthread_mutex_init(&a.lock, NULL)
    a.connections_max = connections_max
    a.per_address_max = per_address_max
    a.rate = rate
    a.allowance = <double> rate * CONNECTION_RATE_WINDOW_S
    a.buckets = <AddressCount **> calloc(ADDRESS_BUCKETS, sizeof(AddressCount *))
    return 0 if a.buckets != NULL else -ENOMEM


cdef void forget_overrides(Admission *a) noexcept nogil:
    cdef AddressCount **at
    cdef AddressCount *entry
    cdef int32_t i
    for i in range(ADDRESS_BUCKETS):
        at = &a.buckets[i]
        while at[0] != NULL:
            entry = at[0]
            entry.own_max = -1
            if entry.count == 0:
                at[0] = entry.next
                free(entry)
            else:
                at = &entry.next


cdef void admission_limit(Admission *a, int32_t connections_max, int32_t per_address_max, int32_t rate) noexcept nogil:
    pthread_mutex_lock(&a.lock)
    a.connections_max = connections_max
    a.per_address_max = per_address_max
    if rate != a.rate:
        a.rate = rate
        a.allowance = <double> rate * CONNECTION_RATE_WINDOW_S
    forget_overrides(a)
    pthread_mutex_unlock(&a.lock)


cdef int admission_override(Admission *a, const Address *address, int32_t own_max) noexcept nogil:
    cdef AddressCount **at
    cdef AddressCount *entry
    pthread_mutex_lock(&a.lock)
    at = find_count(a, address)
    if at[0] == NULL:
        at[0] = new_count(address)
    entry = at[0]
    if entry != NULL:
        entry.own_max = own_max
    pthread_mutex_unlock(&a.lock)
    return 0 if entry != NULL else -ENOMEM


cdef int64_t admission_delay_ms(Admission *a, int64_t now_us) noexcept nogil:
    # Kafka measures the rate over a window of ten seconds, so that many may come at once after a pause.
    cdef int64_t delay_ms = 0
    pthread_mutex_lock(&a.lock)
    if a.rate == 0:
        delay_ms = INT32_MAX
    elif a.rate != INT32_MAX:
        if a.reckoned_us > 0:
            a.allowance += (now_us - a.reckoned_us) * 1e-6 * a.rate
        a.allowance = min(a.allowance, <double> a.rate * CONNECTION_RATE_WINDOW_S)
        a.reckoned_us = now_us
        if a.allowance < 1:
            delay_ms = 1 + <int64_t> ((1 - a.allowance) * 1000 / a.rate)
    pthread_mutex_unlock(&a.lock)
    return delay_ms


cdef AddressCount *new_count(const Address *address) noexcept nogil:
    cdef AddressCount *entry = <AddressCount *> calloc(1, sizeof(AddressCount))
    if entry != NULL:
        entry.own_max = -1
        entry.v6 = address.v6
        memcpy(entry.host, address.host, 16)
    return entry


cdef void admission_close(Admission *a) noexcept nogil:
    cdef AddressCount *entry
    cdef AddressCount *following
    cdef int32_t i
    if a.buckets != NULL:
        for i in range(ADDRESS_BUCKETS):
            entry = a.buckets[i]
            while entry != NULL:
                following = entry.next
                free(entry)
                entry = following
    free(a.buckets)
    a.buckets = NULL
    pthread_mutex_destroy(&a.lock)


cdef AddressCount **find_count(Admission *a, const Address *address) noexcept nogil:
    # The pointer that leads to the address's entry, or the end of its bucket.
    cdef uint32_t hash = 2166136261
    cdef AddressCount **at
    cdef int i
    for i in range(16):
        hash = (hash ^ address.host[i]) * 16777619
    at = &a.buckets[hash % ADDRESS_BUCKETS]
    while at[0] != NULL and (at[0].v6 != address.v6 or memcmp(at[0].host, address.host, 16) != 0):
        at = &at[0].next
    return at


cdef bint admission_full(Admission *a) noexcept nogil:
    cdef bint full
    pthread_mutex_lock(&a.lock)
    full = a.open >= a.connections_max
    if full:
        a.waiting = 1
    pthread_mutex_unlock(&a.lock)
    return full


cdef bint admission_enter(Admission *a, const Address *address) noexcept nogil:
    cdef AddressCount **at
    cdef AddressCount *entry
    cdef bint welcome
    pthread_mutex_lock(&a.lock)
    at = find_count(a, address)
    entry = at[0]
    if entry == NULL and a.per_address_max > 0:
        entry = new_count(address)
        at[0] = entry
    welcome = entry != NULL and entry.count < (entry.own_max if entry.own_max >= 0 else a.per_address_max)
    if welcome:
        entry.count += 1
        a.open += 1
    a.allowance -= 1                     # whoever is turned away has been a connection too
    pthread_mutex_unlock(&a.lock)
    return welcome


cdef bint admission_leave(Admission *a, const Address *address) noexcept nogil:
    cdef AddressCount **at
    cdef AddressCount *entry
    cdef bint waiting
    pthread_mutex_lock(&a.lock)
    a.open -= 1
    at = find_count(a, address)
    entry = at[0]
    if entry != NULL:
        entry.count -= 1
        if entry.count == 0 and entry.own_max < 0:
            at[0] = entry.next
            free(entry)
    waiting = a.waiting
    a.waiting = 0
    pthread_mutex_unlock(&a.lock)
    return waiting
