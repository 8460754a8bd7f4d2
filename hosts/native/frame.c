#include "frame.h"

#include "crc.h"

#include <string.h>
#include <sys/socket.h>

/* Annex A17: eight bytes of ones stand for the LRH; what routers change counts as ones: TOS and TTL, or traffic class, flow label
 * and hop limit; the IPv4 and UDP checksums; FECN, BECN and reserved bits of the BTH. Returns the state up to the PSN. */
static uint32_t icrc_prefix(const uint8_t *ip, bool six, const uint8_t *udp, const uint8_t *bth)
{
    uint8_t masked[8 + 40 + 8 + 8];
    size_t n = 8;
    memset(masked, 0xff, 8);
    uint8_t *header = masked + n;
    if (six) {
        memcpy(header, ip, 40);
        header[0] |= 0x0f;
        header[1] = header[2] = header[3] = 0xff;
        header[7] = 0xff;
        n += 40;
    } else {
        memcpy(header, ip, 20);
        header[1] = 0xff;
        header[8] = 0xff;
        header[10] = header[11] = 0xff;
        n += 20;
    }
    memcpy(masked + n, udp, 8);
    masked[n + 6] = masked[n + 7] = 0xff;
    n += 8;
    memcpy(masked + n, bth, 8);
    masked[n + 4] = 0xff;
    n += 8;
    return crc_update(0xffffffffu, masked, n);
}

static void put_icrc(uint8_t *at, uint32_t state)
{
    uint32_t crc = ~state; /* goes out least significant byte first, as an Ethernet FCS does */
    at[0] = (uint8_t)crc;
    at[1] = (uint8_t)(crc >> 8);
    at[2] = (uint8_t)(crc >> 16);
    at[3] = (uint8_t)(crc >> 24);
}

static uint32_t sum16(const uint8_t *bytes, size_t length, uint64_t sum)
{
    for (; length >= 4; length -= 4, bytes += 4)
        sum += get32(bytes);
    if (length >= 2) {
        sum += get16(bytes);
        bytes += 2;
        length -= 2;
    }
    if (length)
        sum += (uint32_t)*bytes << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint32_t)sum;
}

static bool has_reth(uint8_t opcode)
{
    return opcode == RC_RDMA_WRITE_ONLY || opcode == UC_RDMA_WRITE_ONLY;
}

static uint32_t pad_bytes(uint32_t payload_bytes)
{
    return -payload_bytes & 3;
}

static uint32_t udp_bytes(const struct frame_spec *spec)
{
    return 8 + 12 + (has_reth(spec->opcode) ? 16 : 0) + spec->payload_bytes + pad_bytes(spec->payload_bytes) + 4;
}

uint32_t frame_ip_bytes(const struct frame_spec *spec)
{
    return (spec->dst.family == AF_INET6 ? 40 : 20) + udp_bytes(spec);
}

void frame_build(struct frame *frame, const struct frame_spec *spec)
{
    crc_prepare();
    memset(frame, 0, sizeof *frame);
    uint8_t *b = frame->bytes, *at = b;
    memcpy(at, spec->dst_mac, 6);
    memcpy(at + 6, spec->src_mac, 6);
    at += 12;
    if (spec->tagged) {
        put16(at, 0x8100);
        put16(at + 2, (uint32_t)spec->pcp << 13 | (uint32_t)spec->dei << 12 | spec->vlan_id);
        at += 4;
    }
    frame->six = spec->dst.family == AF_INET6;
    put16(at, frame->six ? 0x86dd : 0x0800);
    at += 2;
    frame->ip = (uint32_t)(at - b);
    uint32_t udp_length = udp_bytes(spec);
    uint8_t traffic_class = (uint8_t)(spec->dscp << 2 | spec->ecn);
    if (frame->six) {
        put32(at, 6u << 28 | (uint32_t)traffic_class << 20);
        put16(at + 4, udp_length);
        at[6] = 17;
        at[7] = spec->ttl;
        memcpy(at + 8, spec->src.bytes, 16);
        memcpy(at + 24, spec->dst.bytes, 16);
        at += 40;
    } else {
        at[0] = 0x45;
        at[1] = traffic_class;
        put16(at + 2, 20 + udp_length);
        at[6] = 0x40; /* do not fragment */
        at[8] = spec->ttl;
        at[9] = 17;
        memcpy(at + 12, spec->src.bytes, 4);
        memcpy(at + 16, spec->dst.bytes, 4);
        put16(at + 10, ~sum16(at, 20, 0));
        at += 20;
    }
    frame->udp = (uint32_t)(at - b);
    put16(at, spec->udp_source_port);
    put16(at + 2, ROCE_PORT);
    put16(at + 4, udp_length);
    at += 8;
    frame->bth = (uint32_t)(at - b);
    at[0] = spec->opcode;
    at[1] = (uint8_t)(pad_bytes(spec->payload_bytes) << 4);
    put16(at + 2, spec->pkey);
    put32(at + 4, spec->dest_qp);
    at += 12;
    if (has_reth(spec->opcode)) {
        put32(at + 8, 1); /* remote key; virtual address 0 */
        put32(at + 12, spec->payload_bytes);
        at += 16;
    }
    frame->payload = (uint32_t)(at - b);
    put32(at, PROBE_MAGIC);
    put32(at + 4, spec->run);
    for (uint32_t i = PROBE_BYTES; i < spec->payload_bytes; i++)
        at[i] = (uint8_t)i;
    frame->icrc = frame->payload + spec->payload_bytes + pad_bytes(spec->payload_bytes);
    frame->length = frame->icrc + 4;
    frame->icrc_state = icrc_prefix(b + frame->ip, frame->six, b + frame->udp, b + frame->bth);
}

void frame_fill(struct frame *frame, uint32_t psn, uint64_t sequence, uint64_t time_ns)
{
    uint8_t *b = frame->bytes;
    put32(b + frame->bth + 8, psn & 0xffffff);
    put64(b + frame->payload + 8, sequence);
    put64(b + frame->payload + 16, time_ns);
    put_icrc(b + frame->icrc, crc_update(frame->icrc_state, b + frame->bth + 8, frame->icrc - frame->bth - 8));
    if (frame->six) { /* over IPv4 the checksum stays 0; over IPv6 it is obligatory */
        uint32_t length = frame->length - frame->udp;
        put16(b + frame->udp + 6, 0);
        uint32_t sum = ~sum16(b + frame->udp, length, sum16(b + frame->ip + 8, 32, length + 17)) & 0xffff;
        put16(b + frame->udp + 6, sum ? sum : 0xffff);
    }
}

bool frame_read(const uint8_t *bytes, uint32_t length, bool verify, struct probe *probe)
{
    crc_prepare();
    memset(probe, 0, sizeof *probe);
    uint32_t at = 12;
    if (length < 18)
        return false;
    uint32_t type = get16(bytes + at);
    if (type == 0x8100) {
        at += 4;
        type = get16(bytes + at);
    }
    at += 2;
    const uint8_t *ip = bytes + at;
    uint32_t end, traffic_class;
    if (type == 0x0800) {
        if (length < at + 20 || ip[0] != 0x45 || ip[9] != 17 || (get16(ip + 6) & 0x3fff))
            return false;
        end = at + get16(ip + 2);
        traffic_class = ip[1];
        probe->src.family = probe->dst.family = AF_INET;
        memcpy(probe->src.bytes, ip + 12, 4);
        memcpy(probe->dst.bytes, ip + 16, 4);
        at += 20;
    } else if (type == 0x86dd) {
        if (length < at + 40 || ip[0] >> 4 != 6 || ip[6] != 17)
            return false;
        end = at + 40 + get16(ip + 4);
        traffic_class = get16(ip) >> 4 & 0xff;
        probe->src.family = probe->dst.family = AF_INET6;
        memcpy(probe->src.bytes, ip + 8, 16);
        memcpy(probe->dst.bytes, ip + 24, 16);
        at += 40;
    } else {
        return false;
    }
    if (end > length || end < at + 8 + 12 + 4 || get16(bytes + at + 2) != ROCE_PORT)
        return false;
    const uint8_t *udp = bytes + at, *bth = udp + 8;
    probe->dscp = (uint8_t)(traffic_class >> 2);
    probe->ecn = traffic_class & 3;
    probe->udp_source_port = (uint16_t)get16(udp);
    probe->opcode = bth[0];
    probe->dest_qp = get32(bth + 4) & 0xffffff;
    probe->psn = get32(bth + 8) & 0xffffff;
    at += 20 + (has_reth(bth[0]) ? 16 : 0);
    uint32_t pad = bth[1] >> 4 & 3;
    if (verify) {
        uint8_t icrc[4];
        uint32_t state = icrc_prefix(ip, type == 0x86dd, udp, bth);
        put_icrc(icrc, crc_update(state, bth + 8, (size_t)(bytes + end - 4 - (bth + 8))));
        probe->icrc_ok = memcmp(icrc, bytes + end - 4, 4) == 0;
    }
    if (end < at + 4 + pad)
        return true;
    probe->payload_bytes = end - 4 - pad - at;
    const uint8_t *payload = bytes + at;
    if (probe->payload_bytes < PROBE_BYTES || get32(payload) != PROBE_MAGIC)
        return true;
    probe->ours = true;
    probe->run = get32(payload + 4);
    probe->sequence = get64(payload + 8);
    probe->time_ns = get64(payload + 16);
    probe->payload_ok = true;
    for (uint32_t i = PROBE_BYTES; verify && i < probe->payload_bytes; i++)
        probe->payload_ok &= payload[i] == (uint8_t)i;
    return true;
}
