/* PFC of the NIC: gates per priority for what the peer asks, XOFF and XON for what our receive buffer needs, and the
 * storm of a broken one. Frames are judged by the rules of pfc.c; times are picoseconds. */
#include "nic_core.h"
#include "pfc.h"

#include <string.h>

uint64_t pfc_bits_ps(const nic_t *nic, uint64_t bits)
{
    return (uint64_t)(((u128)bits * PS_PER_S + nic->config.rate_bps - 1) / nic->config.rate_bps);
}

static void resume(nic_t *nic, uint32_t priority, uint64_t now)
{
    nic_gate_t *gate = &nic->gate[priority];
    nic->paused &= ~(1u << priority);
    gate->paused_ps += now - gate->since_ps;
    timer_set(nic, TIMER_GATE + priority, NEVER);
    nic_event(nic, NIC_EVENT_RESUMED, priority, now - gate->since_ps, now);
    if (nic->ready >> priority & 1)
        nic_kick(nic, now);
}

static void apply(nic_t *nic, uint32_t priority, uint32_t quanta, uint64_t now)
{
    nic_gate_t *gate = &nic->gate[priority];
    if (quanta == 0) {
        if (nic->paused >> priority & 1)
            resume(nic, priority, now);
        return;
    }
    if (!(nic->paused >> priority & 1)) {
        nic->paused |= 1u << priority;
        gate->since_ps = now;
        gate->pauses++;
        nic_event(nic, NIC_EVENT_PAUSED, priority, quanta, now);
    }
    gate->until_ps = now + pfc_bits_ps(nic, (uint64_t)quanta * QUANTUM_BITS);
    timer_set(nic, TIMER_GATE + priority, gate->until_ps);
}

void pfc_gate_expired(nic_t *nic, uint32_t priority, uint64_t now)
{
    resume(nic, priority, now);
}

static uint32_t all_zero(const uint8_t *bytes, uint32_t length)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < length; i++)
        any |= bytes[i];
    return any == 0;
}

void pfc_rx(nic_t *nic, const uint8_t *frame, uint32_t len, uint64_t now)
{
    uint32_t opcode = len < 16 ? 0 : get16(frame + 14);
    uint32_t used = opcode == PFC_OPCODE ? 34 : 18;
    int reason = PFC_INVALID_REASONS;
    if (memcmp(frame, pfc_destination, 6) != 0)
        reason = PFC_BAD_DESTINATION;
    else if (len < 16)
        reason = PFC_BAD_LENGTH;
    else if (opcode != PFC_OPCODE && opcode != PAUSE_OPCODE)
        reason = PFC_BAD_OPCODE;
    else if (len != MAC_CONTROL_BYTES)
        reason = PFC_BAD_LENGTH;
    else if (!all_zero(frame + used, len - used))
        reason = PFC_BAD_PAD;
    else if (opcode == PFC_OPCODE && frame[17] == 0)
        reason = PFC_ZERO_VECTOR;
    if (reason != PFC_INVALID_REASONS) {
        nic->stats.pfc_invalid[reason]++;
        return;
    }
    if (opcode == PAUSE_OPCODE) {
        nic->stats.rx_pause++;
        for (uint32_t p = 0; p < 8 && nic->config.pause_rx_enable; p++)
            apply(nic, p, get16(frame + 16), now);
        return;
    }
    nic->stats.rx_pfc++;
    nic->stats.pfc_high_byte_set += frame[16] != 0;
    for (uint32_t p = 0; p < 8; p++) {
        if (!(frame[17] >> p & 1))
            continue;
        uint32_t quanta = get16(frame + 18 + 2 * p);
        if (quanta)
            nic->gate[p].xoff_rx++;
        else
            nic->gate[p].xon_rx++;
        if (nic->config.pfc_rx_enable >> p & 1)
            apply(nic, p, quanta, now);
    }
}

uint32_t pfc_due(const nic_t *nic)
{
    return nic->xoff != nic->told || nic->refresh_due || nic->storm_due;
}

uint32_t pfc_make(nic_t *nic, uint64_t now)
{
    uint16_t times[8] = {0};
    uint8_t storm = nic->storm_due ? nic->storm : 0;
    uint8_t vector = (uint8_t)(nic->xoff | nic->told | storm);
    for (uint32_t p = 0; p < 8; p++) {
        if (storm >> p & 1)
            times[p] = nic->storm_quanta;
        else if (nic->xoff >> p & 1)
            times[p] = nic->config.pfc_quanta;
        if (!(vector >> p & 1))
            continue;
        if (times[p])
            nic->stats.xoff_tx[p]++;
        else
            nic->stats.xon_tx[p]++;
    }
    pfc_build(nic->tx, nic->config.mac, vector, times);
    nic->told = nic->xoff;
    nic->refresh_due = nic->storm_due = 0;
    uint64_t bits = (uint64_t)nic->config.pfc_quanta * QUANTUM_BITS / 2;
    if (bits < 2 * PFC_WIRE_BITS)
        bits = 2 * PFC_WIRE_BITS;
    timer_set(nic, TIMER_REFRESH, nic->xoff ? now + pfc_bits_ps(nic, bits) : NEVER);
    nic->stats.tx_pfc++;
    return MAC_CONTROL_BYTES;
}

void pfc_occupancy(nic_t *nic, uint32_t priority, uint64_t now)
{
    uint32_t bit = 1u << priority;
    uint64_t held = nic->rx_prio_bytes[priority];
    if (nic->xoff & bit) {
        if (held <= nic->config.rx_xon_bytes[priority])
            nic->xoff &= ~bit;
    } else if ((nic->config.pfc_tx_enable & bit) && held >= nic->config.rx_xoff_bytes[priority] && held) {
        nic->xoff |= bit;
    }
    if (pfc_due(nic))
        nic_kick(nic, now);
}

void pfc_storm_tick(nic_t *nic, uint64_t now)
{
    if (!nic->storm || now >= nic->storm_until_ps)
        return;
    nic->storm_due = 1;
    timer_set(nic, TIMER_STORM, now + nic->storm_interval_ps);
    nic_kick(nic, now);
}

void nic_storm(nic_t *nic, uint8_t priorities, uint16_t quanta, uint64_t interval_ps, uint64_t start_ps, uint64_t until_ps)
{
    nic->storm = interval_ps ? priorities : 0;
    nic->storm_quanta = quanta;
    nic->storm_interval_ps = interval_ps;
    nic->storm_until_ps = until_ps;
    nic->storm_due = 0;
    timer_set(nic, TIMER_STORM, nic->storm ? now_or(nic, start_ps) : NEVER);
}

void pfc_forget(nic_t *nic, uint64_t now)
{
    for (uint32_t p = 0; p < 8; p++)
        if (nic->paused >> p & 1)
            resume(nic, p, now);
    nic->told = 0;
    nic->refresh_due = nic->storm_due = 0;
    timer_set(nic, TIMER_REFRESH, NEVER);
}

void pfc_enable(nic_t *nic, uint8_t rx, uint8_t tx, uint64_t now)
{
    nic->config.pfc_rx_enable = rx;
    nic->config.pfc_tx_enable = tx;
    for (uint32_t p = 0; p < 8; p++) {
        if ((nic->paused & ~(uint32_t)rx) >> p & 1)
            resume(nic, p, now);
        if ((nic->xoff & ~(uint32_t)tx) >> p & 1)
            nic->xoff &= ~(1u << p);
        pfc_occupancy(nic, p, now);
    }
}
