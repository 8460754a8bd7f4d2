/* CRC-32 of 802.3 (reflected, polynomial 0xedb88320), for the invariant CRC of RoCEv2. */
#ifndef DCBLAB_HOSTS_CRC_H
#define DCBLAB_HOSTS_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Fills the tables; once before the first use, again is harmless. Not safe against itself in two threads. */
void crc_prepare(void);

/* State after more bytes; begins with all ones, the CRC is its complement. */
uint32_t crc_update(uint32_t state, const uint8_t *bytes, size_t length);

/* The same for `length` bytes of 0, in time of the number of ones in `length` (at most 2^15 - 1). */
uint32_t crc_zeros(uint32_t state, uint32_t length);

#endif
