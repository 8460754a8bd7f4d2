/* Traffic manager: the event heap, the scheduler and the way out of a port. See tm.h.
 *
 * An event of a port is the next time at which something can leave it (the wire is free, and a PFC frame is due or a queue
 * may send) or its watchdog has to look. `tms_plan` works it out after every change; the heap holds one such time per port,
 * ties by port number. */
#include "tm_room.h"

#define ETS_SHIFT 16

/* --- event heap: ports by (next_ps, number) ------------------------------------------------------------------------- */

static inline bool heap_before(const tm_t *tm, uint16_t a, uint16_t b)
{
    uint64_t ta = tm->ports[a].next_ps, tb = tm->ports[b].next_ps;
    return ta < tb || (ta == tb && a < b);
}

static inline void heap_put(tm_t *tm, uint32_t slot, uint16_t port)
{
    tm->heap[slot] = port;
    tm->ports[port].heap_slot = (int32_t)slot;
}

static void heap_up(tm_t *tm, uint32_t slot)
{
    uint16_t port = tm->heap[slot];
    while (slot) {
        uint32_t parent = (slot - 1) / 2;
        if (!heap_before(tm, port, tm->heap[parent]))
            break;
        heap_put(tm, slot, tm->heap[parent]);
        slot = parent;
    }
    heap_put(tm, slot, port);
}

static void heap_down(tm_t *tm, uint32_t slot)
{
    uint16_t port = tm->heap[slot];
    for (;;) {
        uint32_t child = 2 * slot + 1;
        if (child >= tm->heap_len)
            break;
        if (child + 1 < tm->heap_len && heap_before(tm, tm->heap[child + 1], tm->heap[child]))
            child++;
        if (!heap_before(tm, tm->heap[child], port))
            break;
        heap_put(tm, slot, tm->heap[child]);
        slot = child;
    }
    heap_put(tm, slot, port);
}

static void heap_set(tm_t *tm, tm_port_t *p, uint64_t next_ps)
{
    if (next_ps == TM_NEVER) {
        if (p->heap_slot < 0)
            return;
        uint32_t slot = (uint32_t)p->heap_slot;
        p->heap_slot = -1;
        p->next_ps = TM_NEVER;
        uint16_t last = tm->heap[--tm->heap_len];
        if (last != p->number) {
            heap_put(tm, slot, last);
            heap_down(tm, slot);
            heap_up(tm, (uint32_t)tm->ports[last].heap_slot);
        }
        return;
    }
    if (p->heap_slot < 0) {
        p->next_ps = next_ps;
        heap_put(tm, tm->heap_len++, p->number);
        heap_up(tm, (uint32_t)p->heap_slot);
    } else if (next_ps != p->next_ps) {
        bool earlier = next_ps < p->next_ps;
        p->next_ps = next_ps;
        if (earlier)
            heap_up(tm, (uint32_t)p->heap_slot);
        else
            heap_down(tm, (uint32_t)p->heap_slot);
    }
}

/* A PFC frame is sent again when half of the pause that it carries has passed. */
static uint64_t refresh_ps(const tm_port_t *p)
{
    uint64_t bits = (uint64_t)p->quanta * TM_QUANTUM_BITS / 2;
    return tm_bits_ps(p, bits > TM_MIN_REFRESH_BITS ? bits : TM_MIN_REFRESH_BITS);
}

/* --- credit-based shaper (802.1Q 8.6.8.2) ----------------------------------------------------------------------------
 * Credit is charged with the whole frame when it starts and grows at idleSlope meanwhile, which at each time that the wire is
 * free equals the standard's sendSlope. A paused queue keeps what credit it has and gains none above zero. */

void tms_cbs_settle(tm_port_t *p, uint64_t now_ps)
{
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        if (!(p->cbs_mask >> i & 1))
            continue;
        tm_queue_t *q = &p->queues[i];
        uint64_t from = q->credit_ps;
        if (now_ps <= from)
            continue;
        if (from < q->cbs_tx_until_ps) {
            uint64_t to = now_ps < q->cbs_tx_until_ps ? now_ps : q->cbs_tx_until_ps;
            q->credit += (tm_i128)q->idle_slope_bps * (to - from);
            from = to;
        }
        if (from < now_ps || now_ps >= q->cbs_tx_until_ps) {
            bool open = !(p->closed >> i & 1);
            tm_i128 gain = (tm_i128)q->idle_slope_bps * (now_ps - from);
            if (q->packets && open)
                q->credit += gain;
            else if (q->credit < 0)
                q->credit = q->credit + gain > 0 ? 0 : q->credit + gain;
            else if (!q->packets)
                q->credit = 0;
        }
        q->credit_ps = now_ps;
    }
}

/* --- scheduler ------------------------------------------------------------------------------------------------------ */

static inline uint32_t highest(uint8_t mask) { return 31u - (uint32_t)__builtin_clz(mask); }

/* Start-time fair queueing over the ETS queues: each has a clock that runs bytes / weight; the least goes first. A queue that
 * was empty or paused starts at the clock of the last frame served, so it neither owes nor hoards. */
static uint32_t ets_pick(tm_port_t *p, uint8_t open)
{
    uint32_t best = TM_NO_QUEUE;
    for (uint8_t m = open; m; m &= (uint8_t)(m - 1)) {
        uint32_t i = (uint32_t)__builtin_ctz(m);
        tm_queue_t *q = &p->queues[i];
        if (q->ets_clock < p->ets_now)
            q->ets_clock = p->ets_now;
        if (best == TM_NO_QUEUE || q->ets_clock <= p->queues[best].ets_clock)
            best = i; /* equal clocks: the higher queue */
    }
    p->ets_now = p->queues[best].ets_clock;
    return best;
}

/* The queue to serve at this time, or TM_NO_QUEUE. Gates and credits are settled. */
static uint32_t pick(tm_port_t *p)
{
    uint8_t open = p->nonempty & (uint8_t)~p->closed;
    uint8_t strict = open & p->strict_mask;
    if (strict)
        return highest(strict);
    for (uint8_t m = open & p->cbs_mask; m;) {
        uint32_t i = highest(m);
        if (p->queues[i].credit >= 0)
            return i;
        m &= (uint8_t)~(1u << i);
    }
    open &= (uint8_t)~p->cbs_mask;
    return open ? ets_pick(p, open) : TM_NO_QUEUE;
}

static inline bool pfc_wanted(const tm_t *tm, const tm_port_t *p) { return tm->pfc_capable && (p->told | p->desired); }

/* When the next PFC frame is due (may be in the past). */
static uint64_t pfc_due(const tm_port_t *p)
{
    return p->told != p->desired ? 0 : p->pfc_sent_ps + refresh_ps(p);
}

/* Earliest time at which a queue may send, as things stand; 0: now. */
static uint64_t queue_due(tm_port_t *p, uint64_t now_ps)
{
    uint8_t open = p->nonempty & (uint8_t)~p->closed;
    if (open & (uint8_t)~p->cbs_mask)
        return 0;
    uint64_t due = TM_NEVER;
    for (uint8_t m = open & p->cbs_mask; m; m &= (uint8_t)(m - 1)) {
        tm_queue_t *q = &p->queues[__builtin_ctz(m)];
        tm_i128 credit = q->credit;
        uint64_t at = q->credit_ps;
        if (credit >= 0 && at >= q->cbs_tx_until_ps)
            return 0;
        uint64_t t = credit >= 0 ? at : at + tm_ceil_div128((tm_u128)-credit, q->idle_slope_bps);
        if (t < q->cbs_tx_until_ps)
            t = q->cbs_tx_until_ps;
        if (t < due)
            due = t;
    }
    for (uint8_t m = p->nonempty & p->closed; m; m &= (uint8_t)(m - 1)) {
        uint32_t i = (uint32_t)__builtin_ctz(m);
        uint64_t opens = now_ps;
        for (uint32_t k = 0; k < TM_QUEUES; k++)
            if ((p->paused >> k & 1) && p->queue_of[k] == i && p->gates[k].until_ps > opens)
                opens = p->gates[k].until_ps;
        if (opens < due)
            due = opens;
    }
    return due;
}

void tms_plan(tm_t *tm, tm_port_t *p, uint64_t now_ps)
{
    uint64_t next = TM_NEVER;
    if (p->present && !p->blocked) {
        if (p->nonempty)
            next = queue_due(p, now_ps);
        if (pfc_wanted(tm, p)) {
            uint64_t pfc = pfc_due(p);
            if (pfc < next)
                next = pfc;
        }
        if (next < p->busy_until_ps)
            next = p->busy_until_ps;
        if (next < now_ps)
            next = now_ps;
    }
    if (p->watch_due_ps < next)
        next = p->watch_due_ps > now_ps ? p->watch_due_ps : now_ps;
    heap_set(tm, p, next);
}

/* --- the way out -------------------------------------------------------------------------------------------------------- */

static void pfc_take(tm_t *tm, tm_port_t *p, uint64_t now_ps, tm_service_t *out)
{
    (void)tm;
    out->queue = TM_NO_QUEUE;
    out->pkt = NULL;
    out->pfc_vector = p->desired | p->told;
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        out->pfc_time[i] = p->desired >> i & 1 ? p->quanta : 0;
    p->told = p->desired;
    p->pfc_sent_ps = now_ps;
}

static void queue_take(tm_t *tm, tm_port_t *p, uint32_t i, uint64_t now_ps, tm_service_t *out)
{
    tm_queue_t *q = &p->queues[i];
    pkt_t *pkt = q->head;
    q->head = pkt->next;
    if (!q->head) {
        q->tail = NULL;
        p->nonempty &= (uint8_t)~(1u << i);
    }
    pkt->next = NULL;
    tm_unqueue(tm, p, q, pkt);
    q->taken_ps = now_ps;
    tm_histogram_add(tm, TM_HISTOGRAM_DELAY, p->number * TM_QUEUES + i, now_ps - pkt->enq_ps);
    tm_count_t *c = &tm->counters[TM_DEQUEUED][p->number * TM_QUEUES + i];
    c->packets++;
    c->bytes += pkt->charged_bytes;
    out->queue = (uint8_t)i;
    out->pkt = pkt;
    out->left_bytes = q->bytes;
    out->left_packets = q->packets;
    tmb_release(tm, pkt, now_ps);
}

/* Runs the events up to limit_ps; true when one of them is something to send. The port stays at its time in the heap until
 * tm_sent or tm_discard. */
bool tm_next(tm_t *tm, uint64_t limit_ps, tm_service_t *out)
{
    while (tm->heap_len) {
        tm_port_t *p = &tm->ports[tm->heap[0]];
        uint64_t t = p->next_ps;
        if (t > limit_ps)
            break;
        tm_settle(tm, p, t);
        out->start_ps = t;
        out->port = p->number;
        out->event = 0;
        if (p->watch_due_ps <= t) {
            if (tmw_run(tm, p, t, out))
                return true;
            continue; /* the port may have nothing to send yet */
        }
        if (pfc_wanted(tm, p) && pfc_due(p) <= t) {
            pfc_take(tm, p, t, out);
            return true;
        }
        uint32_t i = pick(p);
        if (i != TM_NO_QUEUE) {
            queue_take(tm, p, i, t, out);
            tm_debug_check(tm);
            return true;
        }
        tms_plan(tm, p, t);
    }
    return false;
}

uint64_t tm_sent(tm_t *tm, uint32_t port, uint32_t queue, uint32_t frame_bytes, uint64_t start_ps)
{
    tm_port_t *p = &tm->ports[port];
    uint64_t bits = ((frame_bytes > TM_MIN_FRAME_BYTES ? frame_bytes : TM_MIN_FRAME_BYTES) + TM_OVERHEAD_BYTES) * 8ull;
    uint64_t end = start_ps;
    if (p->rate_bps) {
        uint64_t total = bits * TM_PS_PER_S; /* at most 2^21 bits * 10^12 < 2^62 */
        if (start_ps == p->busy_until_ps)
            total += p->wire_rem; /* back to back: the remainder carries over, so that the rate is exact */
        end += total / p->rate_bps;
        p->wire_rem = total % p->rate_bps;
    }
    p->busy_until_ps = end;
    if (queue < TM_QUEUES) {
        tm_queue_t *q = &p->queues[queue];
        if (q->discipline == TM_ETS) {
            uint64_t scaled = ((uint64_t)frame_bytes << ETS_SHIFT) + q->ets_rem;
            q->ets_clock += scaled / q->weight;
            q->ets_rem = (uint32_t)(scaled % q->weight);
        } else if (q->discipline == TM_CBS) {
            q->credit -= (tm_i128)bits * TM_PS_PER_S;
            q->cbs_tx_until_ps = end;
        }
    }
    tms_plan(tm, p, start_ps);
    return end;
}

void tm_discard(tm_t *tm, uint32_t port, uint64_t now_ps) { tms_plan(tm, &tm->ports[port], now_ps); }

