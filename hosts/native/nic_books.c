/* Life and books of the NIC: creation, what may change while it runs, rows of flows, events, samples, counters. */
#include "nic_core.h"
#include "crc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX (1u << 22) /* events and samples that are kept when nobody takes them */

uint32_t nic_abi_version(void) { return NIC_ABI_VERSION; }

void nic_struct_bytes(uint32_t out[8])
{
    out[0] = sizeof(nic_config_t);
    out[1] = sizeof(nic_dcb_t);
    out[2] = sizeof(nic_rdma_config_t);
    out[3] = sizeof(nic_tcp_config_t);
    out[4] = sizeof(nic_event_t);
    out[5] = sizeof(nic_sample_t);
    out[6] = sizeof(nic_stats_t);
    out[7] = sizeof(nic_flow_stats_t);
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

void nic_take_sample(nic_t *nic, uint64_t now)
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
    for (uint8_t p = 0; p < 8; p++) {
        nic->priority_to_tc[p] = p;
        nic->class[p] = (nic_class_t){.weight = config->weight[p], .members = (uint8_t)(1u << p), .last = 7};
        nic->strict |= (uint32_t)(config->weight[p] == 0) << p;
    }
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
    raw_flush(nic);
    raw_free(&nic->received);
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

int nic_set_dcb(nic_t *nic, const nic_dcb_t *dcb, uint64_t now_ps, char *error, size_t error_bytes)
{
    const nic_config_t *config = &nic->config;
    for (uint32_t p = 0; p < 8; p++) {
        if (dcb->priority_to_tc[p] > 7)
            return refuse(error, error_bytes, "priority_to_tc[%u]: %u is out of range, must be 0..7", p, dcb->priority_to_tc[p]);
        if (dcb->pfc_tx_enable >> p & 1 && config->rx_xon_bytes[p] >= config->rx_xoff_bytes[p])
            return refuse(error, error_bytes, "rx_xon_bytes[%u]: %llu must be less than rx_xoff_bytes, %llu", p,
                          (unsigned long long)config->rx_xon_bytes[p], (unsigned long long)config->rx_xoff_bytes[p]);
    }
    for (uint32_t i = 0; i < 64; i++)
        if (dcb->dscp_to_priority[i] > 7)
            return refuse(error, error_bytes, "dscp_to_priority[%u]: %u is out of range, must be 0..7", i,
                          dcb->dscp_to_priority[i]);
    nic_run(nic, now_ps, 0);
    nic->strict = 0;
    for (uint32_t c = 0; c < 8; c++) {
        nic->class[c].weight = dcb->weight[c];
        nic->class[c].members = 0;
        nic->class[c].last = 7;
        nic->strict |= (uint32_t)(dcb->weight[c] == 0) << c;
    }
    for (uint32_t p = 0; p < 8; p++) {
        nic->priority_to_tc[p] = dcb->priority_to_tc[p];
        nic->class[dcb->priority_to_tc[p]].members |= (uint8_t)(1u << p);
    }
    nic->was_ready = 0; /* nobody is behind or ahead */
    memcpy(nic->config.dscp_to_priority, dcb->dscp_to_priority, sizeof nic->config.dscp_to_priority);
    pfc_enable(nic, dcb->pfc_rx_enable, dcb->pfc_tx_enable, now_ps);
    return 0;
}

int nic_set_marks(nic_t *nic, uint32_t flow, uint32_t dscp, uint32_t priority, uint64_t now_ps, char *error, size_t error_bytes)
{
    if (flow >= nic->flow_count || nic->flows[flow]->kind != NIC_RDMA)
        return refuse(error, error_bytes, "flow %u: is no RDMA flow of this NIC, which has %u flows", flow, nic->flow_count);
    if (dscp > 63 || priority > 7)
        return refuse(error, error_bytes, "dscp %u, priority %u: must be 0..63 and 0..7", dscp, priority);
    nic_run(nic, now_ps, 0);
    rdma_remark(nic, nic->flows[flow], dscp, priority, now_ps);
    return 0;
}

uint32_t nic_flow_count(const nic_t *nic) { return nic->flow_count; }

int nic_stop_flow(nic_t *nic, uint32_t flow, uint64_t now_ps)
{
    if (flow >= nic->flow_count)
        return -1;
    nic_run(nic, now_ps, 0);
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
