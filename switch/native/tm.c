/* Traffic manager: ports, their configuration, and the way into a queue. See tm.h. */
#include "tm_room.h"

#include <stdlib.h>

/* --- ports and configuration ---------------------------------------------------------------------------------------- */

tm_t *tm_create(uint32_t n_queues)
{
    if (n_queues < 1 || n_queues > TM_QUEUES)
        return NULL;
    tm_t *tm = calloc(1, sizeof *tm);
    if (!tm)
        return NULL;
    tm->n_queues = n_queues;
    tm->pools[0].bytes = TM_DEFAULT_POOL_BYTES;
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
    p->watch_due_ps = TM_NEVER;
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        p->watches[i].due_ps = TM_NEVER;
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
    tms_plan(tm, p, now_ps);
    return 0;
}

pkt_t *tm_remove_port(tm_t *tm, uint32_t port, uint64_t now_ps)
{
    if (port >= TM_PORTS || !tm->ports[port].present)
        return NULL;
    tm_port_t *p = &tm->ports[port];
    tm_settle(tm, p, now_ps);
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        if (p->paused >> i & 1)
            tmg_end(tm, p, i, now_ps);
    tmg_update(p);
    p->told = 0;
    p->present = 0;
    pkt_t *list = NULL, **end = &list;
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        tm_queue_t *q = &p->queues[i];
        while (q->head) {
            pkt_t *pkt = q->head;
            q->head = pkt->next;
            tm_unqueue(tm, p, q, pkt);
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
    tms_plan(tm, p, now_ps); /* a watchdog goes on without the port */
    tm_debug_check(tm);
    return list;
}

int tm_block_port(tm_t *tm, uint32_t port, bool blocked, uint64_t now_ps)
{
    if (port >= TM_PORTS || !tm->ports[port].present)
        return -1;
    tm_port_t *p = &tm->ports[port];
    tm_settle(tm, p, now_ps);
    p->blocked = blocked;
    tms_plan(tm, p, now_ps);
    return 0;
}

int tm_set_port(tm_t *tm, uint32_t port, uint64_t rate_bps, uint64_t now_ps)
{
    if (port >= TM_PORTS || rate_bps > TM_MAX_RATE_BPS)
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    tm_settle(tm, p, now_ps);
    p->rate_bps = rate_bps;
    p->wire_rem = 0;
    tms_plan(tm, p, now_ps);
    return 0;
}

int tm_set_pfc(tm_t *tm, uint32_t port, uint32_t tx_enable, uint32_t quanta, uint32_t queue_map, uint64_t now_ps)
{
    if (port >= TM_PORTS || tx_enable > 0xff || quanta > 0xffff || (tx_enable && !quanta) || queue_map > 0xffffff)
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    tm_settle(tm, p, now_ps);
    p->tx_enable = (uint8_t)tx_enable;
    p->quanta = (uint16_t)quanta;
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        p->queue_of[i] = (uint8_t)(queue_map >> (3 * i) & 7);
    tmg_update(p);
    tmb_desire(tm, p, now_ps);
    tms_plan(tm, p, now_ps);
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
    tm_settle(tm, p, now_ps);
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
    tms_plan(tm, p, now_ps);
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
    if (tm->storms) {
        int reason = tmw_drop(tm, pkt);
        if (reason)
            return reason;
    }
    tm_queue_t *q = &p->queues[pkt->queue];
    if (!pkt->lossless) {
        uint64_t limit = q->limit_dynamic ? tmb_scale(&tm->pools[0], q->limit_alpha) : q->limit_bytes;
        if (q->bytes + pkt->len > limit) {
            tm_count_drop(tm, TM_DROP_QUEUE_LIMIT, cell, 1, pkt->len);
            return TM_DROP_QUEUE_LIMIT;
        }
    }
    /* Pauses end at their own time, and credit grows from when a queue stops being empty. */
    tm_settle(tm, p, now_ps);
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
    bool first = p->waiting[pkt->priority]++ == 0;
    if (first)
        p->waiting_since_ps[pkt->priority] = now_ps;
    tm_count_t *c = &tm->counters[TM_ENQUEUED][cell];
    c->packets++;
    c->bytes += pkt->charged_bytes;
    if ((p->congestion_points >> pkt->queue & 1) && !pkt->unsampled)
        tmq_enqueued(tm, p, pkt);
    bool arm = first && (p->watched & p->paused) >> pkt->priority & 1;
    if (arm)
        tmw_arm(p, pkt->priority);
    if (arm || !(p->nonempty >> pkt->queue & 1)) {
        p->nonempty |= (uint8_t)(1u << pkt->queue);
        tms_plan(tm, p, now_ps);
    }
    tm_debug_check(tm);
    return 0;
}
