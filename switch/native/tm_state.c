/* Traffic manager: what is read and cleared, and whether its books agree. See tm.h. */
#include "tm_room.h"

/* --- state ---------------------------------------------------------------------------------------------------------- */

tm_count_t tm_read_counter(const tm_t *tm, uint32_t kind, uint32_t index)
{
    if (kind >= TM_COUNTERS || index >= TM_CELLS)
        return (tm_count_t){0, 0};
    return tm->counters[kind][index];
}

int tm_clear_counter(tm_t *tm, uint32_t kind, uint32_t index)
{
    if (kind >= TM_COUNTERS || index >= TM_CELLS)
        return -1;
    tm->counters[kind][index] = (tm_count_t){0, 0};
    return 0;
}

/* The histogram that a kind of state is, or -1. */
static int histogram(uint32_t kind)
{
    return kind >= TM_DELAY_HISTOGRAM && kind <= TM_XOFF_HISTOGRAM ? (int)(kind - TM_DELAY_HISTOGRAM) : -1;
}

static const tm_pool_t *pool_of(const tm_t *tm, uint32_t kind, uint32_t index)
{
    switch (kind) {
    case TM_POOL_USED:
    case TM_POOL_WATERMARK: return &tm->pools[index];
    case TM_HEADROOM_POOL_USED:
    case TM_HEADROOM_POOL_WATERMARK: return &tm->headroom_pools[index];
    default: return NULL;
    }
}

static bool is_pool(uint32_t kind) { return kind == TM_POOL_USED || (kind >= TM_POOL_WATERMARK && kind <= TM_HEADROOM_POOL_WATERMARK); }

uint64_t tm_read_state(tm_t *tm, uint32_t kind, uint32_t index, uint64_t now_ps)
{
    int which = histogram(kind);
    if (index >= TM_CELLS * (which < 0 ? 1 : TM_BUCKETS))
        return 0;
    if (is_pool(kind)) {
        const tm_pool_t *pool = index < TM_POOLS ? pool_of(tm, kind, index) : NULL;
        return !pool ? 0 : kind == TM_POOL_USED || kind == TM_HEADROOM_POOL_USED ? pool->used : pool->watermark;
    }
    if (which >= 0) {
        tm_port_t *of = &tm->ports[index / TM_BUCKETS / TM_QUEUES];
        if (of->touched)
            tm_settle(tm, of, now_ps); /* a pause that has ended counts, even when nothing has happened since */
        return tm->histograms[which][index / TM_BUCKETS][index % TM_BUCKETS];
    }
    tm_port_t *p = &tm->ports[index / TM_QUEUES];
    if (!p->touched)
        return 0;
    uint32_t n = index % TM_QUEUES;
    const tm_queue_t *q = &p->queues[n];
    const tm_pg_t *g = &p->pgs[n];
    const tm_gate_t *gate = &p->gates[n];
    bool paused = (p->paused >> n & 1) && gate->until_ps > now_ps;
    switch (kind) {
    case TM_QUEUE_DEPTH: return q->bytes;
    case TM_QUEUE_PACKETS: return q->packets;
    case TM_QUEUE_WATERMARK: return q->watermark;
    case TM_PG_DEPTH: return g->reserved_used + g->shared_used + g->headroom_used;
    case TM_PG_HEADROOM: return g->headroom_used;
    case TM_PG_WATERMARK: return g->watermark;
    case TM_PG_HEADROOM_WATERMARK: return g->headroom_watermark;
    case TM_PG_XOFF: return g->xoff;
    case TM_PAUSE_LEFT:
        if (paused && gate->until_ps == TM_NEVER)
            return TM_PAUSE_LEFT_FOREVER;
        return paused ? tm_ceil_div128((tm_u128)(gate->until_ps - now_ps) * tm_pause_rate(p), TM_QUANTUM_BITS * TM_PS_PER_S) : 0;
    case TM_PAUSED_NS: {
        uint64_t ps = gate->total_ps;
        if (p->paused >> n & 1) {
            uint64_t end = gate->until_ps < now_ps ? gate->until_ps : now_ps;
            ps += end > gate->since_ps ? end - gate->since_ps : 0;
        }
        return ps / 1000;
    }
    case TM_PAUSE_COUNT: return gate->count;
    case TM_STORM_STATE:
        return (p->storm_own >> n & 1 ? TM_STORM_OWN : 0) | (p->storm_asked >> n & 1 ? TM_STORM_ASKED : 0)
             | (p->storm_alerted >> n & 1 ? TM_STORM_ALERTED : 0);
    case TM_STORM_COUNT: return p->watches[n].count;
    case TM_XOFF_NS: return (g->xoff_total_ps + (g->xoff && now_ps > g->xoff_since_ps ? now_ps - g->xoff_since_ps : 0)) / 1000;
    case TM_XOFF_COUNT: return g->xoff_count;
    default: return 0;
    }
}

void tm_read_sources(const tm_t *tm, uint32_t index, uint64_t out[4])
{
    out[0] = out[1] = out[2] = out[3] = 0;
    if (index >= TM_CELLS)
        return;
    for (const pkt_t *pkt = tm->ports[index / TM_QUEUES].queues[index % TM_QUEUES].head; pkt; pkt = pkt->next)
        if (pkt->in_port < 256)
            out[pkt->in_port / 64] |= 1ull << (pkt->in_port % 64);
}

/* A cleared watermark starts again from what is held now. */
int tm_clear_watermark(tm_t *tm, uint32_t kind, uint32_t index)
{
    int which = histogram(kind);
    if (which >= 0) {
        if (index >= TM_CELLS * TM_BUCKETS)
            return -1;
        tm->histograms[which][index / TM_BUCKETS][index % TM_BUCKETS] = 0;
        return 0;
    }
    if (kind == TM_POOL_WATERMARK || kind == TM_HEADROOM_POOL_WATERMARK) {
        if (index >= TM_POOLS)
            return index < TM_CELLS ? 0 : -1; /* cells that no pool has */
        tm_pool_t *pool = kind == TM_POOL_WATERMARK ? &tm->pools[index] : &tm->headroom_pools[index];
        pool->watermark = pool->used;
        return 0;
    }
    if (index >= TM_CELLS)
        return -1;
    tm_port_t *p = tm_touch(tm, index / TM_QUEUES);
    tm_queue_t *q = &p->queues[index % TM_QUEUES];
    tm_pg_t *g = &p->pgs[index % TM_QUEUES];
    switch (kind) {
    case TM_QUEUE_WATERMARK: q->watermark = q->bytes; return 0;
    case TM_PG_WATERMARK: g->watermark = g->reserved_used + g->shared_used + g->headroom_used; return 0;
    case TM_PG_HEADROOM_WATERMARK: g->headroom_watermark = g->headroom_used; return 0;
    default: return -1;
    }
}

static inline uint64_t pg_used(const tm_pg_t *g) { return g->reserved_used + g->shared_used + g->headroom_used; }

/* --- invariants ---------------------------------------------------------------------------------------------------- */

const char *tm_check(tm_t *tm)
{
    uint64_t pools[TM_POOLS] = {0}, headroom_pools[TM_POOLS] = {0}, packets = 0;
    uint32_t storms = 0;
    for (uint32_t i = 0; i < tm->n_touched; i++)
        for (uint32_t k = 0; k < TM_QUEUES; k++)
            tm->ports[tm->touched[i]].pgs[k].check_bytes = tm->ports[tm->touched[i]].pgs[k].check_packets = 0;
    for (uint32_t i = 0; i < tm->n_touched; i++) {
        const tm_port_t *p = &tm->ports[tm->touched[i]];
        uint8_t nonempty = 0;
        uint32_t waiting[TM_QUEUES] = {0};
        for (uint32_t k = 0; k < TM_QUEUES; k++) {
            const tm_queue_t *q = &p->queues[k];
            uint64_t bytes = 0;
            uint32_t n = 0;
            const pkt_t *last = NULL;
            for (const pkt_t *c = q->head; c; last = c, c = c->next) {
                if (c->out_port != p->number || c->queue != k)
                    return "a packet sits in a queue that is not its own";
                bytes += c->charged_bytes;
                n++;
                waiting[c->priority]++;
                tm->ports[c->in_port].pgs[c->pg].check_bytes += c->charged_bytes;
                tm->ports[c->in_port].pgs[c->pg].check_packets++;
            }
            if (last != q->tail)
                return "a queue's tail is not its last packet";
            if (bytes != q->bytes || n != q->packets)
                return "a queue's depth differs from the sum of its packets";
            if (n)
                nonempty |= (uint8_t)(1u << k);
            packets += n;
        }
        if (nonempty != p->nonempty)
            return "the mask of queues with packets is wrong";
        uint64_t watch_due_ps = TM_NEVER;
        for (uint32_t k = 0; k < TM_QUEUES; k++) {
            if (waiting[k] != p->waiting[k])
                return "the number of packets that wait, by priority, is wrong";
            if (waiting[k] && (p->storm_drop >> k & 1))
                return "packets of a priority that is dropped wait in a queue";
            if (p->watches[k].due_ps < watch_due_ps)
                watch_due_ps = p->watches[k].due_ps;
        }
        if (watch_due_ps != p->watch_due_ps || (watch_due_ps != TM_NEVER && (p->heap_slot < 0 || p->next_ps > watch_due_ps)))
            return "a watchdog is not planned for";
        if (p->paused & p->storm_deaf)
            return "a priority is paused whose pauses are ignored";
        if (p->storm_drop & ~p->storm_deaf)
            return "a priority is dropped that is not mitigated";
        storms += p->storm_drop != 0;
        if (!p->present && nonempty)
            return "packets in a queue of a port that is not there";
        if (p->heap_slot >= 0 && tm->heap[p->heap_slot] != p->number)
            return "the event heap lost a port";
    }
    if (storms != tm->storms)
        return "the number of ports with a dropped priority is wrong";
    if (packets != tm->queued_packets)
        return "the number of queued packets is wrong";
    uint32_t xoff = 0;
    for (uint32_t i = 0; i < tm->n_touched; i++) {
        const tm_port_t *p = &tm->ports[tm->touched[i]];
        for (uint32_t k = 0; k < TM_QUEUES; k++) {
            const tm_pg_t *g = &p->pgs[k];
            if (pg_used(g) != g->check_bytes || g->packets != g->check_packets)
                return "a priority group's use differs from the bytes of its packets";
            if (g->headroom_used > g->headroom_bytes)
                return "a priority group uses more headroom than it has";
            if (g->headroom_used && !g->xoff)
                return "a priority group uses headroom and is not XOFF";
            if (g->reserved_used > g->reserved_bytes)
                return "a priority group uses more than its reserved bytes as reserved";
            if (g->xoff && (g->xoff_slot >= tm->xoff_len || tm->xoff_list[g->xoff_slot] != p->number * TM_QUEUES + k))
                return "the list of XOFF groups is wrong";
            if (g->xoff && pg_used(g) == 0)
                return "an empty priority group is XOFF";
            xoff += g->xoff;
            pools[g->pool] += g->shared_used;
            if (g->headroom_pool != TM_OWN_HEADROOM)
                headroom_pools[g->headroom_pool] += g->headroom_used;
        }
    }
    if (xoff != tm->xoff_len)
        return "the number of XOFF groups is wrong";
    for (uint32_t i = 0; i < TM_POOLS; i++) {
        if (pools[i] != tm->pools[i].used)
            return "a pool's use differs from the sum of its groups";
        if (headroom_pools[i] != tm->headroom_pools[i].used)
            return "a headroom pool's use differs from the sum of its groups";
        if (tm->pools[i].used > tm->pools[i].watermark || tm->headroom_pools[i].used > tm->headroom_pools[i].watermark)
            return "a pool holds more than its watermark";
    }
    for (uint32_t i = 1; i < tm->heap_len; i++)
        if (tm->ports[tm->heap[i]].next_ps < tm->ports[tm->heap[(i - 1) / 2]].next_ps)
            return "the event heap is out of order";
    return NULL;
}

#ifdef DCB_DEBUG
#include <stdio.h>
#include <stdlib.h>

/* At every event while little is queued; every 64th otherwise, since a check walks all packets. */
void tm_debug_check(tm_t *tm)
{
    if (tm->queued_packets > 256 && (tm->check_skip++ & 63))
        return;
    const char *broken = tm_check(tm);
    if (broken) {
        fprintf(stderr, "tm: invariant broken: %s\n", broken);
        abort();
    }
}
#endif
