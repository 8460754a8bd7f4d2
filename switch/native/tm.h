/* Traffic manager: what sits between the ingress and the egress control.
 *
 * Shape: pure and deterministic. It owns queues, buffer accounting, pause gates, scheduler and port clocks, and no memory
 * of packets beyond their list links; the core owns packets, time is an argument in picoseconds. The core calls
 * `tm_enqueue` for a packet, `tm_pause` for a received pause, and loops `tm_next` for what has to be sent; each service
 * that tm_next hands out is ended by `tm_sent` (so many bytes went on the wire) or `tm_discard` (egress dropped it).
 *
 * Rooms: tm.c has ports, configuration and the way into a queue; tm_sched.c the event heap, the scheduler and the way out;
 * tm_gate.c received pauses; sw_buffer.c the ingress accounting and PFC state; tm_storm.c mitigation and detection of PFC
 * storms; tm_qcn.c congestion points; tm_state.c what is read, cleared and checked. tm_room.h is what they share.
 */
#ifndef DCB_TM_H
#define DCB_TM_H

#include <stdbool.h>

#include "abi.h"

#define TM_PORTS 512u
#define TM_QUEUES 8u
#define TM_CELLS (TM_PORTS * TM_QUEUES)
#define TM_NEVER UINT64_MAX
#define TM_NO_QUEUE 255u
#define TM_PS_PER_S 1000000000000ull
#define TM_MAX_RATE_BPS 800000000000ull /* 800 Gb/s */
#define TM_MIN_FRAME_BYTES 60u          /* shorter frames are padded by the MAC: they take this much of the wire */
#define TM_OVERHEAD_BYTES 24u           /* FCS 4, preamble and SFD 8, inter-frame gap 12 */
#define TM_QUANTUM_BITS 512u
#define TM_NOMINAL_BPS 10000000000ull   /* what a quantum is timed by on a port without a rate (veth reports 10 Gb/s) */
#define TM_MIN_REFRESH_BITS 1344u       /* two PFC frames on the wire: a tiny quanta value must not fill the link */
#define TM_POOLS 8u
#define TM_OWN_HEADROOM 255u            /* headroom pool of a group whose headroom is its own */
#define TM_BUCKETS 32u
#define TM_PAUSE_LEFT_FOREVER 65536u    /* quanta left of a pause that ends only when it is resumed: more than any time says */
#define TM_PS_PER_US 1000000ull
#define TM_DEFAULT_POOL_BYTES (16u << 20)
#define TM_DEFAULT_QUEUE_BYTES (256u << 10)

typedef unsigned __int128 tm_u128;
typedef __int128 tm_i128;

enum tm_counter { /* order is the ABI with switch/core.py */
    TM_ENQUEUED, TM_DEQUEUED, TM_DROP_QUEUE_LIMIT, TM_DROP_PG_LIMIT, TM_DROP_HEADROOM, TM_DROP_POOL, TM_DROP_PORT,
    TM_DROP_RX, TM_DROP_STORM_TX, TM_DROP_STORM_RX, TM_QCN_SAMPLES, TM_QCN_CNMS, TM_COUNTERS,
};
enum tm_state {
    TM_QUEUE_DEPTH, TM_QUEUE_WATERMARK, TM_PG_DEPTH, TM_PG_HEADROOM, TM_PG_WATERMARK, TM_PG_HEADROOM_WATERMARK,
    TM_PG_XOFF, TM_PAUSE_LEFT, TM_PAUSED_NS, TM_PAUSE_COUNT, TM_POOL_USED, TM_QUEUE_PACKETS, TM_POOL_WATERMARK,
    TM_HEADROOM_POOL_USED, TM_HEADROOM_POOL_WATERMARK, TM_STORM_STATE, TM_STORM_COUNT, TM_XOFF_NS, TM_XOFF_COUNT,
    TM_DELAY_HISTOGRAM, TM_PAUSE_HISTOGRAM, TM_XOFF_HISTOGRAM, TM_STATES,
};
enum tm_histogram { TM_HISTOGRAM_DELAY, TM_HISTOGRAM_PAUSE, TM_HISTOGRAM_XOFF, TM_HISTOGRAMS };
enum tm_storm_action { TM_STORM_ALERT, TM_STORM_FORWARD, TM_STORM_DROP }; /* of the own watchdog; tm_set_storm: ALERT is none */
enum tm_storm_state { TM_STORM_OWN = 1, TM_STORM_ASKED = 2, TM_STORM_ALERTED = 4 }; /* bits */
enum tm_event { TM_EVENT_STORM = 1, TM_EVENT_RESTORED = 2 };
enum tm_discipline { TM_ETS, TM_STRICT, TM_CBS };
enum tm_rx_drop { TM_RX_OVERRUN, TM_RX_TOO_LONG, TM_RX_NO_MEMORY };

typedef struct tm_count {
    uint64_t packets, bytes;
} tm_count_t;

typedef struct tm_queue {
    pkt_t *head, *tail;
    uint64_t bytes, watermark;
    uint32_t packets;
    uint32_t limit_bytes; /* static limit */
    int8_t limit_alpha;   /* dynamic limit: 2^alpha of the free pool */
    uint8_t limit_dynamic;
    uint8_t discipline;   /* enum tm_discipline */
    uint8_t weight;       /* ETS, 1..100 */
    uint32_t ets_rem;     /* remainder of the last division by weight: shares do not drift */
    tm_u128 ets_clock;    /* virtual start time: bytes * 2^16 / weight served so far */
    uint64_t idle_slope_bps;
    tm_i128 credit;       /* CBS: bits * 10^12 */
    uint64_t credit_ps;   /* time of `credit` */
    uint64_t cbs_tx_until_ps;
    uint64_t taken_ps;    /* when a packet last left */
} tm_queue_t;

typedef struct tm_pg {
    uint32_t reserved_bytes, xoff_bytes, xon_bytes, headroom_bytes; /* xon_bytes: xon_offset when dynamic */
    int8_t alpha;
    uint8_t dynamic;
    uint8_t priorities;
    uint8_t xoff; /* state */
    uint8_t pool, headroom_pool; /* headroom_pool: TM_OWN_HEADROOM or an index */
    uint16_t xoff_slot;
    uint64_t reserved_used, shared_used, headroom_used;
    uint64_t watermark, headroom_watermark;
    uint64_t packets; /* packets charged here */
    uint64_t xoff_since_ps, xoff_total_ps, xoff_count;
    uint64_t check_bytes, check_packets; /* tm_check's */
} tm_pg_t;

typedef struct tm_pool {
    uint64_t bytes, used, watermark;
} tm_pool_t;

typedef struct tm_gate {
    uint64_t until_ps, since_ps, total_ps, count; /* until_ps TM_NEVER: until it is resumed */
    uint64_t xoff_ps;                             /* when the last XOFF came, heeded or not */
} tm_gate_t;

/* The switch's own watchdog of a (port, priority). */
typedef struct tm_watch {
    uint64_t detect_ps;      /* 0: none */
    uint64_t restore_ps;     /* 0: never by itself */
    uint64_t due_ps;         /* when to look again; TM_NEVER: not before something happens */
    uint64_t floor_ps;       /* nothing before this time counts: configured, or restored */
    uint64_t detected_ps, count;
    uint8_t action;          /* enum tm_storm_action */
    uint8_t empty_queue, stormed;
} tm_watch_t;

/* Congestion point of a (port, queue), 802.1Qau. Names of the standard's variables in brackets, where we know them. */
typedef struct tm_qcn {
    uint32_t qeq_bytes;      /* set point; 0: none */
    uint32_t base_bytes;     /* bytes between samples at the least congestion */
    int64_t left_bytes;      /* until the next sample */
    uint64_t old_bytes;      /* queue at the last sample */
    uint64_t cpid;
    uint64_t random;         /* state of the generator of the sampling jitter */
    int8_t weight;           /* w = 2^weight */
    uint8_t jitter_percent;
    uint8_t priority;        /* of the messages */
} tm_qcn_t;

/* A message that tm_enqueue asks for, about the packet that it has just taken. */
typedef struct tm_cnm {
    uint8_t due, qfb, priority;
    int16_t qoff, qdelta; /* 64 bytes */
    uint64_t cpid;
} tm_cnm_t;

typedef struct tm_port {
    uint16_t number;
    uint8_t present;
    uint8_t blocked;       /* the driver cannot take a frame now */
    uint8_t touched;
    uint8_t nonempty;      /* queue masks */
    uint8_t closed;
    uint8_t strict_mask, cbs_mask;
    uint8_t paused;        /* priority mask */
    uint8_t tx_enable;     /* PFC towards the peer: priorities we may pause */
    uint8_t watched, storm_own, storm_asked, storm_alerted, storm_asked_drop; /* priority masks, tm_storm.c's */
    uint8_t storm_deaf;    /* priorities whose pauses are ignored; */
    uint8_t storm_drop;    /* of those, the ones whose packets are dropped too */
    uint8_t congestion_points; /* queue mask */
    uint8_t desired, told; /* priorities that are XOFF now; that the peer was last told are XOFF */
    uint8_t queue_of[TM_QUEUES];
    uint16_t quanta;
    int32_t heap_slot;     /* -1: no event planned */
    uint64_t next_ps;
    uint64_t rate_bps;     /* 0: no limit */
    uint64_t busy_until_ps;
    uint64_t wire_rem;     /* busy_until is late by wire_rem/rate_bps ps */
    uint64_t pfc_sent_ps;
    tm_u128 ets_now;
    uint64_t gate_end_ps;  /* the first end of a running pause; valid while `paused` */
    uint64_t watch_due_ps; /* the first due_ps of `watches` */
    uint32_t waiting[TM_QUEUES];         /* packets in the queues, by priority */
    uint64_t waiting_since_ps[TM_QUEUES]; /* since there is one */
    tm_gate_t gates[TM_QUEUES];
    tm_queue_t queues[TM_QUEUES];
    tm_pg_t pgs[TM_QUEUES];
    tm_watch_t watches[TM_QUEUES];
    tm_qcn_t qcn[TM_QUEUES];
} tm_port_t;

typedef struct traffic_manager {
    tm_pool_t pools[TM_POOLS], headroom_pools[TM_POOLS];
    uint32_t n_queues;
    uint32_t storms;               /* ports that drop packets of a stormed priority */
    pkt_t *flushed;                /* packets that a storm threw out: the owner frees them (tm_flushed) */
    uint64_t queued_packets;
    uint32_t heap_len;
    uint32_t xoff_len;             /* groups that are XOFF, as port*8+pg */
    uint16_t n_touched;
    uint8_t pfc_capable;           /* the program can build PFC frames */
    tm_cnm_t cnm;                  /* the owner makes it, and clears `due` */
    uint64_t seed;                 /* of what is random: sampling */
    uint32_t check_skip;
    uint16_t heap[TM_PORTS];
    uint16_t touched[TM_PORTS];
    uint16_t xoff_list[TM_CELLS];
    tm_count_t counters[TM_COUNTERS][TM_CELLS];
    uint64_t histograms[TM_HISTOGRAMS][TM_CELLS][TM_BUCKETS];
    tm_port_t ports[TM_PORTS];
} tm_t;

/* What has to go out of a port now, or to be told to the controller. */
typedef struct tm_service {
    uint64_t start_ps;
    uint16_t port;
    uint8_t event;             /* enum tm_event: nothing goes out, and nothing ends this service */
    uint8_t priority;          /* of the event */
    uint8_t queue;             /* TM_NO_QUEUE: a PFC frame, pkt is NULL */
    uint8_t pfc_vector;
    uint16_t pfc_time[TM_QUEUES];
    pkt_t *pkt;
    uint64_t left_bytes;       /* in the queue after this packet was taken */
    uint32_t left_packets;
} tm_service_t;

tm_t *tm_create(uint32_t n_queues);
void tm_destroy(tm_t *tm); /* packets must have been taken out by tm_flush */

/* Configuration. Times are `now`; invalid values return -1 and change nothing. */
int tm_add_port(tm_t *tm, uint32_t port, uint64_t now_ps);
pkt_t *tm_remove_port(tm_t *tm, uint32_t port, uint64_t now_ps); /* list of the packets that were queued, counted drop_port */
int tm_block_port(tm_t *tm, uint32_t port, bool blocked, uint64_t now_ps);
int tm_set_port(tm_t *tm, uint32_t port, uint64_t rate_bps, uint64_t now_ps);
int tm_set_pfc(tm_t *tm, uint32_t port, uint32_t tx_enable, uint32_t quanta, uint32_t queue_map, uint64_t now_ps);
int tm_set_scheduler(tm_t *tm, uint32_t port, uint32_t queue, uint32_t discipline, uint64_t value, uint64_t now_ps);
int tm_set_pg(tm_t *tm, uint32_t port, uint32_t pg, bool dynamic, uint32_t reserved, uint32_t xoff_or_alpha, uint32_t xon_or_offset,
              uint32_t headroom, uint32_t priorities, uint64_t now_ps);
int tm_set_queue(tm_t *tm, uint32_t port, uint32_t queue, bool dynamic, uint32_t limit_or_alpha, uint64_t now_ps);
int tm_set_pool(tm_t *tm, uint32_t pool, uint64_t bytes, uint64_t now_ps);
int tm_set_headroom_pool(tm_t *tm, uint32_t pool, uint64_t bytes, uint64_t now_ps);
int tm_set_pg_pool(tm_t *tm, uint32_t port, uint32_t pg, uint32_t pool, uint32_t headroom_pool, uint64_t now_ps);
/* Mitigation that the control plane asks for: TM_STORM_FORWARD, TM_STORM_DROP, or TM_STORM_ALERT for none. May flush packets. */
int tm_set_storm(tm_t *tm, uint32_t port, uint32_t priority, uint32_t action, uint64_t now_ps);
/* detect_us 0: no watchdog; it ends what it had mitigated. May flush packets. */
int tm_set_watchdog(tm_t *tm, uint32_t port, uint32_t priority, uint32_t detect_us, uint32_t restore_us, uint32_t action, bool empty_queue,
                    uint64_t now_ps);
/* A congestion point: qeq_bytes 0: none; weight: w = 2^weight, -10..10; base_bytes from 1; jitter_percent 0..50. */
int tm_set_qcn(tm_t *tm, uint32_t port, uint32_t queue, uint32_t qeq_bytes, int32_t weight, uint32_t base_bytes, uint32_t jitter_percent,
               uint32_t priority, uint64_t cpid, uint64_t now_ps);
pkt_t *tm_flushed(tm_t *tm); /* hands over the list of packets that storms threw out, counted */

/* Packets. pkt: in_port, out_port, queue, priority, pg, lossless, unsampled, len are set. 0: queued; else the enum tm_counter of the drop (counted). */
int tm_enqueue(tm_t *tm, pkt_t *pkt, uint64_t now_ps);
/* `forever`: priorities of the vector that stay paused until they are resumed, whatever their time. */
void tm_pause(tm_t *tm, uint32_t port, uint32_t vector, uint32_t forever, const uint16_t times[TM_QUEUES], uint64_t now_ps);
bool tm_next(tm_t *tm, uint64_t limit_ps, tm_service_t *out);
uint64_t tm_sent(tm_t *tm, uint32_t port, uint32_t queue, uint32_t frame_bytes, uint64_t start_ps); /* end on the wire */
void tm_discard(tm_t *tm, uint32_t port, uint64_t now_ps);
void tm_count_drop(tm_t *tm, uint32_t kind, uint32_t index, uint64_t packets, uint64_t bytes);

static inline uint64_t tm_deadline(const tm_t *tm) { return tm->heap_len ? tm->ports[tm->heap[0]].next_ps : TM_NEVER; }

/* State. */
tm_count_t tm_read_counter(const tm_t *tm, uint32_t kind, uint32_t index);
int tm_clear_counter(tm_t *tm, uint32_t kind, uint32_t index);
uint64_t tm_read_state(tm_t *tm, uint32_t kind, uint32_t index, uint64_t now_ps);
void tm_read_sources(const tm_t *tm, uint32_t index, uint64_t out[4]); /* bit p: a packet from port p (0..255) waits in the queue */
int tm_clear_watermark(tm_t *tm, uint32_t kind, uint32_t index);        /* or a bucket of a histogram */
const char *tm_check(tm_t *tm); /* NULL, or what is broken */

#ifdef DCB_DEBUG
void tm_debug_check(tm_t *tm);
#else
static inline void tm_debug_check(tm_t *tm) { (void)tm; }
#endif

#endif
