/* DCQCN's reaction point (SIGCOMM'15) as pure state: CNPs, bytes and times go in, a rate comes out.
 *
 * Integers only: rates in bit/s, alpha as a fraction of 2^32, products in 128 bits, halves rounded up so that recovery
 * reaches its target. */
#ifndef DCBLAB_HOSTS_NIC_DCQCN_H
#define DCBLAB_HOSTS_NIC_DCQCN_H

#include "nic.h"

typedef struct dcqcn {
    nic_dcqcn_config_t config;
    uint64_t line_bps;
    uint64_t rate_bps, target_bps;
    uint64_t alpha_q32;       /* as of alpha_at_ps */
    uint64_t alpha_at_ps;     /* last tick of the alpha timer, or the CNP that started it */
    uint64_t decreased_ps;    /* the last decrease */
    uint64_t next_increase_ps; /* UINT64_MAX: at line rate, nothing to recover */
    uint64_t next_decrease_ps; /* a CNP came within decrease_interval of a decrease; UINT64_MAX: none waits */
    uint64_t bytes;           /* since the byte counter's last expiry */
    uint32_t timer_count, byte_count; /* expiries since the last decrease */
    uint8_t limited;          /* a CNP has come: before that the flow goes at line rate */
    uint8_t cnp_in_period;    /* of the alpha timer */
} dcqcn_t;

void dcqcn_init(dcqcn_t *d, const nic_dcqcn_config_t *config, uint64_t line_bps);
void dcqcn_cnp(dcqcn_t *d, uint64_t now);
void dcqcn_sent(dcqcn_t *d, uint32_t bytes, uint64_t now);
uint64_t dcqcn_deadline(const dcqcn_t *d);
void dcqcn_tick(dcqcn_t *d, uint64_t now); /* at dcqcn_deadline */
uint64_t dcqcn_alpha(const dcqcn_t *d, uint64_t now);

#endif
