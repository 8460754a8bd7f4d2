/* A traffic generator and sink in virtual time: frames from templates at exact times, PFC honoured, arrivals recorded.
 *
 * What an RFC 2544 tester is on a bench: it knows no protocol but MAC control. Hosts with transports are hosts/native/nic.h;
 * this one has their shape (receive, next_deadline, advance, output), with one port and a strict order of sending. */
#ifndef DCB_TESTER_H
#define DCB_TESTER_H

#include <stdbool.h>
#include <stdint.h>

typedef void (*tester_output_fn)(void *arg, const uint8_t *frame, uint32_t len, uint32_t port, uint64_t start_ps, uint64_t end_ps);

typedef struct tester tester_t;

enum { TESTER_TX_FRAMES, TESTER_TX_BYTES, TESTER_RX_FRAMES, TESTER_RX_BYTES, TESTER_RX_CONTROL, TESTER_PAUSES, TESTER_WAITING, TESTER_RECORDS_LOST };

tester_t *tester_create(uint64_t rate_bps, uint32_t port, uint32_t pfc_enable); /* rate: of the port, not 0 */
void tester_destroy(tester_t *t);
void tester_set_output(tester_t *t, tester_output_fn output, void *arg);
/* Frames of `n` templates in turn, `count` in all, one each gap_ps from start_ps on (0: as fast as the wire takes them). A paused
 * flow catches up. priority 0..7: which pause holds it; 8: none does. stamp_at > 0: eight bytes there count up, big-endian.
 * Returns the number of the flow, -1: no memory or a value that does not fit. */
int tester_add_flow(tester_t *t, const uint8_t *const *frames, const uint32_t *lens, uint32_t n, uint32_t priority, uint64_t start_ps,
                    uint64_t gap_ps, uint64_t count, uint32_t stamp_at);
int tester_stop_flow(tester_t *t, uint32_t flow); /* what it has not sent it never sends */
void tester_set_record(tester_t *t, uint64_t limit_bytes);                   /* memory for arrivals; 0: none are kept */
uint64_t tester_take(tester_t *t, uint8_t *out, uint64_t capacity);          /* records: u64 time, u32 length, frame, padded to 8 */
uint64_t tester_read(tester_t *t, uint32_t kind, uint32_t index, uint64_t now_ps); /* the shape of a fabric's series */

void tester_receive(tester_t *t, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps);
uint64_t tester_next_deadline(const tester_t *t);
void tester_advance(tester_t *t, uint64_t now_ps);

#endif
