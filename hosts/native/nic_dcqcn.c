/* Rate of a sender under DCQCN. Alpha's timer makes no events: its ticks are counted when alpha is wanted. */
#include "nic_dcqcn.h"

#define NEVER UINT64_MAX
#define ONE_Q32 (1ull << 32)

typedef unsigned __int128 u128;

static uint64_t scale(uint64_t value, uint64_t q32) { return (uint64_t)((u128)value * q32 >> 32); }

void dcqcn_init(dcqcn_t *d, const nic_dcqcn_config_t *config, uint64_t line_bps)
{
    *d = (dcqcn_t){.config = *config, .line_bps = line_bps, .rate_bps = line_bps, .target_bps = line_bps,
                   .alpha_q32 = ONE_Q32, .next_increase_ps = NEVER, .next_decrease_ps = NEVER};
}

/* alpha after the ticks up to now. A tick in whose period a CNP came raises it (alpha_at_cnp 0), any other lowers it. */
static uint64_t alpha_after(const dcqcn_t *d, uint64_t now, uint64_t *ticks)
{
    uint64_t alpha = d->alpha_q32, count = d->limited ? (now - d->alpha_at_ps) / d->config.alpha_timer_ps : 0;
    *ticks = count;
    if (count && d->cnp_in_period) {
        alpha = alpha - scale(alpha, d->config.g_q32) + d->config.g_q32;
        count--;
    }
    for (uint64_t less; count && (less = scale(alpha, d->config.g_q32)); count--)
        alpha -= less;
    return alpha;
}

uint64_t dcqcn_alpha(const dcqcn_t *d, uint64_t now)
{
    uint64_t ticks;
    return alpha_after(d, now, &ticks);
}

static void alpha_catch_up(dcqcn_t *d, uint64_t now)
{
    uint64_t ticks;
    d->alpha_q32 = alpha_after(d, now, &ticks);
    d->alpha_at_ps += ticks * d->config.alpha_timer_ps;
    if (ticks)
        d->cnp_in_period = 0;
}

static void decrease(dcqcn_t *d, uint64_t now)
{
    if (d->config.clamp_target || d->timer_count)
        d->target_bps = d->rate_bps;
    d->rate_bps -= scale(d->rate_bps, d->alpha_q32 / 2);
    if (d->rate_bps < d->config.min_rate_bps)
        d->rate_bps = d->config.min_rate_bps;
    d->decreased_ps = now;
    d->next_decrease_ps = NEVER;
    d->timer_count = d->byte_count = 0;
    d->bytes = 0;
    d->next_increase_ps = now + d->config.increase_timer_ps;
}

void dcqcn_cnp(dcqcn_t *d, uint64_t now)
{
    if (!d->config.enabled)
        return;
    int first = !d->limited;
    if (first) {
        d->limited = 1;
        d->alpha_at_ps = now;
    }
    alpha_catch_up(d, now);
    if (first || now - d->decreased_ps >= d->config.decrease_interval_ps)
        decrease(d, now);
    else
        d->next_decrease_ps = d->decreased_ps + d->config.decrease_interval_ps;
    if (d->config.alpha_at_cnp) {
        d->alpha_q32 = d->alpha_q32 - scale(d->alpha_q32, d->config.g_q32) + d->config.g_q32;
        d->alpha_at_ps = now;
    } else {
        d->cnp_in_period = 1;
    }
}

static void increase(dcqcn_t *d)
{
    const nic_dcqcn_config_t *c = &d->config;
    uint32_t most = d->timer_count, least = d->timer_count;
    if (c->byte_counter_bytes) {
        most = d->byte_count > most ? d->byte_count : most;
        least = d->byte_count < least ? d->byte_count : least;
    }
    if (least > c->fast_recovery)
        d->target_bps += c->hyper_scales ? (least - c->fast_recovery) * c->hai_bps : c->hai_bps;
    else if (most >= c->fast_recovery)
        d->target_bps += c->ai_bps;
    if (d->target_bps > d->line_bps)
        d->target_bps = d->line_bps;
    d->rate_bps = (d->rate_bps + d->target_bps + 1) / 2;
    if (d->rate_bps >= d->line_bps)
        d->next_increase_ps = NEVER;
}

void dcqcn_sent(dcqcn_t *d, uint32_t bytes, uint64_t now)
{
    (void)now;
    if (!d->limited || !d->config.byte_counter_bytes || d->next_increase_ps == NEVER)
        return;
    d->bytes += bytes;
    while (d->bytes >= d->config.byte_counter_bytes && d->next_increase_ps != NEVER) {
        d->bytes -= d->config.byte_counter_bytes;
        increase(d);
        d->byte_count++;
    }
}

uint64_t dcqcn_deadline(const dcqcn_t *d)
{
    return d->next_increase_ps < d->next_decrease_ps ? d->next_increase_ps : d->next_decrease_ps;
}

void dcqcn_tick(dcqcn_t *d, uint64_t now)
{
    if (d->next_decrease_ps <= now) {
        alpha_catch_up(d, now);
        decrease(d, now);
        return;
    }
    if (d->next_increase_ps <= now) {
        d->next_increase_ps += d->config.increase_timer_ps;
        increase(d);
        d->timer_count++;
    }
}
