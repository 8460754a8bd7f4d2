/* Congestion notification messages (802.1Qau) received: whose they are, and what the flow makes of them. */
#include "nic_qp.h"

#define ETHERTYPE_CNM 0x22e7u
#define ETHERTYPE_CN_TAG 0x22e9u
#define ETHERTYPE_VLAN 0x8100u
#define ETHERTYPE_SVLAN 0x88a8u
#define PDU_BYTES 24u
#define MSDU_LEN_AT 22u

/* Where the PDU is; 0: this is no message. */
uint32_t cnm_at(const uint8_t *frame, uint32_t len)
{
    uint32_t at = 12;
    for (uint32_t tags = 0; tags < 3 && at + 6 <= len; tags++) {
        uint32_t type = get16(frame + at);
        if (type == ETHERTYPE_CNM)
            return at + 2;
        if (type != ETHERTYPE_VLAN && type != ETHERTYPE_SVLAN && type != ETHERTYPE_CN_TAG)
            return 0;
        at += 4;
    }
    return at + 2 <= len && get16(frame + at) == ETHERTYPE_CNM ? at + 2 : 0;
}

/* The flow that sent what the message quotes: an IPv4 packet of ours to a queue pair. */
static qp_t *sender(const nic_t *nic, const uint8_t *msdu, uint32_t len)
{
    if (len < 2 + 20 || get16(msdu) != 0x0800 || msdu[2] >> 4 != 4)
        return NULL;
    const uint8_t *ip = msdu + 2;
    uint32_t ip_bytes = (ip[0] & 15u) * 4;
    if (ip_bytes < 20 || len < 2 + ip_bytes + 8 + 8 || ip[9] != 17 || get32(ip + 12) != nic->config.ip)
        return NULL;
    const uint8_t *udp = ip + ip_bytes;
    if (get16(udp + 2) != ROCE_PORT)
        return NULL;
    uint32_t to = get32(ip + 16), qpn = get32(udp + 8 + 4) & PSN_MASK;
    for (uint32_t i = 0; i < nic->flow_count; i++) {
        if (nic->flows[i]->kind != NIC_RDMA)
            continue;
        qp_t *q = qp_of(nic->flows[i]);
        if (q->config.remote_ip == to && q->config.remote_qpn == qpn)
            return q;
    }
    return NULL;
}

void cnm_rx(nic_t *nic, const uint8_t *frame, uint32_t len, uint32_t at, uint64_t now)
{
    const uint8_t *pdu = frame + at;
    nic->stats.rx_cnm++;
    uint32_t left = len - at;
    if (left < PDU_BYTES || get16(pdu + MSDU_LEN_AT) > left - PDU_BYTES || pdu[0] >> 4 != 0) {
        nic->stats.rx_malformed++;
        return;
    }
    qp_t *q = sender(nic, pdu + PDU_BYTES, get16(pdu + MSDU_LEN_AT));
    if (!q) {
        nic->stats.rx_unknown_flow++;
        return;
    }
    q->flow.cnms++;
    if (q->flow.state != NIC_RUNNING || !q->qcn.config.enabled)
        return;
    uint64_t before_bps = qp_pace_bps(q);
    qcn_feedback(&q->qcn, pdu[1] & 0x3f, now);
    qp_rate_changed(nic, q, before_bps, now);
    nic_event(nic, NIC_EVENT_CNM, q->flow.index, qp_pace_bps(q), now);
}

int cnm_check(const nic_qcn_config_t *c, char *error, size_t room)
{
    if (!c->enabled)
        return 0;
    if (c->timer_ps == 0 || c->byte_limit_bytes == 0)
        return refuse(error, room, "qcn: timer_ps and byte_limit_bytes must be 1 or more");
    if (c->gd_q32 == 0 || c->gd_q32 > 1ull << 32)
        return refuse(error, room, "qcn.gd: must be more than 0 and at most 1");
    if (c->least_factor_q32 == 0 || c->least_factor_q32 > 1ull << 32)
        return refuse(error, room, "qcn.least_factor: must be more than 0 and at most 1");
    if (c->min_rate_bps == 0)
        return refuse(error, room, "qcn.min_rate_bps: 0, must be 1 or more");
    return 0;
}
