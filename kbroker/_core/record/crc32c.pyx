# The doors to c/crc32c.c: one for cimport, one for Python.
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "kbroker/_core/c/crc32c.h" nogil:
    void kb_crc32c_setup() noexcept
    uint32_t kb_crc32c_extend(uint32_t crc, const uint8_t *data, size_t length) noexcept
    uint32_t kb_crc32c_table(uint32_t crc, const uint8_t *data, size_t length) noexcept
    const char *kb_crc32c_engine() noexcept

kb_crc32c_setup()


cdef uint32_t crc32c(const uint8_t *data, size_t length) noexcept nogil:
    return kb_crc32c_extend(0, data, length)


cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil:
    return kb_crc32c_extend(crc, data, length)


def checksum(const uint8_t[::1] data not None, crc: int = 0, *, portable: bool = False) -> int:
    """CRC-32C of `data`, continued from `crc`. `portable` takes the table whatever the machine offers."""
    cdef uint32_t start = crc
    cdef Py_ssize_t length = data.shape[0]
    cdef const uint8_t *at = &data[0] if length > 0 else NULL
    cdef bint by_table = portable
    with nogil:
        start = kb_crc32c_table(start, at, length) if by_table else kb_crc32c_extend(start, at, length)
    return start


def engine() -> str:
    """What computes checksums here: "sse4.2", "armv8" or "table"."""
    return kb_crc32c_engine().decode()
