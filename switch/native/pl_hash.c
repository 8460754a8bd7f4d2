/* Hash and checksum algorithms (pl_hash.h). Tables are computed once, when the library is loaded.
 *
 * Parameters of the CRCs are those of the catalogue of parametrised CRC algorithms for these names (ARC, IBM-3740, ISO-HDLC);
 * the 8- and 64-bit ones are the defaults of BMv2's custom CRCs. XXH64 follows the published specification.
 */
#include "pl_hash.h"

static uint8_t crc8_table[256];
static uint16_t crc16_table[256], ccitt_table[256];
static uint32_t crc32_table[8][256];
static uint64_t crc64_table[256];

__attribute__((constructor)) static void make_tables(void)
{
    for (unsigned i = 0; i < 256; i++) {
        uint8_t c8 = (uint8_t)i;
        uint16_t c16 = (uint16_t)i, cc = (uint16_t)(i << 8);
        uint32_t c32 = i;
        uint64_t c64 = i;
        for (int bit = 0; bit < 8; bit++) {
            c8 = (uint8_t)(c8 & 0x80 ? c8 << 1 ^ 0x07 : c8 << 1);
            c16 = (uint16_t)(c16 & 1 ? c16 >> 1 ^ 0xA001 : c16 >> 1);
            cc = (uint16_t)(cc & 0x8000 ? cc << 1 ^ 0x1021 : cc << 1);
            c32 = c32 & 1 ? c32 >> 1 ^ 0xEDB88320u : c32 >> 1;
            c64 = c64 & 1 ? c64 >> 1 ^ 0xD800000000000000u : c64 >> 1;
        }
        crc8_table[i] = c8;
        crc16_table[i] = c16;
        ccitt_table[i] = cc;
        crc32_table[0][i] = c32;
        crc64_table[i] = c64;
    }
    for (unsigned i = 0; i < 256; i++)
        for (unsigned k = 1; k < 8; k++)
            crc32_table[k][i] = crc32_table[k - 1][i] >> 8 ^ crc32_table[0][crc32_table[k - 1][i] & 0xff];
}

uint64_t pl_hash_crc8(const uint8_t *p, size_t n)
{
    uint8_t c = 0;
    while (n--)
        c = crc8_table[c ^ *p++];
    return c;
}

uint64_t pl_hash_crc16(const uint8_t *p, size_t n)
{
    uint16_t c = 0;
    while (n--)
        c = (uint16_t)(crc16_table[(c ^ *p++) & 0xff] ^ c >> 8);
    return c;
}

uint64_t pl_hash_crcCCITT(const uint8_t *p, size_t n)
{
    uint16_t c = 0xFFFF;
    while (n--)
        c = (uint16_t)(ccitt_table[(c >> 8 ^ *p++) & 0xff] ^ c << 8);
    return c;
}

uint64_t pl_hash_crc32(const uint8_t *p, size_t n)
{
    uint32_t c = 0xFFFFFFFFu;
    for (; n >= 8; n -= 8, p += 8) { /* eight table look-ups that do not wait for each other */
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= c;
        c = crc32_table[7][low & 0xff] ^ crc32_table[6][low >> 8 & 0xff] ^ crc32_table[5][low >> 16 & 0xff]
            ^ crc32_table[4][low >> 24] ^ crc32_table[3][high & 0xff] ^ crc32_table[2][high >> 8 & 0xff]
            ^ crc32_table[1][high >> 16 & 0xff] ^ crc32_table[0][high >> 24];
    }
    while (n--)
        c = crc32_table[0][(c ^ *p++) & 0xff] ^ c >> 8;
    return c ^ 0xFFFFFFFFu;
}

uint64_t pl_hash_crc64(const uint8_t *p, size_t n)
{
    uint64_t c = 0;
    while (n--)
        c = crc64_table[(c ^ *p++) & 0xff] ^ c >> 8;
    return c;
}

uint64_t pl_hash_csum16(const uint8_t *p, size_t n)
{
    uint64_t sum = 0;
    for (; n >= 4; n -= 4, p += 4)
        sum += pl_ld32(p);
    if (n >= 2) {
        sum += pl_ld16(p);
        p += 2;
        n -= 2;
    }
    if (n)
        sum += (uint64_t)*p << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return ~sum & 0xffff;
}

uint64_t pl_hash_xor16(const uint8_t *p, size_t n)
{
    uint64_t x = 0;
    for (; n >= 2; n -= 2, p += 2)
        x ^= pl_ld16(p);
    return n ? x ^ (uint64_t)*p << 8 : x;
}

uint64_t pl_hash_xor32(const uint8_t *p, size_t n)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++)
        x ^= (uint64_t)p[i] << (24 - 8 * (i & 3));
    return x;
}

uint64_t pl_hash_identity(const uint8_t *p, size_t n)
{
    uint64_t x = 0;
    for (size_t i = 0; i < n && i < 8; i++)
        x = x << 8 | p[i];
    return x;
}

#define XXH_P1 0x9E3779B185EBCA87u
#define XXH_P2 0xC2B2AE3D27D4EB4Fu
#define XXH_P3 0x165667B19E3779F9u
#define XXH_P4 0x85EBCA77C2B2AE63u
#define XXH_P5 0x27D4EB2F165667C5u

static uint64_t rotl(uint64_t x, unsigned r) { return x << r | x >> (64 - r); }
static uint64_t le64(const uint8_t *p) { return __builtin_bswap64(pl_ld64(p)); }
static uint64_t xxh_round(uint64_t acc, uint64_t lane) { return rotl(acc + lane * XXH_P2, 31) * XXH_P1; }

uint64_t pl_hash_xxh64(const uint8_t *p, size_t n)
{
    const uint8_t *end = p + n;
    uint64_t h;
    if (n >= 32) {
        uint64_t acc[4] = {XXH_P1 + XXH_P2, XXH_P2, 0, 0u - XXH_P1};
        for (; end - p >= 32; p += 32)
            for (unsigned i = 0; i < 4; i++)
                acc[i] = xxh_round(acc[i], le64(p + 8 * i));
        h = rotl(acc[0], 1) + rotl(acc[1], 7) + rotl(acc[2], 12) + rotl(acc[3], 18);
        for (unsigned i = 0; i < 4; i++)
            h = (h ^ xxh_round(0, acc[i])) * XXH_P1 + XXH_P4;
    } else {
        h = XXH_P5;
    }
    h += n;
    for (; end - p >= 8; p += 8)
        h = rotl(h ^ xxh_round(0, le64(p)), 27) * XXH_P1 + XXH_P4;
    if (end - p >= 4) {
        h = rotl(h ^ (uint64_t)__builtin_bswap32((uint32_t)pl_ld32(p)) * XXH_P1, 23) * XXH_P2 + XXH_P3;
        p += 4;
    }
    while (p < end)
        h = rotl(h ^ *p++ * XXH_P5, 11) * XXH_P1;
    h = (h ^ h >> 33) * XXH_P2;
    h = (h ^ h >> 29) * XXH_P3;
    return h ^ h >> 32;
}
