/* Hash and checksum algorithms over bytes, as the calculations of a BMv2 JSON name them. */
#ifndef DCB_PL_HASH_H
#define DCB_PL_HASH_H

#include "pl_bits.h"

uint64_t pl_hash_crc8(const uint8_t *p, size_t n);   /* poly 0x07 */
uint64_t pl_hash_crc16(const uint8_t *p, size_t n);  /* CRC-16/ARC */
uint64_t pl_hash_crcCCITT(const uint8_t *p, size_t n); /* CRC-16/CCITT-FALSE: 0x1021, init 0xFFFF */
uint64_t pl_hash_crc32(const uint8_t *p, size_t n);  /* CRC-32 of Ethernet */
uint64_t pl_hash_crc64(const uint8_t *p, size_t n);  /* poly 0x1b, reflected, init 0 */
uint64_t pl_hash_csum16(const uint8_t *p, size_t n); /* RFC 1071 */
uint64_t pl_hash_xor16(const uint8_t *p, size_t n);
uint64_t pl_hash_xor32(const uint8_t *p, size_t n);
uint64_t pl_hash_identity(const uint8_t *p, size_t n); /* first 8 bytes, big-endian */
uint64_t pl_hash_xxh64(const uint8_t *p, size_t n);  /* seed 0 */

#endif
