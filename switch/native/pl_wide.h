/* Integers of any width as arrays of 64-bit limbs, least significant first, two's complement.
 *
 * Only what does not fit 128 bits comes here (sums of IPv6 addresses, wide casts and shifts), so these are plain loops. The
 * generator knows every width, and picks a limb count that holds the exact result or the bits that are wanted of it.
 */
#ifndef DCB_PL_WIDE_H
#define DCB_PL_WIDE_H

#include "pl_bits.h"

PL_INLINE void pl_w_from_u64(uint64_t *d, unsigned n, uint64_t v)
{
    d[0] = v;
    for (unsigned i = 1; i < n; i++)
        d[i] = 0;
}

PL_INLINE void pl_w_from_i64(uint64_t *d, unsigned n, int64_t v)
{
    d[0] = (uint64_t)v;
    for (unsigned i = 1; i < n; i++)
        d[i] = v < 0 ? UINT64_MAX : 0;
}

PL_INLINE void pl_w_from_u128(uint64_t *d, unsigned n, pl_u128 v)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = i == 0 ? (uint64_t)v : i == 1 ? (uint64_t)(v >> 64) : 0;
}

PL_INLINE void pl_w_from_i128(uint64_t *d, unsigned n, pl_i128 v)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = i == 0 ? (uint64_t)v : i == 1 ? (uint64_t)((pl_u128)v >> 64) : v < 0 ? UINT64_MAX : 0;
}

/* From `m` limbs, extended with zeros or with the sign of the top limb, or cut. */
PL_INLINE void pl_w_from(uint64_t *d, unsigned n, const uint64_t *a, unsigned m, int is_signed)
{
    uint64_t fill = is_signed && (a[m - 1] >> 63) ? UINT64_MAX : 0;
    for (unsigned i = 0; i < n; i++)
        d[i] = i < m ? a[i] : fill;
}

PL_INLINE void pl_w_add(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n)
{
    unsigned carry = 0;
    for (unsigned i = 0; i < n; i++) {
        pl_u128 s = (pl_u128)a[i] + b[i] + carry;
        d[i] = (uint64_t)s;
        carry = (unsigned)(s >> 64);
    }
}

PL_INLINE void pl_w_sub(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n)
{
    unsigned borrow = 0;
    for (unsigned i = 0; i < n; i++) {
        pl_u128 s = (pl_u128)a[i] - b[i] - borrow;
        d[i] = (uint64_t)s;
        borrow = (unsigned)(s >> 64) & 1;
    }
}

/* Low n limbs of the product; d is neither a nor b. */
PL_INLINE void pl_w_mul(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t carry = 0;
        for (unsigned j = 0; i + j < n; j++) {
            pl_u128 s = (pl_u128)a[i] * b[j] + d[i + j] + carry;
            d[i + j] = (uint64_t)s;
            carry = (uint64_t)(s >> 64);
        }
    }
}

PL_INLINE void pl_w_and(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = a[i] & b[i];
}
PL_INLINE void pl_w_or(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = a[i] | b[i];
}
PL_INLINE void pl_w_xor(uint64_t *d, const uint64_t *a, const uint64_t *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = a[i] ^ b[i];
}
PL_INLINE void pl_w_not(uint64_t *d, const uint64_t *a, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = ~a[i];
}

PL_INLINE void pl_w_shl(uint64_t *d, const uint64_t *a, unsigned n, uint64_t s)
{
    uint64_t words = s / 64;
    unsigned bits = (unsigned)(s % 64);
    for (unsigned i = n; i-- > 0;) {
        uint64_t v = 0;
        if (i >= words) {
            v = a[i - words] << bits;
            if (bits && i >= words + 1)
                v |= a[i - words - 1] >> (64 - bits);
        }
        d[i] = v;
    }
}

/* Arithmetic shift: a is signed. */
PL_INLINE void pl_w_shr(uint64_t *d, const uint64_t *a, unsigned n, uint64_t s)
{
    uint64_t fill = a[n - 1] >> 63 ? UINT64_MAX : 0;
    uint64_t words = s / 64;
    unsigned bits = (unsigned)(s % 64);
    for (unsigned i = 0; i < n; i++) {
        uint64_t low = words < n - i ? a[i + words] : fill;
        uint64_t high = words + 1 < n - i ? a[i + words + 1] : fill;
        d[i] = bits ? (low >> bits) | (high << (64 - bits)) : low;
    }
}

PL_INLINE int pl_w_cmp(const uint64_t *a, const uint64_t *b, unsigned n)
{
    int64_t ta = (int64_t)a[n - 1], tb = (int64_t)b[n - 1];
    if (ta != tb)
        return ta < tb ? -1 : 1;
    for (unsigned i = n - 1; i-- > 0;)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

PL_INLINE int pl_w_zero(const uint64_t *a, unsigned n)
{
    uint64_t any = 0;
    for (unsigned i = 0; i < n; i++)
        any |= a[i];
    return any == 0;
}

PL_INLINE void pl_w_negate(uint64_t *d, unsigned n)
{
    unsigned carry = 1;
    for (unsigned i = 0; i < n; i++) {
        d[i] = ~d[i] + carry;
        carry = carry && d[i] == 0;
    }
}

/* Quotient rounded towards zero and its remainder, by long division; b = 0 gives 0 and 0. */
PL_INLINE void pl_w_divmod(uint64_t *q, uint64_t *r, const uint64_t *a, const uint64_t *b, unsigned n)
{
    uint64_t top[n], bottom[n];
    int negative_a = a[n - 1] >> 63 != 0, negative_b = b[n - 1] >> 63 != 0;
    for (unsigned i = 0; i < n; i++) {
        top[i] = a[i];
        bottom[i] = b[i];
        q[i] = r[i] = 0;
    }
    if (pl_w_zero(b, n))
        return;
    if (negative_a)
        pl_w_negate(top, n);
    if (negative_b)
        pl_w_negate(bottom, n);
    for (unsigned bit = n * 64; bit-- > 0;) {
        for (unsigned i = n; i-- > 1;)
            r[i] = r[i] << 1 | r[i - 1] >> 63;
        r[0] = r[0] << 1 | ((top[bit / 64] >> (bit % 64)) & 1);
        if (pl_w_cmp(r, bottom, n) >= 0) {
            pl_w_sub(r, r, bottom, n);
            q[bit / 64] |= (uint64_t)1 << (bit % 64);
        }
    }
    if (negative_a != negative_b)
        pl_w_negate(q, n);
    if (negative_a)
        pl_w_negate(r, n);
}

/* Cuts to `bits` bits: the upper ones become zeros, or copies of bit `bits - 1`. */
PL_INLINE void pl_w_cut(uint64_t *d, unsigned n, unsigned bits, int is_signed)
{
    unsigned word = (bits - 1) / 64, in_word = (bits - 1) % 64 + 1;
    uint64_t fill = is_signed && ((d[word] >> (in_word - 1)) & 1) ? UINT64_MAX : 0;
    if (in_word < 64)
        d[word] = (d[word] & pl_mask64(in_word)) | (fill << in_word);
    for (unsigned i = word + 1; i < n; i++)
        d[i] = fill;
}

/* As an unsigned 64-bit number, saturating (shift amounts, indexes); negative numbers count as 0. */
PL_INLINE uint64_t pl_w_sat_u64(const uint64_t *a, unsigned n)
{
    if (a[n - 1] >> 63)
        return 0;
    for (unsigned i = 1; i < n; i++)
        if (a[i])
            return UINT64_MAX;
    return a[0];
}

#endif
