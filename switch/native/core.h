/* Switch core: one pipeline, one traffic manager, the packets. Passive and single-threaded: frames and time in, frames out.
 *
 * `sw_receive` runs parse and ingress at once and enqueues; `sw_advance` runs what is due up to a time: dequeues, egress, deparse,
 * transmission, recirculation. Frames leave through the output function, or wait in a list for `sw_outputs_take`.
 * Rooms: core.c has packets and time, core_create.c what a core is made of, core_api.c everything else that is called on it.
 * A caller that shares a core with a running driver holds `sw_lock`. driver.c drives it in real time. */
#ifndef DCB_CORE_H
#define DCB_CORE_H

#include <pthread.h>

#include "abi.h"
#include "sw_store.h"
#include "tm.h"

#define SW_REENTRY_PS 100000ull       /* a resubmitted or recirculated packet enters again 100 ns later */
#define SW_CNM_COPY_BYTES 128u        /* of a sampled frame: addresses, tags, 64 bytes, and whole headers for the parser */
#define SW_EVENT_BYTES (4u << 20)     /* of packet-ins and digests that Python has not fetched */
#define SW_MEMORY_BYTES (512ull << 20)
#define SW_GROUPS 65536u

/* Takes over the packet; it must be given back by sw_pkt_free. */
typedef void (*sw_output_fn)(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps);

typedef struct sw_stats { /* frames; order is the ABI with switch/core.py */
    uint64_t received;        /* offered to sw_receive */
    uint64_t rx_dropped;      /* too long or no memory (tm counter drop_rx) */
    uint64_t copies;          /* made by clone, multicast and congestion points */
    uint64_t pfc_made;        /* frames that the traffic manager asked for */
    uint64_t ingress_dropped; /* by the program */
    uint64_t egress_dropped;  /* by the program */
    uint64_t tm_dropped;      /* by the traffic manager */
    uint64_t group_dropped;   /* multicast originals: replaced by their copies */
    uint64_t transmitted;
    uint64_t to_cpu;
    uint64_t cpu_dropped;     /* event ring full */
    uint64_t memory_dropped;  /* copies that found no memory */
    uint64_t reentered;
    uint64_t events_made;     /* packet-ins that the traffic manager asked for */
} sw_stats_t;

typedef struct sw_bind {
    int32_t cell; /* -1: the program has no such field */
    uint64_t mask;
} sw_bind_t;

struct sw_driver;

typedef struct sw {
    const pl_program_t *program;
    pl_t *pl;
    tm_t *tm;
    uint64_t now_ps, clock_ps;
    uint32_t cpu_port, drop_port, n_queues;
    sw_slab_t slab;
    pkt_t *scratch;            /* PHV of a packet that is parsed again */
    pkt_t *reentry_head, *reentry_tail;
    uint64_t reentry_len;
    pkt_t *out_head, *out_tail;
    uint64_t out_len;
    sw_output_fn output;
    void *output_arg;
    sw_ring_t events;
    sw_replicas_t **groups, **sessions;
    sw_stats_t stats;
    struct {
        sw_bind_t ingress_port, egress_spec, egress_port, instance_type, packet_length, enq_timestamp, enq_qdepth, deq_timedelta, deq_qdepth,
            ingress_ts, egress_ts, mcast_grp, egress_rid, priority;
        sw_bind_t tm_valid, tm_pg, tm_lossless, tm_pause_valid, tm_pause_vector, tm_pause_time[TM_QUEUES], tm_pfc_request, tm_pfc_vector,
            tm_pfc_time[TM_QUEUES], tm_enq_depth, tm_deq_depth, tm_priority, tm_pause_forever, tm_event, tm_event_port, tm_event_priority, tm_cnm_request,
            tm_cnm_qfb, tm_cnm_priority, tm_cnm_qoff, tm_cnm_qdelta, tm_cnm_cpid;
    } f;
    pthread_mutex_t mutex;     /* recursive */
    int waiting;               /* control callers that want it; the driver lets them go first */
    struct sw_driver *driver;
} sw_t;

/* NULL with a message in `error` (of error_bytes) when the program or an argument does not fit. */
sw_t *sw_create(uint64_t seed, uint32_t cpu_port, uint32_t drop_port, uint32_t n_queues, char *error, uint64_t error_bytes);
void sw_destroy(sw_t *sw);
pl_t *sw_pipeline(sw_t *sw);
tm_t *sw_tm(sw_t *sw);
void sw_set_output(sw_t *sw, sw_output_fn output, void *arg);
void sw_pkt_free(sw_t *sw, pkt_t *pkt);

int sw_receive(sw_t *sw, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps); /* -1: dropped before parsing */
/* The same under the lock; now_ps TM_NEVER: sw_now. */
int sw_inject(sw_t *sw, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps);
void sw_run(sw_t *sw, uint64_t now_ps);
uint64_t sw_next_deadline(const sw_t *sw);                                                    /* TM_NEVER: nothing to do */
void sw_advance(sw_t *sw, uint64_t now_ps);
/* Time passes, and what is due before now_ps is done; what is due at now_ps waits for frames that arrive then. For a caller
 * that changes settings at that time. */
void sw_wait(sw_t *sw, uint64_t now_ps);
uint64_t sw_now(sw_t *sw); /* last time seen, or the clock of a running driver */

int sw_add_port(sw_t *sw, uint32_t port, uint64_t now_ps);
int sw_remove_port(sw_t *sw, uint32_t port, uint64_t now_ps);

/* Whole records (sw_store.h) as far as they fit, under the lock; of outputs, `type` is the port. */
uint64_t sw_outputs_take(sw_t *sw, uint8_t *out, uint64_t capacity);
uint64_t sw_events_take(sw_t *sw, uint8_t *out, uint64_t capacity);
int sw_event_fd(const sw_t *sw);
uint64_t sw_events_lost(const sw_t *sw);
uint64_t sw_events_put(const sw_t *sw); /* bytes of events since creation: grows with each, whether or not they are taken */
void sw_read_stats(const sw_t *sw, sw_stats_t *out);
uint64_t sw_packets_live(const sw_t *sw); /* in queues, on the way back to ingress, in the driver's hands */

int sw_set_multicast(sw_t *sw, uint32_t group, const uint16_t *ports, const uint16_t *rids, uint32_t n);
int sw_delete_multicast(sw_t *sw, uint32_t group);
int sw_set_clone_session(sw_t *sw, uint32_t session, const uint16_t *ports, const uint16_t *rids, uint32_t n, uint32_t cos, uint32_t truncate_bytes);
int sw_delete_clone_session(sw_t *sw, uint32_t session);

/* tm_set_storm and tm_set_watchdog, freeing what they flush. */
int sw_set_storm(sw_t *sw, uint32_t port, uint32_t priority, uint32_t action, uint64_t now_ps);
int sw_set_watchdog(sw_t *sw, uint32_t port, uint32_t priority, uint32_t detect_us, uint32_t restore_us, uint32_t action, bool empty_queue,
                    uint64_t now_ps);

void sw_lock(sw_t *sw);
void sw_unlock(sw_t *sw);

/* Injects `count` frames of the n given ones in turn, frame i on ports[i], gap_ps apart, runs all that is due and drops what
 * comes out. Returns the nanoseconds it took; *sent gets the number of frames that left. */
uint64_t sw_bench(sw_t *sw, const uint8_t *const *frames, const uint32_t *lens, const uint16_t *ports, uint32_t n, uint64_t count,
                  uint64_t gap_ps, uint64_t *sent);

/* Between the rooms. */
void sw_output_to_list(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps); /* the output function of a fresh core */
void sw_free_list(sw_t *sw, pkt_t *pkt);
void sw_free_flushed(sw_t *sw);

#endif
