/* RDMA queue pairs, as responders: what arrives in order is taken, the rest makes a NAK or a repeated ACK; marked packets
 * make CNPs. ACKs and CNPs wait in the queues of their priorities and are made as they leave. */
#include "nic_qp.h"

static void send_ack(nic_t *nic, qp_t *q, uint64_t now)
{
    q->unacked = 0;
    if (q->ack_waits)
        return;
    q->ack_waits = 1;
    nic_control_t control = {.flow = q->flow.index, .kind = CONTROL_RDMA_ACK};
    control_push(nic, q->config.ack_priority, &control, now);
}

void responder_marked(nic_t *nic, qp_t *q, uint64_t now)
{
    q->flow.marks++;
    if (q->config.cnp_interval_ps == NEVER || q->cnp_waits ||
        (q->cnp_last_ps != NEVER && now - q->cnp_last_ps < q->config.cnp_interval_ps))
        return;
    q->cnp_last_ps = now;
    q->cnp_waits = 1;
    nic_control_t control = {.flow = q->flow.index, .kind = CONTROL_CNP};
    control_push(nic, q->config.cnp_priority, &control, now);
}

static void accept_packet(nic_t *nic, qp_t *q, uint32_t opcode, uint32_t payload, uint64_t now)
{
    flow_t *flow = &q->flow;
    if (flow->rx_first_ps == NEVER)
        flow->rx_first_ps = now;
    flow->rx_last_ps = now;
    flow->rx_packets++;
    flow->rx_bytes += payload;
    if (opcode == WRITE_FIRST || opcode == WRITE_ONLY)
        q->message_start = q->expected;
    q->expected++;
    if (opcode != WRITE_LAST && opcode != WRITE_ONLY)
        return;
    q->message_start = q->expected;
    flow->rx_messages++;
    nic_event(nic, NIC_EVENT_MESSAGE, flow->index, flow->rx_messages, now);
    if (q->waiter >= 0)
        qp_wake(nic, qp_of(nic->flows[q->waiter]), now);
}

void responder_data(nic_t *nic, qp_t *q, uint32_t opcode, uint32_t psn, int ack_request, uint32_t payload, uint64_t now)
{
    uint32_t ahead = (psn - q->config.initial_psn - (uint32_t)q->expected) & PSN_MASK;
    if (!q->config.reliable) { /* UC: what is missing is missing, and its message with it */
        if (ahead > PSN_MASK / 2)
            return;
        q->flow.rx_out_of_order += ahead != 0;
        q->expected += ahead;
        accept_packet(nic, q, opcode, payload, now);
        return;
    }
    if (ahead == 0) {
        q->nak_sent = q->nak_due = 0;
        accept_packet(nic, q, opcode, payload, now);
        q->unacked++;
        if (ack_request || q->unacked >= q->config.ack_every)
            send_ack(nic, q, now);
    } else if (ahead > PSN_MASK / 2) {
        q->flow.rx_duplicates++;
        if (!q->nak_sent)
            send_ack(nic, q, now);
    } else {
        q->flow.rx_out_of_order++;
        if (q->nak_sent)
            return; /* one NAK until the missing packet comes */
        if (q->config.recovery == NIC_GO_BACK_0)
            q->expected = q->message_start;
        q->nak_sent = q->nak_due = 1;
        send_ack(nic, q, now);
    }
}

uint32_t rdma_control(nic_t *nic, const nic_control_t *control, uint64_t now)
{
    (void)now;
    qp_t *q = qp_of(nic->flows[control->flow]);
    uint8_t *frame = nic->tx;
    uint32_t after = control->kind == CONTROL_CNP ? 16 : 4;
    uint32_t dscp = control->kind == CONTROL_CNP ? q->config.cnp_dscp : q->config.ack_dscp;
    uint32_t tos = dscp << 2 | (control->kind == CONTROL_CNP ? 0u : q->config.ecn);
    uint32_t psn = 0u - q->config.initial_psn, opcode = CNP; /* a CNP's PSN is 0 */
    if (control->kind == CONTROL_RDMA_ACK) {
        opcode = ACKNOWLEDGE;
        psn = (uint32_t)(q->nak_due ? q->expected : q->expected - 1);
    }
    uint32_t len = qp_head(q, frame, opcode, 0, after, psn);
    uint32_t ip_bytes = len - IP_AT, had = frame[IP_AT + 1];
    frame[IP_AT + 1] = (uint8_t)tos;
    header_length(frame + IP_AT, q->flow.ip_sum + tos + (0xffffu ^ had), ip_bytes);
    if (control->kind == CONTROL_CNP) {
        frame[BTH_AT + 4] = BECN;
        qp_icrc(nic, q, frame, BTH_AT + BTH_BYTES, 16);
        q->cnp_waits = 0;
        q->flow.cnps_sent++;
        nic->stats.tx_cnp++;
        return len;
    }
    put32(frame + BTH_AT + BTH_BYTES, (q->nak_due ? AETH_NAK_SEQUENCE : AETH_ACK) << 24 | (q->flow.rx_messages & PSN_MASK));
    qp_icrc(nic, q, frame, BTH_AT + BTH_BYTES + 4, 0);
    if (q->nak_due)
        nic->stats.tx_nak++;
    else
        nic->stats.tx_ack++;
    q->ack_waits = q->nak_due = 0;
    return len;
}
