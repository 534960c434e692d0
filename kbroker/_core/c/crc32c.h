/* CRC-32C (Castagnoli), the checksum of a v2 record batch. */
#ifndef KB_CRC32C_H
#define KB_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Fills the constant tables and picks the engine. Called once, at import, before any thread exists that could ask. */
void kb_crc32c_setup(void);

/* The checksum of `data` continued from `crc`; start with 0. Safe from any thread after setup. */
uint32_t kb_crc32c_extend(uint32_t crc, const uint8_t *data, size_t length);

/* The portable engine, whatever the machine offers: the judge of the others in the tests. */
uint32_t kb_crc32c_table(uint32_t crc, const uint8_t *data, size_t length);

/* "sse4.2", "armv8" or "table". */
const char *kb_crc32c_engine(void);

#endif
