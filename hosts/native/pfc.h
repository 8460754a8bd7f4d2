/* PFC (IEEE 802.1Qbb, 802.3 Annex 31D) and PAUSE (802.3 Annex 31B) at an end station: validation, gates per priority.
 *
 * Frames go in with the time at which they arrived, gates come out. Times are nanoseconds of CLOCK_MONOTONIC. A quantum is
 * 512 bit times of the link. A new time replaces the running one, 0 resumes, a clear enable bit changes nothing. */
#ifndef DCBLAB_HOSTS_PFC_H
#define DCBLAB_HOSTS_PFC_H

#include "util.h"

#define MAC_CONTROL_TYPE 0x8808
#define PFC_OPCODE 0x0101
#define PAUSE_OPCODE 0x0001
#define MAC_CONTROL_BYTES 60 /* 64 on the wire, with the FCS */

enum pfc_invalid { PFC_BAD_DESTINATION, PFC_BAD_LENGTH, PFC_BAD_PAD, PFC_BAD_OPCODE, PFC_ZERO_VECTOR, PFC_INVALID_REASONS };
extern const char *const pfc_invalid_names[PFC_INVALID_REASONS];

struct pfc_gate {
    bool paused;
    uint64_t since_ns; /* begin of the pause */
    uint64_t until_ns; /* its end unless a frame moves it */
    uint64_t paused_ns, pauses, xoff_rx, xon_rx;
};

struct pfc_gates {
    uint64_t link_rate_bps;
    uint8_t enabled; /* bit n: honour PFC on priority n */
    bool pause_enabled;
    struct pfc_gate gate[8];
    uint64_t frames, pause_frames, high_byte_set;
    uint64_t invalid[PFC_INVALID_REASONS];
    /* Called when a pause ends, with its begin and end. */
    void (*resumed)(void *context, int priority, uint64_t since_ns, uint64_t until_ns);
    void *context;
};

extern const uint8_t pfc_destination[6];

/* Length of `quanta` at `rate_bps`, rounded up to whole nanoseconds: a sender must not resume early. */
uint64_t pfc_quanta_ns(uint32_t quanta, uint64_t rate_bps);

/* Ends what has run out by `now`. */
void pfc_expire(struct pfc_gates *gates, uint64_t now);

/* Takes one MAC control frame that arrived at `now`. */
void pfc_receive(struct pfc_gates *gates, const uint8_t *frame, size_t length, uint64_t now);

/* Closes the books: counts running pauses up to `now`. */
void pfc_finish(struct pfc_gates *gates, uint64_t now);

/* Builds a PFC frame of 60 bytes: times[n] for every bit n of `vector`. */
void pfc_build(uint8_t frame[MAC_CONTROL_BYTES], const uint8_t source[6], uint8_t vector, const uint16_t times[8]);

/* Writes the counters as members of a JSON object, without braces. */
void pfc_print(FILE *out, const struct pfc_gates *gates);

#endif
