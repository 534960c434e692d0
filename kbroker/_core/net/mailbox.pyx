# Rings, queues and bells between threads. The locks cover assignments and one bounded copy, never a system call.
from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strncmp, strncpy

from kbroker._core.c.prelude cimport lower_flag, raise_flag, store_int32
from kbroker._core.limits cimport EVENT_SLOTS, EVENT_TEXT_BYTES
from kbroker._core.net.poller cimport bell_clear, bell_close, bell_open, bell_ring
from kbroker._core.partitions cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock


# ---- to the control loop ----

cdef int mailbox_open(Mailbox *m, int32_t slots, int64_t bytes_max, bint portable) noexcept nogil:
    memset(m, 0, sizeof(Mailbox))
    m.bell.wait_fd = -1
    m.bell.ring_fd = -1
    pthread_mutex_init(&m.lock, NULL)
    m.slots = slots
    m.bytes_max = bytes_max
    m.ring = <Letter *> calloc(slots, sizeof(Letter))
    if m.ring == NULL:
        return -ENOMEM
    return bell_open(&m.bell, portable)


cdef void mailbox_close(Mailbox *m) noexcept nogil:
    cdef int32_t i
    for i in range(m.count):
        free(m.ring[(m.first + i) % m.slots].frame)
    free(m.ring)
    m.ring = NULL
    m.count = 0
    m.bytes_held = 0
    bell_close(&m.bell)
    pthread_mutex_destroy(&m.lock)


cdef bint mailbox_post(Mailbox *m, const Letter *letter) noexcept nogil:
    cdef uint8_t *copy = NULL
    cdef Letter *slot
    pthread_mutex_lock(&m.lock)
    # One letter always fits, whatever its size: a bound below the largest frame must not hold it back for ever.
    if m.count == m.slots or (m.count > 0 and m.bytes_held + letter.length > m.bytes_max):
        m.starved = 1
        pthread_mutex_unlock(&m.lock)
        return False
    m.bytes_held += letter.length
    pthread_mutex_unlock(&m.lock)

    copy = <uint8_t *> malloc(letter.length)
    if copy != NULL:
        memcpy(copy, letter.frame, letter.length)

    pthread_mutex_lock(&m.lock)
    if copy == NULL or m.count == m.slots:
        m.bytes_held -= letter.length
        m.starved = 1
        pthread_mutex_unlock(&m.lock)
        free(copy)
        return False
    slot = &m.ring[(m.first + m.count) % m.slots]
    slot[0] = letter[0]
    slot.frame = copy
    store_int32(&m.count, m.count + 1)     # read without the lock by Core.linger
    pthread_mutex_unlock(&m.lock)
    return True


cdef void mailbox_ring(Mailbox *m) noexcept nogil:
    if raise_flag(&m.rung):
        bell_ring(&m.bell)


cdef int32_t mailbox_take(Mailbox *m, Letter *out, int32_t limit, bint *wake_loops) noexcept nogil:
    cdef int32_t taken = 0
    cdef bint more
    # First silence, then look: whoever posts from here on rings again.
    bell_clear(&m.bell)
    lower_flag(&m.rung)
    pthread_mutex_lock(&m.lock)
    while taken < limit and m.count > 0:
        out[taken] = m.ring[m.first]
        m.bytes_held -= out[taken].length
        m.first = (m.first + 1) % m.slots
        store_int32(&m.count, m.count - 1)
        taken += 1
    more = m.count > 0
    # Told at half empty: a loop that retries for every single slot would do nothing else.
    wake_loops[0] = m.starved and m.count <= m.slots // 2 and m.bytes_held <= m.bytes_max // 2
    if wake_loops[0]:
        m.starved = 0
    pthread_mutex_unlock(&m.lock)
    if more:
        mailbox_ring(m)
    return taken


# ---- to a loop ----

cdef int inbox_open(Inbox *i, bint portable) noexcept nogil:
    memset(i, 0, sizeof(Inbox))
    pthread_mutex_init(&i.lock, NULL)
    return bell_open(&i.bell, portable)


cdef void inbox_close(Inbox *i) noexcept nogil:
    bell_close(&i.bell)
    pthread_mutex_destroy(&i.lock)


cdef Message *message_new(int32_t kind, const uint8_t *payload, int64_t length) noexcept nogil:
    cdef Message *m = <Message *> malloc(sizeof(Message) + (length if length > 0 else 0))
    if m == NULL:
        return NULL
    memset(m, 0, sizeof(Message))
    m.kind = kind
    m.length = length
    m.principal = -1
    m.fd = -1
    if length > 0:
        memcpy(message_payload(m), payload, length)
    return m


cdef void inbox_put(Inbox *i, Message *m) noexcept nogil:
    inbox_put_all(i, m, m)


cdef void inbox_put_all(Inbox *i, Message *first, Message *last) noexcept nogil:
    last.next = NULL
    pthread_mutex_lock(&i.lock)
    if i.last == NULL:
        i.first = first
    else:
        i.last.next = first
    i.last = last
    pthread_mutex_unlock(&i.lock)
    inbox_ring(i)


cdef void inbox_ring(Inbox *i) noexcept nogil:
    if raise_flag(&i.rung):
        bell_ring(&i.bell)


cdef Message *inbox_take(Inbox *i) noexcept nogil:
    cdef Message *m
    bell_clear(&i.bell)
    lower_flag(&i.rung)
    pthread_mutex_lock(&i.lock)
    m = i.first
    i.first = NULL
    i.last = NULL
    pthread_mutex_unlock(&i.lock)
    return m


# ---- to the log ----

cdef int events_open(EventLog *e) noexcept nogil:
    memset(e, 0, sizeof(EventLog))
    pthread_mutex_init(&e.lock, NULL)
    e.ring = <Event *> calloc(EVENT_SLOTS, sizeof(Event))
    return 0 if e.ring != NULL else -ENOMEM


cdef void events_close(EventLog *e) noexcept nogil:
    free(e.ring)
    e.ring = NULL
    e.count = 0
    pthread_mutex_destroy(&e.lock)


cdef void events_note(EventLog *e, int32_t kind, const char *text, const Address *address) noexcept nogil:
    cdef Event *last
    pthread_mutex_lock(&e.lock)
    last = &e.ring[(e.first + e.count - 1) % EVENT_SLOTS] if e.count > 0 else NULL
    if last != NULL and last.kind == kind and strncmp(last.text, text, EVENT_TEXT_BYTES - 1) == 0:
        last.count += 1
        last.address = address[0]
    elif e.count == EVENT_SLOTS:
        e.dropped += 1
    else:
        last = &e.ring[(e.first + e.count) % EVENT_SLOTS]
        last.kind = kind
        last.count = 1
        last.address = address[0]
        strncpy(last.text, text, EVENT_TEXT_BYTES - 1)
        last.text[EVENT_TEXT_BYTES - 1] = 0
        e.count += 1
    pthread_mutex_unlock(&e.lock)


cdef bint events_take(EventLog *e, Event *out) noexcept nogil:
    cdef bint found
    pthread_mutex_lock(&e.lock)
    found = e.count > 0
    if found:
        out[0] = e.ring[e.first]
        e.first = (e.first + 1) % EVENT_SLOTS
        e.count -= 1
    pthread_mutex_unlock(&e.lock)
    return found
