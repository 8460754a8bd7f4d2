/* The one contract between generated pipelines, the traffic manager, the switch core and the drivers.
 *
 * A switch program is one shared object: the C that codegen made of a BMv2 JSON, together with the pipeline
 * run time (pl_*.c), the traffic manager (tm.c), the core (core.c) and the packet-socket driver (driver.c).
 * The generated C defines `pl_program()`; everything else is the same for each program.
 *
 * Who owns what: the core owns every pkt_t and passes it down. A pipeline reads and writes the frame bytes, the
 * PHV and the `req` block of the packet that it is handed, and keeps no pointer to it. Time is an argument.
 */
#ifndef DCB_ABI_H
#define DCB_ABI_H

#include <stddef.h>
#include <stdint.h>

#define PL_ABI_VERSION 1u
#define PKT_HEADROOM 256u /* bytes free before `data` in a fresh buffer, for headers that the deparser adds */

/* Values of standard_metadata.instance_type, as simple_switch sets them. */
enum {
    INSTANCE_NORMAL = 0, INSTANCE_INGRESS_CLONE = 1, INSTANCE_EGRESS_CLONE = 2,
    INSTANCE_COALESCED = 3, INSTANCE_RECIRC = 4, INSTANCE_REPLICATION = 5, INSTANCE_RESUBMIT = 6,
    /* ours: an empty packet that starts in egress and that the program turns into a PFC frame */
    INSTANCE_TM_PFC = 7,
    /* ours too: an empty packet for the CPU port, by which the traffic manager tells the controller something */
    INSTANCE_TM_EVENT = 8,
    /* and the copy of a sampled frame that the program turns into a congestion notification message (802.1Qau) */
    INSTANCE_TM_CNM = 9,
};

/* What the program asked of the target while a control ran. The core clears it before each control
 * and acts on it after, in the order of simple_switch (clone, digest, resubmit, multicast, drop, unicast). */
typedef struct pl_requests {
    uint8_t clone;              /* a clone primitive ran in this control */
    uint8_t resubmit;           /* ingress only */
    uint8_t recirculate;        /* egress only */
    uint8_t exited;             /* an exit ran */
    int32_t clone_field_list;   /* id, or -1: none preserved */
    int32_t resubmit_field_list;
    int32_t recirculate_field_list;
    uint32_t clone_session;
    uint32_t truncate_bytes;    /* UINT32_MAX: no truncation */
} pl_requests_t;

typedef struct pkt {
    struct pkt *next;           /* owner's list link */
    uint8_t *buf;               /* allocation */
    uint32_t buf_bytes;         /* size of the allocation */
    uint8_t *data;              /* first byte of the frame (no FCS), inside buf */
    uint32_t len;               /* bytes of the frame */
    uint32_t payload_offset;    /* set by parse(): bytes of `data` that the parser consumed */
    uint32_t packet_length;     /* simple_switch's packet-length register: parse() sets it to len, add_header and
                                 * remove_header change it, egress() stores it into standard_metadata.packet_length
                                 * before it runs. A copy of a packet (multicast, clone) keeps it */
    uint64_t rx_ps;             /* arrival */
    pl_requests_t req;
    /* traffic manager's own */
    uint64_t enq_ps;
    uint32_t charged_bytes;     /* what this packet holds in the ingress accounting and in its queue */
    uint8_t priority;           /* what pauses and storms of the peer are about */
    uint8_t unsampled;          /* no congestion point counts it: a CNM itself */
    uint8_t spare[2];
    uint16_t in_port;
    uint16_t out_port;
    uint8_t queue;
    uint8_t pg;
    uint8_t lossless;
    uint8_t refs_spare;
    uint64_t phv[];             /* pl_program_t.phv_bytes, a multiple of 8 */
} pkt_t;

/* A field of the program as it lies in the PHV. A field of w bits takes (w+63)/64 cells, least significant cell
 * first, always kept truncated to w bits (signed fields are stored as their two's complement bit pattern).
 * Names are "<header instance>.<field>" as in the JSON; "<header>.$valid$" is a one-bit field. */
typedef struct pl_field {
    const char *name;
    uint32_t cell;              /* index into pkt_t.phv */
    uint32_t bits;
} pl_field_t;

typedef struct pl pl_t;         /* an instance of the pipeline: tables, counters, meters, registers, generator */

typedef struct pl_program {
    uint32_t abi_version;       /* PL_ABI_VERSION */
    uint32_t phv_bytes;
    const char *name;           /* hash of the JSON */
    const pl_field_t *fields;
    uint32_t n_fields;
    uint32_t headroom_bytes;    /* the deparser needs at most this many bytes before the payload: a fresh buffer has
                                 * max(PKT_HEADROOM, headroom_bytes) free bytes before `data` */
    pl_t *(*create)(uint64_t seed);
    void (*destroy)(pl_t *);
    void (*clock)(pl_t *, uint64_t now_ps);           /* before each batch; meters and idle time-outs read it */
    void (*set_drop_port)(pl_t *, uint32_t port);     /* what mark_to_drop writes into egress_spec; 511 at first */
    void (*reset_phv)(pkt_t *);                       /* all headers invalid, all fields 0; packet_length = len */
    void (*reset_metadata)(pkt_t *);                  /* metadata fields 0, headers kept (egress clones) */
    void (*parse)(pl_t *, pkt_t *);                   /* data,len -> PHV; sets payload_offset, parser_error */
    void (*ingress)(pl_t *, pkt_t *);                 /* checksum verification, then the ingress control */
    void (*egress)(pl_t *, pkt_t *);                  /* the egress control */
    void (*deparse)(pl_t *, pkt_t *);                 /* checksum update, then headers + payload into data,len */
    void (*copy_fields)(pl_t *, int32_t field_list, pkt_t *dst, const pkt_t *src);
    /* Digests: generate_digest() in a control calls digest_sink at the end of that control. */
    void (*set_digest_sink)(pl_t *, void (*sink)(void *arg, uint32_t list_id, const uint8_t *bytes, uint32_t len), void *arg);
    /* log_msg, and assert or assume that fails, as a line of text with no newline; with no sink it goes to stderr. */
    void (*set_log_sink)(pl_t *, void (*sink)(void *arg, const char *line), void *arg);
} pl_program_t;

const pl_program_t *pl_program(void); /* defined by the generated C */

#endif
