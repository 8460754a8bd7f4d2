/* RDMA queue pairs, as requesters: RoCEv2 RC (RDMA WRITE, go-back-N, retransmit timer) and UC, paced or windowed, under
 * DCQCN or QCN.
 *
 * A queue pair is requester and responder at once. As requester it counts packets from 0 in 64 bits; a PSN is the low 24
 * bits. Messages of a flow are equally long but for the last. Nothing that was sent is kept: a packet is made from its
 * number. What an ACK says is decided when it leaves, so at most one waits per queue pair. */
#include "nic_qp.h"
#include "crc.h"

#include <stdlib.h>
#include <string.h>

/* --- places --- */

static uint32_t message_bytes(const qp_t *q, uint64_t message)
{
    uint64_t left = q->flow.bytes - message * q->config.message_bytes;
    return (uint32_t)(left < q->config.message_bytes ? left : q->config.message_bytes);
}

static cursor_t cursor_at(const qp_t *q, uint64_t packet)
{
    cursor_t c = {.packet = packet, .message = packet / q->message_packets};
    c.in_message = (uint32_t)(packet % q->message_packets);
    uint64_t last_packets = (message_bytes(q, q->messages - 1) + q->config.mtu_bytes - 1ull) / q->config.mtu_bytes;
    if (packet >= (q->messages - 1) * q->message_packets + last_packets) {
        c.message = q->messages;
        c.in_message = 0;
        c.offset = q->flow.bytes;
        return c;
    }
    c.offset = c.message * q->config.message_bytes + (uint64_t)c.in_message * q->config.mtu_bytes;
    c.left = message_bytes(q, c.message) - c.in_message * q->config.mtu_bytes;
    return c;
}

static uint32_t payload_at(const qp_t *q, const cursor_t *c)
{
    return c->left < q->config.mtu_bytes ? c->left : q->config.mtu_bytes;
}

static void step(const qp_t *q, cursor_t *c, uint32_t payload)
{
    c->packet++;
    c->offset += payload;
    c->left -= payload;
    c->in_message++;
    if (c->left == 0) {
        c->in_message = 0;
        if (++c->message < q->messages)
            c->left = message_bytes(q, c->message);
    }
}

/* --- sending --- */

static int message_open(const nic_t *nic, const qp_t *q)
{
    return q->waits_for < 0 || nic->flows[q->waits_for]->rx_messages >= q->nxt.message;
}

static int may_send(const nic_t *nic, const qp_t *q)
{
    if (q->flow.state != NIC_RUNNING || q->nxt.message >= q->messages || !message_open(nic, q))
        return 0;
    if (!q->config.reliable)
        return 1;
    if (q->nxt.packet - q->una.packet >= WINDOW_PACKETS)
        return 0;
    uint64_t flying = q->nxt.offset - q->una.offset;
    return !q->config.window_bytes || !flying || flying + payload_at(q, &q->nxt) <= q->config.window_bytes;
}

void qp_wake(nic_t *nic, qp_t *q, uint64_t now)
{
    if (q->flow.queued || !may_send(nic, q))
        return;
    if (q->next_ps > now)
        timer_set(nic, flow_timer(&q->flow, FLOW_PACE), q->next_ps);
    else
        flow_enqueue(nic, &q->flow, now);
}

/* The next frame's time. A frame that the port held up may be made up for, but only one: the rate is exact over time. */
static void pace(const nic_t *nic, qp_t *q, uint32_t frame_bytes, uint64_t now)
{
    uint64_t rate = qp_pace_bps(q);
    if (rate >= nic->config.rate_bps) {
        q->next_ps = now;
        q->pace_rem = 0;
        return;
    }
    if (rate != q->pace_rate) {
        q->pace_rate = rate;
        q->pace_rem = 0;
    }
    uint32_t padded = frame_bytes > MIN_FRAME_BYTES ? frame_bytes : MIN_FRAME_BYTES;
    uint64_t total = (padded + WIRE_OVERHEAD_BYTES) * 8ull * PS_PER_S + q->pace_rem;
    uint64_t interval = total / rate;
    uint64_t from = q->next_ps;
    if (from + interval < now) {
        from = now - interval;
        q->pace_rem = 0;
        total = (padded + WIRE_OVERHEAD_BYTES) * 8ull * PS_PER_S;
    }
    q->pace_rem = total % rate;
    q->next_ps = from + interval;
}

static void set_rate_timer(nic_t *nic, qp_t *q)
{
    int running = q->flow.state == NIC_RUNNING;
    timer_set(nic, flow_timer(&q->flow, FLOW_RATE), running ? dcqcn_deadline(&q->dcqcn) : NEVER);
    timer_set(nic, flow_timer(&q->flow, FLOW_AUX), running ? q->qcn.next_ps : NEVER);
}

/* The bits that are left to wait for go at the new rate. */
void qp_rate_changed(nic_t *nic, qp_t *q, uint64_t old_bps, uint64_t now)
{
    uint64_t rate = qp_pace_bps(q);
    set_rate_timer(nic, q);
    if (rate == old_bps || q->next_ps <= now)
        return;
    q->next_ps = now + (uint64_t)((u128)(q->next_ps - now) * old_bps / rate);
    if (timer_get(nic, flow_timer(&q->flow, FLOW_PACE)) != NEVER)
        timer_set(nic, flow_timer(&q->flow, FLOW_PACE), q->next_ps);
}

/* Annex A17: ones for the LRH and for what may change on the way. Beyond the headers every byte is 0. Packets of a queue
 * pair that are alike differ only after the first half of the BTH: the state up to there is kept for the next. */
void qp_icrc(const nic_t *nic, qp_t *q, uint8_t *frame, uint32_t head_bytes, uint32_t zero_bytes)
{
    if (!nic->config.icrc)
        return;
    const uint8_t *ip = frame + IP_AT, *bth = frame + BTH_AT;
    uint64_t alike = (uint64_t)get16(bth) << 32 | (uint64_t)bth[4] << 24 | get16(ip + 2);
    if (q->crc_alike != alike) {
        uint8_t masked[8 + 20 + 8 + 8];
        memset(masked, 0xff, 8);
        memcpy(masked + 8, ip, 20 + 8 + 8);
        masked[8 + 1] = masked[8 + 8] = masked[8 + 10] = masked[8 + 11] = 0xff;
        masked[8 + 26] = masked[8 + 27] = 0xff;
        masked[8 + 28 + 4] = 0xff;
        q->crc_alike = alike;
        q->crc_state = crc_update(0xffffffffu, masked, sizeof masked);
    }
    uint32_t crc = ~crc_zeros(crc_update(q->crc_state, bth + 8, head_bytes - BTH_AT - 8), zero_bytes);
    uint8_t *at = frame + head_bytes + zero_bytes; /* least significant byte first, as an FCS */
    at[0] = (uint8_t)crc;
    at[1] = (uint8_t)(crc >> 8);
    at[2] = (uint8_t)(crc >> 16);
    at[3] = (uint8_t)(crc >> 24);
}

/* Headers up to the PSN (`psn`: low bits of the packet's number), for `after` bytes between BTH and ICRC. Returns the frame's length. */
uint32_t qp_head(const qp_t *q, uint8_t *frame, uint32_t opcode, uint32_t pad,
                         uint32_t after, uint32_t psn)
{
    memcpy(frame, q->flow.head, BTH_AT);
    uint32_t udp_bytes = 8 + BTH_BYTES + after + ICRC_BYTES;
    header_length(frame + IP_AT, q->flow.ip_sum, 20 + udp_bytes);
    put16(frame + L4_AT + 4, udp_bytes);
    uint8_t *bth = frame + BTH_AT;
    bth[0] = (uint8_t)opcode;
    bth[1] = (uint8_t)(pad << 4);
    put16(bth + 2, 0xffff);
    put32(bth + 4, q->config.remote_qpn);
    put32(bth + 8, (psn + q->config.initial_psn) & PSN_MASK);
    return L4_AT + udp_bytes;
}

uint32_t rdma_build(nic_t *nic, flow_t *flow, uint64_t now)
{
    qp_t *q = qp_of(flow);
    if (!may_send(nic, q))
        return 0;
    if (q->next_ps > now) {
        qp_wake(nic, q, now);
        return 0;
    }
    cursor_t at = q->nxt;
    uint32_t payload = payload_at(q, &at), pad = -payload & 3;
    int first = at.in_message == 0, last = payload == at.left;
    uint32_t opcode = first ? (last ? WRITE_ONLY : WRITE_FIRST) : last ? WRITE_LAST : WRITE_MIDDLE;
    uint32_t reth = first ? RETH_BYTES : 0;
    uint8_t *frame = nic->tx;
    uint32_t len = qp_head(q, frame, opcode | (q->config.reliable ? 0 : UC), pad, reth + payload + pad,
                            (uint32_t)at.packet);
    if (first) {
        uint8_t *r = frame + BTH_AT + BTH_BYTES;
        put64(r, at.offset); /* where the message lies in the region that the flow fills */
        put32(r + 8, 1);     /* remote key */
        put32(r + 12, at.left);
    }
    step(q, &q->nxt, payload);
    int more = may_send(nic, q);
    if (q->config.reliable && (last || !more)) {
        frame[BTH_AT + 8] = ACK_REQUEST;
        if (at.packet >= q->asked)
            q->asked = at.packet + 1;
    }
    qp_icrc(nic, q, frame, BTH_AT + BTH_BYTES + reth, payload + pad);

    if (flow->first_ps == NEVER) {
        flow->first_ps = now;
        nic_event(nic, NIC_EVENT_STARTED, flow->index, 0, now);
    }
    flow->bytes_sent += payload;
    flow->packets_sent++;
    if (at.packet < q->max)
        flow->packets_resent++;
    else
        q->max = at.packet + 1;
    if (q->dcqcn.limited) {
        uint64_t deadline = dcqcn_deadline(&q->dcqcn);
        dcqcn_sent(&q->dcqcn, len, now);
        if (deadline != dcqcn_deadline(&q->dcqcn))
            set_rate_timer(nic, q);
    }
    if (q->qcn.limited) {
        qcn_sent(&q->qcn, len);
        if (!q->qcn.limited)
            set_rate_timer(nic, q);
    }
    pace(nic, q, len, now);
    if (q->config.reliable) {
        if (timer_get(nic, flow_timer(flow, FLOW_RTO)) == NEVER) { /* of the oldest: more data does not put it off */
            q->rto_at_ps = now + q->config.rto_ps;
            timer_set(nic, flow_timer(flow, FLOW_RTO), q->rto_at_ps);
        }
    } else if (q->nxt.message >= q->messages) {
        flow->bytes_acked = flow->bytes;
        flow->state = NIC_FINISHED;
        flow->finish_ps = now;
        nic_event(nic, NIC_EVENT_FINISHED, flow->index, flow->bytes, now);
        set_rate_timer(nic, q);
    } else {
        flow->bytes_acked = q->nxt.offset;
    }
    if (more)
        qp_wake(nic, q, now);
    return len;
}

/* --- what comes back --- */

static void finish(nic_t *nic, qp_t *q, uint32_t state, uint64_t now)
{
    q->flow.state = state;
    q->flow.finish_ps = now;
    timer_set(nic, flow_timer(&q->flow, FLOW_RTO), NEVER);
    timer_set(nic, flow_timer(&q->flow, FLOW_PACE), NEVER);
    set_rate_timer(nic, q);
    nic_event(nic, state == NIC_FINISHED ? NIC_EVENT_FINISHED : NIC_EVENT_FAILED, q->flow.index, q->flow.bytes_acked, now);
}

static void acknowledged(nic_t *nic, qp_t *q, uint64_t packet, uint64_t now)
{
    if (packet > q->una.packet) {
        if (packet == q->una.packet + 1)
            step(q, &q->una, payload_at(q, &q->una));
        else
            q->una = cursor_at(q, packet);
        q->retries = 0;
        q->rto_at_ps = now + q->config.rto_ps;
        if (q->nxt.packet < packet)
            q->nxt = q->una; /* after going back: what was on its way did arrive */
        q->flow.bytes_acked = q->una.offset;
        if (q->una.packet == q->max)
            timer_set(nic, flow_timer(&q->flow, FLOW_RTO), NEVER);
    }
    if (q->flow.state == NIC_RUNNING && q->una.message >= q->messages)
        finish(nic, q, NIC_FINISHED, now);
}

static void take_ack(nic_t *nic, qp_t *q, uint32_t psn, uint32_t syndrome, uint64_t now)
{
    uint32_t nak = (syndrome & 0xe0) == AETH_NAK_SEQUENCE;
    if (nak) {
        nic->stats.rx_nak++;
        q->flow.naks++;
    } else {
        nic->stats.rx_ack++;
    }
    if (q->flow.state != NIC_RUNNING)
        return;
    uint64_t una = q->una.packet;
    uint32_t ahead = (psn - q->config.initial_psn - (uint32_t)una) & PSN_MASK;
    if (q->config.recovery == NIC_GO_BACK_0 && nak && ahead > PSN_MASK / 2) { /* the message's first packet, long acknowledged */
        uint64_t back = PSN_MASK + 1 - ahead;
        if (back <= una && una - back == una - q->una.in_message)
            q->una = cursor_at(q, una - back);
        ahead = 0;
        una = q->una.packet;
    }
    if (ahead > PSN_MASK / 2 || una + ahead > q->max || (!nak && una + ahead == q->max))
        return; /* of the past, or of what was never sent */
    acknowledged(nic, q, una + ahead + !nak, now);
    if (nak && q->flow.state == NIC_RUNNING)
        q->nxt = q->una;
    qp_wake(nic, q, now);
}

void rdma_rx(nic_t *nic, const uint8_t *frame, uint32_t ip_end, uint64_t now)
{
    if (ip_end < BTH_AT + BTH_BYTES + ICRC_BYTES || get16(frame + L4_AT + 2) != ROCE_PORT) {
        nic->stats.rx_other++;
        return;
    }
    const uint8_t *bth = frame + BTH_AT;
    uint32_t index = (get32(bth + 4) & PSN_MASK) - NIC_QPN_BASE;
    if (index >= nic->flow_count || nic->flows[index]->kind != NIC_RDMA) {
        nic->stats.rx_unknown_flow++;
        return;
    }
    qp_t *q = qp_of(nic->flows[index]);
    uint32_t psn = get32(bth + 8) & PSN_MASK, left = ip_end - BTH_AT - BTH_BYTES - ICRC_BYTES;
    if (bth[0] == CNP) {
        nic->stats.rx_cnp++;
        q->flow.cnps++;
        if (q->flow.state == NIC_RUNNING && q->dcqcn.config.enabled) {
            uint64_t before_bps = qp_pace_bps(q);
            dcqcn_cnp(&q->dcqcn, now);
            qp_rate_changed(nic, q, before_bps, now);
            nic_event(nic, NIC_EVENT_CNP, index, q->dcqcn.rate_bps, now);
        }
        return;
    }
    if (bth[0] == ACKNOWLEDGE) {
        if (left < 4)
            nic->stats.rx_malformed++;
        else
            take_ack(nic, q, psn, bth[BTH_BYTES], now);
        return;
    }
    uint32_t opcode = bth[0] & 0x1f, pad = bth[1] >> 4 & 3;
    uint32_t reth = opcode == WRITE_FIRST || opcode == WRITE_ONLY ? RETH_BYTES : 0;
    if ((bth[0] & 0xe0) != (q->config.reliable ? 0 : UC) || (opcode != WRITE_FIRST && opcode != WRITE_MIDDLE &&
        opcode != WRITE_LAST && opcode != WRITE_ONLY) || left < reth + pad) {
        nic->stats.rx_malformed++;
        return;
    }
    if ((frame[IP_AT + 1] & 3) == ECN_CE)
        responder_marked(nic, q, now);
    responder_data(nic, q, opcode, psn, bth[8] & ACK_REQUEST, left - reth - pad, now);
}

/* --- time --- */

static void timed_out(nic_t *nic, qp_t *q, uint64_t now)
{
    if (q->flow.state != NIC_RUNNING || q->una.packet >= q->max)
        return;
    if (now < q->rto_at_ps) { /* something was acknowledged meanwhile */
        timer_set(nic, flow_timer(&q->flow, FLOW_RTO), q->rto_at_ps);
        return;
    }
    q->flow.timeouts++;
    if (q->config.retry_limit && ++q->retries > q->config.retry_limit) {
        finish(nic, q, NIC_FAILED, now);
        return;
    }
    q->nxt = q->una;
    q->rto_at_ps = now + q->config.rto_ps;
    timer_set(nic, flow_timer(&q->flow, FLOW_RTO), q->rto_at_ps);
    qp_wake(nic, q, now);
}

void rdma_timer(nic_t *nic, flow_t *flow, uint32_t kind, uint64_t now)
{
    qp_t *q = qp_of(flow);
    if (kind == FLOW_PACE) {
        if (flow->state == NIC_WAITING)
            flow->state = NIC_RUNNING;
        qp_wake(nic, q, now);
    } else if (kind == FLOW_RTO) {
        timed_out(nic, q, now);
    } else if (kind == FLOW_RATE) {
        uint64_t before_bps = qp_pace_bps(q);
        dcqcn_tick(&q->dcqcn, now);
        qp_rate_changed(nic, q, before_bps, now);
    } else {
        uint64_t before_bps = qp_pace_bps(q);
        qcn_tick(&q->qcn, now);
        qp_rate_changed(nic, q, before_bps, now);
    }
}

void rdma_stop(nic_t *nic, flow_t *flow, uint64_t now)
{
    qp_t *q = qp_of(flow);
    if (flow->state == NIC_WAITING || (flow->state == NIC_RUNNING && !q->config.reliable)) {
        q->messages = 0;
        flow->bytes = flow->bytes_acked;
        finish(nic, q, NIC_FINISHED, now);
        return;
    }
    if (flow->state != NIC_RUNNING)
        return;
    cursor_t end = cursor_at(q, q->max);
    if (q->asked < q->max && q->una.packet < q->max && q->nxt.packet == q->max && q->nxt.message < q->messages)
        step(q, &end, payload_at(q, &end)); /* nobody would acknowledge the last ones: one more ends the message, and asks */
    flow->bytes = end.offset;
    q->messages = end.message + (end.in_message != 0);
    if (q->messages == 0 || q->una.packet >= q->max) {
        q->una.message = q->messages;
        finish(nic, q, NIC_FINISHED, now);
        return;
    }
    q->una = cursor_at(q, q->una.packet);
    q->nxt = cursor_at(q, q->nxt.packet);
    qp_wake(nic, q, now);
}

static void set_header(const nic_t *nic, qp_t *q)
{
    const nic_rdma_config_t *c = &q->config;
    q->flow.ip_sum = header_ip(q->flow.head, nic, c->remote_mac, c->remote_ip, c->dscp, c->ecn, c->ttl, 17);
    put16(q->flow.head + L4_AT, c->udp_source_port);
    put16(q->flow.head + L4_AT + 2, ROCE_PORT);
}

/* Data and ACKs of this end from now on; what has left keeps its marks. */
void rdma_remark(nic_t *nic, flow_t *flow, uint32_t dscp, uint32_t priority, uint64_t now)
{
    qp_t *q = qp_of(flow);
    int queued = flow->queued;
    flow_unqueue(nic, flow);
    q->config.dscp = q->config.ack_dscp = (uint8_t)dscp;
    q->config.priority = q->config.ack_priority = flow->priority = (uint8_t)priority;
    set_header(nic, q);
    if (queued)
        flow_enqueue(nic, flow, now);
}

/* --- life and books --- */


static int32_t check(const nic_rdma_config_t *c, char *error, size_t room)
{
    if (c->dscp > 63 || c->ack_dscp > 63 || c->cnp_dscp > 63)
        return refuse(error, room, "dscp: %u, %u or %u is out of range, must be 0..63", c->dscp, c->ack_dscp, c->cnp_dscp);
    if (c->priority > 7 || c->ack_priority > 7 || c->cnp_priority > 7)
        return refuse(error, room, "priority: %u, %u or %u is out of range, must be 0..7", c->priority, c->ack_priority,
                      c->cnp_priority);
    if (c->ecn > 3)
        return refuse(error, room, "ecn: %u is out of range, must be 0..3", c->ecn);
    if (c->mtu_bytes < 64 || c->mtu_bytes > 8192)
        return refuse(error, room, "mtu_bytes: %u is out of range, must be 64..8192", c->mtu_bytes);
    if (c->ack_every == 0)
        return refuse(error, room, "ack_every: 0, must be 1 or more");
    if (c->remote_qpn > PSN_MASK)
        return refuse(error, room, "remote_qpn: 0x%x has more than 24 bits", c->remote_qpn);
    if (c->initial_psn > PSN_MASK)
        return refuse(error, room, "initial_psn: 0x%x has more than 24 bits", c->initial_psn);
    if (c->message_bytes > MESSAGE_MAX_BYTES)
        return refuse(error, room, "message_bytes: %llu is more than 2^30", (unsigned long long)c->message_bytes);
    if (c->rto_ps == 0)
        return refuse(error, room, "rto_ps: 0, must be 1 or more");
    const nic_dcqcn_config_t *d = &c->dcqcn;
    if (d->enabled && (d->alpha_timer_ps == 0 || d->increase_timer_ps == 0))
        return refuse(error, room, "dcqcn: alpha_timer_ps and increase_timer_ps must be 1 or more");
    if (d->enabled && (d->g_q32 == 0 || d->g_q32 > 1ull << 32))
        return refuse(error, room, "dcqcn.g: must be more than 0 and at most 1");
    if (d->enabled && d->min_rate_bps == 0)
        return refuse(error, room, "dcqcn.min_rate_bps: 0, must be 1 or more");
    return cnm_check(&c->qcn, error, room);
}

int32_t nic_add_rdma(nic_t *nic, const nic_rdma_config_t *config, char *error, size_t error_bytes)
{
    if (check(config, error, error_bytes) < 0)
        return -1;
    qp_t *q = (qp_t *)flow_new(nic, sizeof *q, NIC_RDMA);
    flow_t *flow = &q->flow;
    q->config = *config;
    q->waiter = q->waits_for = -1;
    q->cnp_last_ps = NEVER;
    flow->priority = config->priority;
    flow->bytes = config->bytes == UINT64_MAX ? 1ull << 62 : config->bytes;
    flow->start_ps = flow->bytes ? now_or(nic, config->start_ps) : 0;
    if (!q->config.message_bytes)
        q->config.message_bytes = flow->bytes && flow->bytes < MESSAGE_MAX_BYTES ? flow->bytes : MESSAGE_MAX_BYTES;
    q->message_packets = (uint32_t)((q->config.message_bytes + config->mtu_bytes - 1) / config->mtu_bytes);
    q->messages = flow->bytes / q->config.message_bytes + (flow->bytes % q->config.message_bytes != 0);
    uint64_t line = config->rate_bps && config->rate_bps < nic->config.rate_bps ? config->rate_bps : nic->config.rate_bps;
    dcqcn_init(&q->dcqcn, &config->dcqcn, line);
    qcn_init(&q->qcn, &config->qcn, line);
    set_header(nic, q);
    if (!flow->bytes) {
        flow->state = NIC_RESPONDER;
        return (int32_t)flow->index;
    }
    q->una = q->nxt = cursor_at(q, 0);
    flow->state = NIC_WAITING;
    timer_set(nic, flow_timer(flow, FLOW_PACE), flow->start_ps);
    return (int32_t)flow->index;
}

int nic_wait_flow(nic_t *nic, uint32_t flow, uint32_t other, char *error, size_t room)
{
    uint32_t count = nic->flow_count;
    if (flow >= count || other >= count || nic->flows[flow]->kind != NIC_RDMA || nic->flows[other]->kind != NIC_RDMA)
        return refuse(error, room, "wait_flow: %u or %u is no RDMA flow of this NIC, which has %u flows", flow, other, count);
    if (qp_of(nic->flows[other])->waiter >= 0)
        return refuse(error, room, "wait_flow: flow %d waits for flow %u already", qp_of(nic->flows[other])->waiter, other);
    qp_of(nic->flows[other])->waiter = (int32_t)flow;
    qp_of(nic->flows[flow])->waits_for = (int32_t)other;
    return 0;
}

void rdma_read(const nic_t *nic, const flow_t *flow, nic_flow_stats_t *stats)
{
    const qp_t *q = (const qp_t *)flow;
    stats->rate_bps = qp_pace_bps(q);
    stats->target_bps = q->qcn.config.enabled && !q->dcqcn.config.enabled ? q->qcn.target_bps : q->dcqcn.target_bps;
    stats->alpha_q32 = q->dcqcn.config.enabled ? dcqcn_alpha(&q->dcqcn, nic->now_ps) : 0;
    stats->cwnd_bytes = q->config.window_bytes;
}

void rdma_sample(const flow_t *flow, nic_sample_t *sample)
{
    const qp_t *q = (const qp_t *)flow;
    sample->rate_bps = qp_pace_bps(q);
    sample->window_bytes = q->nxt.offset - q->una.offset;
}

void rdma_free(flow_t *flow) { free(flow); }
