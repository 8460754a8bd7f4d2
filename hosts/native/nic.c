/* Port, timers, scheduler and receive buffer of the NIC. */
#include "nic_core.h"
#include "crc.h"
#include "pfc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX (1u << 22) /* events and samples that are kept when nobody takes them */
#define PRIORITY_COST_SHIFT 16

uint32_t nic_abi_version(void) { return NIC_ABI_VERSION; }

void nic_struct_bytes(uint32_t out[7])
{
    out[0] = sizeof(nic_config_t);
    out[1] = sizeof(nic_rdma_config_t);
    out[2] = sizeof(nic_tcp_config_t);
    out[3] = sizeof(nic_event_t);
    out[4] = sizeof(nic_sample_t);
    out[5] = sizeof(nic_stats_t);
    out[6] = sizeof(nic_flow_stats_t);
}

int32_t refuse(char *error, size_t error_bytes, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(error, error_bytes, format, list);
    va_end(list);
    return -1;
}

void *grow(void *array, uint32_t *room, uint32_t need, size_t size)
{
    if (need <= *room)
        return array;
    uint32_t more = *room ? *room : 8;
    while (more < need)
        more *= 2;
    void *larger = realloc(array, more * size);
    if (!larger)
        abort();
    *room = more;
    return larger;
}

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

static void timers_reserve(nic_t *nic, uint32_t ids)
{
    nic_heap_t *heap = &nic->heap;
    if (ids <= heap->ids)
        return;
    uint32_t had = heap->ids, room = heap->ids;
    heap->position = grow(heap->position, &room, ids, sizeof *heap->position);
    heap->slots = grow(heap->slots, &heap->ids, ids, sizeof *heap->slots);
    memset(heap->position + had, 0, (room - had) * sizeof *heap->position);
}

/* --- records --- */

void nic_event(nic_t *nic, uint32_t kind, uint32_t flow, uint64_t value, uint64_t now)
{
    if (!(nic->config.events_mask >> kind & 1))
        return;
    nic->events_put += nic->config.notify_mask >> kind & 1;
    if (nic->event_count == RECORDS_MAX) {
        nic->stats.events_lost++;
        return;
    }
    nic->events = grow(nic->events, &nic->event_room, nic->event_count + 1, sizeof *nic->events);
    nic->events[nic->event_count++] = (nic_event_t){now, kind, flow, value};
}

static void sample(nic_t *nic, uint64_t now)
{
    for (uint32_t i = 0; i < nic->flow_count; i++) {
        flow_t *flow = nic->flows[i];
        if (flow->state != NIC_RUNNING)
            continue;
        if (nic->sample_count == RECORDS_MAX) {
            nic->stats.samples_lost++;
            continue;
        }
        nic->samples = grow(nic->samples, &nic->sample_room, nic->sample_count + 1, sizeof *nic->samples);
        nic_sample_t *s = &nic->samples[nic->sample_count++];
        *s = (nic_sample_t){.time_ps = now, .flow = i, .bytes_sent = flow->bytes_sent, .bytes_acked = flow->bytes_acked};
        if (flow->kind == NIC_RDMA)
            rdma_sample(flow, s);
        else
            tcp_sample(flow, s);
    }
    if (now + nic->sample_interval_ps <= nic->sample_until_ps)
        timer_set(nic, TIMER_SAMPLE, now + nic->sample_interval_ps);
}

static uint32_t take(void *from, uint32_t *count, void *to, uint32_t room, size_t size)
{
    uint32_t n = *count < room ? *count : room;
    if (n)
        memcpy(to, from, n * size);
    *count -= n;
    if (*count)
        memmove(from, (char *)from + n * size, *count * size);
    return n;
}

uint32_t nic_read_events(nic_t *nic, nic_event_t *events, uint32_t room)
{
    return take(nic->events, &nic->event_count, events, room, sizeof *events);
}

uint64_t nic_events_put(const nic_t *nic) { return nic->events_put; }

uint32_t nic_read_samples(nic_t *nic, nic_sample_t *samples, uint32_t room)
{
    return take(nic->samples, &nic->sample_count, samples, room, sizeof *samples);
}

/* --- what waits to be sent --- */

void nic_kick(nic_t *nic, uint64_t now)
{
    if (nic->wire_at_ps == NEVER)
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

static int choose(nic_t *nic, uint32_t candidates)
{
    uint32_t strict = candidates & nic->strict, weighted = candidates & ~nic->strict;
    nic->was_ready &= weighted;
    if (strict)
        return 31 - __builtin_clz(strict);
    int best = -1;
    for (uint32_t left = weighted; left; left &= left - 1) {
        int p = __builtin_ctz(left);
        nic_ring_t *ring = &nic->ring[p];
        if (!(nic->was_ready >> p & 1) && ring->clock < nic->virtual_clock)
            ring->clock = nic->virtual_clock; /* who was away claims nothing for it */
        if (best < 0 || ring->clock < nic->ring[best].clock)
            best = p;
    }
    nic->was_ready = weighted;
    return best;
}

static void wire(nic_t *nic, uint64_t now)
{
    if (pfc_due(nic)) {
        transmit(nic, pfc_make(nic, now), now);
        nic->wire_at_ps = nic->wire_free_ps;
        return;
    }
    for (;;) {
        uint32_t candidates = nic->ready & ~nic->paused;
        if (!candidates) {
            nic->wire_at_ps = NEVER;
            return;
        }
        int p = choose(nic, candidates);
        nic_ring_t *ring = &nic->ring[p];
        uint32_t len = 0;
        if (ring->control.count) {
            nic_control_t control = ring->control.ring[ring->control.head];
            ring->control.head = (ring->control.head + 1) & (ring->control.room - 1);
            ring->control.count--;
            len = control.kind == CONTROL_TCP_ACK ? tcp_control(nic, &control, now) : rdma_control(nic, &control, now);
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
        if (nic->config.weight[p]) {
            nic->virtual_clock = ring->clock;
            ring->clock += ((u128)len << PRIORITY_COST_SHIFT) / nic->config.weight[p];
        }
        transmit(nic, len, now);
        nic->wire_at_ps = nic->wire_free_ps;
        return;
    }
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

static void run(nic_t *nic, uint64_t until, int inclusive);

void nic_receive(nic_t *nic, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    (void)port;
    run(nic, now_ps, 0);
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
        if (frame[0] & 1)
            nic->stats.rx_other++;
        else
            nic->stats.rx_not_ours++;
        return;
    }
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
    run(nic, now_ps, 0);
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
        sample(nic, now);
    }
}

static void run(nic_t *nic, uint64_t until, int inclusive)
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

void nic_advance(nic_t *nic, uint64_t now_ps) { run(nic, now_ps, 1); }

void nic_wait(nic_t *nic, uint64_t now_ps) { run(nic, now_ps, 0); }

uint64_t nic_next_deadline(const nic_t *nic)
{
    uint64_t timer = nic->heap.count ? nic->heap.slots[0].at_ps : NEVER;
    return timer < nic->wire_at_ps ? timer : nic->wire_at_ps;
}

/* --- life and books --- */

nic_t *nic_create(const nic_config_t *config, char *error, size_t error_bytes)
{
    if (config->rate_bps < 1000000 || config->rate_bps > 1600000000000ull) {
        refuse(error, error_bytes, "rate_bps: %llu is out of range, must be 1000000..1600000000000",
               (unsigned long long)config->rate_bps);
        return NULL;
    }
    if (config->pfc_quanta == 0) {
        refuse(error, error_bytes, "pfc_quanta: 0 resumes, must be 1..65535");
        return NULL;
    }
    for (uint32_t i = 0; i < 64; i++)
        if (config->dscp_to_priority[i] > 7) {
            refuse(error, error_bytes, "dscp_to_priority[%u]: %u is out of range, must be 0..7", i,
                   config->dscp_to_priority[i]);
            return NULL;
        }
    for (uint32_t p = 0; p < 8; p++)
        if (config->pfc_tx_enable >> p & 1 && config->rx_xon_bytes[p] >= config->rx_xoff_bytes[p]) {
            refuse(error, error_bytes, "rx_xon_bytes[%u]: %llu must be less than rx_xoff_bytes, %llu", p,
                   (unsigned long long)config->rx_xon_bytes[p], (unsigned long long)config->rx_xoff_bytes[p]);
            return NULL;
        }
    crc_prepare();
    nic_t *nic = aligned_alloc(64, (sizeof *nic + 63) / 64 * 64);
    if (!nic)
        abort();
    memset(nic, 0, sizeof *nic);
    nic->config = *config;
    nic->wire_at_ps = NEVER;
    nic->drain_bps = config->rx_drain_bps;
    if (8 * PS_PER_S % config->rate_bps == 0)
        nic->ps_per_byte = 8 * PS_PER_S / config->rate_bps;
    for (uint32_t p = 0; p < 8; p++)
        nic->strict |= (config->weight[p] == 0) << p;
    timers_reserve(nic, TIMER_FLOWS);
    return nic;
}

void nic_destroy(nic_t *nic)
{
    if (!nic)
        return;
    for (uint32_t i = 0; i < nic->flow_count; i++) {
        if (nic->flows[i]->kind == NIC_RDMA)
            rdma_free(nic->flows[i]);
        else
            tcp_free(nic->flows[i]);
    }
    for (int p = 0; p < 8; p++)
        free(nic->ring[p].control.ring);
    free(nic->flows);
    free(nic->heap.slots);
    free(nic->heap.position);
    free(nic->pending);
    free(nic->events);
    free(nic->samples);
    free(nic);
}

void nic_set_output(nic_t *nic, nic_output_fn fn, void *arg)
{
    nic->output = fn;
    nic->output_arg = arg;
}

flow_t *flow_new(nic_t *nic, size_t size, uint32_t kind)
{
    flow_t *flow = calloc(1, size);
    if (!flow)
        abort();
    timers_reserve(nic, TIMER_FLOWS + (nic->flow_count + 1) * FLOW_TIMERS);
    nic->flows = grow(nic->flows, &nic->flow_room, nic->flow_count + 1, sizeof *nic->flows);
    flow->kind = kind;
    flow->index = nic->flow_count;
    flow->first_ps = flow->finish_ps = flow->rx_first_ps = flow->rx_last_ps = NEVER;
    nic->flows[nic->flow_count++] = flow;
    return flow;
}

uint32_t header_ip(uint8_t *head, const nic_t *nic, const uint8_t remote_mac[6], uint32_t remote_ip, uint32_t dscp,
                   uint32_t ecn, uint32_t ttl, uint32_t protocol)
{
    memcpy(head, remote_mac, 6);
    memcpy(head + 6, nic->config.mac, 6);
    put16(head + 12, 0x0800);
    uint8_t *ip = head + IP_AT;
    memset(ip, 0, 20);
    ip[0] = 0x45;
    ip[1] = (uint8_t)(dscp << 2 | ecn);
    ip[6] = 0x40; /* do not fragment */
    ip[8] = (uint8_t)ttl;
    ip[9] = (uint8_t)protocol;
    put32(ip + 12, nic->config.ip);
    put32(ip + 16, remote_ip);
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2)
        sum += get16(ip + i);
    return sum;
}

uint32_t nic_flow_count(const nic_t *nic) { return nic->flow_count; }

int nic_stop_flow(nic_t *nic, uint32_t flow, uint64_t now_ps)
{
    if (flow >= nic->flow_count)
        return -1;
    run(nic, now_ps, 0);
    if (nic->flows[flow]->kind == NIC_RDMA)
        rdma_stop(nic, nic->flows[flow], now_ps);
    else
        tcp_stop(nic, nic->flows[flow], now_ps);
    return 0;
}

void nic_set_sampling(nic_t *nic, uint64_t interval_ps, uint64_t until_ps)
{
    nic->sample_interval_ps = interval_ps;
    nic->sample_until_ps = until_ps;
    timer_set(nic, TIMER_SAMPLE, interval_ps && nic->now_ps <= until_ps ? nic->now_ps : NEVER);
}

void nic_read_stats(const nic_t *nic, nic_stats_t *stats)
{
    *stats = nic->stats;
    for (uint32_t p = 0; p < 8; p++) {
        const nic_gate_t *gate = &nic->gate[p];
        stats->xoff_rx[p] = gate->xoff_rx;
        stats->xon_rx[p] = gate->xon_rx;
        stats->pauses[p] = gate->pauses;
        stats->paused_ps[p] = gate->paused_ps + (nic->paused >> p & 1 ? nic->now_ps - gate->since_ps : 0);
    }
}

int nic_read_flow(const nic_t *nic, uint32_t index, nic_flow_stats_t *stats)
{
    if (index >= nic->flow_count)
        return -1;
    const flow_t *f = nic->flows[index];
    *stats = (nic_flow_stats_t){
        .kind = f->kind, .state = f->state, .start_ps = f->start_ps, .first_ps = f->first_ps,
        .finish_ps = f->finish_ps, .bytes = f->bytes, .bytes_sent = f->bytes_sent, .bytes_acked = f->bytes_acked,
        .packets_sent = f->packets_sent, .packets_resent = f->packets_resent, .timeouts = f->timeouts,
        .naks = f->naks, .cnps = f->cnps, .marks = f->marks, .rx_bytes = f->rx_bytes, .rx_packets = f->rx_packets,
        .rx_messages = f->rx_messages, .rx_out_of_order = f->rx_out_of_order, .rx_duplicates = f->rx_duplicates,
        .cnps_sent = f->cnps_sent, .rx_first_ps = f->rx_first_ps, .rx_last_ps = f->rx_last_ps, .cnms = f->cnms,
    };
    if (f->kind == NIC_RDMA)
        rdma_read(nic, f, stats);
    else
        tcp_read(f, stats);
    return 0;
}
