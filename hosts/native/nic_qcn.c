/* Rate of a sender under QCN. See nic_qcn.h; sources of the rules: docs/nic.md. */
#include "nic_qcn.h"

#define NEVER UINT64_MAX
#define ONE_Q32 (1ull << 32)
#define FAR_FACTOR 10 /* a target more than so many times the rate */
#define NEARER 8      /* comes nearer by this */

typedef unsigned __int128 u128;

void qcn_init(qcn_t *q, const nic_qcn_config_t *config, uint64_t line_bps)
{
    *q = (qcn_t){.config = *config, .line_bps = line_bps, .rate_bps = line_bps, .target_bps = line_bps, .next_ps = NEVER};
}

/* Cycles are half as long once fast recovery is over. */
static uint64_t cycle(const qcn_t *q, uint64_t full, uint32_t stage)
{
    return stage < q->config.fast_recovery || full < 2 ? full : full / 2;
}

void qcn_feedback(qcn_t *q, uint32_t qfb, uint64_t now)
{
    const nic_qcn_config_t *c = &q->config;
    if (!c->enabled || !qfb)
        return;
    if (!q->limited || q->byte_stage || (c->clamp_after_timer && q->time_stage))
        q->target_bps = q->rate_bps;
    q->limited = 1;
    uint64_t less_q32 = qfb * c->gd_q32, most_q32 = ONE_Q32 - c->least_factor_q32;
    q->rate_bps -= (uint64_t)((u128)q->rate_bps * (less_q32 < most_q32 ? less_q32 : most_q32) >> 32);
    if (q->rate_bps < c->min_rate_bps)
        q->rate_bps = c->min_rate_bps;
    q->byte_stage = q->time_stage = 0;
    q->bytes = 0;
    q->next_ps = now + c->timer_ps;
}

/* A cycle has ended, and was the first of its kind or not. */
static void increase(qcn_t *q, int first)
{
    const nic_qcn_config_t *c = &q->config;
    uint32_t least = q->byte_stage < q->time_stage ? q->byte_stage : q->time_stage;
    uint32_t most = q->byte_stage + q->time_stage - least;
    if (first && q->target_bps > FAR_FACTOR * q->rate_bps)
        q->target_bps /= NEARER;
    else if (least > c->fast_recovery)
        q->target_bps += (least - c->fast_recovery) * c->hai_bps;
    else if (most > c->fast_recovery)
        q->target_bps += c->ai_bps;
    if (q->target_bps > q->line_bps)
        q->target_bps = q->line_bps;
    q->rate_bps = (q->rate_bps + q->target_bps + 1) / 2;
    if (q->rate_bps >= q->line_bps) {
        q->limited = 0;
        q->next_ps = NEVER;
    }
}

void qcn_sent(qcn_t *q, uint32_t bytes)
{
    q->bytes += bytes;
    for (uint64_t limit; q->limited && q->bytes >= (limit = cycle(q, q->config.byte_limit_bytes, q->byte_stage));) {
        q->bytes -= limit;
        increase(q, ++q->byte_stage == 1);
    }
}

void qcn_tick(qcn_t *q, uint64_t now)
{
    if (q->next_ps > now)
        return;
    q->time_stage++;
    q->next_ps += cycle(q, q->config.timer_ps, q->time_stage);
    increase(q, q->time_stage == 1);
}
