/* The fabric in virtual time: parts, the wires between them, one event queue.
 *
 * Shape: a part is a switch core, a NIC or a tester that its own library owns; the engine knows it by the functions of
 * fab_ops_t. It hands a part the frames that arrive and the time, and the part calls the output function with what it
 * sends. The engine owns the wires (fab_dir_t, one for each direction of a link) and the frames on them. Nothing here
 * knows Python, reads a clock or starts a thread.
 *
 * Time is integer picoseconds. The order of events at a part is (time, class, number): at one time first the frames that
 * arrive, by the number of the wire, then what the part itself has due. So a frame that arrives at t finds the queues as
 * they are before anything leaves at t (docs/contract.md, section 4). Samples of t are taken after all that happens at t.
 *
 * What a part sends at t reaches no other part before t + lookahead: the least propagation delay of any wire plus the wire
 * time of the smallest frame. So the parts that have something to do before (first event + lookahead) do not see each other
 * until then, and the engine runs them one after the other through that window, each with its state in the cache. What comes
 * out is the same for each width of window, down to 1 ps; a run can only stop where a window ends.
 *
 * A frame costs no entry in the heap of the whole fabric: that holds one entry for each part that has something to do, by
 * its first event; a part has a heap of its own over the wires that lead to it, and frames wait in their wire's ring.
 *
 * Files: fabric.c has parts, heap and run; link.c the wires; sample.c series and trace;
 * tester.c a traffic generator. */
#ifndef DCB_FABRIC_H
#define DCB_FABRIC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "abi.h"

#define FAB_NEVER UINT64_MAX
#define FAB_PORTS 512u
#define FAB_PRIORITIES 8u
#define FAB_PS_PER_S 1000000000000ull
#define FAB_MIN_FRAME_BYTES 60u  /* a MAC pads a shorter one */
#define FAB_HEAD_BYTES 8u        /* preamble and SFD */
#define FAB_FCS_BYTES 4u
#define FAB_GAP_BYTES 12u
#define FAB_MAX_FRAME_BYTES 16384u
#define FAB_ERROR_BYTES 512u

/* What the engine needs of a part. `self` is the part's own handle. The first three are there always. */
typedef struct fab_ops {
    void (*receive)(void *self, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps);
    uint64_t (*next_deadline)(const void *self);
    void (*advance)(void *self, uint64_t now_ps);
    uint64_t (*events)(const void *self);         /* grows when the part has something for its controller; NULL: never */
    void (*wait)(void *self, uint64_t now_ps);    /* time passes, what is due at now_ps is not done; NULL: not needed */
    void (*release)(void *self, void *frame);     /* gives back a frame of fab_output_packet; NULL: it sends by fab_output_bytes */
    const char *(*check)(void *arg);              /* debug, after each event: NULL or what is broken */
    void *check_arg;
    void (*read_stats)(const void *self, void *); /* debug, switches: sw_read_stats and sw_packets_live */
    uint64_t (*live)(const void *self);
} fab_ops_t;

typedef struct fab_item { /* what a heap holds, first in what it stands for */
    int32_t slot;         /* -1: not in it */
} fab_item_t;

typedef struct fab_heap_entry {
    uint64_t time_ps;
    uint32_t number; /* of entries at one time the least is first */
    fab_item_t *item;
} fab_heap_entry_t;

typedef struct fab_heap {
    fab_heap_entry_t *at;
    uint32_t len, size;
} fab_heap_t;

typedef struct fab fab_t;
typedef struct fab_dir fab_dir_t;

typedef struct fab_part {
    fab_item_t item;
    uint32_t number;
    fab_t *fabric;
    fab_ops_t ops;
    void *self;              /* NULL: gone */
    uint64_t deadline_ps;
    uint64_t events_seen;
    uint8_t told_events;     /* has new ones since the last fab_run */
    uint64_t in_frames;      /* delivered to it */
    uint64_t out_frames;     /* that it sent, on a wire or not */
    uint64_t base_frames;    /* debug, switches: sent before it came here */
    uint64_t unconnected;    /* of those: on a port without a wire */
    uint64_t flying;         /* of those: on a wire, in memory of the part */
    fab_heap_t in;           /* wires that have frames for it */
    fab_dir_t *out[FAB_PORTS];
} fab_part_t;

typedef struct fab_stats { /* order is the ABI with fabric/links.py */
    uint64_t sent_frames, sent_bytes; /* bytes of frames, without FCS */
    uint64_t delivered_frames, delivered_bytes;
    uint64_t lost_error, lost_pfc, lost_down, lost_unknown; /* frames, by reason */
    uint64_t in_flight;
    uint64_t late_frames;             /* sent while the wire was still busy: they waited */
    uint64_t wire_bits;               /* preamble, frame, FCS and gap of all that was sent */
    uint64_t pfc_frames;              /* MAC control frames sent */
    uint64_t xoff[FAB_PRIORITIES], xon[FAB_PRIORITIES]; /* of those, by priority that they pause or resume */
    uint64_t pauses[FAB_PRIORITIES];  /* by the frames delivered: times that a priority came to be paused */
    uint64_t paused_ps[FAB_PRIORITIES];
} fab_stats_t;

typedef struct fab_flight {
    uint64_t arrival_ps;
    uint8_t *data;
    void *frame; /* for the sender's release; NULL: data is from the engine's store */
    uint32_t len;
} fab_flight_t;

typedef struct fab_ring {
    fab_flight_t *at;
    uint32_t size, head, count; /* size: a power of two */
} fab_ring_t;

struct fab_dir { /* one direction of a link */
    fab_item_t item;
    uint32_t number; /* 2 * link + direction */
    bool up;
    bool paired;     /* debug: the sender says XON only after XOFF */
    fab_t *fabric;
    fab_part_t *from, *to;
    uint32_t from_port, to_port;
    uint64_t rate_bps, byte_ps; /* byte_ps: 0 where a byte takes no whole number of picoseconds */
    uint64_t delay_ps, jitter_ps;
    uint64_t response_ps;       /* from the arrival of a MAC control frame until it acts */
    uint64_t loss, pfc_loss;    /* probabilities times 2^64 */
    uint64_t byte_survival;     /* probability times 2^64 that a byte has no bit error; 0: none ever has */
    uint64_t rng;
    uint64_t trace[2];
    uint64_t free_ps;           /* the wire is free again */
    uint64_t last_ps;           /* of the arrivals so far */
    uint64_t last_control_ps;
    fab_ring_t data, control;   /* MAC control frames overtake while they wait for the response time */
    uint8_t told;               /* priorities whose last word from the sender was XOFF */
    uint8_t paused;             /* priorities that are paused at the receiver */
    uint64_t until_ps[FAB_PRIORITIES], since_ps[FAB_PRIORITIES];
    fab_stats_t stats;
    FILE *capture;
};

typedef struct fab_source { /* of a series; the shape of tm_read_state */
    uint64_t (*read)(void *object, uint32_t kind, uint32_t index, uint64_t now_ps);
    void *object;
    uint32_t kind, index;
} fab_source_t;

typedef struct fab_sampler {
    fab_item_t item;
    uint32_t number, n_sources;
    uint64_t interval_ps, next_ps, end_ps;
    fab_source_t *sources;
    uint64_t *values; /* rows of time and n_sources values */
    uint64_t rows, capacity;
} fab_sampler_t;

typedef struct fab_buffer {
    struct fab_buffer *next;
    uint32_t size;
    uint8_t bytes[];
} fab_buffer_t;

enum { FAB_CLASSES = 3 };

struct fab {
    uint64_t now_ps, seed;
    uint64_t hops, windows;   /* frames delivered */
    uint64_t lookahead_ps, most_lookahead_ps; /* the latter: as wide as the caller wants it */
    bool tracing, debug;
    fab_part_t **parts;
    fab_dir_t **dirs;
    fab_sampler_t **samplers;
    uint32_t n_parts, n_dirs, n_samplers;
    fab_heap_t heap, sampling; /* parts; samplers */
    uint32_t stuck;
    fab_buffer_t *buffers[FAB_CLASSES];
    char error[FAB_ERROR_BYTES];
};

enum fab_stop { FAB_TIME, FAB_EVENT, FAB_SLICE, FAB_BROKEN };

/* Creation; NULL, or a negative number: no memory, or an argument that does not fit. */
fab_t *fab_create(uint64_t seed, uint64_t most_lookahead_ps, bool tracing, bool debug);
void fab_destroy(fab_t *f);
int64_t fab_add_part(fab_t *f, const fab_ops_t *ops, void *self); /* ops NULL: a place for one (fab_replace_part) */
fab_part_t *fab_get_part(fab_t *f, uint32_t part);
void fab_forget_part(fab_t *f, uint32_t part); /* its library has freed it: never call it again */
/* Another part takes the place of one (ops NULL: none does, frames that arrive are lost), while the old one is still there:
 * what it has on wires goes on without it. */
int fab_replace_part(fab_t *f, uint32_t part, const fab_ops_t *ops, void *self);
int64_t fab_connect(fab_t *f, uint32_t a, uint32_t a_port, uint32_t b, uint32_t b_port, uint64_t rate_bps, uint64_t delay_ps);

/* For a part to call with what it sends; arg is its fab_part_t. start_ps: the first bit of the preamble leaves. */
void fab_output_packet(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps); /* an sw_output_fn */
void fab_output_bytes(void *arg, const uint8_t *frame, uint32_t len, uint32_t port, uint64_t start_ps, uint64_t end_ps);

/* Time. fab_run does all events up to and at limit_ps, or to the end of the window in which a part had something for its
 * controller, or in which max_hops frames had arrived since the call. */
int fab_run(fab_t *f, uint64_t limit_ps, uint64_t max_hops);
void fab_wait(fab_t *f, uint64_t now_ps); /* everything before now_ps has been done: all parts come to that time */
uint64_t fab_now(const fab_t *f);
uint64_t fab_next(fab_t *f); /* time of the next event, FAB_NEVER: none */
const char *fab_error(const fab_t *f);
uint32_t fab_take_events(fab_t *f, uint32_t *parts, uint32_t capacity); /* parts that have something new */
const char *fab_check(fab_t *f); /* the invariants of everything; NULL: they hold */
void fab_totals(const fab_t *f, uint64_t out[4]); /* hops, windows, trace */

/* Wires. */
fab_dir_t *fab_get_dir(fab_t *f, uint32_t dir);
int fab_set_wire(fab_t *f, uint32_t dir, uint64_t rate_bps, uint64_t delay_ps, uint64_t jitter_ps, uint64_t response_ps);
int fab_set_errors(fab_t *f, uint32_t dir, uint64_t loss, uint64_t pfc_loss, uint64_t byte_survival);
void fab_set_paired(fab_t *f, uint32_t dir, bool paired);
int fab_set_up(fab_t *f, uint32_t link, bool up); /* down: what is on it is lost */
void fab_read_stats(fab_t *f, uint32_t dir, fab_stats_t *out);
int fab_capture(fab_t *f, uint32_t dir, const char *path); /* pcap with nanoseconds; NULL: end it; -1 with errno */

/* Series. Kinds of fab_dir_read, in this order: */
enum fab_dir_state { FAB_DIR_BYTES, FAB_DIR_FRAMES, FAB_DIR_IN_FLIGHT, FAB_DIR_PAUSED, FAB_DIR_PAUSED_PS, FAB_DIR_PFC_FRAMES, FAB_DIR_WIRE_BITS };
uint64_t fab_dir_read(void *dir, uint32_t kind, uint32_t index, uint64_t now_ps);
int64_t fab_add_sampler(fab_t *f, uint64_t interval_ps, uint64_t first_ps, uint64_t end_ps, const fab_source_t *sources, uint32_t n);
uint64_t fab_take_samples(fab_t *f, uint32_t sampler, uint64_t *out, uint64_t rows); /* whole rows, and forgets them */
uint64_t fab_sample_rows(fab_t *f, uint32_t sampler);
int fab_point_source(fab_t *f, uint32_t sampler, uint32_t source, const fab_source_t *to); /* from now on; read NULL: zeros */

/* Between the files. */
bool fab_heap_reserve(fab_heap_t *h, uint32_t size);
void fab_heap_set(fab_heap_t *h, fab_item_t *item, uint64_t time_ps, uint32_t number); /* FAB_NEVER takes it out */
void fab_part_plan(fab_part_t *p); /* after a change of what leads to it, or of its deadline */
void fab_break(fab_t *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fab_dir_arrive(fab_dir_t *d); /* the first frame on the wire */
void fab_dir_lose(fab_dir_t *d);
bool fab_dir_keep(fab_dir_t *d); /* frames in the sender's memory are copied and given back */
void fab_dir_free(fab_dir_t *d);
const char *fab_dir_check(const fab_dir_t *d);
void fab_sample(fab_t *f, fab_sampler_t *s);
void fab_trace_frame(uint64_t trace[2], uint64_t start_ps, uint64_t arrival_ps, const uint8_t *data, uint32_t len);
void fab_trace_read(const fab_t *f, uint64_t out[2]); /* of all wires */
uint8_t *fab_buffer_get(fab_t *f, uint32_t len);
void fab_buffer_put(fab_t *f, uint8_t *data);
uint64_t fab_random(uint64_t *state);

#endif
