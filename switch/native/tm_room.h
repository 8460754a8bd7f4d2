/* What the rooms of the traffic manager share. See tm.h. */
#ifndef DCB_TM_ROOM_H
#define DCB_TM_ROOM_H

#include "tm.h"

/* tm.c */
tm_port_t *tm_touch(tm_t *tm, uint32_t port);

/* tm_sched.c */
void tms_plan(tm_t *tm, tm_port_t *p, uint64_t now_ps); /* after whatever changes when a port has something to do next */
void tms_cbs_settle(tm_port_t *p, uint64_t now_ps);

/* tm_gate.c */
void tmg_update(tm_port_t *p); /* after every change of what is paused, until when, or of the queue map */
void tmg_expire(tm_t *tm, tm_port_t *p, uint64_t now_ps);
void tmg_end(tm_t *tm, tm_port_t *p, uint32_t priority, uint64_t end_ps); /* a running pause; tmg_update must follow */

/* sw_buffer.c */
int tmb_charge(tm_t *tm, pkt_t *pkt, uint64_t now_ps);
void tmb_release(tm_t *tm, const pkt_t *pkt, uint64_t now_ps);
void tmb_desire(tm_t *tm, tm_port_t *p, uint64_t now_ps); /* recompute which priorities are XOFF towards the peer */
uint64_t tmb_scale(const tm_pool_t *pool, int8_t alpha);  /* 2^alpha of what is free */
void tmb_defaults(tm_pg_t *pg);

/* tm_storm.c */
int tmw_drop(tm_t *tm, const pkt_t *pkt);                /* enum tm_counter of the drop (counted), or 0 */
void tmw_arm(tm_port_t *p, uint32_t priority); /* a pause or a wait of a watched priority has begun */
bool tmw_run(tm_t *tm, tm_port_t *p, uint64_t now_ps, tm_service_t *out); /* what is due; true: an event */

/* tm_qcn.c */
void tmq_enqueued(tm_t *tm, tm_port_t *p, const pkt_t *pkt); /* into a queue with a congestion point */

static inline uint64_t tm_ceil_div128(tm_u128 a, uint64_t b) { return (uint64_t)((a + b - 1) / b); }

static inline uint64_t tm_pause_rate(const tm_port_t *p) { return p->rate_bps ? p->rate_bps : TM_NOMINAL_BPS; }

static inline uint64_t tm_bits_ps(const tm_port_t *p, uint64_t bits) { return tm_ceil_div128((tm_u128)bits * TM_PS_PER_S, tm_pause_rate(p)); }

/* Pauses end at their own time, however late this runs, and credit grows. */
static inline void tm_settle(tm_t *tm, tm_port_t *p, uint64_t now_ps)
{
    if (p->paused && p->gate_end_ps <= now_ps)
        tmg_expire(tm, p, now_ps);
    if (p->cbs_mask)
        tms_cbs_settle(p, now_ps);
}

/* Bucket 0: 0 ns; b: floor(log2(ns)) + 1. */
static inline void tm_histogram_add(tm_t *tm, uint32_t which, uint32_t cell, uint64_t ps)
{
    uint64_t ns = ps / 1000;
    uint32_t bucket = ns ? 64u - (uint32_t)__builtin_clzll(ns) : 0;
    tm->histograms[which][cell][bucket < TM_BUCKETS ? bucket : TM_BUCKETS - 1]++;
}

/* A packet leaves the bookkeeping of its queue, which is no longer linked to it. */
static inline void tm_unqueue(tm_t *tm, tm_port_t *p, tm_queue_t *q, const pkt_t *pkt)
{
    q->packets--;
    q->bytes -= pkt->charged_bytes;
    p->waiting[pkt->priority]--;
    tm->queued_packets--;
}

#endif
