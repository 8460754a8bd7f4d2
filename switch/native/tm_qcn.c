/* Traffic manager: congestion points of 802.1Qau (QCN). See tm.h.
 *
 * A congestion point counts the bytes that enter its queue and looks at every so many of them. A sample compares the queue with
 * its set point and with the sample before; what is too much makes the feedback, 6 bits of it, and the next sample the sooner.
 * The message itself is made by the owner of the packet (`tm->cnm`) and by the program. */
#include "tm_room.h"

#define FEEDBACK_MAX 63

int tm_set_qcn(tm_t *tm, uint32_t port, uint32_t queue, uint32_t qeq_bytes, int32_t weight, uint32_t base_bytes, uint32_t jitter_percent,
               uint32_t priority, uint64_t cpid, uint64_t now_ps)
{
    (void)now_ps; /* it acts on the next packet */
    if (port >= TM_PORTS || queue >= TM_QUEUES)
        return -1;
    if (qeq_bytes && (weight < -10 || weight > 10 || base_bytes < 1 || jitter_percent > 50 || priority >= TM_QUEUES))
        return -1;
    tm_port_t *p = tm_touch(tm, port);
    uint8_t bit = (uint8_t)(1u << queue);
    p->congestion_points = (uint8_t)(qeq_bytes ? p->congestion_points | bit : p->congestion_points & ~bit);
    p->qcn[queue] = (tm_qcn_t){
        .qeq_bytes = qeq_bytes,
        .base_bytes = base_bytes,
        .left_bytes = base_bytes,
        .old_bytes = p->queues[queue].bytes,
        .cpid = cpid,
        .random = tm->seed ^ (port * TM_QUEUES + queue + 1) * 0xd1342543de82ef95ull,
        .weight = (int8_t)weight,
        .jitter_percent = (uint8_t)jitter_percent,
        .priority = (uint8_t)priority,
    };
    return 0;
}

/* splitmix64 */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* The more congestion, the sooner: base / (floor(qfb / 8) + 1), give or take the jitter. */
static uint64_t next_interval(tm_qcn_t *c, uint32_t qfb)
{
    uint64_t interval = c->base_bytes / (qfb / 8 + 1);
    if (!c->jitter_percent)
        return interval;
    uint64_t low = interval * (100u - c->jitter_percent) / 100, span = interval * 2u * c->jitter_percent / 100;
    return low + draw(&c->random) % (span + 1);
}

static int16_t in_64_bytes(int64_t bytes)
{
    int64_t units = bytes / 64;
    return (int16_t)(units > INT16_MAX ? INT16_MAX : units < INT16_MIN ? INT16_MIN : units);
}

void tmq_enqueued(tm_t *tm, tm_port_t *p, const pkt_t *pkt)
{
    tm_qcn_t *c = &p->qcn[pkt->queue];
    c->left_bytes -= pkt->charged_bytes;
    if (c->left_bytes > 0)
        return;
    int64_t queued = (int64_t)p->queues[pkt->queue].bytes; /* with this packet */
    int64_t offset = queued - c->qeq_bytes, delta = queued - (int64_t)c->old_bytes;
    /* -Fb = Qoff + w Qdelta, no more than (2w + 1) Qeq; for w < 1 all of it times 1/w, so that it stays whole */
    tm_i128 one = (tm_i128)1 << (c->weight < 0 ? -c->weight : 0), w = (tm_i128)1 << (c->weight < 0 ? 0 : c->weight);
    tm_i128 feedback = offset * one + delta * w, most = c->qeq_bytes * (one + 2 * w);
    uint32_t qfb = feedback <= 0 ? 0 : feedback >= most ? FEEDBACK_MAX : (uint32_t)(feedback * FEEDBACK_MAX / most);
    c->old_bytes = (uint64_t)queued;
    c->left_bytes = (int64_t)next_interval(c, qfb);
    uint32_t cell = p->number * TM_QUEUES + pkt->queue;
    tm_count_drop(tm, TM_QCN_SAMPLES, cell, 1, pkt->charged_bytes);
    if (!qfb)
        return;
    tm_count_drop(tm, TM_QCN_CNMS, cell, 1, pkt->charged_bytes);
    tm->cnm = (tm_cnm_t){1, (uint8_t)qfb, c->priority, in_64_bytes(offset), in_64_bytes(delta), c->cpid};
}
