/* Packet sockets of the host programs: one to transmit, one for MAC control frames, one ring for RoCEv2. */
#ifndef DCBLAB_HOSTS_SOCKET_H
#define DCBLAB_HOSTS_SOCKET_H

#include "util.h"

/* A socket that only sends. `bypass`: past the queueing discipline (and past tcpdump on this interface). */
int tx_socket_open(const struct interface *interface, bool bypass);

/* Sends one frame whatever the kernel says of its queues; waits while they are full. */
void tx_send_one(int fd, const struct interface *interface, const uint8_t *frame, uint32_t length);

/* A socket without a ring that sends and receives whole frames of every type, the receive buffer as large as may be. */
int raw_socket_open(const struct interface *interface);

struct rx_frame {
    const uint8_t *bytes;
    uint32_t length;
    uint64_t arrived_ns; /* CLOCK_MONOTONIC, from the kernel's stamp */
    bool tagged;         /* the kernel took an 802.1Q tag off */
    uint16_t tci;
};

typedef void rx_take(void *context, const struct rx_frame *frame);

/* A socket for MAC control frames (0x8808): few, and each wanted at once. */
struct control_rx {
    int fd;
    int64_t realtime_offset_ns;
    uint64_t last_ns;
};

void control_rx_open(struct control_rx *rx, const struct interface *interface);
uint32_t control_rx_drops(const struct control_rx *rx); /* since the last call, for want of room */
void control_rx_drain(struct control_rx *rx, rx_take *take, void *context);

/* TPACKET_V3 ring for UDP to port 4791. */
struct rx_ring {
    int fd;
    uint8_t *map;
    size_t map_bytes;
    uint32_t block_bytes, blocks, next;
    uint64_t drops;
    int64_t realtime_offset_ns;
};

/* A ring of about `ring_bytes`; a partly filled block is handed over after `retire_ms`. */
void rx_ring_open(struct rx_ring *ring, const struct interface *interface, size_t ring_bytes, uint32_t retire_ms);
/* The same for every frame, for counting. */
void rx_ring_open_all(struct rx_ring *ring, const struct interface *interface, size_t ring_bytes, uint32_t retire_ms);
void rx_ring_close(struct rx_ring *ring);

/* Calls `take` for every frame that is there. Returns the number of them. */
uint32_t rx_ring_drain(struct rx_ring *ring, rx_take *take, void *context);

/* Frames that the kernel dropped since the ring was opened because it was full. */
uint64_t rx_ring_drops(struct rx_ring *ring);

/* Keeps the host's own stack from answering RoCEv2 with "port unreachable". Returns a socket to keep open, or -1. */
int roce_port_claim(void);

#endif
