# The table that a view shows: built whole from what the control side knows, and put in the place of the one before.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kbroker._core.partitions cimport (
    Endpoint, Partition, PartitionHandle, Table, Topic, hash_id, hash_name, partition_retain, pthread_mutex_destroy,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, same_id, table_release, topic_release,
)


cdef uint8_t *copied(bytes value) except NULL:
    cdef uint8_t *p = <uint8_t *> malloc(len(value) + 1)
    if p == NULL:
        raise MemoryError
    memcpy(p, <const char *> value, len(value) + 1)
    return p


cdef Topic *make_topic(str name, bytes id, bint internal, list handles) except NULL:
    cdef bytes encoded = name.encode()
    cdef Topic *t
    cdef int32_t i
    cdef PartitionHandle handle
    if len(id) != 16:
        raise ValueError(f"topic {name!r}: an id has 16 bytes, not {len(id)}")
    for i, handle in enumerate(handles):
        if handle is None or handle.p.index != i:
            raise ValueError(f"topic {name!r}: partitions must be listed from 0 without gaps")
    t = <Topic *> calloc(1, sizeof(Topic))
    if t == NULL:
        raise MemoryError
    t.references = 1
    t.name = copied(encoded)
    t.name_length = <int32_t> len(encoded)
    t.internal = internal
    memcpy(t.id, <const char *> id, 16)
    t.partitions = <Partition **> calloc(len(handles) + 1, sizeof(Partition *))
    if t.partitions == NULL:
        topic_release(t)
        raise MemoryError
    t.partition_count = <int32_t> len(handles)
    for i, handle in enumerate(handles):
        partition_retain(handle.p)
        t.partitions[i] = handle.p
    return t


cdef Table *make_table(int64_t topic_count, int64_t endpoint_count) except NULL:
    cdef Table *t = <Table *> calloc(1, sizeof(Table))
    cdef uint32_t slots = 8
    while slots < 2 * topic_count:      # half empty at least: a probe for an unknown topic ends
        slots *= 2
    if t == NULL:
        raise MemoryError
    t.references = 1
    t.mask = slots - 1
    t.by_name = <Topic **> calloc(slots, sizeof(Topic *))
    t.by_id = <Topic **> calloc(slots, sizeof(Topic *))
    t.endpoints = <Endpoint *> calloc(endpoint_count + 1, sizeof(Endpoint))
    if t.by_name == NULL or t.by_id == NULL or t.endpoints == NULL:
        t.mask = 0
        free(t.by_name)
        free(t.by_id)
        free(t.endpoints)
        free(t)
        raise MemoryError
    return t


cdef void table_add(Table *t, Topic *topic) noexcept nogil:
    cdef uint8_t zero[16]
    cdef uint32_t slot = hash_name(topic.name, topic.name_length) & t.mask
    memset(zero, 0, 16)
    while t.by_name[slot] != NULL:
        slot = (slot + 1) & t.mask
    t.by_name[slot] = topic
    t.topic_count += 1
    if same_id(topic.id, zero):     # the zero id names no topic
        return
    slot = hash_id(topic.id) & t.mask
    while t.by_id[slot] != NULL:
        slot = (slot + 1) & t.mask
    t.by_id[slot] = topic


cdef class ViewHandle:
    """What the clients of one listener (or virtual cluster) see: topics, and where the brokers are reached."""

    def __cinit__(self):
        pthread_mutex_init(&self.v.lock, NULL)
        self.v.current = make_table(0, 0)
        self.v.version = 0

    def __dealloc__(self):
        if self.v.current != NULL:
            table_release(self.v.current)
        pthread_mutex_destroy(&self.v.lock)

    @property
    def version(self):
        return self.v.version

    def publish(self, list topics not None, list endpoints=None):
        """Replaces the table at once. topics: (name, id, internal, handles); endpoints: (node id, host, port, rack or None)."""
        cdef Table *t
        cdef Table *before
        cdef Endpoint *e
        if len({topic[0] for topic in topics}) != len(topics) or len({topic[1] for topic in topics}) != len(topics):
            raise ValueError("a topic's name and id may be published once in a table")
        t = make_table(len(topics), len(endpoints or ()))
        try:
            for name, id, internal, handles in topics:
                table_add(t, make_topic(name, id, internal, list(handles)))
            for node_id, host, port, rack in endpoints or ():
                e = &t.endpoints[t.endpoint_count]
                e.node_id = node_id
                e.port = port
                e.rack_length = -1
                e.host = copied(host.encode())
                t.endpoint_count += 1
                e.host_length = <int32_t> len(host.encode())
                if rack is not None:
                    e.rack = copied(rack.encode())
                    e.rack_length = <int32_t> len(rack.encode())
        except BaseException:
            table_release(t)
            raise
        with nogil:
            pthread_mutex_lock(&self.v.lock)
            before = self.v.current
            self.v.current = t
            self.v.version += 1
            pthread_mutex_unlock(&self.v.lock)
            table_release(before)
