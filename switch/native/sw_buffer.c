/* Ingress buffer accounting of the traffic manager: which bytes of a packet are reserved, shared or headroom, when a priority
 * group is XOFF, and what the peer has to be told.
 *
 * A group's three parts are counted per group, not per packet: a packet takes reserved, then shared, then headroom, and gives
 * back headroom, then shared, then reserved, so headroom is empty whenever the group is below its threshold. */
#include "tm.h"

static inline uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static inline uint64_t pool_free(const tm_t *tm) { return tm->pool_bytes > tm->pool_used ? tm->pool_bytes - tm->pool_used : 0; }

uint64_t tmb_scale(const tm_t *tm, int8_t alpha)
{
    uint64_t free_bytes = pool_free(tm);
    return alpha >= 0 ? free_bytes << alpha : (alpha <= -64 ? 0 : free_bytes >> -alpha);
}

static inline uint64_t pg_used(const tm_pg_t *g) { return g->reserved_used + g->shared_used + g->headroom_used; }

/* Shared bytes that the group may hold now. */
static inline uint64_t shared_limit(const tm_t *tm, const tm_pg_t *g)
{
    if (g->dynamic)
        return tmb_scale(tm, g->alpha);
    return g->xoff_bytes > g->reserved_bytes ? g->xoff_bytes - g->reserved_bytes : 0;
}

static inline uint64_t xoff_level(const tm_t *tm, const tm_pg_t *g)
{
    return g->dynamic ? g->reserved_bytes + tmb_scale(tm, g->alpha) : g->xoff_bytes;
}

static void xoff_list_add(tm_t *tm, uint32_t cell, tm_pg_t *g)
{
    g->xoff_slot = (uint16_t)tm->xoff_len;
    tm->xoff_list[tm->xoff_len++] = (uint16_t)cell;
}

static void xoff_list_remove(tm_t *tm, tm_pg_t *g)
{
    uint16_t last = tm->xoff_list[--tm->xoff_len];
    tm->xoff_list[g->xoff_slot] = last;
    tm->ports[last / TM_QUEUES].pgs[last % TM_QUEUES].xoff_slot = g->xoff_slot;
}

void tmb_desire(tm_t *tm, tm_port_t *p, uint64_t now_ps)
{
    uint8_t mask = 0;
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        if (p->pgs[i].xoff)
            mask |= p->pgs[i].priorities;
    mask &= p->tx_enable;
    if (mask != p->desired) {
        p->desired = mask;
        tm_plan(tm, p, now_ps);
    }
}

/* Moves the group between XON and XOFF. `refused`: a lossless packet has just found no room, which is XOFF even when the
 * bytes in use are still below the threshold (a packet larger than what is left, and no headroom). */
static void evaluate(tm_t *tm, tm_port_t *p, tm_pg_t *g, bool refused, uint64_t now_ps)
{
    uint64_t used = pg_used(g), level = xoff_level(tm, g);
    bool over = used > 0 && (used >= level || refused);
    if (!g->xoff) {
        if (!over)
            return;
        g->xoff = 1;
        xoff_list_add(tm, p->number * TM_QUEUES + (uint32_t)(g - p->pgs), g);
    } else {
        uint64_t xon = g->dynamic ? (level > g->xon_bytes ? level - g->xon_bytes : 0) : g->xon_bytes;
        if (over || used > xon)
            return;
        g->xoff = 0;
        xoff_list_remove(tm, g);
    }
    tmb_desire(tm, p, now_ps);
}

/* More of the pool is free: groups with a dynamic threshold may have come below it without a packet of their own moving. */
static void evaluate_waiting(tm_t *tm, uint64_t now_ps)
{
    for (uint32_t i = tm->xoff_len; i-- > 0;) {
        uint16_t cell = tm->xoff_list[i];
        tm_port_t *p = &tm->ports[cell / TM_QUEUES];
        tm_pg_t *g = &p->pgs[cell % TM_QUEUES];
        if (g->dynamic)
            evaluate(tm, p, g, false, now_ps);
    }
}

int tmb_charge(tm_t *tm, pkt_t *pkt, uint64_t now_ps)
{
    tm_port_t *p = tm_touch(tm, pkt->in_port);
    tm_pg_t *g = &p->pgs[pkt->pg];
    uint64_t len = pkt->len, left = len;
    uint64_t r = min64(left, g->reserved_bytes > g->reserved_used ? g->reserved_bytes - g->reserved_used : 0);
    left -= r;
    uint64_t s = 0, h = 0;
    if (left) {
        uint64_t limit = shared_limit(tm, g);
        uint64_t room = limit > g->shared_used ? limit - g->shared_used : 0;
        uint64_t pool_room = pool_free(tm);
        s = min64(left, min64(room, pool_room));
        left -= s;
        if (left) {
            uint64_t headroom_room = pkt->lossless && g->headroom_bytes > g->headroom_used ? g->headroom_bytes - g->headroom_used : 0;
            if (left > headroom_room) {
                int reason = pool_room < room ? TM_DROP_POOL : TM_DROP_PG_LIMIT;
                if (pkt->lossless && (g->headroom_bytes || !g->dynamic))
                    reason = TM_DROP_HEADROOM;
                tm_count_drop(tm, (uint32_t)reason, pkt->in_port * TM_QUEUES + pkt->pg, 1, len);
                if (pkt->lossless)
                    evaluate(tm, p, g, true, now_ps);
                return reason;
            }
            h = left;
        }
    }
    g->reserved_used += r;
    g->shared_used += s;
    g->headroom_used += h;
    tm->pool_used += s;
    g->packets++;
    uint64_t used = pg_used(g);
    if (used > g->watermark)
        g->watermark = used;
    if (g->headroom_used > g->headroom_watermark)
        g->headroom_watermark = g->headroom_used;
    pkt->charged_bytes = (uint32_t)len;
    pkt->charged_headroom = (uint32_t)h;
    evaluate(tm, p, g, false, now_ps);
    return 0;
}

void tmb_release(tm_t *tm, const pkt_t *pkt, uint64_t now_ps)
{
    tm_port_t *p = &tm->ports[pkt->in_port];
    tm_pg_t *g = &p->pgs[pkt->pg];
    uint64_t left = pkt->charged_bytes;
    uint64_t h = min64(left, g->headroom_used);
    g->headroom_used -= h;
    left -= h;
    uint64_t s = min64(left, g->shared_used);
    g->shared_used -= s;
    left -= s;
    tm->pool_used -= s;
    g->reserved_used -= left;
    g->packets--;
    if (!tm->xoff_len)
        return;
    if (g->xoff)
        evaluate(tm, p, g, false, now_ps);
    if (s)
        evaluate_waiting(tm, now_ps);
}

void tmb_defaults(tm_pg_t *g)
{
    g->dynamic = 1;
    g->alpha = 0;
}

/* Splits what the group holds anew, by its new configuration. What fits nowhere stays charged to the pool, which is then over
 * its size until it drains; not a byte is forgotten. */
static void resplit(tm_t *tm, tm_pg_t *g)
{
    uint64_t used = pg_used(g);
    tm->pool_used -= g->shared_used;
    g->shared_used = g->headroom_used = 0;
    g->reserved_used = min64(used, g->reserved_bytes);
    uint64_t left = used - g->reserved_used;
    uint64_t s = min64(left, min64(shared_limit(tm, g), pool_free(tm)));
    uint64_t h = min64(left - s, g->headroom_bytes);
    g->headroom_used = h;
    g->shared_used = left - h;
    tm->pool_used += g->shared_used;
    if (h > g->headroom_watermark)
        g->headroom_watermark = h;
}

int tm_set_pg(tm_t *tm, uint32_t port, uint32_t pg, bool dynamic, uint32_t reserved, uint32_t xoff_or_alpha, uint32_t xon_or_offset,
              uint32_t headroom, uint32_t priorities, uint64_t now_ps)
{
    if (port >= TM_PORTS || pg >= TM_QUEUES || priorities > 0xff)
        return -1;
    int32_t alpha = 0;
    if (dynamic) {
        alpha = (int8_t)(uint8_t)xoff_or_alpha;
        if (xoff_or_alpha > 0xff || alpha < -16 || alpha > 16)
            return -1;
    } else if (xoff_or_alpha < reserved || xon_or_offset >= xoff_or_alpha) {
        return -1;
    }
    tm_port_t *p = tm_touch(tm, port);
    tm_pg_t *g = &p->pgs[pg];
    g->dynamic = dynamic;
    g->alpha = (int8_t)alpha;
    g->reserved_bytes = reserved;
    g->xoff_bytes = dynamic ? 0 : xoff_or_alpha;
    g->xon_bytes = xon_or_offset;
    g->headroom_bytes = headroom;
    g->priorities = (uint8_t)priorities;
    resplit(tm, g);
    evaluate(tm, p, g, false, now_ps);
    tmb_desire(tm, p, now_ps);
    evaluate_waiting(tm, now_ps);
    tm_debug_check(tm);
    return 0;
}

int tm_set_pool(tm_t *tm, uint64_t bytes, uint64_t now_ps)
{
    if (bytes > UINT32_MAX)
        return -1;
    tm->pool_bytes = bytes;
    for (uint32_t i = 0; i < tm->n_touched; i++) {
        tm_port_t *p = &tm->ports[tm->touched[i]];
        for (uint32_t k = 0; k < TM_QUEUES; k++)
            evaluate(tm, p, &p->pgs[k], false, now_ps);
    }
    tm_debug_check(tm);
    return 0;
}

/* --- invariants ---------------------------------------------------------------------------------------------------- */

const char *tm_check(tm_t *tm)
{
    uint64_t pool = 0, packets = 0;
    for (uint32_t i = 0; i < tm->n_touched; i++)
        for (uint32_t k = 0; k < TM_QUEUES; k++)
            tm->ports[tm->touched[i]].pgs[k].check_bytes = tm->ports[tm->touched[i]].pgs[k].check_packets = 0;
    for (uint32_t i = 0; i < tm->n_touched; i++) {
        const tm_port_t *p = &tm->ports[tm->touched[i]];
        uint8_t nonempty = 0;
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
        if (!p->present && nonempty)
            return "packets in a queue of a port that is not there";
        if (p->heap_slot >= 0 && tm->heap[p->heap_slot] != p->number)
            return "the event heap lost a port";
    }
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
            if (g->reserved_used > g->reserved_bytes)
                return "a priority group uses more than its reserved bytes as reserved";
            if (g->xoff && (g->xoff_slot >= tm->xoff_len || tm->xoff_list[g->xoff_slot] != p->number * TM_QUEUES + k))
                return "the list of XOFF groups is wrong";
            if (g->xoff && pg_used(g) == 0)
                return "an empty priority group is XOFF";
            xoff += g->xoff;
            pool += g->shared_used;
        }
    }
    if (xoff != tm->xoff_len)
        return "the number of XOFF groups is wrong";
    if (pool != tm->pool_used)
        return "the pool's use differs from the sum of the groups";
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
