# The first look at a frame, and ApiVersions (18): answered from bytes that the control side encoded.
from libc.stdint cimport int16_t, int32_t, uint8_t

from kbroker._core.api.fetch cimport fetch
from kbroker._core.api.list_offsets cimport list_offsets
from kbroker._core.api.produce cimport produce
from kbroker._core.api.reply cimport begin_reply
from kbroker._core.api.request cimport CLOSE, POST, READY, ApiTable, Outcome, Request, Worker
from kbroker._core.errors cimport Err
from kbroker._core.limits cimport FRAME_HEADER_MIN_BYTES
from kbroker._core.wire.chain cimport Chain, chain_seal, put_int8, put_int16, put_int32, put_raw
from kbroker._core.wire.cursor cimport (
    Cursor, cursor_over, load_be16, load_be32, remaining, skip_tags, take_string,
)

cdef enum:
    PRODUCE_KEY = 0
    FETCH_KEY = 1
    LIST_OFFSETS_KEY = 2
    API_VERSIONS_KEY = 18
    API_KEYS = 128
    FALLBACK = 5                   # ApiTable's body for a version of ApiVersions that is not known
    PRODUCE_MIN_VERSION = 3        # advertised from 0 for old clients' sake, yet 0-2 close the connection


cdef bint read_header(Request *r) noexcept nogil:
    # Request header v1, or v2 when flexible: the client id stays a classic string in both (KIP-482).
    cdef Cursor c = cursor_over(r.frame + FRAME_HEADER_MIN_BYTES, r.length - FRAME_HEADER_MIN_BYTES)
    r.client_id = take_string(&c, False, &r.client_id_length)
    if r.flexible:
        skip_tags(&c)
    r.body = c.at
    r.body_length = <int32_t> remaining(&c)
    return not c.truncated


cdef inline bint is_alphanumeric(uint8_t b) noexcept nogil:
    return 48 <= b <= 57 or 65 <= b <= 90 or 97 <= b <= 122


cdef bint is_software_name(const uint8_t *text, int32_t length) noexcept nogil:
    # KIP-511: letters and digits, with dots and dashes inside.
    cdef int32_t i
    if length < 1 or not is_alphanumeric(text[0]) or not is_alphanumeric(text[length - 1]):
        return False
    for i in range(length):
        if not is_alphanumeric(text[i]) and text[i] != 45 and text[i] != 46:
            return False
    return True


cdef Outcome answer_api_versions(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef ApiTable *apis = w.apis
    cdef int16_t version = r.api_version
    cdef Cursor c = cursor_over(r.body, r.body_length)
    cdef const uint8_t *name
    cdef const uint8_t *software_version
    cdef int32_t name_length, version_length
    if version >= 3:
        name = take_string(&c, True, &name_length)
        software_version = take_string(&c, True, &version_length)
        skip_tags(&c)
        if c.truncated or name == NULL or software_version == NULL:
            r.reason = b"ApiVersions is shorter than its version says"
            return CLOSE
        if not is_software_name(name, name_length) or not is_software_name(software_version, version_length):
            begin_reply(reply, r.correlation_id, False)
            put_int16(reply, Err.INVALID_REQUEST)
            put_int8(reply, 1)     # no apis
            put_int32(reply, 0)    # throttle_time_ms
            put_int8(reply, 0)
            chain_seal(reply)
            return READY
    begin_reply(reply, r.correlation_id, False)    # header v0 in every version: who asks does not know ours yet
    put_raw(reply, apis.bodies[version], apis.lengths[version])
    chain_seal(reply)
    return READY


cdef Outcome answer_fallback(Worker *w, Request *r, Chain *reply) noexcept nogil:
    begin_reply(reply, r.correlation_id, False)
    put_raw(reply, w.apis.bodies[FALLBACK], w.apis.lengths[FALLBACK])
    chain_seal(reply)
    return READY


cdef inline Outcome refuse(Request *r, const char *reason) noexcept nogil:
    r.reason = reason
    return CLOSE


cdef Outcome dispatch(Worker *w, Request *r, Chain *reply) noexcept nogil:
    cdef ApiTable *apis = w.apis
    cdef int16_t key, version
    r.reason = NULL
    if r.length < FRAME_HEADER_MIN_BYTES:
        return refuse(r, b"a frame without a header")
    key = <int16_t> load_be16(r.frame)
    version = <int16_t> load_be16(r.frame + 2)
    r.api_key = key
    r.api_version = version
    r.correlation_id = <int32_t> load_be32(r.frame + 4)
    if key < 0 or key >= API_KEYS or apis.max_version[key] < 0:
        return refuse(r, b"an api key that is not served here")
    if version < apis.min_version[key] or version > apis.max_version[key]:
        if key == API_VERSIONS_KEY and apis.native_key[key]:
            return answer_fallback(w, r, reply)
        return refuse(r, b"a version that is not served here")
    r.flexible = version >= apis.flexible_from[key]
    if not read_header(r):
        return refuse(r, b"a frame shorter than its header")
    if key == LIST_OFFSETS_KEY:
        return list_offsets(w, r, reply)
    if not apis.native_key[key]:
        return POST
    if key == PRODUCE_KEY:
        return produce(w, r, reply) if version >= PRODUCE_MIN_VERSION else refuse(r, b"a version of Produce before 3")
    if key == FETCH_KEY:
        return fetch(w, r, reply)
    if key == API_VERSIONS_KEY:
        return answer_api_versions(w, r, reply)
    return POST
