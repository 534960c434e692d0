# EndTxn as it almost always is: plain text, no tagged fields, nothing left over; and the record that such an end comes to.
# Whatever is not plain gives None and goes the long way, through the codec and the pure shard.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memcpy

from kbroker._core.wire.cursor cimport Cursor, cursor_over, load_be16, remaining, store_be16, take_bytes, take_int16, take_int64
from kbroker._core.wire.plain cimport (
    HEADER_BYTES, PyUnicode_AsUTF8AndSize, Text, take_header, take_no_tags, take_text, text_of, written,
)
from kbroker._core.wire.writer cimport (
    Writer, close_writer, open_writer, put_int8, put_int16, put_int32, put_int64, put_run, put_uvarint,
)

cdef enum:
    END_FLEXIBLE_FROM = 3
    END_PRODUCERS_FROM = 5            # the answer tells the producer's new epoch (KIP-890)
    REPLY_BYTES = 64
    RECORD_FIRST_BYTES = 256
    KEY_NUMBER = 0                    # of TransactionLogKey in __transaction_state
    VALUE_VERSION = 1                 # of TransactionLogValue
    PREVIOUS_TAG = 0
    NEXT_TAG = 1
    CLIENT_VERSION_TAG = 2
    NOBODY = -1                       # in place of a producer id


cdef class PlainEnd:
    """An EndTxn, read."""

    cdef bytes frame
    cdef readonly int16_t version
    cdef readonly str transactional_id
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly bint committed

    def reply(self, int64_t producer_id, int16_t producer_epoch):
        """Header and body of the answer that all is well, and who the producer is now."""
        cdef bint flexible = self.version >= END_FLEXIBLE_FROM
        cdef Writer w
        open_writer(&w, REPLY_BYTES)
        try:
            put_run(&w, PyBytes_AS_STRING(self.frame) + 4, 4)
            if flexible:
                put_int8(&w, 0)
            put_int32(&w, 0)
            put_int16(&w, 0)
            if self.version >= END_PRODUCERS_FROM:
                put_int64(&w, producer_id)
                put_int16(&w, producer_epoch)
            if flexible:
                put_int8(&w, 0)
            return written(&w)
        finally:
            close_writer(&w)


def read_end(bytes frame not None):
    """The EndTxn in a frame whose version is served; None: it is not plain."""
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(frame)
    cdef int64_t length = PyBytes_GET_SIZE(frame)
    cdef Cursor c
    cdef Text who
    cdef const uint8_t *committed
    cdef bint flexible
    cdef PlainEnd found
    if length < HEADER_BYTES:
        return None
    c = cursor_over(data + HEADER_BYTES, length - HEADER_BYTES)
    flexible = <int16_t> load_be16(data + 2) >= END_FLEXIBLE_FROM
    if not take_header(&c, flexible) or not take_text(&c, flexible, &who) or who.at == NULL:
        return None
    found = PlainEnd.__new__(PlainEnd)
    found.frame = frame
    found.version = <int16_t> load_be16(data + 2)
    found.producer_id = take_int64(&c)
    found.producer_epoch = take_int16(&c)
    committed = take_bytes(&c, 1)
    if committed == NULL or not take_no_tags(&c, flexible) or c.truncated or remaining(&c) > 0:
        return None
    found.committed = committed[0] != 0
    found.transactional_id = text_of(&who)
    return found


def transaction_record(str transactional_id not None, transaction not None):
    """Key and value of a transaction's record in the newer form, as the codec would write them.

    `transaction` is coordinator/txn's, field by field; its state is not Empty.
    """
    cdef int64_t producer_id, start_ms, update_ms, previous_producer_id, next_producer_id
    cdef int16_t epoch, client_version
    cdef int32_t timeout_ms
    cdef int state
    cdef Writer w
    (producer_id, epoch, timeout_ms, state, places, start_ms, update_ms, previous_producer_id, next_producer_id,
     client_version) = transaction
    open_writer(&w, RECORD_FIRST_BYTES)
    try:
        put_int16(&w, VALUE_VERSION)
        put_int64(&w, producer_id)
        put_int16(&w, epoch)
        put_int32(&w, timeout_ms)
        put_int8(&w, <signed char> state)
        put_places(&w, sorted(places))
        put_int64(&w, update_ms)
        put_int64(&w, start_ms)
        put_uvarint(&w, (previous_producer_id != NOBODY) + (next_producer_id != NOBODY) + (client_version != 0))
        put_producer(&w, PREVIOUS_TAG, previous_producer_id)
        put_producer(&w, NEXT_TAG, next_producer_id)
        if client_version != 0:
            put_int8(&w, CLIENT_VERSION_TAG)
            put_int8(&w, sizeof(client_version))
            put_int16(&w, client_version)
        return transaction_key(transactional_id), written(&w)
    finally:
        close_writer(&w)


cdef int put_producer(Writer *w, int tag, int64_t producer_id) except -1:
    if producer_id == NOBODY:
        return 0
    put_int8(w, <signed char> tag)
    put_int8(w, sizeof(producer_id))
    put_int64(w, producer_id)
    return 0


cdef int put_places(Writer *w, list places) except -1:
    # (topic, partition), in order: each topic once, with its partitions.
    cdef Py_ssize_t count = len(places)
    cdef Py_ssize_t topics = 0
    cdef Py_ssize_t i, j, length
    cdef const char *name
    for i in range(count):
        topics += i == 0 or places[i][0] != places[i - 1][0]
    put_uvarint(w, topics + 1)
    i = 0
    while i < count:
        topic = places[i][0]
        j = i
        while j < count and places[j][0] == topic:
            j += 1
        name = PyUnicode_AsUTF8AndSize(topic, &length)
        put_uvarint(w, length + 1)
        put_run(w, name, length)
        put_uvarint(w, j - i + 1)
        while i < j:
            put_int32(w, places[i][1])
            i += 1
        put_int8(w, 0)
    return 0


cdef bytes transaction_key(str transactional_id):
    cdef Py_ssize_t length
    cdef const char *name = PyUnicode_AsUTF8AndSize(transactional_id, &length)
    cdef bytes key = PyBytes_FromStringAndSize(NULL, 4 + length)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(key)
    store_be16(to, KEY_NUMBER)
    store_be16(to + 2, <uint16_t> length)
    memcpy(to + 4, name, length)
    return key
