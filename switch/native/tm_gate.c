/* Traffic manager: pauses that the peer asked for, by port and priority, each with its end. See tm.h. */
#include "tm_room.h"

void tmg_update(tm_port_t *p)
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

void tmg_end(tm_t *tm, tm_port_t *p, uint32_t priority, uint64_t end_ps)
{
    tm_gate_t *g = &p->gates[priority];
    g->total_ps += end_ps - g->since_ps;
    tm_histogram_add(tm, TM_HISTOGRAM_PAUSE, p->number * TM_QUEUES + priority, end_ps - g->since_ps);
    g->until_ps = end_ps;
    p->paused &= (uint8_t)~(1u << priority);
}

/* Ends pauses whose time is over, each at its own end, however late this runs. */
void tmg_expire(tm_t *tm, tm_port_t *p, uint64_t now_ps)
{
    while (p->paused && p->gate_end_ps <= now_ps) {
        uint64_t end = p->gate_end_ps;
        if (p->cbs_mask) /* credit grew at another speed until the gate opened */
            tms_cbs_settle(p, end);
        for (uint32_t i = 0; i < TM_QUEUES; i++) {
            if ((p->paused >> i & 1) && p->gates[i].until_ps == end)
                tmg_end(tm, p, i, end);
        }
        tmg_update(p);
    }
}

void tm_pause(tm_t *tm, uint32_t port, uint32_t vector, uint32_t forever, const uint16_t times[TM_QUEUES], uint64_t now_ps)
{
    tm_port_t *p = tm_touch(tm, port);
    if (!p->present)
        return;
    tm_settle(tm, p, now_ps);
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        if (!(vector >> i & 1))
            continue;
        tm_gate_t *g = &p->gates[i];
        bool paused = p->paused >> i & 1, for_ever = forever >> i & 1;
        if (!times[i] && !for_ever) {
            if (paused)
                tmg_end(tm, p, i, now_ps);
            continue;
        }
        g->xoff_ps = now_ps;
        if (p->storm_deaf >> i & 1)
            continue;
        if (!paused) {
            g->since_ps = now_ps;
            g->count++;
            p->paused |= (uint8_t)(1u << i);
            if (p->watched >> i & 1)
                tmw_arm(p, i);
        }
        g->until_ps = for_ever ? TM_NEVER : now_ps + tm_bits_ps(p, (uint64_t)times[i] * TM_QUANTUM_BITS);
    }
    tmg_update(p);
    tms_plan(tm, p, now_ps);
    tm_debug_check(tm);
}
