/* Memory of the switch core: packet slab, event ring, replication groups. Nothing here knows about time or ports. */
#ifndef DCB_SW_STORE_H
#define DCB_SW_STORE_H

#include <stdbool.h>

#include "abi.h"

#define SW_MAX_FRAME_BYTES 9728u /* the largest frame that enters: MTU 9216, tags, and slack for tunnels */
#define SW_SLAB_CLASSES 3u

/* --- packets: one allocation holds pkt_t, PHV and buffer; freed ones are kept by size class ------------------------- */
typedef struct sw_slab {
    uint32_t phv_bytes, head_bytes;
    uint32_t headroom_bytes;          /* before `data` of a fresh packet */
    uint64_t limit_bytes, used_bytes; /* of memory taken from the system */
    uint64_t live;                    /* packets handed out */
    pkt_t *free_list[SW_SLAB_CLASSES];
    struct sw_chunk *chunks;
} sw_slab_t;

void sw_slab_init(sw_slab_t *s, uint32_t phv_bytes, uint32_t headroom_bytes, uint64_t limit_bytes);
void sw_slab_destroy(sw_slab_t *s);
pkt_t *sw_slab_get(sw_slab_t *s, uint32_t frame_bytes); /* data = buf + headroom; NULL: no memory */
void sw_slab_put(sw_slab_t *s, pkt_t *pkt);

/* --- events for the control plane: a byte ring of records --------------------------------------------------------- */
enum { SW_EVENT_PACKET_IN = 1, SW_EVENT_DIGEST = 2 };

typedef struct sw_record { /* also what Python unpacks: "<IIIIQQ" */
    uint32_t total_bytes;  /* of header and data, a multiple of 8 */
    uint32_t type;         /* SW_EVENT_*, or the port of an output */
    uint32_t id;           /* digest list */
    uint32_t data_bytes;
    uint64_t start_ps, end_ps;
} sw_record_t;

typedef struct sw_ring {
    uint8_t *bytes;
    uint64_t size, head, tail; /* head: next to read; size is a power of two */
    uint64_t lost;
    int event_fd;
} sw_ring_t;

int sw_ring_init(sw_ring_t *r, uint64_t size);
void sw_ring_destroy(sw_ring_t *r);
/* `reserve`: bytes that must stay free after it, so that one kind of event cannot crowd out another. */
bool sw_ring_put(sw_ring_t *r, const sw_record_t *head, const uint8_t *data, uint64_t reserve);
uint64_t sw_ring_take(sw_ring_t *r, uint8_t *out, uint64_t capacity); /* whole records; clears the eventfd when empty */

/* --- replication: multicast groups and clone sessions --------------------------------------------------------------- */
typedef struct sw_replicas {
    uint32_t n;
    uint32_t truncate_bytes; /* clone sessions: 0 no truncation */
    uint8_t cos;             /* clone sessions: priority of the copies, 0: as the program says */
    struct sw_replica { uint16_t port, rid; } to[];
} sw_replicas_t;

#endif
