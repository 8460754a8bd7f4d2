/* Ingress buffer accounting of the traffic manager: which bytes of a packet are reserved, shared or headroom, when a priority
 * group is XOFF, and what the peer has to be told.
 *
 * A group's three parts are counted per group, not per packet: a packet takes reserved, then shared, then headroom, and gives
 * back headroom, then shared, then reserved, so headroom is empty whenever the group is below its threshold. Shared bytes are
 * also counted by the group's pool, headroom by its headroom pool if it has one. */
#include "tm_room.h"

static inline uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static inline uint64_t pool_free(const tm_pool_t *pool) { return pool->bytes > pool->used ? pool->bytes - pool->used : 0; }

static inline void pool_take(tm_pool_t *pool, uint64_t bytes)
{
    pool->used += bytes;
    if (pool->used > pool->watermark)
        pool->watermark = pool->used;
}

uint64_t tmb_scale(const tm_pool_t *pool, int8_t alpha)
{
    uint64_t free_bytes = pool_free(pool);
    return alpha >= 0 ? free_bytes << alpha : free_bytes >> -alpha;
}

static inline uint64_t pg_used(const tm_pg_t *g) { return g->reserved_used + g->shared_used + g->headroom_used; }

/* What is left of the group's headroom, for one packet. */
static inline uint64_t headroom_free(const tm_t *tm, const tm_pg_t *g)
{
    uint64_t own = g->headroom_bytes > g->headroom_used ? g->headroom_bytes - g->headroom_used : 0;
    return g->headroom_pool == TM_OWN_HEADROOM ? own : min64(own, pool_free(&tm->headroom_pools[g->headroom_pool]));
}

/* Shared bytes that the group may hold now. */
static inline uint64_t shared_limit(const tm_t *tm, const tm_pg_t *g)
{
    if (g->dynamic)
        return tmb_scale(&tm->pools[g->pool], g->alpha);
    return g->xoff_bytes > g->reserved_bytes ? g->xoff_bytes - g->reserved_bytes : 0;
}

static inline uint64_t xoff_level(const tm_t *tm, const tm_pg_t *g)
{
    return g->dynamic ? g->reserved_bytes + tmb_scale(&tm->pools[g->pool], g->alpha) : g->xoff_bytes;
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
        tms_plan(tm, p, now_ps);
    }
}

static inline void headroom_give(tm_t *tm, tm_pg_t *g, uint64_t bytes)
{
    g->headroom_used -= bytes;
    if (g->headroom_pool != TM_OWN_HEADROOM)
        tm->headroom_pools[g->headroom_pool].used -= bytes;
}

/* What waits in headroom becomes shared as soon as there is room, so that a group that is XON again has all its headroom
 * for what will be on its way when it crosses its threshold the next time. */
static void promote(tm_t *tm, tm_pg_t *g)
{
    uint64_t limit = shared_limit(tm, g);
    uint64_t room = min64(limit > g->shared_used ? limit - g->shared_used : 0, pool_free(&tm->pools[g->pool]));
    uint64_t bytes = min64(g->headroom_used, room);
    headroom_give(tm, g, bytes);
    g->shared_used += bytes;
    pool_take(&tm->pools[g->pool], bytes);
}

/* Moves the group between XON and XOFF. Headroom in use is XOFF, also where the pool and not the threshold is what was in
 * the way. `refused`: a lossless packet has just found no room, which is XOFF even when the bytes in use are still below the
 * threshold (a packet larger than what is left, and no headroom). */
static void evaluate(tm_t *tm, tm_port_t *p, tm_pg_t *g, bool refused, uint64_t now_ps)
{
    if (g->headroom_used)
        promote(tm, g);
    uint64_t used = pg_used(g), level = xoff_level(tm, g);
    bool over = used > 0 && (used >= level || g->headroom_used || refused);
    if (!g->xoff) {
        if (!over)
            return;
        g->xoff = 1;
        g->xoff_since_ps = now_ps;
        g->xoff_count++;
        xoff_list_add(tm, p->number * TM_QUEUES + (uint32_t)(g - p->pgs), g);
    } else {
        uint64_t xon = g->dynamic ? (level > g->xon_bytes ? level - g->xon_bytes : 0) : g->xon_bytes;
        if (over || used > xon)
            return;
        g->xoff = 0;
        g->xoff_total_ps += now_ps - g->xoff_since_ps;
        tm_histogram_add(tm, TM_HISTOGRAM_XOFF, p->number * TM_QUEUES + (uint32_t)(g - p->pgs), now_ps - g->xoff_since_ps);
        xoff_list_remove(tm, g);
    }
    tmb_desire(tm, p, now_ps);
}

/* More of a pool is free: groups with a dynamic threshold may have come below it without a packet of their own moving, and
 * what waits in headroom may find room. */
static void evaluate_waiting(tm_t *tm, uint32_t pool, uint64_t now_ps)
{
    for (uint32_t i = tm->xoff_len; i-- > 0;) {
        uint16_t cell = tm->xoff_list[i];
        tm_port_t *p = &tm->ports[cell / TM_QUEUES];
        tm_pg_t *g = &p->pgs[cell % TM_QUEUES];
        if ((g->dynamic || g->headroom_used) && g->pool == pool)
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
    tm_pool_t *pool = &tm->pools[g->pool];
    uint64_t s = 0, h = 0;
    if (left) {
        uint64_t limit = shared_limit(tm, g);
        uint64_t room = limit > g->shared_used ? limit - g->shared_used : 0;
        uint64_t pool_room = pool_free(pool);
        s = min64(left, min64(room, pool_room));
        left -= s;
        if (left) {
            uint64_t headroom_room = pkt->lossless ? headroom_free(tm, g) : 0;
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
    pool_take(pool, s);
    if (h) {
        g->headroom_used += h;
        if (g->headroom_pool != TM_OWN_HEADROOM)
            pool_take(&tm->headroom_pools[g->headroom_pool], h);
    }
    g->packets++;
    uint64_t used = pg_used(g);
    if (used > g->watermark)
        g->watermark = used;
    if (g->headroom_used > g->headroom_watermark)
        g->headroom_watermark = g->headroom_used;
    pkt->charged_bytes = (uint32_t)len;
    evaluate(tm, p, g, false, now_ps);
    return 0;
}

void tmb_release(tm_t *tm, const pkt_t *pkt, uint64_t now_ps)
{
    tm_port_t *p = &tm->ports[pkt->in_port];
    tm_pg_t *g = &p->pgs[pkt->pg];
    uint64_t left = pkt->charged_bytes;
    uint64_t h = min64(left, g->headroom_used);
    headroom_give(tm, g, h);
    left -= h;
    uint64_t s = min64(left, g->shared_used);
    g->shared_used -= s;
    left -= s;
    tm->pools[g->pool].used -= s;
    g->reserved_used -= left;
    g->packets--;
    if (!tm->xoff_len)
        return;
    if (g->xoff)
        evaluate(tm, p, g, false, now_ps);
    if (s)
        evaluate_waiting(tm, g->pool, now_ps);
}

void tmb_defaults(tm_pg_t *g)
{
    g->dynamic = 1;
    g->alpha = 0;
    g->headroom_pool = TM_OWN_HEADROOM;
}

/* Takes what the group holds out of its pools: `place` puts it into them, or into others. */
static void lift(tm_t *tm, tm_pg_t *g)
{
    tm->pools[g->pool].used -= g->shared_used;
    if (g->headroom_pool != TM_OWN_HEADROOM)
        tm->headroom_pools[g->headroom_pool].used -= g->headroom_used;
}

/* Splits what the group holds anew, by its configuration, but puts nothing into headroom that was not there: below a lowered
 * threshold too there is room for what is on its way. What is shared stays so. What was in headroom, or in a reserve that is
 * smaller now, becomes shared as far as there is room; then it stays in headroom; the rest stays charged to the pool, which
 * may then be over its size until it drains. Not a byte is forgotten. */
static void place(tm_t *tm, tm_pg_t *g)
{
    uint64_t used = pg_used(g), shared = g->shared_used, headroom = g->headroom_used;
    tm_pool_t *pool = &tm->pools[g->pool];
    g->headroom_used = 0;
    g->reserved_used = min64(used, g->reserved_bytes);
    uint64_t left = used - g->reserved_used;
    g->shared_used = min64(left, shared);
    pool_take(pool, g->shared_used);
    left -= g->shared_used;
    uint64_t limit = shared_limit(tm, g);
    uint64_t s = min64(left, min64(limit > g->shared_used ? limit - g->shared_used : 0, pool_free(pool)));
    uint64_t h = min64(min64(left - s, headroom), headroom_free(tm, g));
    s = left - h;
    g->shared_used += s;
    pool_take(pool, s);
    g->headroom_used = h;
    if (g->headroom_pool != TM_OWN_HEADROOM)
        pool_take(&tm->headroom_pools[g->headroom_pool], h);
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
    lift(tm, g);
    g->dynamic = dynamic;
    g->alpha = (int8_t)alpha;
    g->reserved_bytes = reserved;
    g->xoff_bytes = dynamic ? 0 : xoff_or_alpha;
    g->xon_bytes = xon_or_offset;
    g->headroom_bytes = headroom;
    g->priorities = (uint8_t)priorities;
    place(tm, g);
    evaluate(tm, p, g, false, now_ps);
    tmb_desire(tm, p, now_ps);
    evaluate_waiting(tm, g->pool, now_ps);
    tm_debug_check(tm);
    return 0;
}

int tm_set_pg_pool(tm_t *tm, uint32_t port, uint32_t pg, uint32_t pool, uint32_t headroom_pool, uint64_t now_ps)
{
    if (port >= TM_PORTS || pg >= TM_QUEUES || pool >= TM_POOLS || (headroom_pool >= TM_POOLS && headroom_pool != TM_OWN_HEADROOM))
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    tm_pg_t *g = &p->pgs[pg];
    uint32_t before = g->pool;
    lift(tm, g);
    g->pool = (uint8_t)pool;
    g->headroom_pool = (uint8_t)headroom_pool;
    place(tm, g);
    evaluate(tm, p, g, false, now_ps);
    evaluate_waiting(tm, before, now_ps);
    evaluate_waiting(tm, pool, now_ps);
    tm_debug_check(tm);
    return 0;
}

int tm_set_pool(tm_t *tm, uint32_t pool, uint64_t bytes, uint64_t now_ps)
{
    if (pool >= TM_POOLS || bytes > UINT32_MAX)
        return -1;
    tm->pools[pool].bytes = bytes;
    for (uint32_t i = 0; i < tm->n_touched; i++) {
        tm_port_t *p = &tm->ports[tm->touched[i]];
        for (uint32_t k = 0; k < TM_QUEUES; k++)
            if (p->pgs[k].pool == pool)
                evaluate(tm, p, &p->pgs[k], false, now_ps);
    }
    tm_debug_check(tm);
    return 0;
}

/* What is held stays; a smaller pool takes no more headroom until it has drained below its size. */
int tm_set_headroom_pool(tm_t *tm, uint32_t pool, uint64_t bytes, uint64_t now_ps)
{
    (void)now_ps;
    if (pool >= TM_POOLS || bytes > UINT32_MAX)
        return -1;
    tm->headroom_pools[pool].bytes = bytes;
    return 0;
}
