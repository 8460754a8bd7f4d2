/* RoCEv2 frames: a template per queue pair, filled in per packet; and the reader of what arrives.
 *
 * Ethernet [802.1Q] IPv4|IPv6 UDP BTH [RETH] payload pad ICRC (InfiniBand Architecture, Annex A17).
 * The payload starts with what the receiver needs, big-endian: magic 4, run 4, sequence 8, send time 8 (CLOCK_MONOTONIC ns),
 * then a byte pattern (offset in the payload, modulo 256). */
#ifndef DCBLAB_HOSTS_FRAME_H
#define DCBLAB_HOSTS_FRAME_H

#include "util.h"

#define ROCE_PORT 4791
#define PROBE_MAGIC 0xdcb10001u
#define PROBE_BYTES 24u
#define MAX_FRAME_BYTES 9300u

enum roce_opcode {
    RC_SEND_ONLY = 0x04,
    RC_RDMA_WRITE_ONLY = 0x0a,
    UC_SEND_ONLY = 0x24,
    UC_RDMA_WRITE_ONLY = 0x2a,
};

struct frame_spec {
    uint8_t src_mac[6], dst_mac[6];
    bool tagged;
    uint8_t pcp, dei;
    uint16_t vlan_id;
    struct address src, dst;
    uint8_t dscp, ecn, ttl;
    uint16_t udp_source_port;
    uint8_t opcode;
    uint16_t pkey;
    uint32_t dest_qp;
    uint32_t payload_bytes;
    uint32_t run;
};

struct frame {
    uint8_t bytes[MAX_FRAME_BYTES];
    uint32_t length;
    uint32_t ip, udp, bth, payload, icrc; /* offsets */
    uint32_t icrc_state;                  /* CRC of everything that is fixed, up to the PSN */
    bool six;
};

/* Fills everything that is the same in every packet of a queue pair. */
void frame_build(struct frame *frame, const struct frame_spec *spec);

/* Fills in one packet's numbers, the ICRC and, over IPv6, the UDP checksum. */
void frame_fill(struct frame *frame, uint32_t psn, uint64_t sequence, uint64_t time_ns);

/* Bytes of the IP packet that a spec leads to, to hold against the MTU. */
uint32_t frame_ip_bytes(const struct frame_spec *spec);

struct probe {
    struct address src, dst;
    uint8_t dscp, ecn, opcode;
    uint16_t udp_source_port;
    uint32_t dest_qp, psn, run;
    uint32_t payload_bytes;
    uint64_t sequence, time_ns;
    bool ours;    /* carries the magic */
    bool icrc_ok; /* when it was asked for */
    bool payload_ok;
};

/* Reads a frame whose 802.1Q tag the kernel has taken off (or that still has it). False: not a whole RoCEv2 packet. */
bool frame_read(const uint8_t *bytes, uint32_t length, bool verify, struct probe *probe);

#endif
