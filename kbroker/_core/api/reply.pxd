# reply: what the answers of api/* have in common. Inline pieces only.
from libc.stdint cimport int32_t, uint8_t, uint32_t
from kbroker._core.partitions cimport Endpoint, Table, find_endpoint
from kbroker._core.wire.chain cimport (
    Chain, put_count, put_int8, put_int32, put_raw, put_string, put_uvarint,
)


cdef inline void begin_reply(Chain *reply, int32_t correlation_id, bint flexible) noexcept nogil:
    # Four bytes of size that chain_seal fills, then response header v0 or v1.
    put_int32(reply, 0)
    put_int32(reply, correlation_id)
    if flexible:
        put_int8(reply, 0)

cdef inline void put_uuid(Chain *reply, const uint8_t *id) noexcept nogil:
    put_raw(reply, id, 16)

cdef inline void put_leader_tag(Chain *reply, uint32_t tag, int32_t leader_id, int32_t leader_epoch) noexcept nogil:
    # CurrentLeader: two int32 and an empty tag buffer.
    put_uvarint(reply, tag)
    put_uvarint(reply, 9)
    put_int32(reply, leader_id)
    put_int32(reply, leader_epoch)
    put_int8(reply, 0)

cdef inline uint32_t uvarint_size(uint32_t v) noexcept nogil:
    cdef uint32_t size = 1
    while v >= 0x80:
        v >>= 7
        size += 1
    return size

cdef inline uint32_t endpoint_size(const Endpoint *e) noexcept nogil:
    cdef uint32_t rack = e.rack_length if e.rack_length > 0 else 0
    return (4 + uvarint_size(e.host_length + 1) + e.host_length + 4 + uvarint_size(e.rack_length + 1) + rack + 1)

cdef inline void put_endpoints(Chain *reply, const Table *table, const int32_t *node_ids, int32_t count) noexcept nogil:
    # The closing tag buffer of a reply whose only tag is NodeEndpoints (tag 0), left out when no node is known.
    cdef const Endpoint *e
    cdef uint32_t size = 0
    cdef int32_t known = 0
    cdef int32_t i
    for i in range(count):
        e = find_endpoint(table, node_ids[i])
        if e != NULL:
            known += 1
            size += endpoint_size(e)
    if known == 0:
        put_uvarint(reply, 0)
        return
    put_uvarint(reply, 1)
    put_uvarint(reply, 0)
    put_uvarint(reply, size + uvarint_size(known + 1))
    put_count(reply, True, known)
    for i in range(count):
        e = find_endpoint(table, node_ids[i])
        if e != NULL:
            put_int32(reply, e.node_id)
            put_string(reply, True, e.host, e.host_length)
            put_int32(reply, e.port)
            put_string(reply, True, e.rack, e.rack_length)
            put_int8(reply, 0)
