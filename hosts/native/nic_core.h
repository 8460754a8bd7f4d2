/* What the rooms of the NIC share. nic.c owns the struct, the timers and the wire; a room gets the NIC and a flow. */
#ifndef DCBLAB_HOSTS_NIC_CORE_H
#define DCBLAB_HOSTS_NIC_CORE_H

#include "nic.h"
#include "util.h"

#define PS_PER_S 1000000000000ull
#define QUANTUM_BITS 512u
#define MIN_FRAME_BYTES 60u
#define WIRE_OVERHEAD_BYTES 24u /* FCS 4, preamble 8, gap 12 */
#define PFC_WIRE_BITS ((MIN_FRAME_BYTES + WIRE_OVERHEAD_BYTES) * 8u)
#define IP_AT 14u
#define L4_AT 34u
#define ECN_CE 3u

/* Timers. At the same time the lower number goes first, and the wire after all of them. */
enum { TIMER_GATE = 0, TIMER_REFRESH = 8, TIMER_STORM = 9, TIMER_DRAIN = 10, TIMER_SAMPLE = 11, TIMER_FLOWS = 16 };
enum { FLOW_PACE = 0, FLOW_RTO = 1, FLOW_RATE = 2, FLOW_AUX = 3, FLOW_TIMERS = 4 };

typedef struct nic_heap_slot {
    uint64_t at_ps;
    uint32_t id;
} nic_heap_slot_t;

typedef struct nic_heap {
    nic_heap_slot_t *slots;
    uint32_t *position; /* of id: index + 1, or 0 */
    uint32_t count, ids;
} nic_heap_t;

/* A control frame that waits: an ACK, a CNP, or a raw frame's turn. What an RDMA ACK says is decided when it leaves. */
enum { CONTROL_RDMA_ACK, CONTROL_CNP, CONTROL_TCP_ACK, CONTROL_RAW };
typedef struct nic_control {
    uint32_t flow;
    uint32_t kind;
    uint64_t ack;   /* TCP: stream offset */
    uint32_t flags; /* TCP */
} nic_control_t;

typedef struct nic_control_queue {
    nic_control_t *ring;
    uint32_t room, head, count; /* room: a power of two */
} nic_control_queue_t;

typedef struct nic_gate {
    uint64_t since_ps, until_ps;
    uint64_t pauses, paused_ps, xoff_rx, xon_rx;
} nic_gate_t;

typedef struct nic_pending {
    uint32_t len;
    uint8_t priority;
    uint8_t head[128]; /* all that processing looks at */
} nic_pending_t;

typedef struct flow {
    uint32_t kind, index, state;
    uint8_t priority;
    uint8_t queued;       /* is in the ring of its priority */
    uint32_t next_queued; /* flow index + 1 */
    uint64_t start_ps, first_ps, finish_ps;
    uint64_t bytes;
    uint64_t bytes_sent, bytes_acked, packets_sent, packets_resent, timeouts, naks, cnps, marks, cnps_sent, cnms;
    uint64_t rx_bytes, rx_packets, rx_messages, rx_out_of_order, rx_duplicates, rx_first_ps, rx_last_ps;
    uint8_t head[L4_AT + 20]; /* template: Ethernet, IPv4, UDP and half a BTH, or TCP */
    uint32_t ip_sum;          /* of the IPv4 header with length and checksum 0 */
} flow_t;

typedef struct nic_ring {
    uint32_t head, tail; /* flow index + 1; 0: empty */
    nic_control_queue_t control;
} nic_ring_t;

typedef struct nic_class { /* of traffic */
    u128 clock;      /* start-time fair queueing: bytes sent * 2^16 / weight */
    uint32_t weight; /* 0: strict */
    uint8_t members; /* bit p: priority p is in it */
    uint8_t last;    /* of those, who sent last */
} nic_class_t;

typedef struct nic_raw { /* a frame that somebody gave to be sent, or that is nobody's here */
    struct nic_raw *next;
    uint64_t time_ps;
    uint32_t len;
    uint8_t bytes[];
} nic_raw_t;

typedef struct nic_raw_queue {
    nic_raw_t *head, *tail;
    uint32_t count;
} nic_raw_queue_t;

struct nic {
    nic_config_t config;
    nic_output_fn output;
    void *output_arg;
    uint64_t now_ps;
    nic_heap_t heap;

    /* wire */
    uint64_t wire_at_ps;   /* when to look for a frame; NEVER: nothing waits */
    uint64_t wire_free_ps;
    uint64_t wire_rem;     /* of bits * 10^12 / rate, while frames are back to back */
    uint64_t ps_per_byte;  /* 0: not a whole number */
    nic_ring_t ring[8];
    uint32_t ready;        /* bit p: the ring or the control queue of p has something */
    uint32_t paused;       /* bit p: paused by the peer */
    nic_class_t class[8];
    uint8_t priority_to_tc[8];
    uint32_t strict;       /* bit c: class c has weight 0 */
    uint32_t was_ready;    /* weighted classes that were candidates at the last choice */
    u128 virtual_clock;
    uint8_t link_down;     /* nothing leaves */
    nic_raw_queue_t raw[NIC_RAW_UNGATED + 1]; /* to be sent, by priority */
    nic_raw_queue_t received;

    /* PFC */
    nic_gate_t gate[8];
    uint32_t xoff, told;   /* what we want paused, what the peer was told */
    uint8_t refresh_due, storm_due;
    uint8_t storm;
    uint16_t storm_quanta;
    uint64_t storm_interval_ps, storm_until_ps;

    /* receive buffer */
    nic_pending_t *pending;
    uint32_t pending_room, pending_head, pending_count;
    uint64_t rx_prio_bytes[8];
    uint64_t drain_bps, drain_rem;
    uint8_t drain_stalled, drain_busy;

    flow_t **flows;
    uint32_t flow_count, flow_room;

    uint64_t sample_interval_ps, sample_until_ps;
    nic_sample_t *samples;
    uint32_t sample_count, sample_room;
    nic_event_t *events;
    uint32_t event_count, event_room;
    uint64_t events_put;

    nic_stats_t stats;
    uint8_t tx[NIC_MAX_FRAME_BYTES + 64]; /* zero beyond what a room writes, and again after it was sent */
};

/* nic.c */
void timer_set(nic_t *nic, uint32_t id, uint64_t at_ps); /* NEVER clears */
uint64_t timer_get(const nic_t *nic, uint32_t id);
void nic_kick(nic_t *nic, uint64_t now);                    /* something may be sent from now on */
void flow_enqueue(nic_t *nic, flow_t *flow, uint64_t now);  /* into the ring of its priority, once */
void flow_unqueue(nic_t *nic, flow_t *flow);                /* out of it again */
void control_push(nic_t *nic, uint32_t priority, const nic_control_t *control, uint64_t now);
uint64_t now_or(const nic_t *nic, uint64_t at_ps); /* not before the NIC's time */
void nic_run(nic_t *nic, uint64_t until_ps, int inclusive); /* all that is due before then, or also at it */
void timers_reserve(nic_t *nic, uint32_t ids);

/* nic_books.c */
void nic_event(nic_t *nic, uint32_t kind, uint32_t flow, uint64_t value, uint64_t now);
void nic_take_sample(nic_t *nic, uint64_t now);
flow_t *flow_new(nic_t *nic, size_t size, uint32_t kind);   /* NULL: no memory */
uint32_t header_ip(uint8_t *head, const nic_t *nic, const uint8_t remote_mac[6], uint32_t remote_ip, uint32_t dscp,
                   uint32_t ecn, uint32_t ttl, uint32_t protocol);
int32_t refuse(char *error, size_t error_bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
void *grow(void *array, uint32_t *room, uint32_t need, size_t size); /* aborts without memory, as all of this does */

static inline uint32_t flow_timer(const flow_t *flow, uint32_t kind)
{
    return TIMER_FLOWS + flow->index * FLOW_TIMERS + kind;
}

/* Writes total length and checksum of a header whose other words sum to `sum`. */
static inline void header_length(uint8_t *ip, uint32_t sum, uint32_t ip_bytes)
{
    put16(ip + 2, ip_bytes);
    sum += ip_bytes;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~sum & 0xffff);
}

/* nic_pfc.c */
void pfc_rx(nic_t *nic, const uint8_t *frame, uint32_t len, uint64_t now);
void pfc_gate_expired(nic_t *nic, uint32_t priority, uint64_t now);
uint32_t pfc_due(const nic_t *nic);                     /* a frame waits to be sent */
uint32_t pfc_make(nic_t *nic, uint64_t now);            /* into nic->tx; its length */
void pfc_occupancy(nic_t *nic, uint32_t priority, uint64_t now); /* the buffer holds more or less of it */
void pfc_storm_tick(nic_t *nic, uint64_t now);
void pfc_forget(nic_t *nic, uint64_t now);              /* the link is down: no pause counts, the peer knows nothing */
void pfc_enable(nic_t *nic, uint8_t rx, uint8_t tx, uint64_t now);
uint64_t pfc_bits_ps(const nic_t *nic, uint64_t bits);  /* rounded up */

/* nic_raw.c */
uint32_t raw_take(nic_t *nic, uint32_t queue);          /* the first of a queue into nic->tx; its length */
void raw_rx(nic_t *nic, const uint8_t *frame, uint32_t len, uint64_t now);
void raw_flush(nic_t *nic);                             /* forgets what was to be sent */
void raw_free(nic_raw_queue_t *queue);

/* nic_rdma.c. build: a data frame into nic->tx, 0: none now. */
uint32_t rdma_build(nic_t *nic, flow_t *flow, uint64_t now);
uint32_t rdma_control(nic_t *nic, const nic_control_t *control, uint64_t now);
void rdma_timer(nic_t *nic, flow_t *flow, uint32_t kind, uint64_t now);
void rdma_rx(nic_t *nic, const uint8_t *frame, uint32_t ip_end, uint64_t now);
void rdma_stop(nic_t *nic, flow_t *flow, uint64_t now);
void rdma_remark(nic_t *nic, flow_t *flow, uint32_t dscp, uint32_t priority, uint64_t now);
void rdma_read(const nic_t *nic, const flow_t *flow, nic_flow_stats_t *stats);
void rdma_sample(const flow_t *flow, nic_sample_t *sample);
void rdma_free(flow_t *flow);

/* nic_cnm.c */
uint32_t cnm_at(const uint8_t *frame, uint32_t len); /* where the PDU of a CNM is; 0: this is none */
void cnm_rx(nic_t *nic, const uint8_t *frame, uint32_t len, uint32_t at, uint64_t now);
int cnm_check(const nic_qcn_config_t *config, char *error, size_t error_bytes);

/* nic_tcp.c */
uint32_t tcp_build(nic_t *nic, flow_t *flow, uint64_t now);
uint32_t tcp_control(nic_t *nic, const nic_control_t *control, uint64_t now);
void tcp_timer(nic_t *nic, flow_t *flow, uint32_t kind, uint64_t now);
void tcp_rx(nic_t *nic, const uint8_t *frame, uint32_t ip_end, uint64_t now);
void tcp_stop(nic_t *nic, flow_t *flow, uint64_t now);
void tcp_read(const flow_t *flow, nic_flow_stats_t *stats);
void tcp_sample(const flow_t *flow, nic_sample_t *sample);
void tcp_free(flow_t *flow);

#endif
