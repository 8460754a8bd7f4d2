/* Bits and bytes: big-endian loads and stores, bit-granular access at run-time offsets, saturating shifts.
 *
 * Generated code uses the fixed-size loads and stores for everything whose place is known when it is generated, and
 * pl_get_bits / pl_put_bits for what follows a variable-length field. Cells are little-endian limbs (see abi.h).
 */
#ifndef DCB_PL_BITS_H
#define DCB_PL_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef unsigned __int128 pl_u128;
typedef __int128 pl_i128;

#define PL_INLINE static inline __attribute__((always_inline, unused))
#define PL_LIKELY(x) __builtin_expect(!!(x), 1)
#define PL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PL_U128(lo, hi) (((pl_u128)(hi) << 64) | (pl_u128)(uint64_t)(lo))

PL_INLINE uint64_t pl_ld8(const uint8_t *p) { return *p; }
PL_INLINE uint64_t pl_ld16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
PL_INLINE uint64_t pl_ld32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
PL_INLINE uint64_t pl_ld64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}
PL_INLINE void pl_st8(uint8_t *p, uint64_t v) { *p = (uint8_t)v; }
PL_INLINE void pl_st16(uint8_t *p, uint64_t v)
{
    uint16_t w = __builtin_bswap16((uint16_t)v);
    memcpy(p, &w, 2);
}
PL_INLINE void pl_st32(uint8_t *p, uint64_t v)
{
    uint32_t w = __builtin_bswap32((uint32_t)v);
    memcpy(p, &w, 4);
}
PL_INLINE void pl_st64(uint8_t *p, uint64_t v)
{
    uint64_t w = __builtin_bswap64(v);
    memcpy(p, &w, 8);
}

PL_INLINE uint64_t pl_mask64(unsigned bits) { return bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1; }

/* Up to 64 bits that start `at` bits after `base`, most significant first. */
PL_INLINE uint64_t pl_peek_bits(const uint8_t *base, size_t at, unsigned bits)
{
    uint64_t value = 0;
    while (bits) {
        unsigned in_byte = 8 - (unsigned)(at & 7), take = bits < in_byte ? bits : in_byte;
        uint64_t part = ((uint64_t)base[at >> 3] >> (in_byte - take)) & pl_mask64(take);
        value = (take >= 64 ? 0 : value << take) | part;
        at += take;
        bits -= take;
    }
    return value;
}

/* Overwrites up to 64 bits, leaving their neighbours in the first and last byte alone. */
PL_INLINE void pl_poke_bits(uint8_t *base, size_t at, unsigned bits, uint64_t value)
{
    while (bits) {
        unsigned in_byte = 8 - (unsigned)(at & 7), take = bits < in_byte ? bits : in_byte;
        unsigned shift = in_byte - take;
        uint8_t mask = (uint8_t)(pl_mask64(take) << shift);
        uint8_t part = (uint8_t)(((value >> (bits - take)) << shift) & mask);
        base[at >> 3] = (uint8_t)((base[at >> 3] & ~mask) | part);
        at += take;
        bits -= take;
    }
}

/* A field of any width into cells, least significant cell first. */
PL_INLINE void pl_get_bits(const uint8_t *base, size_t at, unsigned bits, uint64_t *cells)
{
    unsigned n = (bits + 63) / 64;
    for (unsigned i = 0; i < n; i++) {
        unsigned low = i * 64, high = bits < low + 64 ? bits : low + 64;
        cells[i] = pl_peek_bits(base, at + (bits - high), high - low);
    }
}

PL_INLINE void pl_put_bits(uint8_t *base, size_t at, unsigned bits, const uint64_t *cells)
{
    unsigned n = (bits + 63) / 64;
    for (unsigned i = 0; i < n; i++) {
        unsigned low = i * 64, high = bits < low + 64 ? bits : low + 64;
        pl_poke_bits(base, at + (bits - high), high - low, cells[i]);
    }
}

/* memset through the C library, whose wide stores beat the string instruction that the compiler would inline. */
PL_INLINE void pl_zero(void *p, size_t n)
{
    __asm__("" : "+r"(n));
    memset(p, 0, n);
}

/* Shifts by any amount. */
PL_INLINE uint64_t pl_shl_u64(uint64_t x, uint64_t s) { return s > 63 ? 0 : x << s; }
PL_INLINE uint64_t pl_shr_u64(uint64_t x, uint64_t s) { return s > 63 ? 0 : x >> s; }
PL_INLINE int64_t pl_shr_i64(int64_t x, uint64_t s) { return x >> (s > 63 ? 63 : s); }
PL_INLINE pl_u128 pl_shl_u128(pl_u128 x, uint64_t s) { return s > 127 ? 0 : x << s; }
PL_INLINE pl_u128 pl_shr_u128(pl_u128 x, uint64_t s) { return s > 127 ? 0 : x >> s; }
PL_INLINE pl_i128 pl_shr_i128(pl_i128 x, uint64_t s) { return x >> (s > 127 ? 127 : s); }

/* Sign extension of the low `bits` (1..64, 1..128) bits. */
PL_INLINE int64_t pl_sext64(uint64_t x, unsigned bits) { return (int64_t)(x << (64 - bits)) >> (64 - bits); }
PL_INLINE pl_i128 pl_sext128(pl_u128 x, unsigned bits) { return (pl_i128)(x << (128 - bits)) >> (128 - bits); }

#endif
