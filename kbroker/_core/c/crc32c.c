/* CRC-32C three ways: SSE4.2 or ARMv8 instructions where the machine has them, slicing-by-8 elsewhere.
 *
 * The crc32 instruction has a latency of three cycles and a throughput of one, so long buffers are cut into three lanes
 * that run side by side. The lanes are joined by "advance this crc over N zero bytes", which is linear over GF(2) and
 * therefore four table look-ups once N is fixed. Short buffers stay serial: joining would cost more than it saves.
 *
 * The tables are constants that are cheaper to compute (some 10 us) than to carry; nothing writes them after setup. */
#include "kbroker/_core/c/crc32c.h"

#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

#define LANE_LONG 4096  /* three lanes of this many bytes a turn */
#define LANE_SHORT 256

static uint32_t slices[8][256];

static inline uint32_t load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static void fill_slices(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (POLYNOMIAL & (0u - (crc & 1)));
        slices[0][i] = crc;
    }
    for (int s = 1; s < 8; s++)
        for (int i = 0; i < 256; i++)
            slices[s][i] = (slices[s - 1][i] >> 8) ^ slices[0][slices[s - 1][i] & 0xff];
}

uint32_t kb_crc32c_table(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = load32(p) ^ crc, high = load32(p + 4);
        crc = slices[7][low & 0xff] ^ slices[6][(low >> 8) & 0xff] ^ slices[5][(low >> 16) & 0xff] ^
              slices[4][low >> 24] ^ slices[3][high & 0xff] ^ slices[2][(high >> 8) & 0xff] ^
              slices[1][(high >> 16) & 0xff] ^ slices[0][high >> 24];
    }
#endif
    for (; n > 0; n--, p++)
        crc = (crc >> 8) ^ slices[0][(crc ^ *p) & 0xff];
    return ~crc;
}

#if defined(__x86_64__) || (defined(__aarch64__) && (defined(__linux__) || defined(__ARM_FEATURE_CRC32)))
#define HAVE_HARDWARE 1

#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#define HARDWARE __attribute__((target("sse4.2,crc32"))) /* clang counts crc32 apart from sse4.2 */
#define HARDWARE_NAME "sse4.2"
#define STEP64(crc, v) ((uint32_t)_mm_crc32_u64((crc), (v)))
#define STEP8(crc, v) _mm_crc32_u8((crc), (v))
/* Not __builtin_cpu_supports: a shared object that zig links does not find the table it reads. */
static int hardware_present(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
}
#else
#include <arm_acle.h>
#define HARDWARE_NAME "armv8"
#define STEP64(crc, v) __crc32cd((crc), (v))
#define STEP8(crc, v) __crc32cb((crc), (v))
/* The instructions are optional in ARMv8.0, for which wheels are compiled, and mandatory from ARMv8.1 on. */
#if defined(__ARM_FEATURE_CRC32)
#define HARDWARE
static int hardware_present(void) { return 1; }
#else
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define HARDWARE __attribute__((target("+crc")))
static int hardware_present(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#endif
#endif

static uint32_t advance_long[4][256];  /* a crc moved over LANE_LONG zero bytes, by its four bytes */
static uint32_t advance_short[4][256];
static int hardware;

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t over_zeroes(uint32_t crc, size_t n) {
    for (; n > 0; n--)
        crc = (crc >> 8) ^ slices[0][crc & 0xff];
    return crc;
}

static void fill_advance(uint32_t table[4][256], size_t n) {
    /* Linear: 32 single bits are moved the slow way, every other entry is the xor of its bits. */
    for (int byte = 0; byte < 4; byte++) {
        table[byte][0] = 0;
        for (int bit = 0; bit < 8; bit++)
            table[byte][1 << bit] = over_zeroes(1u << (8 * byte + bit), n);
        for (int i = 1; i < 256; i++)
            table[byte][i] = table[byte][i & (i - 1)] ^ table[byte][i & -i];
    }
}

static inline uint32_t advance(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^ table[3][crc >> 24];
}

HARDWARE static inline uint32_t three_lanes(uint32_t crc, const uint8_t *p, size_t lane, uint32_t table[4][256]) {
    uint32_t second = 0, third = 0;
    for (const uint8_t *end = p + lane; p < end; p += 8) {
        crc = STEP64(crc, load64(p));
        second = STEP64(second, load64(p + lane));
        third = STEP64(third, load64(p + 2 * lane));
    }
    return advance(table, advance(table, crc) ^ second) ^ third;
}

HARDWARE static uint32_t crc32c_hardware(uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    for (; n >= 3 * LANE_LONG; n -= 3 * LANE_LONG, p += 3 * LANE_LONG)
        crc = three_lanes(crc, p, LANE_LONG, advance_long);
    for (; n >= 3 * LANE_SHORT; n -= 3 * LANE_SHORT, p += 3 * LANE_SHORT)
        crc = three_lanes(crc, p, LANE_SHORT, advance_short);
    for (; n >= 8; n -= 8, p += 8)
        crc = STEP64(crc, load64(p));
    for (; n > 0; n--, p++)
        crc = STEP8(crc, *p);
    return ~crc;
}
#endif

void kb_crc32c_setup(void) {
    fill_slices();
#ifdef HAVE_HARDWARE
    fill_advance(advance_long, LANE_LONG);
    fill_advance(advance_short, LANE_SHORT);
    hardware = hardware_present();
#endif
}

uint32_t kb_crc32c_extend(uint32_t crc, const uint8_t *data, size_t length) {
#ifdef HAVE_HARDWARE
    if (hardware)
        return crc32c_hardware(crc, data, length);
#endif
    return kb_crc32c_table(crc, data, length);
}

const char *kb_crc32c_engine(void) {
#ifdef HAVE_HARDWARE
    if (hardware)
        return HARDWARE_NAME;
#endif
    return "table";
}
