/* Port, timers, scheduler and receive buffer of the NIC. */
#include "nic_core.h"
#include "crc.h"
#include "pfc.h"

#include <string.h>

#define CLASS_COST_SHIFT 16

uint64_t now_or(const nic_t *nic, uint64_t at_ps) { return at_ps > nic->now_ps ? at_ps : nic->now_ps; }

/* --- timers: a binary heap of (time, number) that knows where each number is --- */

static int before(const nic_heap_slot_t *a, const nic_heap_slot_t *b)
{
    return a->at_ps < b->at_ps || (a->at_ps == b->at_ps && a->id < b->id);
}

static void heap_put(nic_heap_t *heap, uint32_t at, nic_heap_slot_t slot)
{
    heap->slots[at] = slot;
    heap->position[slot.id] = at + 1;
}

static void heap_up(nic_heap_t *heap, uint32_t at, nic_heap_slot_t slot)
{
    while (at && before(&slot, &heap->slots[(at - 1) / 2])) {
        heap_put(heap, at, heap->slots[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(heap, at, slot);
}

static void heap_down(nic_heap_t *heap, uint32_t at, nic_heap_slot_t slot)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && before(&heap->slots[child + 1], &heap->slots[child]))
            child++;
        if (!before(&heap->slots[child], &slot))
            break;
        heap_put(heap, at, heap->slots[child]);
        at = child;
    }
    heap_put(heap, at, slot);
}

void timer_set(nic_t *nic, uint32_t id, uint64_t at_ps)
{
    nic_heap_t *heap = &nic->heap;
    uint32_t position = heap->position[id];
    nic_heap_slot_t slot = {at_ps, id};
    if (at_ps != NEVER && !position) {
        heap_up(heap, heap->count++, slot);
    } else if (at_ps != NEVER) {
        if (before(&slot, &heap->slots[position - 1]))
            heap_up(heap, position - 1, slot);
        else
            heap_down(heap, position - 1, slot);
    } else if (position) {
        heap->position[id] = 0;
        nic_heap_slot_t last = heap->slots[--heap->count];
        if (last.id != id) {
            if (position > 1 && before(&last, &heap->slots[(position - 2) / 2]))
                heap_up(heap, position - 1, last);
            else
                heap_down(heap, position - 1, last);
        }
    }
}

uint64_t timer_get(const nic_t *nic, uint32_t id)
{
    uint32_t position = nic->heap.position[id];
    return position ? nic->heap.slots[position - 1].at_ps : NEVER;
}

void timers_reserve(nic_t *nic, uint32_t ids)
{
    nic_heap_t *heap = &nic->heap;
    if (ids <= heap->ids)
        return;
    uint32_t had = heap->ids, room = heap->ids;
    heap->position = grow(heap->position, &room, ids, sizeof *heap->position);
    heap->slots = grow(heap->slots, &heap->ids, ids, sizeof *heap->slots);
    memset(heap->position + had, 0, (room - had) * sizeof *heap->position);
}

/* --- what waits to be sent --- */

void nic_kick(nic_t *nic, uint64_t now)
{
    if (nic->wire_at_ps == NEVER && !nic->link_down)
        nic->wire_at_ps = now > nic->wire_free_ps ? now : nic->wire_free_ps;
}

static void became_ready(nic_t *nic, uint32_t priority, uint64_t now)
{
    nic->ready |= 1u << priority;
    if (!(nic->paused >> priority & 1))
        nic_kick(nic, now);
}

void flow_enqueue(nic_t *nic, flow_t *flow, uint64_t now)
{
    if (flow->queued)
        return;
    nic_ring_t *ring = &nic->ring[flow->priority];
    flow->queued = 1;
    flow->next_queued = 0;
    if (ring->tail)
        nic->flows[ring->tail - 1]->next_queued = flow->index + 1;
    else
        ring->head = flow->index + 1;
    ring->tail = flow->index + 1;
    became_ready(nic, flow->priority, now);
}

static flow_t *flow_dequeue(nic_t *nic, nic_ring_t *ring)
{
    flow_t *flow = nic->flows[ring->head - 1];
    ring->head = flow->next_queued;
    if (!ring->head)
        ring->tail = 0;
    flow->queued = 0;
    return flow;
}

void flow_unqueue(nic_t *nic, flow_t *flow)
{
    if (!flow->queued)
        return;
    nic_ring_t *ring = &nic->ring[flow->priority];
    flow_t *last = NULL;
    for (uint32_t at = ring->head; at != flow->index + 1; at = last->next_queued)
        last = nic->flows[at - 1];
    if (last)
        last->next_queued = flow->next_queued;
    else
        ring->head = flow->next_queued;
    if (!flow->next_queued)
        ring->tail = last ? last->index + 1 : 0;
    flow->queued = 0;
}

void control_push(nic_t *nic, uint32_t priority, const nic_control_t *control, uint64_t now)
{
    nic_control_queue_t *queue = &nic->ring[priority].control;
    if (queue->count == queue->room) {
        uint32_t had = queue->room;
        queue->ring = grow(queue->ring, &queue->room, had + 1, sizeof *queue->ring);
        /* the part before head comes after the old end */
        for (uint32_t i = 0; i < queue->head; i++)
            queue->ring[(had + i) & (queue->room - 1)] = queue->ring[i];
    }
    queue->ring[(queue->head + queue->count++) & (queue->room - 1)] = *control;
    became_ready(nic, priority, now);
}

/* --- the wire --- */

/* Sends nic->tx and makes it zero again: only headers and the invariant CRC at the end were written. */
static void transmit(nic_t *nic, uint32_t len, uint64_t now)
{
    uint32_t wire_bytes = (len > MIN_FRAME_BYTES ? len : MIN_FRAME_BYTES) + WIRE_OVERHEAD_BYTES;
    uint64_t end;
    if (nic->ps_per_byte) {
        end = now + wire_bytes * nic->ps_per_byte;
    } else {
        uint64_t total = wire_bytes * 8ull * PS_PER_S;
        if (now == nic->wire_free_ps)
            total += nic->wire_rem; /* back to back: the remainder carries over, so that the rate is exact */
        end = now + total / nic->config.rate_bps;
        nic->wire_rem = total % nic->config.rate_bps;
    }
    nic->wire_free_ps = end;
    if (len < MIN_FRAME_BYTES)
        len = MIN_FRAME_BYTES;
    nic->stats.tx_frames++;
    nic->stats.tx_bytes += len;
    if (nic->output)
        nic->output(nic->output_arg, nic->tx, len, nic->config.port, now, end);
    memset(nic->tx, 0, 80);
    memset(nic->tx + len - 4, 0, 4);
}

/* A traffic class among those that have something: strict ones first, the higher first, then by start-time fair queueing. */
static uint32_t choose_class(nic_t *nic, uint32_t candidates)
{
    uint32_t strict = candidates & nic->strict, weighted = candidates & ~nic->strict;
    nic->was_ready &= weighted;
    if (strict)
        return 31 - (uint32_t)__builtin_clz(strict);
    uint32_t best = 8;
    for (uint32_t left = weighted; left; left &= left - 1) {
        uint32_t tc = (uint32_t)__builtin_ctz(left);
        nic_class_t *class = &nic->class[tc];
        if (!(nic->was_ready >> tc & 1) && class->clock < nic->virtual_clock)
            class->clock = nic->virtual_clock; /* who was away claims nothing for it */
        if (best == 8 || class->clock < nic->class[best].clock)
            best = tc;
    }
    nic->was_ready = weighted;
    return best;
}

/* The priority that sends next. In a class those that have something take turns. */
static uint32_t choose(nic_t *nic, uint32_t candidates)
{
    uint32_t classes = 0;
    for (uint32_t left = candidates; left; left &= left - 1)
        classes |= 1u << nic->priority_to_tc[__builtin_ctz(left)];
    nic_class_t *class = &nic->class[choose_class(nic, classes)];
    uint32_t mine = candidates & class->members, after = mine & (~1u << class->last);
    class->last = (uint8_t)__builtin_ctz(after ? after : mine);
    return class->last;
}

static void raw_send(nic_t *nic, uint32_t queue, uint64_t now)
{
    uint32_t len = raw_take(nic, queue);
    transmit(nic, len, now);
    memset(nic->tx, 0, len);
    nic->wire_at_ps = nic->wire_free_ps;
}

static void wire(nic_t *nic, uint64_t now)
{
    if (pfc_due(nic)) {
        transmit(nic, pfc_make(nic, now), now);
        nic->wire_at_ps = nic->wire_free_ps;
        return;
    }
    if (nic->raw[NIC_RAW_UNGATED].head) {
        raw_send(nic, NIC_RAW_UNGATED, now);
        return;
    }
    for (;;) {
        uint32_t candidates = nic->ready & ~nic->paused;
        if (!candidates) {
            nic->wire_at_ps = NEVER;
            return;
        }
        uint32_t p = choose(nic, candidates);
        nic_ring_t *ring = &nic->ring[p];
        uint32_t len = 0, raw = 0;
        if (ring->control.count) {
            nic_control_t control = ring->control.ring[ring->control.head];
            ring->control.head = (ring->control.head + 1) & (ring->control.room - 1);
            ring->control.count--;
            raw = control.kind == CONTROL_RAW;
            if (raw)
                len = raw_take(nic, p);
            else if (control.kind == CONTROL_TCP_ACK)
                len = tcp_control(nic, &control, now);
            else
                len = rdma_control(nic, &control, now);
        } else if (ring->head) {
            flow_t *flow = flow_dequeue(nic, ring);
            len = flow->kind == NIC_RDMA ? rdma_build(nic, flow, now) : tcp_build(nic, flow, now);
        }
        if (!ring->control.count && !ring->head)
            nic->ready &= ~(1u << p);
        if (!len)
            continue;
        nic->stats.tx_frames_prio[p]++;
        nic->stats.tx_bytes_prio[p] += len > MIN_FRAME_BYTES ? len : MIN_FRAME_BYTES;
        nic_class_t *class = &nic->class[nic->priority_to_tc[p]];
        if (class->weight) {
            nic->virtual_clock = class->clock;
            class->clock += ((u128)len << CLASS_COST_SHIFT) / class->weight;
        }
        transmit(nic, len, now);
        if (raw)
            memset(nic->tx, 0, len);
        nic->wire_at_ps = nic->wire_free_ps;
        return;
    }
}

void nic_set_link(nic_t *nic, int up, uint64_t now_ps)
{
    nic_run(nic, now_ps, 0);
    if (nic->link_down == !up)
        return;
    nic->link_down = !up;
    if (up) {
        nic->storm_due = 0;
        nic->wire_at_ps = nic->ready || pfc_due(nic) ? now_ps : NEVER;
    } else {
        nic->wire_at_ps = NEVER;
        nic->wire_rem = 0;
        if (nic->wire_free_ps > now_ps)
            nic->wire_free_ps = now_ps; /* the frame on it is lost */
        pfc_forget(nic, now_ps);
        raw_flush(nic);
    }
    nic_event(nic, NIC_EVENT_LINK, 0, up != 0, now_ps);
}

/* --- receiving --- */

static void process(nic_t *nic, const uint8_t *frame, uint32_t len, uint64_t now)
{
    uint32_t cnm = cnm_at(frame, len);
    if (cnm) {
        cnm_rx(nic, frame, len, cnm, now);
        return;
    }
    uint32_t ip_end = len >= IP_AT + 20 && get16(frame + 12) == 0x0800 ? IP_AT + get16(frame + IP_AT + 2) : 0;
    if (!ip_end || frame[IP_AT] != 0x45 || (get16(frame + IP_AT + 6) & 0x3fff)) {
        nic->stats.rx_other++;
        return;
    }
    if (ip_end > len || ip_end < L4_AT || get32(frame + IP_AT + 16) != nic->config.ip) {
        if (ip_end > len || ip_end < L4_AT)
            nic->stats.rx_malformed++;
        else
            nic->stats.rx_not_ours++;
        return;
    }
    nic->stats.rx_ce += (frame[IP_AT + 1] & 3) == ECN_CE;
    if (frame[IP_AT + 9] == 17)
        rdma_rx(nic, frame, ip_end, now);
    else if (frame[IP_AT + 9] == 6)
        tcp_rx(nic, frame, ip_end, now);
    else
        nic->stats.rx_other++;
}

static void drain_start(nic_t *nic, uint64_t now)
{
    if (nic->drain_busy || nic->drain_stalled || !nic->pending_count)
        return;
    nic->drain_busy = 1;
    uint64_t duration = 0;
    if (nic->drain_bps) {
        uint64_t total = nic->pending[nic->pending_head].len * 8ull * PS_PER_S + nic->drain_rem;
        duration = total / nic->drain_bps;
        nic->drain_rem = total % nic->drain_bps;
    }
    timer_set(nic, TIMER_DRAIN, now + duration);
}

static void drained(nic_t *nic, uint64_t now)
{
    nic_pending_t *head = &nic->pending[nic->pending_head];
    nic->pending_head = (nic->pending_head + 1) & (nic->pending_room - 1);
    nic->pending_count--;
    nic->drain_busy = 0;
    nic->stats.rx_used_bytes -= head->len;
    nic->rx_prio_bytes[head->priority] -= head->len;
    pfc_occupancy(nic, head->priority, now);
    process(nic, head->head, head->len, now);
    if (!nic->pending_count)
        nic->drain_rem = 0;
    drain_start(nic, now);
}

static void buffer_frame(nic_t *nic, const uint8_t *frame, uint32_t len, uint32_t priority, uint64_t now)
{
    if (nic->config.rx_buffer_bytes && nic->stats.rx_used_bytes + len > nic->config.rx_buffer_bytes) {
        nic->stats.rx_drop++;
        nic->stats.rx_drop_bytes += len;
        nic->stats.rx_drop_prio[priority]++;
        nic_event(nic, NIC_EVENT_RX_DROP, priority, len, now);
        return;
    }
    if (nic->pending_count == nic->pending_room) {
        uint32_t had = nic->pending_room;
        nic->pending = grow(nic->pending, &nic->pending_room, had + 1, sizeof *nic->pending);
        for (uint32_t i = 0; i < nic->pending_head; i++)
            nic->pending[(had + i) & (nic->pending_room - 1)] = nic->pending[i];
    }
    nic_pending_t *slot = &nic->pending[(nic->pending_head + nic->pending_count++) & (nic->pending_room - 1)];
    slot->len = len;
    slot->priority = (uint8_t)priority;
    memcpy(slot->head, frame, len < sizeof slot->head ? len : sizeof slot->head);
    nic->stats.rx_used_bytes += len;
    if (nic->stats.rx_used_bytes > nic->stats.rx_peak_bytes)
        nic->stats.rx_peak_bytes = nic->stats.rx_used_bytes;
    nic->rx_prio_bytes[priority] += len;
    pfc_occupancy(nic, priority, now);
    drain_start(nic, now);
}

static uint32_t priority_of(const nic_t *nic, const uint8_t *frame, uint32_t len)
{
    uint32_t type = get16(frame + 12);
    if (type == 0x0800 && len >= IP_AT + 2)
        return nic->config.dscp_to_priority[frame[IP_AT + 1] >> 2];
    if (type == 0x8100 && len >= IP_AT + 2)
        return frame[IP_AT] >> 5;
    return 0;
}

void nic_receive(nic_t *nic, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    (void)port;
    nic_run(nic, now_ps, 0);
    nic->stats.rx_frames++;
    nic->stats.rx_bytes += len;
    if (len < 14 || len > NIC_MAX_FRAME_BYTES) {
        nic->stats.rx_malformed++;
        return;
    }
    if (get16(frame + 12) == MAC_CONTROL_TYPE) {
        pfc_rx(nic, frame, len, now_ps);
        return;
    }
    if (memcmp(frame, nic->config.mac, 6) != 0) {
        if (!(frame[0] & 1)) {
            nic->stats.rx_not_ours++;
            return;
        }
        nic->stats.rx_other++;
        raw_rx(nic, frame, len, now_ps);
        return;
    }
    if (get16(frame + 12) != 0x0800 && !cnm_at(frame, len)) /* counted in its turn, as one that fills the buffer */
        raw_rx(nic, frame, len, now_ps);
    uint32_t priority = priority_of(nic, frame, len);
    nic->stats.rx_frames_prio[priority]++;
    nic->stats.rx_bytes_prio[priority] += len;
    if (!nic->drain_bps && !nic->drain_stalled && !nic->pending_count)
        process(nic, frame, len, now_ps);
    else
        buffer_frame(nic, frame, len, priority, now_ps);
}

void nic_set_drain(nic_t *nic, uint64_t drain_bps, int stalled, uint64_t now_ps)
{
    nic_run(nic, now_ps, 0);
    nic->drain_bps = drain_bps;
    nic->drain_stalled = stalled != 0;
    nic->drain_rem = 0;
    if (nic->drain_busy) { /* the frame at the head begins anew at the new rate */
        timer_set(nic, TIMER_DRAIN, NEVER);
        nic->drain_busy = 0;
    }
    drain_start(nic, now_ps);
}

/* --- time --- */

static void fire(nic_t *nic, uint32_t id, uint64_t now)
{
    if (id >= TIMER_FLOWS) {
        flow_t *flow = nic->flows[(id - TIMER_FLOWS) / FLOW_TIMERS];
        uint32_t kind = (id - TIMER_FLOWS) % FLOW_TIMERS;
        if (flow->kind == NIC_RDMA)
            rdma_timer(nic, flow, kind, now);
        else
            tcp_timer(nic, flow, kind, now);
    } else if (id < TIMER_REFRESH) {
        pfc_gate_expired(nic, id, now);
    } else if (id == TIMER_REFRESH) {
        nic->refresh_due = nic->xoff != 0;
        nic_kick(nic, now);
    } else if (id == TIMER_STORM) {
        pfc_storm_tick(nic, now);
    } else if (id == TIMER_DRAIN) {
        drained(nic, now);
    } else {
        nic_take_sample(nic, now);
    }
}

void nic_run(nic_t *nic, uint64_t until, int inclusive)
{
    nic_heap_t *heap = &nic->heap;
    for (;;) {
        uint64_t timer = heap->count ? heap->slots[0].at_ps : NEVER;
        uint64_t at = timer <= nic->wire_at_ps ? timer : nic->wire_at_ps;
        if (at == NEVER || at > until || (at == until && !inclusive))
            break;
        nic->now_ps = at;
        if (timer <= nic->wire_at_ps) {
            uint32_t id = heap->slots[0].id;
            timer_set(nic, id, NEVER);
            fire(nic, id, at);
        } else {
            wire(nic, at);
        }
    }
    if (until > nic->now_ps)
        nic->now_ps = until;
}

void nic_advance(nic_t *nic, uint64_t now_ps) { nic_run(nic, now_ps, 1); }

void nic_wait(nic_t *nic, uint64_t now_ps) { nic_run(nic, now_ps, 0); }

uint64_t nic_next_deadline(const nic_t *nic)
{
    uint64_t timer = nic->heap.count ? nic->heap.slots[0].at_ps : NEVER;
    return timer < nic->wire_at_ps ? timer : nic->wire_at_ps;
}
