/* Traffic manager: PFC storms, their mitigation and their detection by the switch itself. See tm.h.
 *
 * Two ask for mitigation of a (port, priority): the control plane (tm_set_storm) and the switch's own watchdog. The port is
 * deaf to pauses of a priority that either mitigates, and drops its packets where either says so. A watchdog runs on one
 * deadline per (port, priority), `due_ps`. It is set when a pause or a wait begins and looked at when it is due, so that
 * packets cost nothing: whatever happened meanwhile is in the times that the gate and the queue keep. */
#include "tm_room.h"

static inline uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* --- mitigation ----------------------------------------------------------------------------------------------------- */

int tmw_drop(tm_t *tm, const pkt_t *pkt)
{
    uint32_t kind = TM_DROP_STORM_RX, port = pkt->in_port;
    if (!(tm->ports[port].storm_drop >> pkt->priority & 1)) {
        kind = TM_DROP_STORM_TX;
        port = pkt->out_port;
        if (!(tm->ports[port].storm_drop >> pkt->priority & 1))
            return 0;
    }
    tm_count_drop(tm, kind, port * TM_QUEUES + pkt->priority, 1, pkt->len);
    return (int)kind;
}

/* Takes what waits of a priority out of the queues of a port. */
static void flush(tm_t *tm, tm_port_t *p, uint32_t priority, uint64_t now_ps)
{
    for (uint32_t i = 0; i < TM_QUEUES && p->waiting[priority]; i++) {
        tm_queue_t *q = &p->queues[i];
        pkt_t **link = &q->head, *last = NULL;
        while (*link) {
            pkt_t *pkt = *link;
            if (pkt->priority != priority) {
                last = pkt;
                link = &pkt->next;
                continue;
            }
            *link = pkt->next;
            tm_unqueue(tm, p, q, pkt);
            tm_count_drop(tm, TM_DROP_STORM_TX, p->number * TM_QUEUES + priority, 1, pkt->charged_bytes);
            tmb_release(tm, pkt, now_ps);
            pkt->next = tm->flushed;
            tm->flushed = pkt;
        }
        q->tail = last;
        if (!q->head)
            p->nonempty &= (uint8_t)~(1u << i);
    }
}

pkt_t *tm_flushed(tm_t *tm)
{
    pkt_t *list = tm->flushed;
    tm->flushed = NULL;
    return list;
}

/* After every change of who mitigates what: a priority that has become deaf is resumed, one that is dropped is flushed. */
static void mitigate(tm_t *tm, tm_port_t *p, uint64_t now_ps)
{
    uint8_t deaf = p->storm_own | p->storm_asked, drop = p->storm_asked & p->storm_asked_drop;
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        if ((p->storm_own >> i & 1) && p->watches[i].action == TM_STORM_DROP)
            drop |= (uint8_t)(1u << i);
    tm_settle(tm, p, now_ps);
    tm->storms += (uint32_t)(drop != 0) - (uint32_t)(p->storm_drop != 0);
    p->storm_deaf = deaf;
    p->storm_drop = drop;
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        if (p->paused & deaf & (1u << i))
            tmg_end(tm, p, i, now_ps);
        if ((drop >> i & 1) && p->waiting[i])
            flush(tm, p, i, now_ps);
    }
    tmg_update(p);
    tms_plan(tm, p, now_ps);
}

int tm_set_storm(tm_t *tm, uint32_t port, uint32_t priority, uint32_t action, uint64_t now_ps)
{
    if (port >= TM_PORTS || priority >= TM_QUEUES || action > TM_STORM_DROP)
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    uint8_t bit = (uint8_t)(1u << priority);
    p->storm_asked = (uint8_t)(action == TM_STORM_ALERT ? p->storm_asked & ~bit : p->storm_asked | bit);
    p->storm_asked_drop = (uint8_t)(action == TM_STORM_DROP ? p->storm_asked_drop | bit : p->storm_asked_drop & ~bit);
    mitigate(tm, p, now_ps);
    tm_debug_check(tm);
    return 0;
}

/* --- the switch's own watchdog -------------------------------------------------------------------------------------- */

static void watch_at(tm_port_t *p, tm_watch_t *w, uint64_t due_ps)
{
    w->due_ps = due_ps;
    p->watch_due_ps = TM_NEVER;
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        if (p->watches[i].due_ps < p->watch_due_ps)
            p->watch_due_ps = p->watches[i].due_ps;
}

/* When a storm will be detected if nothing changes; TM_NEVER: there is none in the making. Gates are settled. */
static uint64_t detect_at(const tm_port_t *p, uint32_t priority)
{
    const tm_watch_t *w = &p->watches[priority];
    if (!(p->paused >> priority & 1) || (!w->empty_queue && !p->waiting[priority]))
        return TM_NEVER;
    uint64_t since = max64(p->gates[priority].since_ps, p->queues[p->queue_of[priority]].taken_ps);
    if (!w->empty_queue)
        since = max64(since, p->waiting_since_ps[priority]);
    return max64(since, w->floor_ps) + w->detect_ps;
}

static uint64_t restore_at(const tm_port_t *p, uint32_t priority)
{
    const tm_watch_t *w = &p->watches[priority];
    return w->restore_ps ? max64(p->gates[priority].xoff_ps, w->detected_ps) + w->restore_ps : TM_NEVER;
}

void tmw_arm(tm_port_t *p, uint32_t priority)
{
    tm_watch_t *w = &p->watches[priority];
    uint64_t due_ps = w->stormed ? restore_at(p, priority) : detect_at(p, priority);
    if (due_ps < w->due_ps) /* a deadline that has become too early is put off when it is due */
        watch_at(p, w, due_ps);
}

/* What the watchdog's state and action mean for the mitigation. */
static void apply(tm_t *tm, tm_port_t *p, uint32_t priority, uint64_t now_ps)
{
    const tm_watch_t *w = &p->watches[priority];
    uint8_t bit = (uint8_t)(1u << priority);
    bool own = w->stormed && w->action != TM_STORM_ALERT, alerted = w->stormed && w->action == TM_STORM_ALERT;
    p->storm_own = (uint8_t)(own ? p->storm_own | bit : p->storm_own & ~bit);
    p->storm_alerted = (uint8_t)(alerted ? p->storm_alerted | bit : p->storm_alerted & ~bit);
    mitigate(tm, p, now_ps);
}

bool tmw_run(tm_t *tm, tm_port_t *p, uint64_t now_ps, tm_service_t *out)
{
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        tm_watch_t *w = &p->watches[i];
        if (w->due_ps > now_ps)
            continue;
        uint64_t due_ps = w->stormed ? restore_at(p, i) : detect_at(p, i);
        if (due_ps > now_ps) {
            watch_at(p, w, due_ps);
            continue;
        }
        out->event = w->stormed ? TM_EVENT_RESTORED : TM_EVENT_STORM;
        out->priority = (uint8_t)i;
        out->pkt = NULL;
        w->stormed = !w->stormed;
        if (w->stormed) {
            w->detected_ps = now_ps;
            w->count++;
        } else {
            w->floor_ps = now_ps; /* a pause that an alert has let go on starts anew */
        }
        watch_at(p, w, TM_NEVER);
        apply(tm, p, i, now_ps);
        watch_at(p, w, w->stormed ? restore_at(p, i) : detect_at(p, i));
        tms_plan(tm, p, now_ps);
        tm_debug_check(tm);
        return true;
    }
    tms_plan(tm, p, now_ps);
    return false;
}

int tm_set_watchdog(tm_t *tm, uint32_t port, uint32_t priority, uint32_t detect_us, uint32_t restore_us, uint32_t action, bool empty_queue,
                    uint64_t now_ps)
{
    if (port >= TM_PORTS || priority >= TM_QUEUES || action > TM_STORM_DROP)
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    tm_watch_t *w = &p->watches[priority];
    uint8_t bit = (uint8_t)(1u << priority);
    tm_settle(tm, p, now_ps);
    if (!w->detect_ps)
        w->floor_ps = now_ps;
    w->detect_ps = detect_us * TM_PS_PER_US;
    w->restore_ps = restore_us * TM_PS_PER_US;
    w->action = (uint8_t)action;
    w->empty_queue = empty_queue;
    w->stormed = w->stormed && detect_us;
    p->watched = (uint8_t)(detect_us ? p->watched | bit : p->watched & ~bit);
    watch_at(p, w, TM_NEVER);
    apply(tm, p, priority, now_ps);
    if (detect_us)
        watch_at(p, w, w->stormed ? restore_at(p, priority) : detect_at(p, priority));
    tms_plan(tm, p, now_ps);
    tm_debug_check(tm);
    return 0;
}
