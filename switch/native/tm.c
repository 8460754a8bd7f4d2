/* Traffic manager: ports, pause gates, scheduler, port clocks and the event heap. See tm.h.
 *
 * An event of a port is the next time at which something can leave it: the wire is free, and a PFC frame is due or a queue
 * may send. `tm_plan` works it out after every change; the heap holds one such time per port, ties by port number. */
#include "tm.h"

#include <stdlib.h>
#include <string.h>

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

/* --- times ---------------------------------------------------------------------------------------------------------- */

static inline uint64_t ceil_div128(tm_u128 a, uint64_t b) { return (uint64_t)((a + b - 1) / b); }

static inline uint64_t pause_rate(const tm_port_t *p) { return p->rate_bps ? p->rate_bps : TM_NOMINAL_BPS; }

static uint64_t bits_ps(const tm_port_t *p, uint64_t bits) { return ceil_div128((tm_u128)bits * TM_PS_PER_S, pause_rate(p)); }

/* A PFC frame is sent again when half of the pause that it carries has passed. */
static uint64_t refresh_ps(const tm_port_t *p)
{
    uint64_t bits = (uint64_t)p->quanta * TM_QUANTUM_BITS / 2;
    return bits_ps(p, bits > TM_MIN_REFRESH_BITS ? bits : TM_MIN_REFRESH_BITS);
}

/* --- pause gates ---------------------------------------------------------------------------------------------------- */

/* After every change of what is paused, until when, or of the queue map. */
static void gates_update(tm_port_t *p)
{
    uint8_t closed = 0;
    p->gate_end_ps = TM_NEVER;
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        if (!(p->paused >> i & 1))
            continue;
        closed |= (uint8_t)(1u << p->queue_of[i]);
        if (p->gates[i].until_ps < p->gate_end_ps)
            p->gate_end_ps = p->gates[i].until_ps;
    }
    p->closed = closed;
}

static void cbs_settle(tm_port_t *p, uint64_t now_ps);

/* Ends pauses whose time is over, each at its own end, however late this runs. */
static void gates_expire(tm_port_t *p, uint64_t now_ps)
{
    while (p->paused && p->gate_end_ps <= now_ps) {
        uint64_t end = p->gate_end_ps;
        if (p->cbs_mask) /* credit grew at another speed until the gate opened */
            cbs_settle(p, end);
        for (uint32_t i = 0; i < TM_QUEUES; i++) {
            if ((p->paused >> i & 1) && p->gates[i].until_ps == end) {
                p->gates[i].total_ps += end - p->gates[i].since_ps;
                p->paused &= (uint8_t)~(1u << i);
            }
        }
        gates_update(p);
    }
}

static inline void settle(tm_port_t *p, uint64_t now_ps)
{
    if (p->paused && p->gate_end_ps <= now_ps)
        gates_expire(p, now_ps);
    if (p->cbs_mask)
        cbs_settle(p, now_ps);
}

void tm_pause(tm_t *tm, uint32_t port, uint32_t vector, const uint16_t times[TM_QUEUES], uint64_t now_ps)
{
    tm_port_t *p = tm_touch(tm, port);
    if (!p->present)
        return;
    settle(p, now_ps);
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        if (!(vector >> i & 1))
            continue;
        tm_gate_t *g = &p->gates[i];
        bool paused = p->paused >> i & 1;
        if (times[i] == 0) {
            if (paused) {
                g->total_ps += now_ps - g->since_ps;
                g->until_ps = now_ps;
                p->paused &= (uint8_t)~(1u << i);
            }
            continue;
        }
        if (!paused) {
            g->since_ps = now_ps;
            g->count++;
            p->paused |= (uint8_t)(1u << i);
        }
        g->until_ps = now_ps + bits_ps(p, (uint64_t)times[i] * TM_QUANTUM_BITS);
    }
    gates_update(p);
    tm_plan(tm, p, now_ps);
    tm_debug_check(tm);
}

/* --- credit-based shaper (802.1Q 8.6.8.2) ----------------------------------------------------------------------------
 * Credit is charged with the whole frame when it starts and grows at idleSlope meanwhile, which at each time that the wire is
 * free equals the standard's sendSlope. A paused queue keeps what credit it has and gains none above zero. */

static void cbs_settle(tm_port_t *p, uint64_t now_ps)
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

/* --- ports and configuration ---------------------------------------------------------------------------------------- */

tm_t *tm_create(uint32_t n_queues)
{
    if (n_queues < 1 || n_queues > TM_QUEUES)
        return NULL;
    tm_t *tm = calloc(1, sizeof *tm);
    if (!tm)
        return NULL;
    tm->n_queues = n_queues;
    tm->pool_bytes = TM_DEFAULT_POOL_BYTES;
    return tm;
}

void tm_destroy(tm_t *tm) { free(tm); }

/* Ports are set up at their first use, so that untouched ones cost no memory. */
tm_port_t *tm_touch(tm_t *tm, uint32_t port)
{
    tm_port_t *p = &tm->ports[port];
    if (p->touched)
        return p;
    p->touched = 1;
    tm->touched[tm->n_touched++] = (uint16_t)port;
    p->number = (uint16_t)port;
    p->heap_slot = -1;
    p->next_ps = TM_NEVER;
    p->quanta = 65535;
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        p->queue_of[i] = (uint8_t)i;
        p->queues[i].discipline = TM_ETS;
        p->queues[i].weight = 1;
        p->queues[i].limit_bytes = TM_DEFAULT_QUEUE_BYTES;
        tmb_defaults(&p->pgs[i]);
    }
    return p;
}

int tm_add_port(tm_t *tm, uint32_t port, uint64_t now_ps)
{
    if (port >= TM_PORTS)
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    if (p->present)
        return -1;
    p->present = 1;
    p->blocked = 0;
    p->told = 0;
    p->busy_until_ps = now_ps;
    p->wire_rem = 0;
    tm_plan(tm, p, now_ps);
    return 0;
}

pkt_t *tm_remove_port(tm_t *tm, uint32_t port, uint64_t now_ps)
{
    if (port >= TM_PORTS || !tm->ports[port].present)
        return NULL;
    tm_port_t *p = &tm->ports[port];
    settle(p, now_ps);
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        if (p->paused >> i & 1)
            p->gates[i].total_ps += now_ps - p->gates[i].since_ps;
    p->paused = p->closed = p->told = 0;
    p->present = 0;
    heap_set(tm, p, TM_NEVER);
    pkt_t *list = NULL, **end = &list;
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        tm_queue_t *q = &p->queues[i];
        while (q->head) {
            pkt_t *pkt = q->head;
            q->head = pkt->next;
            q->bytes -= pkt->charged_bytes;
            q->packets--;
            tm->queued_packets--;
            tm_count_drop(tm, TM_DROP_PORT, port * TM_QUEUES + i, 1, pkt->charged_bytes);
            tmb_release(tm, pkt, now_ps);
            pkt->next = NULL;
            *end = pkt;
            end = &pkt->next;
        }
        q->tail = NULL;
        q->credit = 0;
        q->cbs_tx_until_ps = 0;
    }
    p->nonempty = 0;
    tm_debug_check(tm);
    return list;
}

int tm_block_port(tm_t *tm, uint32_t port, bool blocked, uint64_t now_ps)
{
    if (port >= TM_PORTS || !tm->ports[port].present)
        return -1;
    tm_port_t *p = &tm->ports[port];
    settle(p, now_ps);
    p->blocked = blocked;
    tm_plan(tm, p, now_ps);
    return 0;
}

int tm_set_port(tm_t *tm, uint32_t port, uint64_t rate_bps, uint64_t now_ps)
{
    if (port >= TM_PORTS || rate_bps > TM_MAX_RATE_BPS)
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    settle(p, now_ps);
    p->rate_bps = rate_bps;
    p->wire_rem = 0;
    tm_plan(tm, p, now_ps);
    return 0;
}

int tm_set_pfc(tm_t *tm, uint32_t port, uint32_t tx_enable, uint32_t quanta, uint32_t queue_map, uint64_t now_ps)
{
    if (port >= TM_PORTS || tx_enable > 0xff || quanta > 0xffff || (tx_enable && !quanta) || queue_map > 0xffffff)
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    settle(p, now_ps);
    p->tx_enable = (uint8_t)tx_enable;
    p->quanta = (uint16_t)quanta;
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        p->queue_of[i] = (uint8_t)(queue_map >> (3 * i) & 7);
    gates_update(p);
    tmb_desire(tm, p, now_ps);
    tm_plan(tm, p, now_ps);
    tm_debug_check(tm);
    return 0;
}

int tm_set_scheduler(tm_t *tm, uint32_t port, uint32_t queue, uint32_t discipline, uint64_t value, uint64_t now_ps)
{
    if (port >= TM_PORTS || queue >= TM_QUEUES || discipline > TM_CBS)
        return -1;
    if (discipline == TM_ETS && (value < 1 || value > 100))
        return -1;
    if (discipline == TM_CBS && (value < 1 || value > TM_MAX_RATE_BPS))
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    settle(p, now_ps);
    tm_queue_t *q = &p->queues[queue];
    uint8_t bit = (uint8_t)(1u << queue);
    if (discipline == TM_CBS && q->discipline != TM_CBS) {
        q->credit = 0;
        q->credit_ps = now_ps;
        q->cbs_tx_until_ps = 0;
    }
    q->discipline = (uint8_t)discipline;
    p->strict_mask = (uint8_t)(discipline == TM_STRICT ? p->strict_mask | bit : p->strict_mask & ~bit);
    p->cbs_mask = (uint8_t)(discipline == TM_CBS ? p->cbs_mask | bit : p->cbs_mask & ~bit);
    if (discipline == TM_ETS) {
        q->weight = (uint8_t)value;
        q->ets_rem = 0;
    } else if (discipline == TM_CBS) {
        q->idle_slope_bps = value;
    }
    tm_plan(tm, p, now_ps);
    return 0;
}

int tm_set_queue(tm_t *tm, uint32_t port, uint32_t queue, bool dynamic, uint32_t limit_or_alpha, uint64_t now_ps)
{
    (void)now_ps; /* a limit acts on the next packet */
    if (port >= TM_PORTS || queue >= TM_QUEUES)
        return -1;
    int32_t alpha = dynamic ? (int8_t)(uint8_t)limit_or_alpha : 0;
    if (dynamic && (limit_or_alpha > 0xff || alpha < -16 || alpha > 16))
        return -1;
    tm_queue_t *q = &tm_touch(tm, port)->queues[queue];
    q->limit_dynamic = dynamic;
    q->limit_alpha = (int8_t)alpha;
    q->limit_bytes = dynamic ? 0 : limit_or_alpha;
    return 0;
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
        uint64_t t = credit >= 0 ? at : at + ceil_div128((tm_u128)-credit, q->idle_slope_bps);
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

void tm_plan(tm_t *tm, tm_port_t *p, uint64_t now_ps)
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
    heap_set(tm, p, next);
}

/* --- packets -------------------------------------------------------------------------------------------------------- */

void tm_count_drop(tm_t *tm, uint32_t kind, uint32_t index, uint64_t packets, uint64_t bytes)
{
    if (kind < TM_COUNTERS && index < TM_CELLS) {
        tm->counters[kind][index].packets += packets;
        tm->counters[kind][index].bytes += bytes;
    }
}

int tm_enqueue(tm_t *tm, pkt_t *pkt, uint64_t now_ps)
{
    tm_port_t *p = &tm->ports[pkt->out_port];
    uint32_t cell = pkt->out_port * TM_QUEUES + pkt->queue;
    if (!p->present || pkt->queue >= tm->n_queues) {
        tm_count_drop(tm, TM_DROP_PORT, cell, 1, pkt->len);
        return TM_DROP_PORT;
    }
    tm_queue_t *q = &p->queues[pkt->queue];
    if (!pkt->lossless) {
        uint64_t limit = q->limit_dynamic ? tmb_scale(tm, q->limit_alpha) : q->limit_bytes;
        if (q->bytes + pkt->len > limit) {
            tm_count_drop(tm, TM_DROP_QUEUE_LIMIT, cell, 1, pkt->len);
            return TM_DROP_QUEUE_LIMIT;
        }
    }
    /* Pauses end at their own time, and credit grows from when a queue stops being empty. */
    settle(p, now_ps);
    int reason = tmb_charge(tm, pkt, now_ps);
    if (reason)
        return reason;
    pkt->enq_ps = now_ps;
    pkt->next = NULL;
    if (q->tail)
        q->tail->next = pkt;
    else
        q->head = pkt;
    q->tail = pkt;
    q->packets++;
    q->bytes += pkt->charged_bytes;
    if (q->bytes > q->watermark)
        q->watermark = q->bytes;
    tm->queued_packets++;
    tm_count_t *c = &tm->counters[TM_ENQUEUED][cell];
    c->packets++;
    c->bytes += pkt->charged_bytes;
    if (!(p->nonempty >> pkt->queue & 1)) {
        p->nonempty |= (uint8_t)(1u << pkt->queue);
        tm_plan(tm, p, now_ps);
    }
    tm_debug_check(tm);
    return 0;
}

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
    q->packets--;
    q->bytes -= pkt->charged_bytes;
    tm->queued_packets--;
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
        settle(p, t);
        out->start_ps = t;
        out->port = p->number;
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
        tm_plan(tm, p, t);
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
    tm_plan(tm, p, start_ps);
    return end;
}

void tm_discard(tm_t *tm, uint32_t port, uint64_t now_ps) { tm_plan(tm, &tm->ports[port], now_ps); }

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

uint64_t tm_read_state(tm_t *tm, uint32_t kind, uint32_t index, uint64_t now_ps)
{
    if (index >= TM_CELLS)
        return 0;
    if (kind == TM_POOL_USED)
        return index == 0 ? tm->pool_used : 0;
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
        return paused ? ceil_div128((tm_u128)(gate->until_ps - now_ps) * pause_rate(p), TM_QUANTUM_BITS * TM_PS_PER_S) : 0;
    case TM_PAUSED_NS: {
        uint64_t ps = gate->total_ps;
        if (p->paused >> n & 1) {
            uint64_t end = gate->until_ps < now_ps ? gate->until_ps : now_ps;
            ps += end > gate->since_ps ? end - gate->since_ps : 0;
        }
        return ps / 1000;
    }
    case TM_PAUSE_COUNT: return gate->count;
    default: return 0;
    }
}

/* A cleared watermark starts again from what is held now. */
int tm_clear_watermark(tm_t *tm, uint32_t kind, uint32_t index)
{
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
