/* A pipeline by hand, for tests of the traffic manager and the core: each frame says itself what is to happen to it.
 *
 * EtherType 0x88B5, then from byte 14: egress port (2), priority, priority group, flags, multicast group (2), flags2.
 * flags: 1 lossless, 2 clone in ingress (session 1), 4 resubmit, 8 recirculate, 16 clone in egress (session 2), 32 digest, 64 drop in
 * egress, 128 field lists preserve `keep`. flags2: 1 stamp what egress sees into bytes 22.., 2 truncate to 40 bytes, 4 put
 * four bytes in front.
 * One VLAN tag may stand before the EtherType. A PFC frame (EtherType 0x8808, opcode 0x0101) becomes a pause request; a PFC request a PFC frame. */
#include "abi.h"

#include <stdlib.h>
#include <string.h>

enum {
    INGRESS_PORT, EGRESS_SPEC, EGRESS_PORT, INSTANCE_TYPE, PACKET_LENGTH, ENQ_TIMESTAMP, ENQ_QDEPTH, DEQ_TIMEDELTA, DEQ_QDEPTH, INGRESS_TS,
    EGRESS_TS, MCAST_GRP, EGRESS_RID, PRIORITY, KEEP, ETHERNET_VALID, TM_VALID, TM_PRIORITY, TM_PG, TM_LOSSLESS, TM_PAUSE_VALID,
    TM_PAUSE_VECTOR, TM_PAUSE_TIME, TM_PFC_REQUEST = TM_PAUSE_TIME + 8, TM_PFC_VECTOR, TM_PFC_TIME, TM_ENQ_DEPTH = TM_PFC_TIME + 8,
    TM_DEQ_DEPTH, N_CELLS,
};

struct pl {
    void (*sink)(void *arg, uint32_t list_id, const uint8_t *bytes, uint32_t len);
    void *sink_arg;
    uint64_t clock_ps;
};

static const pl_field_t fields[] = {
    {"standard_metadata.ingress_port", INGRESS_PORT, 9}, {"standard_metadata.egress_spec", EGRESS_SPEC, 9},
    {"standard_metadata.egress_port", EGRESS_PORT, 9}, {"standard_metadata.instance_type", INSTANCE_TYPE, 32},
    {"standard_metadata.packet_length", PACKET_LENGTH, 32}, {"standard_metadata.enq_timestamp", ENQ_TIMESTAMP, 32},
    {"standard_metadata.enq_qdepth", ENQ_QDEPTH, 19}, {"standard_metadata.deq_timedelta", DEQ_TIMEDELTA, 32},
    {"standard_metadata.deq_qdepth", DEQ_QDEPTH, 19}, {"standard_metadata.ingress_global_timestamp", INGRESS_TS, 48},
    {"standard_metadata.egress_global_timestamp", EGRESS_TS, 48}, {"standard_metadata.mcast_grp", MCAST_GRP, 16},
    {"standard_metadata.egress_rid", EGRESS_RID, 16}, {"standard_metadata.priority", PRIORITY, 3}, {"scalars.keep", KEEP, 8},
    {"ethernet.$valid$", ETHERNET_VALID, 1},
#ifndef WITHOUT_TM
    {"userMetadata.tm.$valid$", TM_VALID, 1}, {"userMetadata.tm.priority", TM_PRIORITY, 3}, {"userMetadata.tm.pg", TM_PG, 3},
    {"userMetadata.tm.lossless", TM_LOSSLESS, 1}, {"userMetadata.tm.pause_valid", TM_PAUSE_VALID, 1},
    {"userMetadata.tm.pause_vector", TM_PAUSE_VECTOR, 8}, {"userMetadata.tm.pause_time0", TM_PAUSE_TIME, 16},
    {"userMetadata.tm.pause_time1", TM_PAUSE_TIME + 1, 16}, {"userMetadata.tm.pause_time2", TM_PAUSE_TIME + 2, 16},
    {"userMetadata.tm.pause_time3", TM_PAUSE_TIME + 3, 16}, {"userMetadata.tm.pause_time4", TM_PAUSE_TIME + 4, 16},
    {"userMetadata.tm.pause_time5", TM_PAUSE_TIME + 5, 16}, {"userMetadata.tm.pause_time6", TM_PAUSE_TIME + 6, 16},
    {"userMetadata.tm.pause_time7", TM_PAUSE_TIME + 7, 16}, {"userMetadata.tm.pfc_request", TM_PFC_REQUEST, 1},
    {"userMetadata.tm.pfc_vector", TM_PFC_VECTOR, 8}, {"userMetadata.tm.pfc_time0", TM_PFC_TIME, 16},
    {"userMetadata.tm.pfc_time1", TM_PFC_TIME + 1, 16}, {"userMetadata.tm.pfc_time2", TM_PFC_TIME + 2, 16},
    {"userMetadata.tm.pfc_time3", TM_PFC_TIME + 3, 16}, {"userMetadata.tm.pfc_time4", TM_PFC_TIME + 4, 16},
    {"userMetadata.tm.pfc_time5", TM_PFC_TIME + 5, 16}, {"userMetadata.tm.pfc_time6", TM_PFC_TIME + 6, 16},
    {"userMetadata.tm.pfc_time7", TM_PFC_TIME + 7, 16}, {"userMetadata.tm.enq_depth_bytes", TM_ENQ_DEPTH, 32},
    {"userMetadata.tm.deq_depth_bytes", TM_DEQ_DEPTH, 32},
#endif
};

static uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }

static void put(uint8_t **at, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        *(*at)++ = (uint8_t)(value >> (8 * i));
}

/* The frame as if it had no tag: its EtherType is at 12 of what is returned. */
static uint8_t *untagged(const pkt_t *pkt)
{
    uint32_t tag = pkt->len >= 26 ? be16(pkt->data + 12) : 0;
    return tag == 0x8100 || tag == 0x88a8 ? pkt->data + 4 : pkt->data;
}

static int is_test(const pkt_t *pkt) { return pkt->len >= 22 && be16(untagged(pkt) + 12) == 0x88b5; }

static pl_t *create(uint64_t seed)
{
    (void)seed;
    return calloc(1, sizeof(pl_t));
}

static void destroy(pl_t *pl) { free(pl); }
static void clock_set(pl_t *pl, uint64_t now_ps) { pl->clock_ps = now_ps; }
static void set_drop_port(pl_t *pl, uint32_t port) { (void)pl, (void)port; }

static void reset_phv(pkt_t *pkt)
{
    memset(pkt->phv, 0, N_CELLS * 8);
    pkt->phv[PACKET_LENGTH] = pkt->len;
}

static void reset_metadata(pkt_t *pkt) { memset(pkt->phv, 0, ETHERNET_VALID * 8); }

static void parse(pl_t *pl, pkt_t *pkt)
{
    (void)pl;
    pkt->phv[ETHERNET_VALID] = pkt->len >= 14;
    pkt->payload_offset = pkt->len >= 14 ? 14 : 0;
}

static void ingress(pl_t *pl, pkt_t *pkt)
{
    uint64_t *v = pkt->phv;
    const uint8_t *d = untagged(pkt);
    v[TM_VALID] = 1;
    v[EGRESS_SPEC] = 511;
    if (pkt->len >= 34 && be16(d + 12) == 0x8808 && be16(d + 14) == 0x0101) {
        v[TM_PAUSE_VALID] = 1;
        v[TM_PAUSE_VECTOR] = d[17];
        for (int i = 0; i < 8; i++)
            v[TM_PAUSE_TIME + i] = be16(d + 18 + 2 * i);
        return;
    }
    if (!is_test(pkt))
        return;
    int again = v[INSTANCE_TYPE] != INSTANCE_NORMAL;
    int list = d[18] & 128 ? 1 : -1;
    v[EGRESS_SPEC] = be16(d + 14) & 511;
    v[PRIORITY] = v[TM_PRIORITY] = d[16] & 7;
    v[TM_PG] = d[17] & 7;
    v[TM_LOSSLESS] = d[18] & 1;
    v[MCAST_GRP] = be16(d + 19);
    if (!again)
        v[KEEP] = 0xa5;
    if ((d[18] & 2) && !again) {
        pkt->req.clone = 1;
        pkt->req.clone_session = 1;
        pkt->req.clone_field_list = list;
    }
    if ((d[18] & 4) && !again) {
        pkt->req.resubmit = 1;
        pkt->req.resubmit_field_list = list;
    }
    if (d[18] & 32)
        pl->sink(pl->sink_arg, 7, d, 6);
}

static void egress(pl_t *pl, pkt_t *pkt)
{
    (void)pl;
    uint64_t *v = pkt->phv;
    const uint8_t *d = untagged(pkt);
    if (!is_test(pkt))
        return;
    int copy = v[INSTANCE_TYPE] == INSTANCE_EGRESS_CLONE || v[INSTANCE_TYPE] == INSTANCE_INGRESS_CLONE;
    int list = d[18] & 128 ? 1 : -1;
    if (v[INSTANCE_TYPE] == INSTANCE_NORMAL && (d[18] & 8) && v[KEEP] == 0xa5) {
        v[KEEP] = 0x5a;
        pkt->req.recirculate = 1;
        pkt->req.recirculate_field_list = list;
    }
    if ((d[18] & 16) && !copy) {
        pkt->req.clone = 1;
        pkt->req.clone_session = 2;
        pkt->req.clone_field_list = list;
    }
    if (d[18] & 64)
        v[EGRESS_SPEC] = 511;
    if (d[21] & 2)
        pkt->req.truncate_bytes = 40;
}

static void deparse(pl_t *pl, pkt_t *pkt)
{
    (void)pl;
    const uint64_t *v = pkt->phv;
    if (v[INSTANCE_TYPE] == INSTANCE_TM_PFC) {
        static const uint8_t head[18] = {1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x88, 0x08, 1, 1, 0, 0};
        uint8_t *at = pkt->data;
        memset(at, 0, 60);
        memcpy(at, head, sizeof head);
        at[11] = (uint8_t)v[EGRESS_PORT];
        at[17] = (uint8_t)v[TM_PFC_VECTOR];
        at += 18;
        for (int i = 0; i < 8; i++)
            put(&at, v[TM_PFC_TIME + i], 2);
        pkt->len = v[TM_PFC_REQUEST] ? 60 : 0;
        return;
    }
    if (!is_test(pkt))
        return;
    if ((pkt->data[21] & 1) && pkt->len >= 60) {
        uint8_t *at = pkt->data + 22;
        put(&at, v[INSTANCE_TYPE], 1);
        put(&at, v[EGRESS_RID], 2);
        put(&at, v[KEEP], 1);
        put(&at, v[TM_ENQ_DEPTH], 4);
        put(&at, v[TM_DEQ_DEPTH], 4);
        put(&at, v[ENQ_QDEPTH], 2);
        put(&at, v[DEQ_QDEPTH], 2);
        put(&at, v[ENQ_TIMESTAMP], 4);
        put(&at, v[DEQ_TIMEDELTA], 4);
        put(&at, v[EGRESS_PORT], 2);
        put(&at, v[INGRESS_PORT], 2);
        put(&at, v[PACKET_LENGTH], 2);
        put(&at, v[PRIORITY], 1);
    }
    if (pkt->data[21] & 4) {
        pkt->data -= 4;
        memset(pkt->data, 0xee, 4);
        pkt->len += 4;
    }
}

static void copy_fields(pl_t *pl, int32_t list, pkt_t *dst, const pkt_t *src)
{
    (void)pl;
    if (list == 1)
        dst->phv[KEEP] = src->phv[KEEP];
}

static void set_digest_sink(pl_t *pl, void (*sink)(void *arg, uint32_t list_id, const uint8_t *bytes, uint32_t len), void *arg)
{
    pl->sink = sink;
    pl->sink_arg = arg;
}

static void set_log_sink(pl_t *pl, void (*sink)(void *arg, const char *line), void *arg) { (void)pl, (void)sink, (void)arg; }

const pl_program_t *pl_program(void)
{
    static const pl_program_t program = {
        .abi_version = PL_ABI_VERSION, .phv_bytes = N_CELLS * 8, .name = "l2_pipeline", .fields = fields,
        .n_fields = sizeof fields / sizeof fields[0], .headroom_bytes = 4, .create = create, .destroy = destroy, .clock = clock_set,
        .set_drop_port = set_drop_port, .reset_phv = reset_phv, .reset_metadata = reset_metadata, .parse = parse, .ingress = ingress,
        .egress = egress, .deparse = deparse, .copy_fields = copy_fields, .set_digest_sink = set_digest_sink, .set_log_sink = set_log_sink,
    };
    return &program;
}
