/* One packet socket with its receive ring, and the pcap files of a port. No core, no thread; see driver.c.
 *
 * Received frames are read in place from a TPACKET_V2 ring (whole frames at once; V3 would hold them back until a block is
 * full or a millisecond has passed). A VLAN tag that the kernel moved into the ring's header is put back into the frame. Frames are
 * sent with sendmmsg through the ordinary device queue, so that tcpdump on the interface and a user's tc both see them. */
#ifndef DCB_SW_PORT_H
#define DCB_SW_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "abi.h"

typedef struct sw_socket {
    int fd; /* -1: closed */
    int ifindex;
    uint8_t *ring;
    uint64_t ring_bytes;
    uint32_t slot_bytes, n_slots, next_slot;
} sw_socket_t;

/* 0, or -1 with errno set and *what naming the failed step. */
int sw_socket_open(sw_socket_t *s, const char *interface, const char **what);
void sw_socket_close(sw_socket_t *s);

typedef struct sw_rx {
    uint8_t *frame;
    uint32_t len;      /* bytes present */
    uint32_t full_len; /* of the frame; more than len: it did not fit */
    uint64_t time_ns;  /* when the kernel took it in, CLOCK_REALTIME */
} sw_rx_t;
bool sw_socket_rx(sw_socket_t *s, sw_rx_t *rx); /* the next frame, valid until sw_socket_rx_done; once for each frame */
void sw_socket_rx_done(sw_socket_t *s);
uint32_t sw_socket_overruns(sw_socket_t *s);    /* frames that the kernel dropped since the last call */
int sw_socket_tx(sw_socket_t *s, pkt_t *const *pkts, uint32_t n); /* how many were taken; -1 with errno when none */

/* Whether the interface is there (its index, else 0), and up with a carrier. */
int sw_interface_index(const char *interface, bool *up);

FILE *sw_pcap_open(const char *dir, const char *interface, const char *direction);
void sw_pcap_write(FILE *f, const uint8_t *frame, uint32_t len);

#endif
