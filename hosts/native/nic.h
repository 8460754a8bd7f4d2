/* An end station in virtual time: one port with PFC, RDMA queue pairs with DCQCN, TCP senders. The public face.
 *
 * Passive, as the switch core: frames and times go in, frames with their times come out of a callback. Time is an
 * argument in integer picoseconds and never goes back; one thread. `nic_receive(t)` does first what is due before t;
 * what is due at t waits for `nic_advance`. Frames are without FCS; a frame of L bytes occupies the wire for
 * (max(L, 60) + 24) * 8 bit times. All randomness is outside: the same calls give the same frames on any machine.
 *
 * Rooms: nic.c (port, scheduler, receive buffer, timers), nic_pfc.c (gates, XOFF and XON, storm), nic_raw.c (frames of
 * others), nic_rdma.c and nic_responder.c (queue pairs), nic_dcqcn.c and nic_qcn.c (reaction points),
 * nic_cnm.c (QCN's messages), nic_tcp.c (Reno, DCTCP), nic_books.c (life, records), nic_core.h (what they share).
 * hosts/nic.py mirrors every struct here. */
#ifndef DCBLAB_HOSTS_NIC_H
#define DCBLAB_HOSTS_NIC_H

#include <stddef.h>
#include <stdint.h>

#define NIC_ABI_VERSION 2u
#define NIC_QPN_BASE 0x100u    /* queue pair number of flow i: base + i */
#define NIC_TCP_PORT_BASE 10000u /* TCP port of flow i: base + i */
#define NIC_MAX_TCP_FLOWS 55000u
#define NIC_MAX_FRAME_BYTES 9216u
#define NIC_RAW_UNGATED 8u     /* priority of raw frames that no pause holds back */
#define NIC_RAW_MAX 256u       /* raw frames that wait, of each priority, or to be taken */

typedef struct nic nic_t;

/* start_ps: the first bit; end_ps: the wire is free again, gap included. The frame is valid during the call. */
typedef void (*nic_output_fn)(void *arg, const uint8_t *frame, uint32_t len, uint32_t port, uint64_t start_ps,
                              uint64_t end_ps);

typedef struct nic_config {
    uint64_t rate_bps;
    uint32_t ip;             /* 10.1.0.1 is 0x0a010001 */
    uint32_t port;           /* the number that outputs carry */
    uint8_t mac[6];
    uint8_t pfc_rx_enable;   /* bit n: honour PFC for priority n */
    uint8_t pfc_tx_enable;   /* bit n: send PFC for priority n when the receive buffer fills */
    uint8_t pause_rx_enable; /* honour PAUSE of 802.3 Annex 31B */
    uint8_t icrc;            /* 1: compute the invariant CRC, 0: leave it 0 (no receiver here checks it) */
    uint16_t pfc_quanta;     /* of our own XOFF, 1..65535 */
    uint32_t events_mask;    /* bit NIC_EVENT_x: record it */
    uint32_t notify_mask;    /* bit NIC_EVENT_x: of those recorded, count it in nic_events_put */
    uint32_t pad;
    uint64_t rx_buffer_bytes; /* 0: no limit. Only counts with a finite drain rate */
    uint64_t rx_drain_bps;    /* 0: frames are taken as they come */
    uint64_t rx_xoff_bytes[8]; /* XOFF when the buffer holds this much of the priority */
    uint64_t rx_xon_bytes[8];  /* XON when it holds no more than this */
    uint32_t weight[8];        /* of traffic class n, which is priority n until nic_set_dcb says otherwise. 0: strict,
                                * the higher first; else share among the weighted */
    uint8_t dscp_to_priority[64];
} nic_config_t;

/* What may change while the NIC runs: what DCBX agrees on. */
typedef struct nic_dcb {
    uint8_t pfc_rx_enable, pfc_tx_enable;
    uint8_t priority_to_tc[8];
    uint8_t dscp_to_priority[64];
    uint8_t pad[2];
    uint32_t weight[8];      /* of traffic classes, as above */
} nic_dcb_t;

/* Reaction point and notification point of DCQCN. The time of nothing is 0: decrease_interval 0 obeys each CNP, byte_counter 0
 * has no byte counter. alpha is a fraction of 2^32. */
typedef struct nic_dcqcn_config {
    uint32_t enabled;
    uint32_t fast_recovery;  /* F: increases that only halve the way to the target */
    uint32_t alpha_at_cnp;   /* 1: alpha rises as a CNP comes and its timer starts anew; 0: at the timer's next tick */
    uint32_t hyper_scales;   /* 1: i-th hyper increase adds i * hai_bps */
    uint32_t clamp_target;   /* 1: each decrease makes the old rate the target; 0: only the first after an increase */
    uint32_t pad;
    uint64_t g_q32;
    uint64_t alpha_timer_ps;
    uint64_t decrease_interval_ps;
    uint64_t increase_timer_ps;
    uint64_t byte_counter_bytes;
    uint64_t ai_bps;
    uint64_t hai_bps;
    uint64_t min_rate_bps;
} nic_dcqcn_config_t;

/* Reaction point of QCN (802.1Qau). Fractions of 2^32. */
typedef struct nic_qcn_config {
    uint32_t enabled;
    uint32_t fast_recovery;     /* cycles of a counter that only halve the way to the target */
    uint32_t clamp_after_timer; /* 1: feedback makes the rate the target after a cycle of either counter; 0: of the byte counter only */
    uint32_t pad;
    uint64_t gd_q32;            /* feedback n takes n * gd of the rate */
    uint64_t least_factor_q32;  /* and leaves at least this much of it */
    uint64_t byte_limit_bytes;  /* a cycle of the byte counter; half of it after fast recovery */
    uint64_t timer_ps;          /* a cycle of the timer; the same */
    uint64_t ai_bps;
    uint64_t hai_bps;
    uint64_t min_rate_bps;
} nic_qcn_config_t;

enum { NIC_GO_BACK_N = 0, NIC_GO_BACK_0 = 1 };

typedef struct nic_rdma_config {
    uint32_t remote_ip;
    uint32_t remote_qpn;
    uint8_t remote_mac[6];   /* next hop */
    uint8_t dscp, priority;  /* of data */
    uint8_t ack_dscp, ack_priority;
    uint8_t cnp_dscp, cnp_priority;
    uint8_t ecn;             /* ECN field of data and ACKs: 2 is ECT(0) */
    uint8_t reliable;        /* 1: RC; 0: UC, no ACK and no retransmission */
    uint8_t recovery;        /* NIC_GO_BACK_x; the same at both ends */
    uint8_t pad;
    uint16_t udp_source_port;
    uint16_t pad2;
    uint32_t mtu_bytes;      /* payload of a full packet, 64..4096 */
    uint32_t ack_every;      /* as responder: ACK every so many packets (and when asked, at a message's end) */
    uint32_t retry_limit;    /* timeouts in a row after which the flow fails; 0: never */
    uint32_t ttl;
    uint32_t initial_psn;    /* of data in both directions */
    uint32_t pad3;
    uint64_t start_ps;
    uint64_t bytes;          /* 0: responder only; UINT64_MAX: until it is stopped */
    uint64_t message_bytes;  /* 0: the flow is one message (at most 2^30 bytes each) */
    uint64_t window_bytes;   /* payload bytes in flight; 0: as many as PSNs allow */
    uint64_t rate_bps;       /* wire bits; 0: the port's rate */
    uint64_t rto_ps;
    uint64_t cnp_interval_ps; /* as responder: a CNP at most this often; UINT64_MAX: none */
    nic_dcqcn_config_t dcqcn;
    nic_qcn_config_t qcn;
} nic_rdma_config_t;

enum { NIC_TCP_RENO = 0, NIC_TCP_DCTCP = 1 };

typedef struct nic_tcp_config {
    uint32_t remote_ip;
    uint16_t remote_port, pad0;
    uint8_t remote_mac[6];
    uint8_t dscp, priority;
    uint8_t algorithm;       /* NIC_TCP_x */
    uint8_t ecn;             /* 1: ECT(0) and ECN echo; DCTCP needs it */
    uint8_t ttl;
    uint8_t pad;
    uint32_t mss_bytes;
    uint32_t ack_every;      /* segments per ACK, 1 or 2 */
    uint32_t initial_window_segments;
    uint64_t start_ps;
    uint64_t bytes;          /* 0: receiver only; UINT64_MAX: until it is stopped */
    uint64_t max_window_bytes; /* what the receiver would offer */
    uint64_t rto_min_ps, rto_max_ps, rto_initial_ps;
    uint64_t delayed_ack_ps;
    uint64_t dctcp_g_q32;
} nic_tcp_config_t;

enum {
    NIC_EVENT_STARTED = 0,   /* flow; first frame on the wire */
    NIC_EVENT_FINISHED = 1,  /* flow; value: bytes, all acknowledged (UC: sent) */
    NIC_EVENT_FAILED = 2,    /* flow; value: bytes acknowledged; retries used up */
    NIC_EVENT_MESSAGE = 3,   /* flow, as responder; value: messages received so far */
    NIC_EVENT_PAUSED = 4,    /* flow: priority; value: quanta */
    NIC_EVENT_RESUMED = 5,   /* flow: priority; value: ps that the pause lasted */
    NIC_EVENT_RX_DROP = 6,   /* flow: priority; value: bytes of the frame */
    NIC_EVENT_CNP = 7,       /* flow; value: rate after it */
    NIC_EVENT_RAW = 8,       /* flow: EtherType; value: bytes. Where it is recorded, nic_take_raw has the frame */
    NIC_EVENT_LINK = 9,      /* value: 1 up, 0 down */
    NIC_EVENT_CNM = 10,      /* flow; value: rate after it */
};

typedef struct nic_event {
    uint64_t time_ps;
    uint32_t kind;
    uint32_t flow;
    uint64_t value;
} nic_event_t;

typedef struct nic_sample {
    uint64_t time_ps;
    uint32_t flow;
    uint32_t pad;
    uint64_t rate_bps;       /* RDMA: pace; TCP: 0 */
    uint64_t bytes_sent;     /* payload, retransmissions included */
    uint64_t bytes_acked;
    uint64_t window_bytes;   /* in flight (RDMA), congestion window (TCP) */
} nic_sample_t;

typedef struct nic_stats {
    uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
    uint64_t tx_pfc, rx_pfc, rx_pause, tx_cnp, rx_cnp, tx_ack, rx_ack, tx_nak, rx_nak, rx_cnm;
    uint64_t rx_ce;          /* frames that arrived marked */
    uint64_t rx_not_ours, rx_other, rx_malformed, rx_unknown_flow;
    uint64_t rx_drop, rx_drop_bytes;
    uint64_t rx_used_bytes, rx_peak_bytes;
    uint64_t tx_frames_prio[8], tx_bytes_prio[8], rx_frames_prio[8], rx_bytes_prio[8], rx_drop_prio[8];
    uint64_t xoff_tx[8], xon_tx[8], xoff_rx[8], xon_rx[8];
    uint64_t pauses[8], paused_ps[8]; /* of what we send; a running pause counts up to now */
    uint64_t pfc_invalid[5];          /* as enum pfc_invalid */
    uint64_t pfc_high_byte_set;
    uint64_t raw_tx, raw_tx_drop, raw_rx, raw_rx_lost;
    uint64_t events_lost, samples_lost;
} nic_stats_t;

enum { NIC_RDMA = 0, NIC_TCP = 1 };
enum { NIC_WAITING = 0, NIC_RUNNING = 1, NIC_FINISHED = 2, NIC_FAILED = 3, NIC_RESPONDER = 4 };

typedef struct nic_flow_stats {
    uint32_t kind, state;
    uint64_t start_ps;       /* when it was to begin, not before it was added */
    uint64_t first_ps;       /* first frame on the wire; UINT64_MAX: not yet */
    uint64_t finish_ps;      /* last byte acknowledged; UINT64_MAX: not yet */
    uint64_t bytes, bytes_sent, bytes_acked;
    uint64_t packets_sent, packets_resent;
    uint64_t timeouts, naks, cnps, marks; /* cnps: received; marks: CE that we saw (responder), ECN echoes (TCP) */
    uint64_t rate_bps, target_bps, alpha_q32;
    uint64_t cwnd_bytes, ssthresh_bytes;
    uint64_t rx_bytes, rx_packets, rx_messages, rx_out_of_order, rx_duplicates, cnps_sent;
    uint64_t rx_first_ps, rx_last_ps, cnms;
} nic_flow_stats_t;

uint32_t nic_abi_version(void);
void nic_struct_bytes(uint32_t out[8]); /* of the structs above that cross, in order of their definition */

/* NULL where the configuration breaks a rule; `error` says which. */
nic_t *nic_create(const nic_config_t *config, char *error, size_t error_bytes);
void nic_destroy(nic_t *nic);
void nic_set_output(nic_t *nic, nic_output_fn fn, void *arg);

/* A frame whose last bit arrived at now_ps. `port` is not looked at: a NIC has one. */
void nic_receive(nic_t *nic, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps);
uint64_t nic_next_deadline(const nic_t *nic); /* UINT64_MAX: nothing will happen by itself */
void nic_advance(nic_t *nic, uint64_t now_ps);
/* Time passes, what is due at now_ps is not done: what is added or asked for after this counts from now_ps. */
void nic_wait(nic_t *nic, uint64_t now_ps);

/* The new flow's number, or -1 with `error`. Start times in the past count as now. */
int32_t nic_add_rdma(nic_t *nic, const nic_rdma_config_t *config, char *error, size_t error_bytes);
int32_t nic_add_tcp(nic_t *nic, const nic_tcp_config_t *config, char *error, size_t error_bytes);
uint32_t nic_flow_count(const nic_t *nic);

/* Message k of RDMA flow `flow`, counted from 0, waits until flow `other` has received k messages. -1 with `error`. */
int nic_wait_flow(nic_t *nic, uint32_t flow, uint32_t other, char *error, size_t error_bytes);

/* Ends a flow at what it has sent so far; it finishes when that is acknowledged. Of RC, where the last packets did not ask
 * for an ACK, one more goes out, which ends the message and does. -1: no such flow. */
int nic_stop_flow(nic_t *nic, uint32_t flow, uint64_t now_ps);

/* From now on; pauses of priorities that are no longer obeyed end, XON goes out for those no longer paused. -1: `error`. */
int nic_set_dcb(nic_t *nic, const nic_dcb_t *dcb, uint64_t now_ps, char *error, size_t error_bytes);

/* DSCP and priority of an RDMA flow's data and ACKs at this end, from the next frame on. -1 with `error`. */
int nic_set_marks(nic_t *nic, uint32_t flow, uint32_t dscp, uint32_t priority, uint64_t now_ps, char *error, size_t error_bytes);

/* Carrier. Down: nothing leaves, flows and what is ready wait (their timers run), the frame on the wire and raw frames are
 * lost, pauses are forgotten both ways. Up at first. */
void nic_set_link(nic_t *nic, int up, uint64_t now_ps);

/* A frame of somebody else's (no FCS), before the data of its priority, or, NIC_RAW_UNGATED, right after PFC. 1: it waits or
 * leaves; 0: dropped and counted, the link is down or NIC_RAW_MAX wait; -1 with `error`. */
int nic_send_raw(nic_t *nic, const uint8_t *frame, uint32_t len, uint32_t priority, uint64_t now_ps, char *error,
                 size_t error_bytes);

/* The next frame that was received and is nobody's here: to a group address, or another EtherType than IPv4. Its length, and
 * the time at which it arrived; 0: there is none (room: NIC_MAX_FRAME_BYTES). Kept where events have NIC_EVENT_RAW. */
uint32_t nic_take_raw(nic_t *nic, uint8_t *frame, uint32_t room, uint64_t *time_ps);

/* Faults. */
void nic_storm(nic_t *nic, uint8_t priorities, uint16_t quanta, uint64_t interval_ps, uint64_t start_ps, uint64_t until_ps);
void nic_set_drain(nic_t *nic, uint64_t drain_bps, int stalled, uint64_t now_ps); /* stalled: takes nothing at all */

/* Samples of every running flow each interval until until_ps; 0: off. */
void nic_set_sampling(nic_t *nic, uint64_t interval_ps, uint64_t until_ps);

void nic_read_stats(const nic_t *nic, nic_stats_t *stats);
int nic_read_flow(const nic_t *nic, uint32_t flow, nic_flow_stats_t *stats); /* -1: no such flow */
uint32_t nic_read_events(nic_t *nic, nic_event_t *events, uint32_t room);    /* takes them out */
uint64_t nic_events_put(const nic_t *nic); /* since creation: for an engine that lets somebody react to them */
uint32_t nic_read_samples(nic_t *nic, nic_sample_t *samples, uint32_t room);

#endif
