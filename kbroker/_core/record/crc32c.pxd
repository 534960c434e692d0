# crc32c: the checksum of a v2 record batch (Castagnoli), by the machine's instruction or by table.
# Owns        constant tables, filled at import and only read afterwards.
# Called by   record/batch, record/records, log (checks of index and snapshot files), tests.
# Threads     any. Never fails, never takes the GIL.
from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc32c(const uint8_t *data, size_t length) noexcept nogil
# Continues a checksum: crc32c_extend(crc32c(a), b) == crc32c(a + b). Begin with 0.
cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t *data, size_t length) noexcept nogil
