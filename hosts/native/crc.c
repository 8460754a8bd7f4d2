#include "crc.h"

#include <stdbool.h>

#define ZERO_STEPS 15

static uint32_t table[8][256];               /* slicing by eight */
static uint32_t zeros[ZERO_STEPS][4][256];   /* [k]: what 2^k zero bytes make of each byte of the state; it is linear */
static bool prepared;

static uint32_t apply(const uint32_t t[4][256], uint32_t state)
{
    return t[0][state & 0xff] ^ t[1][state >> 8 & 0xff] ^ t[2][state >> 16 & 0xff] ^ t[3][state >> 24];
}

void crc_prepare(void)
{
    if (prepared)
        return;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
    for (uint32_t i = 0; i < 256; i++)
        for (int b = 0; b < 4; b++) {
            uint32_t state = i << 8 * b;
            zeros[0][b][i] = state >> 8 ^ table[0][state & 0xff];
        }
    for (int k = 1; k < ZERO_STEPS; k++)
        for (uint32_t i = 0; i < 256; i++)
            for (int b = 0; b < 4; b++)
                zeros[k][b][i] = apply(zeros[k - 1], zeros[k - 1][b][i]);
    prepared = true;
}

uint32_t crc_update(uint32_t state, const uint8_t *bytes, size_t length)
{
    while (length >= 8) {
        uint32_t low = state ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                                (uint32_t)bytes[3] << 24);
        state = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
                table[3][bytes[4]] ^ table[2][bytes[5]] ^ table[1][bytes[6]] ^ table[0][bytes[7]];
        bytes += 8;
        length -= 8;
    }
    for (; length; length--)
        state = state >> 8 ^ table[0][(state ^ *bytes++) & 0xff];
    return state;
}

uint32_t crc_zeros(uint32_t state, uint32_t length)
{
    for (int k = 0; length; k++, length >>= 1)
        if (length & 1)
            state = apply(zeros[k], state);
    return state;
}
