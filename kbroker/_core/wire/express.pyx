# OffsetCommit and Heartbeat as they almost always are: plain text, no tagged fields, nothing left over. They are read where
# they lie and answered without a message object. Whatever is not plain gives None and goes the long way, through the codec
# and the pure shard, which judge everything that can be wrong with it.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, load_be16, remaining, store_be16, store_be32, store_be64, take_bytes, take_count, take_int32, take_int64,
)
from kbroker._core.wire.plain cimport (
    HEADER_BYTES, PyUnicode_AsUTF8AndSize, Text, put_count, put_text, take_header, take_no_tags, take_text, text_of, written,
)
from kbroker._core.wire.writer cimport (
    Writer, close_writer, open_writer, put_int8, put_int16, put_int32, put_run, store_uvarint, uvarint_length,
)

NO_ID = bytes(16)

cdef enum:
    UUID_BYTES = 16
    REPLY_FIRST_BYTES = 128
    COMMIT_RETENTION_LAST = 4
    COMMIT_THROTTLED_FROM = 3
    COMMIT_LEADER_EPOCHS_FROM = 6
    COMMIT_INSTANCES_FROM = 7
    COMMIT_FLEXIBLE_FROM = 8
    COMMIT_TOPIC_IDS_FROM = 10
    BEAT_THROTTLED_FROM = 1
    BEAT_INSTANCES_FROM = 3
    BEAT_FLEXIBLE_FROM = 4
    KEY_NUMBER = 1                    # of OffsetCommitKey in __consumer_offsets
    VALUE_VERSION = 4                 # of OffsetCommitValue
    TOPIC_MIN_BYTES = 2
    PARTITION_MIN_BYTES = 13


# Who asks, and of which generation: what a Heartbeat and an OffsetCommit begin with.
cdef struct Asker:
    int16_t version
    int32_t generation
    Text group, member, instance


cdef bint take_asker(bytes frame, int16_t flexible_from, int16_t instances_from, Cursor *c, Asker *who) noexcept:
    # False: it is not plain. The cursor then stands anywhere.
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(frame)
    cdef int64_t length = PyBytes_GET_SIZE(frame)
    cdef bint flexible
    if length < HEADER_BYTES:
        return False
    who.version = <int16_t> load_be16(data + 2)
    flexible = who.version >= flexible_from
    c[0] = cursor_over(data + HEADER_BYTES, length - HEADER_BYTES)
    who.instance.at = NULL
    if not take_header(c, flexible) or not take_text(c, flexible, &who.group):
        return False
    who.generation = take_int32(c)
    if not take_text(c, flexible, &who.member) or who.group.at == NULL or who.member.at == NULL:
        return False
    return who.version < instances_from or take_text(c, flexible, &who.instance)


cdef class PlainHeartbeat:
    """A Heartbeat, read."""

    cdef bytes frame
    cdef int16_t version
    cdef readonly int32_t generation_id
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly str group_instance_id

    def reply(self, int code):
        """Header and body of the answer."""
        cdef uint8_t out[12]
        cdef int used = 4
        memcpy(out, PyBytes_AS_STRING(self.frame) + 4, 4)
        if self.version >= BEAT_FLEXIBLE_FROM:
            out[used] = 0
            used += 1
        if self.version >= BEAT_THROTTLED_FROM:
            out[used] = out[used + 1] = out[used + 2] = out[used + 3] = 0
            used += 4
        out[used] = <uint8_t> (code >> 8)
        out[used + 1] = <uint8_t> code
        used += 2
        if self.version >= BEAT_FLEXIBLE_FROM:
            out[used] = 0
            used += 1
        return PyBytes_FromStringAndSize(<const char *> out, used)


def read_heartbeat(bytes frame not None):
    """The Heartbeat in a frame whose version is served; None: it is not plain."""
    cdef Cursor c
    cdef Asker who
    cdef PlainHeartbeat found
    if not take_asker(frame, BEAT_FLEXIBLE_FROM, BEAT_INSTANCES_FROM, &c, &who):
        return None
    if not take_no_tags(&c, who.version >= BEAT_FLEXIBLE_FROM) or c.truncated or remaining(&c) > 0:
        return None
    found = PlainHeartbeat.__new__(PlainHeartbeat)
    found.frame = frame
    found.version = who.version
    found.generation_id = who.generation
    found.group_id = text_of(&who.group)
    found.member_id = text_of(&who.member)
    found.group_instance_id = text_of(&who.instance)
    return found


cdef class PlainCommit:
    """An OffsetCommit, read as far as its topics."""

    cdef bytes frame
    cdef Cursor topics
    cdef readonly int16_t version
    cdef readonly int32_t generation_id_or_member_epoch
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly str group_instance_id

    def decide(self, dict topics not None, find, kind, int64_t now_ms, int32_t metadata_max):
        """What committing all of it comes to: (records as pairs of bytes, their bytes, [(place, committed)], reply).

        `topics` keeps by their bytes what `find` said of topics: (name, id, partitions) or None. `kind` is the named
        tuple that an offset is kept as. None: a topic or partition is not there, a text is too long, or a value is not
        plain.
        """
        cdef Cursor c = self.topics
        cdef Writer reply
        open_writer(&reply, REPLY_FIRST_BYTES)
        try:
            return self._walk(&c, &reply, topics, find, kind, now_ms, metadata_max)
        finally:
            close_writer(&reply)

    cdef tuple _walk(self, Cursor *c, Writer *reply, dict topics, find, kind, int64_t now_ms, int32_t metadata_max):
        cdef bint flexible = self.version >= COMMIT_FLEXIBLE_FROM
        cdef bint by_id = self.version >= COMMIT_TOPIC_IDS_FROM
        cdef int32_t topic_count = take_count(c, flexible, TOPIC_MIN_BYTES)
        cdef int32_t count, partitions, i, j
        cdef int64_t size = 0
        cdef Text topic
        cdef bytes raw
        cdef list records = []
        cdef list places = []
        if topic_count < 1:
            return None
        put_run(reply, PyBytes_AS_STRING(self.frame) + 4, 4)
        if flexible:
            put_int8(reply, 0)
        if self.version >= COMMIT_THROTTLED_FROM:
            put_int32(reply, 0)
        put_count(reply, topic_count, flexible)
        for i in range(topic_count):
            if by_id:
                topic.length = UUID_BYTES
                topic.at = take_bytes(c, UUID_BYTES)
            elif not take_text(c, flexible, &topic):
                return None
            if topic.at == NULL:
                return None
            count = take_count(c, flexible, PARTITION_MIN_BYTES)
            if count < 1:
                return None
            raw = PyBytes_FromStringAndSize(<const char *> topic.at, topic.length)
            facts = topics.get(raw)
            if facts is None:
                facts = topics[raw] = find(raw if by_id else text_of(&topic))
                if facts is None:
                    del topics[raw]
                    return None
            if by_id:
                put_run(reply, topic.at, topic.length)
            else:
                put_text(reply, &topic, flexible)
            put_count(reply, count, flexible)
            partitions = facts[2]
            for j in range(count):
                if not self._take_partition(c, reply, facts, partitions, kind, now_ms, metadata_max, records, places, &size):
                    return None
            if not take_no_tags(c, flexible):
                return None
            if flexible:
                put_int8(reply, 0)
        if not take_no_tags(c, flexible) or c.truncated or remaining(c) > 0:
            return None
        if flexible:
            put_int8(reply, 0)
        return records, size, places, written(reply)

    cdef bint _take_partition(self, Cursor *c, Writer *reply, facts, int32_t partitions, kind, int64_t now_ms,
                              int32_t metadata_max, list records, list places, int64_t *size) except -1:
        cdef bint flexible = self.version >= COMMIT_FLEXIBLE_FROM
        cdef int32_t index = take_int32(c)
        cdef int64_t offset = take_int64(c)
        cdef int32_t epoch = take_int32(c) if self.version >= COMMIT_LEADER_EPOCHS_FROM else -1
        cdef Text metadata
        cdef str name = facts[0]
        cdef bytes topic_id = facts[1]
        cdef bytes key, value
        cdef str said
        if not take_text(c, flexible, &metadata) or not take_no_tags(c, flexible):
            return False
        if index < 0 or index >= partitions or metadata.length > metadata_max or not name.isascii():
            return False
        said = text_of(&metadata) if metadata.at != NULL else ""
        key = commit_key(self.group_id, name, index)
        value = commit_value(offset, epoch, &metadata, now_ms, topic_id)
        records.append((key, value))
        size[0] += PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(value)
        places.append(((name, index), tuple.__new__(kind, (offset, epoch, said, now_ms, -1, topic_id))))
        put_int32(reply, index)
        put_int16(reply, 0)
        if flexible:
            put_int8(reply, 0)
        return True


cdef bytes commit_key(str group_id, str topic, int32_t partition):
    cdef Py_ssize_t group_length, topic_length
    cdef const char *group = PyUnicode_AsUTF8AndSize(group_id, &group_length)
    cdef const char *name = PyUnicode_AsUTF8AndSize(topic, &topic_length)
    cdef bytes key = PyBytes_FromStringAndSize(NULL, 10 + group_length + topic_length)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(key)
    store_be16(to, KEY_NUMBER)
    store_be16(to + 2, <uint16_t> group_length)
    memcpy(to + 4, group, group_length)
    to += 4 + group_length
    store_be16(to, <uint16_t> topic_length)
    memcpy(to + 2, name, topic_length)
    store_be32(to + 2 + topic_length, <uint32_t> partition)
    return key


cdef bytes commit_value(int64_t offset, int32_t epoch, const Text *metadata, int64_t now_ms, bytes topic_id):
    # The id is a tagged field, which is not there when it says nothing.
    cdef int32_t length = metadata.length if metadata.at != NULL else 0
    cdef bint with_id = topic_id != NO_ID
    cdef int counted = uvarint_length(length + 1)
    cdef bytes value = PyBytes_FromStringAndSize(NULL, 2 + 8 + 4 + counted + length + 8 + 1 + (18 if with_id else 0))
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(value)
    store_be16(to, VALUE_VERSION)
    store_be64(to + 2, <uint64_t> offset)
    store_be32(to + 10, <uint32_t> epoch)
    store_uvarint(to + 14, length + 1)
    to += 14 + counted
    if length > 0:
        memcpy(to, metadata.at, length)
    to += length
    store_be64(to, <uint64_t> now_ms)
    to[8] = 1 if with_id else 0
    if with_id:
        to[9] = 0
        to[10] = UUID_BYTES
        memcpy(to + 11, PyBytes_AS_STRING(topic_id), UUID_BYTES)
    return value


def read_commit(bytes frame not None):
    """The OffsetCommit in a frame whose version is served; None: it is not plain."""
    cdef Cursor c
    cdef Asker who
    cdef PlainCommit found
    if not take_asker(frame, COMMIT_FLEXIBLE_FROM, COMMIT_INSTANCES_FROM, &c, &who):
        return None
    if who.version <= COMMIT_RETENTION_LAST and take_int64(&c) != -1:
        return None                   # such an offset has an expiry, and another version of the record
    if c.truncated:
        return None
    found = PlainCommit.__new__(PlainCommit)
    found.frame = frame
    found.topics = c
    found.version = who.version
    found.generation_id_or_member_epoch = who.generation
    found.group_id = text_of(&who.group)
    found.member_id = text_of(&who.member)
    found.group_instance_id = text_of(&who.instance)
    return found
