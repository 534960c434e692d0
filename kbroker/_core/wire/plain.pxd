# plain: what the short ways share: texts that lie in a frame, read and written without an object for each.
# Called by   wire/express, wire/express_end.
# Fails by    False, or a cursor that says truncated: the frame is broken or not plain, and goes the long way.
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int16_t, int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kbroker._core.wire.cursor cimport Cursor, take_bytes, take_string
from kbroker._core.wire.writer cimport Writer, put_int16, put_int32, put_run, put_uvarint

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    HEADER_BYTES = 8                  # key, version, correlation id
    TEXT_MAX = 32767                  # bytes of a string that every version can say

cdef struct Text:
    const uint8_t *at                 # NULL: null
    int32_t length


cdef inline bint take_text(Cursor *c, bint flexible, Text *text) noexcept nogil:
    # False: the frame is broken, or the text is not plain ASCII.
    cdef uint64_t eight
    cdef uint8_t seen = 0
    cdef int32_t i = 0
    text.at = take_string(c, flexible, &text.length)
    if text.at == NULL:
        return not c.truncated
    if text.length > TEXT_MAX:
        return False
    while text.length - i >= 8:
        memcpy(&eight, text.at + i, 8)
        if eight & <uint64_t> 0x8080808080808080:
            return False
        i += 8
    while i < text.length:
        seen |= text.at[i]
        i += 1
    return seen < 0x80


cdef inline bint take_no_tags(Cursor *c, bint flexible) noexcept nogil:
    cdef const uint8_t *count
    if not flexible:
        return True
    count = take_bytes(c, 1)
    return count != NULL and count[0] == 0


cdef inline bint take_header(Cursor *c, bint flexible) noexcept nogil:
    cdef Text client_id
    return take_text(c, False, &client_id) and take_no_tags(c, flexible)


cdef inline str text_of(const Text *text):
    return PyUnicode_DecodeASCII(<const char *> text.at, text.length, NULL) if text.at != NULL else None


cdef inline int put_text(Writer *w, const Text *text, bint flexible) except -1:
    if flexible:
        put_uvarint(w, text.length + 1)
    else:
        put_int16(w, <int16_t> text.length)
    return put_run(w, text.at, text.length)


cdef inline int put_count(Writer *w, int32_t count, bint flexible) except -1:
    return put_uvarint(w, count + 1) if flexible else put_int32(w, count)


cdef inline bytes written(Writer *w):
    return PyBytes_FromStringAndSize(<const char *> w.data, w.used)
