/* TCP as business traffic: Reno (RFC 5681, 6582) and DCTCP (RFC 8257) over established connections: no handshake, sequence
 * numbers from 0, cumulative ACKs (RFC 5681 delays), RTO of RFC 6298, ECN of RFC 3168. No SACK, no window updates.
 *
 * Offsets in the stream have 64 bits; a sequence number is their low 32. Congestion windows are bytes. */
#include "nic_core.h"

#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 20u
#define FLAG_PSH 0x08u
#define FLAG_ACK 0x10u
#define FLAG_ECE 0x40u
#define FLAG_CWR 0x80u
#define ECT0 2u
#define ONE_Q32 (1ull << 32)

typedef struct span {
    uint64_t from, to;
} span_t;

typedef struct tcp {
    flow_t flow;
    nic_tcp_config_t config;
    /* sender */
    uint64_t una, nxt, max;
    uint64_t cwnd, ssthresh, grown; /* grown: bytes acknowledged towards the next segment of additive increase */
    uint64_t recover;               /* highest offset sent when loss was last noticed */
    uint64_t reduced_to;            /* no second reduction by ECN until this is acknowledged */
    uint64_t srtt_ps, rttvar_ps, rto_ps, rto_at_ps;
    uint64_t timed_offset, timed_ps; /* the segment whose round trip is measured; timed_ps NEVER: none */
    uint64_t alpha_q32, window_end, window_acked, window_marked; /* DCTCP */
    uint32_t duplicates;
    uint8_t recovering, resend, cwr_due;
    /* receiver */
    uint64_t expected;
    span_t *spans; /* received beyond `expected`: ascending, apart */
    uint32_t span_count, span_room;
    uint32_t unacked;
    uint8_t echo;  /* ECE on ACKs: Reno until CWR, DCTCP the last segment's mark */
} tcp_t;

static tcp_t *tcp_of(flow_t *flow) { return (tcp_t *)flow; }

/* --- sending --- */

static uint64_t segment_at(const tcp_t *t, uint64_t offset)
{
    uint64_t left = t->flow.bytes - offset;
    return left < t->config.mss_bytes ? left : t->config.mss_bytes;
}

static int may_send(const tcp_t *t)
{
    if (t->flow.state != NIC_RUNNING)
        return 0;
    if (t->resend)
        return 1;
    if (t->nxt >= t->flow.bytes)
        return 0;
    uint64_t window = t->cwnd < t->config.max_window_bytes ? t->cwnd : t->config.max_window_bytes;
    uint64_t flying = t->nxt - t->una;
    return !flying || flying + segment_at(t, t->nxt) <= window;
}

static void wake(nic_t *nic, tcp_t *t, uint64_t now)
{
    if (!t->flow.queued && may_send(t))
        flow_enqueue(nic, &t->flow, now);
}

static uint32_t put_segment(const tcp_t *t, uint8_t *frame, uint64_t sequence, uint64_t ack, uint32_t flags, uint32_t ecn,
                            uint32_t payload)
{
    memcpy(frame, t->flow.head, L4_AT + HEADER_BYTES);
    frame[IP_AT + 1] |= (uint8_t)ecn;
    header_length(frame + IP_AT, t->flow.ip_sum + ecn, 20 + HEADER_BYTES + payload);
    uint8_t *tcp = frame + L4_AT;
    put32(tcp + 4, (uint32_t)sequence);
    put32(tcp + 8, (uint32_t)ack);
    tcp[12] = HEADER_BYTES / 4 << 4;
    tcp[13] = (uint8_t)flags;
    put16(tcp + 14, 0xffff);
    uint64_t sum = 6 + HEADER_BYTES + payload; /* pseudo header; the payload is 0 */
    for (uint32_t i = 0; i < 8; i += 2)
        sum += get16(frame + IP_AT + 12 + i);
    for (uint32_t i = 0; i < HEADER_BYTES; i += 2)
        sum += get16(tcp + i);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    put16(tcp + 16, ~(uint32_t)sum & 0xffff);
    return L4_AT + HEADER_BYTES + payload;
}

uint32_t tcp_build(nic_t *nic, flow_t *flow, uint64_t now)
{
    tcp_t *t = tcp_of(flow);
    if (!may_send(t))
        return 0;
    uint64_t offset = t->resend ? t->una : t->nxt;
    uint32_t payload = (uint32_t)segment_at(t, offset);
    int again = offset < t->max;
    uint32_t flags = FLAG_ACK | (offset + payload == flow->bytes ? FLAG_PSH : 0);
    if (t->cwr_due && !again) {
        flags |= FLAG_CWR;
        t->cwr_due = 0;
    }
    /* a retransmission is not ECN-capable (RFC 3168, 6.1.5) */
    uint32_t len = put_segment(t, nic->tx, offset, t->expected, flags, t->config.ecn && !again ? ECT0 : 0, payload);
    if (t->resend)
        t->resend = 0;
    else
        t->nxt = offset + payload;
    if (offset + payload > t->max)
        t->max = offset + payload;
    if (flow->first_ps == NEVER) {
        flow->first_ps = now;
        t->window_end = t->max;
        nic_event(nic, NIC_EVENT_STARTED, flow->index, 0, now);
    }
    if (!again && t->timed_ps == NEVER) {
        t->timed_ps = now;
        t->timed_offset = offset + payload;
    } else if (again && offset < t->timed_offset) {
        t->timed_ps = NEVER; /* Karn */
    }
    flow->bytes_sent += payload;
    flow->packets_sent++;
    flow->packets_resent += again;
    if (timer_get(nic, flow_timer(flow, FLOW_RTO)) == NEVER) {
        t->rto_at_ps = now + t->rto_ps;
        timer_set(nic, flow_timer(flow, FLOW_RTO), t->rto_at_ps);
    }
    wake(nic, t, now);
    return len;
}

uint32_t tcp_control(nic_t *nic, const nic_control_t *control, uint64_t now)
{
    (void)now;
    const tcp_t *t = tcp_of(nic->flows[control->flow]);
    nic->stats.tx_ack++;
    return put_segment(t, nic->tx, t->nxt, control->ack, FLAG_ACK | control->flags, 0, 0);
}

/* --- what comes back --- */

static void measure(tcp_t *t, uint64_t rtt)
{
    if (!t->srtt_ps) {
        t->srtt_ps = rtt ? rtt : 1;
        t->rttvar_ps = rtt / 2;
    } else {
        uint64_t off = rtt > t->srtt_ps ? rtt - t->srtt_ps : t->srtt_ps - rtt;
        t->rttvar_ps = (3 * t->rttvar_ps + off) / 4;
        t->srtt_ps = (7 * t->srtt_ps + rtt) / 8;
    }
    uint64_t rto = t->srtt_ps + 4 * t->rttvar_ps;
    t->rto_ps = rto < t->config.rto_min_ps ? t->config.rto_min_ps : rto > t->config.rto_max_ps ? t->config.rto_max_ps : rto;
}

static uint64_t half_of_flight(const tcp_t *t)
{
    uint64_t half = (t->max - t->una) / 2, least = 2ull * t->config.mss_bytes;
    return half > least ? half : least;
}

static void dctcp_window(tcp_t *t, uint64_t acked, int echo)
{
    t->window_acked += acked;
    t->window_marked += echo ? acked : 0;
    if (t->una < t->window_end)
        return;
    uint64_t fraction = (uint64_t)(((u128)t->window_marked << 32) / t->window_acked);
    uint64_t g = t->config.dctcp_g_q32;
    t->alpha_q32 = t->alpha_q32 - (uint64_t)((u128)t->alpha_q32 * g >> 32) + (uint64_t)((u128)fraction * g >> 32);
    t->window_acked = t->window_marked = 0;
    t->window_end = t->nxt;
}

static void reduce_by_ecn(tcp_t *t)
{
    uint64_t least = 2ull * t->config.mss_bytes;
    if (t->config.algorithm == NIC_TCP_DCTCP)
        t->cwnd -= (uint64_t)((u128)t->cwnd * t->alpha_q32 >> 33);
    else
        t->cwnd /= 2;
    if (t->cwnd < least)
        t->cwnd = least;
    t->ssthresh = t->cwnd;
    t->grown = 0;
    t->reduced_to = t->nxt;
    t->cwr_due = 1;
}

static void open_window(tcp_t *t, uint64_t acked)
{
    if (t->cwnd < t->ssthresh) { /* appropriate byte counting, L = 2 (RFC 3465) */
        uint64_t most = 2ull * t->config.mss_bytes;
        t->cwnd += acked < most ? acked : most;
        return;
    }
    t->grown += acked;
    if (t->grown >= t->cwnd) {
        t->grown -= t->cwnd;
        t->cwnd += t->config.mss_bytes;
    }
}

static void advance(nic_t *nic, tcp_t *t, uint64_t ack, int echo, uint64_t now)
{
    uint64_t acked = ack - t->una, mss = t->config.mss_bytes;
    t->una = ack;
    if (t->nxt < ack)
        t->nxt = ack;
    t->flow.bytes_acked = ack;
    t->duplicates = 0;
    t->resend = 0;
    if (t->timed_ps != NEVER && ack >= t->timed_offset) {
        measure(t, now - t->timed_ps);
        t->timed_ps = NEVER;
    }
    if (t->config.algorithm == NIC_TCP_DCTCP)
        dctcp_window(t, acked, echo);
    if (t->recovering && ack >= t->recover) {
        t->recovering = 0;
        t->cwnd = t->ssthresh;
    } else if (t->recovering) { /* a partial ACK: the next hole (RFC 6582) */
        t->cwnd = t->cwnd > acked + mss ? t->cwnd - acked : mss;
        if (acked >= mss)
            t->cwnd += mss;
        t->resend = 1;
    } else if (echo && t->config.ecn && ack > t->reduced_to) {
        reduce_by_ecn(t);
    } else if (!echo || !t->config.ecn || t->config.algorithm == NIC_TCP_DCTCP) {
        open_window(t, acked);
    }
    t->rto_at_ps = now + t->rto_ps;
    if (t->una == t->max)
        timer_set(nic, flow_timer(&t->flow, FLOW_RTO), NEVER);
    if (t->una < t->flow.bytes)
        return;
    t->flow.state = NIC_FINISHED;
    t->flow.finish_ps = now;
    nic_event(nic, NIC_EVENT_FINISHED, t->flow.index, t->flow.bytes_acked, now);
}

static void duplicate(tcp_t *t)
{
    if (t->recovering) {
        t->cwnd += t->config.mss_bytes;
    } else if (++t->duplicates == 3 && t->una >= t->recover) {
        t->ssthresh = half_of_flight(t);
        t->cwnd = t->ssthresh + 3ull * t->config.mss_bytes;
        t->grown = 0;
        t->recover = t->max;
        t->recovering = t->resend = 1;
    }
}

static void take_ack(nic_t *nic, tcp_t *t, uint32_t number, int echo, int pure, uint64_t now)
{
    if (t->flow.state != NIC_RUNNING)
        return;
    t->flow.marks += echo;
    uint64_t ack = t->una + (uint64_t)(int64_t)(int32_t)(number - (uint32_t)t->una);
    if (ack > t->una && ack <= t->max)
        advance(nic, t, ack, echo, now);
    else if (ack == t->una && pure && t->una < t->max)
        duplicate(t);
    wake(nic, t, now);
}

/* --- receiving --- */

static void send_ack(nic_t *nic, tcp_t *t, uint64_t now)
{
    t->unacked = 0;
    timer_set(nic, flow_timer(&t->flow, FLOW_AUX), NEVER);
    nic_control_t control = {t->flow.index, CONTROL_TCP_ACK, t->expected, t->echo ? FLAG_ECE : 0};
    control_push(nic, t->flow.priority, &control, now);
}

static void keep(tcp_t *t, uint64_t from, uint64_t to)
{
    uint32_t at = 0;
    while (at < t->span_count && t->spans[at].to < from)
        at++;
    uint32_t end = at;
    while (end < t->span_count && t->spans[end].from <= to) {
        from = t->spans[end].from < from ? t->spans[end].from : from;
        to = t->spans[end].to > to ? t->spans[end].to : to;
        end++;
    }
    if (at == end) {
        t->spans = grow(t->spans, &t->span_room, t->span_count + 1, sizeof *t->spans);
        memmove(t->spans + at + 1, t->spans + at, (t->span_count - at) * sizeof *t->spans);
        t->span_count++;
    } else if (end > at + 1) {
        memmove(t->spans + at + 1, t->spans + end, (t->span_count - end) * sizeof *t->spans);
        t->span_count -= end - at - 1;
    }
    t->spans[at] = (span_t){from, to};
}

static void fill(tcp_t *t, uint64_t to)
{
    t->expected = to;
    uint32_t used = 0;
    while (used < t->span_count && t->spans[used].from <= t->expected) {
        if (t->spans[used].to > t->expected)
            t->expected = t->spans[used].to;
        used++;
    }
    if (!used)
        return;
    t->span_count -= used;
    memmove(t->spans, t->spans + used, t->span_count * sizeof *t->spans);
}

static void take_data(nic_t *nic, tcp_t *t, uint32_t sequence, uint32_t payload, uint32_t flags, int ce, uint64_t now)
{
    flow_t *flow = &t->flow;
    uint64_t from = t->expected + (uint64_t)(int64_t)(int32_t)(sequence - (uint32_t)t->expected), to = from + payload;
    int at_once = flags & FLAG_PSH || t->span_count;
    if (t->config.algorithm == NIC_TCP_DCTCP) {
        if (ce != t->echo) { /* RFC 8257, 3.2: the state changed: what came before is told with the old one */
            if (t->unacked)
                send_ack(nic, t, now);
            t->echo = (uint8_t)ce;
            at_once = 1;
        }
    } else if (t->config.ecn) {
        if (flags & FLAG_CWR)
            t->echo = 0;
        if (ce)
            t->echo = 1;
    }
    if (flow->rx_first_ps == NEVER)
        flow->rx_first_ps = now;
    flow->rx_packets++;
    if ((int64_t)(to - t->expected) <= 0) {
        flow->rx_duplicates++;
        send_ack(nic, t, now);
        return;
    }
    if ((int64_t)(from - t->expected) > 0) {
        flow->rx_out_of_order++;
        keep(t, from, to);
        send_ack(nic, t, now);
        return;
    }
    uint64_t had = t->expected;
    fill(t, to);
    flow->rx_bytes += t->expected - had;
    flow->rx_last_ps = now;
    if (at_once || ++t->unacked >= t->config.ack_every)
        send_ack(nic, t, now);
    else
        timer_set(nic, flow_timer(flow, FLOW_AUX), now + t->config.delayed_ack_ps);
}

void tcp_rx(nic_t *nic, const uint8_t *frame, uint32_t ip_end, uint64_t now)
{
    const uint8_t *tcp = frame + L4_AT;
    uint32_t header = ip_end < L4_AT + HEADER_BYTES ? 0 : (uint32_t)(tcp[12] >> 4) * 4;
    if (header < HEADER_BYTES || L4_AT + header > ip_end) {
        nic->stats.rx_malformed++;
        return;
    }
    uint32_t index = get16(tcp + 2) - NIC_TCP_PORT_BASE;
    if (index >= nic->flow_count || nic->flows[index]->kind != NIC_TCP ||
        get16(tcp) != tcp_of(nic->flows[index])->config.remote_port) {
        nic->stats.rx_unknown_flow++;
        return;
    }
    tcp_t *t = tcp_of(nic->flows[index]);
    uint32_t payload = ip_end - L4_AT - header, flags = tcp[13];
    if (!payload)
        nic->stats.rx_ack++;
    if (flags & FLAG_ACK)
        take_ack(nic, t, get32(tcp + 8), (flags & FLAG_ECE) != 0, payload == 0, now);
    if (payload)
        take_data(nic, t, get32(tcp + 4), payload, flags, (frame[IP_AT + 1] & 3) == ECN_CE, now);
}

/* --- time --- */

static void timed_out(nic_t *nic, tcp_t *t, uint64_t now)
{
    if (t->flow.state != NIC_RUNNING || t->una == t->max)
        return;
    if (now >= t->rto_at_ps) {
        t->flow.timeouts++;
        t->ssthresh = half_of_flight(t);
        t->cwnd = t->config.mss_bytes;
        t->grown = 0;
        t->recover = t->max;
        t->nxt = t->una;
        t->recovering = t->resend = 0;
        t->duplicates = 0;
        t->timed_ps = NEVER;
        t->rto_ps = 2 * t->rto_ps < t->config.rto_max_ps ? 2 * t->rto_ps : t->config.rto_max_ps;
        t->rto_at_ps = now + t->rto_ps;
        wake(nic, t, now);
    }
    timer_set(nic, flow_timer(&t->flow, FLOW_RTO), t->rto_at_ps);
}

void tcp_timer(nic_t *nic, flow_t *flow, uint32_t kind, uint64_t now)
{
    tcp_t *t = tcp_of(flow);
    if (kind == FLOW_PACE) {
        flow->state = NIC_RUNNING;
        wake(nic, t, now);
    } else if (kind == FLOW_RTO) {
        timed_out(nic, t, now);
    } else if (kind == FLOW_AUX && t->unacked) {
        send_ack(nic, t, now);
    }
}

void tcp_stop(nic_t *nic, flow_t *flow, uint64_t now)
{
    tcp_t *t = tcp_of(flow);
    if (flow->state != NIC_WAITING && flow->state != NIC_RUNNING)
        return;
    flow->bytes = t->max;
    if (t->una < t->max)
        return;
    timer_set(nic, flow_timer(flow, FLOW_PACE), NEVER);
    flow->state = NIC_FINISHED;
    flow->finish_ps = now;
    nic_event(nic, NIC_EVENT_FINISHED, flow->index, flow->bytes_acked, now);
}

/* --- life and books --- */

int32_t nic_add_tcp(nic_t *nic, const nic_tcp_config_t *c, char *error, size_t room)
{
    if (c->dscp > 63)
        return refuse(error, room, "dscp: %u is out of range, must be 0..63", c->dscp);
    if (c->priority > 7)
        return refuse(error, room, "priority: %u is out of range, must be 0..7", c->priority);
    if (c->mss_bytes < 64 || c->mss_bytes > 8960)
        return refuse(error, room, "mss_bytes: %u is out of range, must be 64..8960", c->mss_bytes);
    if (c->ack_every < 1 || c->ack_every > 2)
        return refuse(error, room, "ack_every: %u, must be 1 or 2", c->ack_every);
    if (c->initial_window_segments == 0)
        return refuse(error, room, "initial_window_segments: 0, must be 1 or more");
    if (c->max_window_bytes < c->mss_bytes || c->max_window_bytes > 1u << 30)
        return refuse(error, room, "max_window_bytes: %llu is out of range, must be mss_bytes..2^30",
                      (unsigned long long)c->max_window_bytes);
    if (!c->rto_min_ps || !c->rto_initial_ps || c->rto_max_ps < c->rto_min_ps)
        return refuse(error, room, "rto: rto_min_ps and rto_initial_ps must be 1 or more, rto_max_ps at least rto_min_ps");
    if (c->algorithm == NIC_TCP_DCTCP && !c->ecn)
        return refuse(error, room, "ecn: 0, but DCTCP needs ECN");
    if (c->dctcp_g_q32 > ONE_Q32)
        return refuse(error, room, "dctcp_g: is more than 1");
    if (nic->flow_count >= NIC_MAX_TCP_FLOWS)
        return refuse(error, room, "flows: %u on this NIC, TCP's port numbers end here", nic->flow_count);
    tcp_t *t = (tcp_t *)flow_new(nic, sizeof *t, NIC_TCP);
    flow_t *flow = &t->flow;
    t->config = *c;
    t->cwnd = (uint64_t)c->initial_window_segments * c->mss_bytes;
    t->ssthresh = NEVER;
    t->rto_ps = c->rto_initial_ps;
    t->timed_ps = NEVER;
    t->alpha_q32 = ONE_Q32;
    flow->priority = c->priority;
    flow->bytes = c->bytes == UINT64_MAX ? 1ull << 62 : c->bytes;
    flow->start_ps = flow->bytes ? now_or(nic, c->start_ps) : 0;
    flow->ip_sum = header_ip(flow->head, nic, c->remote_mac, c->remote_ip, c->dscp, 0, c->ttl, 6);
    put16(flow->head + L4_AT, NIC_TCP_PORT_BASE + flow->index);
    put16(flow->head + L4_AT + 2, c->remote_port);
    flow->state = flow->bytes ? NIC_WAITING : NIC_RESPONDER;
    if (flow->bytes)
        timer_set(nic, flow_timer(flow, FLOW_PACE), flow->start_ps);
    return (int32_t)flow->index;
}

void tcp_read(const flow_t *flow, nic_flow_stats_t *stats)
{
    const tcp_t *t = (const tcp_t *)flow;
    stats->cwnd_bytes = t->cwnd;
    stats->ssthresh_bytes = t->ssthresh;
    stats->alpha_q32 = t->config.algorithm == NIC_TCP_DCTCP ? t->alpha_q32 : 0;
}

void tcp_sample(const flow_t *flow, nic_sample_t *sample) { sample->window_bytes = ((const tcp_t *)flow)->cwnd; }

void tcp_free(flow_t *flow)
{
    free(((tcp_t *)flow)->spans);
    free(flow);
}
