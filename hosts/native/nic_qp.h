/* What the two halves of a queue pair share: nic_rdma.c is the requester, nic_responder.c the responder. */
#ifndef DCBLAB_HOSTS_NIC_QP_H
#define DCBLAB_HOSTS_NIC_QP_H

#include "nic_core.h"
#include "nic_dcqcn.h"
#include "nic_qcn.h"

#define ROCE_PORT 4791u
#define PSN_MASK 0xffffffu
#define WINDOW_PACKETS (1u << 22) /* far from the half of the PSN space, where old and new get mixed up */
#define BTH_AT 42u
#define BTH_BYTES 12u
#define RETH_BYTES 16u
#define ICRC_BYTES 4u
#define MESSAGE_MAX_BYTES (1u << 30)
#define ACK_REQUEST 0x80u
#define BECN 0x40u
#define AETH_ACK 0x1fu /* credit count 31: no end-to-end credits */
#define AETH_NAK_SEQUENCE 0x60u

enum { WRITE_FIRST = 6, WRITE_MIDDLE = 7, WRITE_LAST = 8, WRITE_ONLY = 10, ACKNOWLEDGE = 0x11, UC = 0x20, CNP = 0x81 };

/* A place in the flow. */
typedef struct cursor {
    uint64_t packet;  /* number, counted from 0 */
    uint64_t message;
    uint64_t offset;  /* bytes of the flow before it */
    uint32_t in_message; /* packets of the message before it */
    uint32_t left;    /* bytes of the message from it on */
} cursor_t;

typedef struct qp {
    flow_t flow;
    nic_rdma_config_t config;
    dcqcn_t dcqcn;
    qcn_t qcn;
    uint64_t messages;
    uint32_t message_packets;
    cursor_t una, nxt;
    uint64_t max;       /* packets sent at least once: the highest number + 1 */
    uint64_t asked;     /* of those that asked for an ACK: the highest number + 1 */
    uint64_t next_ps;   /* pacing */
    uint64_t pace_rem;
    uint64_t pace_rate; /* that pace_rem belongs to */
    uint64_t rto_at_ps;
    uint32_t retries;
    int32_t waiter;     /* the flow that waits for messages that we receive */
    int32_t waits_for;  /* the flow whose messages we wait for */
    /* responder */
    uint64_t expected;
    uint64_t message_start; /* number of the running message's first packet */
    uint32_t unacked;
    uint8_t ack_waits, nak_due, nak_sent, cnp_waits;
    uint64_t cnp_last_ps;
    uint64_t crc_alike; /* of the packets that crc_state is of */
    uint32_t crc_state;
} qp_t;

static inline qp_t *qp_of(flow_t *flow) { return (qp_t *)flow; }

/* What the flow may send at: the lower of what its reaction points let it. */
static inline uint64_t qp_pace_bps(const qp_t *q)
{
    uint64_t rate = q->dcqcn.limited ? q->dcqcn.rate_bps : q->dcqcn.line_bps;
    return q->qcn.limited && q->qcn.rate_bps < rate ? q->qcn.rate_bps : rate;
}

/* nic_rdma.c */
void qp_rate_changed(nic_t *nic, qp_t *q, uint64_t old_bps, uint64_t now); /* a reaction point has done something */
void qp_wake(nic_t *nic, qp_t *q, uint64_t now); /* it may be able to send */
uint32_t qp_head(const qp_t *q, uint8_t *frame, uint32_t opcode, uint32_t pad, uint32_t after, uint32_t psn);
void qp_icrc(const nic_t *nic, qp_t *q, uint8_t *frame, uint32_t head_bytes, uint32_t zero_bytes);

/* nic_responder.c */
void responder_marked(nic_t *nic, qp_t *q, uint64_t now);
void responder_data(nic_t *nic, qp_t *q, uint32_t opcode, uint32_t psn, int ack_request, uint32_t payload, uint64_t now);

#endif
