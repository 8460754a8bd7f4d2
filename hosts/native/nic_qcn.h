/* QCN's reaction point (802.1Qau) as pure state: feedback, bytes and times go in, a rate comes out.
 *
 * Integers only: rates in bit/s, fractions of 2^32, products in 128 bits, halves rounded up so that recovery reaches its
 * target. Nothing is random here: cycles have no jitter. */
#ifndef DCBLAB_HOSTS_NIC_QCN_H
#define DCBLAB_HOSTS_NIC_QCN_H

#include "nic.h"

typedef struct qcn {
    nic_qcn_config_t config;
    uint64_t line_bps;
    uint64_t rate_bps, target_bps;
    uint64_t next_ps;  /* end of the timer's cycle; UINT64_MAX: not limited */
    uint64_t bytes;    /* in the byte counter's cycle */
    uint32_t byte_stage, time_stage; /* cycles ended since the last feedback */
    uint8_t limited;   /* feedback has come, and line rate has not been reached since */
} qcn_t;

void qcn_init(qcn_t *q, const nic_qcn_config_t *config, uint64_t line_bps);
void qcn_feedback(qcn_t *q, uint32_t qfb, uint64_t now); /* 1..63 */
void qcn_sent(qcn_t *q, uint32_t bytes);
void qcn_tick(qcn_t *q, uint64_t now); /* at next_ps */

#endif
