#include "pfc.h"

#include <string.h>

const uint8_t pfc_destination[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};
const char *const pfc_invalid_names[PFC_INVALID_REASONS] = {"destination", "length", "pad", "opcode", "zero_vector"};

uint64_t pfc_quanta_ns(uint32_t quanta, uint64_t rate_bps)
{
    return (uint64_t)(((u128)quanta * 512 * NS_PER_S + rate_bps - 1) / rate_bps);
}

static void end_pause(struct pfc_gates *gates, int priority, uint64_t at)
{
    struct pfc_gate *g = &gates->gate[priority];
    g->paused = false;
    g->paused_ns += at - g->since_ns;
    if (gates->resumed)
        gates->resumed(gates->context, priority, g->since_ns, at);
}

void pfc_expire(struct pfc_gates *gates, uint64_t now)
{
    for (int p = 0; p < 8; p++)
        if (gates->gate[p].paused && gates->gate[p].until_ns <= now)
            end_pause(gates, p, gates->gate[p].until_ns);
}

static void apply(struct pfc_gates *gates, int priority, uint32_t quanta, uint64_t now)
{
    struct pfc_gate *g = &gates->gate[priority];
    if (quanta == 0) {
        if (g->paused)
            end_pause(gates, priority, now);
        return;
    }
    if (!g->paused) {
        g->paused = true;
        g->since_ns = now;
        g->pauses++;
    }
    g->until_ns = now + pfc_quanta_ns(quanta, gates->link_rate_bps);
}

static bool all_zero(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (bytes[i])
            return false;
    return true;
}

void pfc_receive(struct pfc_gates *gates, const uint8_t *frame, size_t length, uint64_t now)
{
    if (length < 14 || get16(frame + 12) != MAC_CONTROL_TYPE)
        return; /* not for us */
    uint32_t opcode = length < 16 ? 0 : get16(frame + 14);
    enum pfc_invalid reason = PFC_INVALID_REASONS;
    size_t used = opcode == PFC_OPCODE ? 34 : 18;
    if (memcmp(frame, pfc_destination, 6) != 0)
        reason = PFC_BAD_DESTINATION;
    else if (length < 16)
        reason = PFC_BAD_LENGTH;
    else if (opcode != PFC_OPCODE && opcode != PAUSE_OPCODE)
        reason = PFC_BAD_OPCODE;
    else if (length != MAC_CONTROL_BYTES)
        reason = PFC_BAD_LENGTH;
    else if (!all_zero(frame + used, length - used))
        reason = PFC_BAD_PAD;
    else if (opcode == PFC_OPCODE && frame[17] == 0)
        reason = PFC_ZERO_VECTOR;
    if (reason != PFC_INVALID_REASONS) {
        gates->invalid[reason]++;
        return;
    }
    pfc_expire(gates, now);
    if (opcode == PAUSE_OPCODE) {
        gates->pause_frames++;
        for (int p = 0; p < 8 && gates->pause_enabled; p++)
            apply(gates, p, get16(frame + 16), now);
        return;
    }
    gates->frames++;
    gates->high_byte_set += frame[16] != 0;
    for (int p = 0; p < 8; p++) {
        if (!(frame[17] >> p & 1))
            continue;
        uint32_t quanta = get16(frame + 18 + 2 * p);
        if (quanta)
            gates->gate[p].xoff_rx++;
        else
            gates->gate[p].xon_rx++;
        if (gates->enabled >> p & 1)
            apply(gates, p, quanta, now);
    }
}

void pfc_finish(struct pfc_gates *gates, uint64_t now)
{
    pfc_expire(gates, now);
    gates->resumed = NULL;
    for (int p = 0; p < 8; p++)
        if (gates->gate[p].paused)
            end_pause(gates, p, now);
}

void pfc_build(uint8_t frame[MAC_CONTROL_BYTES], const uint8_t source[6], uint8_t vector, const uint16_t times[8])
{
    memset(frame, 0, MAC_CONTROL_BYTES);
    memcpy(frame, pfc_destination, 6);
    memcpy(frame + 6, source, 6);
    put16(frame + 12, MAC_CONTROL_TYPE);
    put16(frame + 14, PFC_OPCODE);
    frame[17] = vector;
    for (int p = 0; p < 8; p++)
        if (vector >> p & 1)
            put16(frame + 18 + 2 * p, times[p]);
}

static void print_array(FILE *out, const char *name, const struct pfc_gates *gates, size_t offset)
{
    fprintf(out, ",\"%s\":[", name);
    for (int p = 0; p < 8; p++) {
        uint64_t value;
        memcpy(&value, (const char *)&gates->gate[p] + offset, sizeof value);
        fprintf(out, "%s%llu", p ? "," : "", (unsigned long long)value);
    }
    fputc(']', out);
}

void pfc_print(FILE *out, const struct pfc_gates *gates)
{
    fprintf(out, "\"pfc_frames_rx\":%llu,\"pause_frames_rx\":%llu,\"pfc_high_byte_set\":%llu",
            (unsigned long long)gates->frames, (unsigned long long)gates->pause_frames,
            (unsigned long long)gates->high_byte_set);
    print_array(out, "paused_ns_by_priority", gates, offsetof(struct pfc_gate, paused_ns));
    print_array(out, "pauses_by_priority", gates, offsetof(struct pfc_gate, pauses));
    print_array(out, "pfc_xoff_rx_by_priority", gates, offsetof(struct pfc_gate, xoff_rx));
    print_array(out, "pfc_xon_rx_by_priority", gates, offsetof(struct pfc_gate, xon_rx));
    fputs(",\"pfc_invalid\":{", out);
    for (int i = 0; i < PFC_INVALID_REASONS; i++)
        fprintf(out, "%s\"%s\":%llu", i ? "," : "", pfc_invalid_names[i], (unsigned long long)gates->invalid[i]);
    fputc('}', out);
}
