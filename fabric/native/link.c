/* Wires: when a frame arrives, what is lost, what PFC says on them, captures. See fabric.h.
 *
 * A frame of L bytes (no FCS) that starts at s occupies the wire until s + (8 + max(L, 60) + 4 + 12) bytes. It arrives when the
 * last bit of its FCS does: s + (8 + max(L, 60) + 4) bytes + delay, each term rounded down to a picosecond (at the rates of
 * Ethernet a byte takes a whole number of them). A MAC control frame acts response_ps after that. */
#include "fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ETHERTYPE_AT 12u
#define OPCODE_AT 14u
#define MAC_CONTROL 0x8808u
#define OPCODE_PAUSE 0x0001u
#define OPCODE_PFC 0x0101u
#define QUANTUM_BITS 512u
#define PCAP_NANOSECONDS 0xa1b23c4du
#define PCAP_ETHERNET 1u

static const uint32_t class_bytes[FAB_CLASSES] = {256, 2048, FAB_MAX_FRAME_BYTES};

/* --- memory of frames whose sender keeps its own -------------------------------------------------------------------- */

uint8_t *fab_buffer_get(fab_t *f, uint32_t len)
{
    uint32_t class = 0;
    while (class < FAB_CLASSES && class_bytes[class] < len)
        class++;
    if (class == FAB_CLASSES)
        return NULL;
    fab_buffer_t *b = f->buffers[class];
    if (b) {
        f->buffers[class] = b->next;
    } else {
        b = malloc(sizeof *b + class_bytes[class]);
        if (!b)
            return NULL;
        b->size = class;
    }
    return b->bytes;
}

void fab_buffer_put(fab_t *f, uint8_t *data)
{
    fab_buffer_t *b = (fab_buffer_t *)(data - offsetof(fab_buffer_t, bytes));
    b->next = f->buffers[b->size];
    f->buffers[b->size] = b;
}

static void release(fab_part_t *from, uint8_t *data, void *frame)
{
    if (!frame) {
        fab_buffer_put(from->fabric, data);
        return;
    }
    from->flying--;
    if (from->self)
        from->ops.release(from->self, frame);
}

/* --- rings ---------------------------------------------------------------------------------------------------------- */

static bool ring_push(fab_ring_t *r, fab_flight_t flight)
{
    if (r->count == r->size) {
        uint32_t size = r->size ? 2 * r->size : 8;
        fab_flight_t *more = malloc(size * sizeof *more);
        if (!more)
            return false;
        for (uint32_t i = 0; i < r->count; i++)
            more[i] = r->at[(r->head + i) & (r->size - 1)];
        free(r->at);
        *r = (fab_ring_t){more, size, 0, r->count};
    }
    r->at[(r->head + r->count++) & (r->size - 1)] = flight;
    return true;
}

static inline fab_flight_t ring_pop(fab_ring_t *r)
{
    fab_flight_t flight = r->at[r->head];
    r->head = (r->head + 1) & (r->size - 1);
    r->count--;
    return flight;
}

/* The ring whose first frame arrives first; NULL: nothing is on the wire. */
static inline fab_ring_t *first(fab_dir_t *d)
{
    if (!d->control.count)
        return d->data.count ? &d->data : NULL;
    if (!d->data.count)
        return &d->control;
    const fab_flight_t *a = &d->data.at[d->data.head], *b = &d->control.at[d->control.head];
    return a->arrival_ps <= b->arrival_ps ? &d->data : &d->control;
}

static inline void dir_plan(fab_dir_t *d)
{
    const fab_ring_t *r = first(d);
    fab_heap_set(&d->to->in, &d->item, r ? r->at[r->head].arrival_ps : FAB_NEVER, d->number);
}

/* --- errors --------------------------------------------------------------------------------------------------------- */

uint64_t fab_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static inline uint64_t times(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b >> 64); }

/* Probability (times 2^64) that none of n bytes has a bit error. In integers, so that each machine draws alike. */
static uint64_t survival(uint64_t byte, uint32_t n)
{
    uint64_t all = UINT64_MAX;
    for (; n; n >>= 1, byte = times(byte, byte))
        if (n & 1)
            all = times(all, byte);
    return all;
}

/* --- PFC as it passes ------------------------------------------------------------------------------------------------ */

static inline uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }

static inline bool is_control(const uint8_t *data, uint32_t len) { return len >= OPCODE_AT + 2 && be16(data + ETHERTYPE_AT) == MAC_CONTROL; }

/* Vector and times of a PFC or PAUSE frame; 0: it is neither. */
static uint32_t pause_of(const uint8_t *data, uint32_t len, uint32_t quanta[FAB_PRIORITIES])
{
    uint32_t opcode = be16(data + OPCODE_AT);
    if (opcode == OPCODE_PAUSE && len >= OPCODE_AT + 4) {
        for (uint32_t i = 0; i < FAB_PRIORITIES; i++)
            quanta[i] = be16(data + OPCODE_AT + 2);
        return 0xff;
    }
    if (opcode != OPCODE_PFC || len < OPCODE_AT + 4 + 2 * FAB_PRIORITIES)
        return 0;
    for (uint32_t i = 0; i < FAB_PRIORITIES; i++)
        quanta[i] = be16(data + OPCODE_AT + 4 + 2 * i);
    return be16(data + OPCODE_AT + 2) & 0xff;
}

static void control_sent(fab_dir_t *d, const uint8_t *data, uint32_t len)
{
    uint32_t quanta[FAB_PRIORITIES];
    uint32_t vector = pause_of(data, len, quanta);
    d->stats.pfc_frames++;
    for (uint32_t i = 0; i < FAB_PRIORITIES; i++) {
        if (!(vector >> i & 1))
            continue;
        if (quanta[i]) {
            d->stats.xoff[i]++;
            d->told |= (uint8_t)(1u << i);
        } else {
            d->stats.xon[i]++;
            if (d->fabric->debug && d->paired && !(d->told >> i & 1))
                fab_break(d->fabric, "wire %u: XON for priority %u, which was not told XOFF", d->number, i);
            d->told &= (uint8_t)~(1u << i);
        }
    }
}

/* Ends what has run out by now_ps. */
static void settle(fab_dir_t *d, uint64_t now_ps)
{
    for (uint32_t i = 0; i < FAB_PRIORITIES; i++) {
        if ((d->paused >> i & 1) && d->until_ps[i] <= now_ps) {
            d->stats.paused_ps[i] += d->until_ps[i] - d->since_ps[i];
            d->paused &= (uint8_t)~(1u << i);
        }
    }
}

static void control_acts(fab_dir_t *d, const uint8_t *data, uint32_t len, uint64_t now_ps)
{
    uint32_t quanta[FAB_PRIORITIES];
    uint32_t vector = pause_of(data, len, quanta);
    settle(d, now_ps);
    for (uint32_t i = 0; i < FAB_PRIORITIES; i++) {
        if (!(vector >> i & 1))
            continue;
        bool paused = d->paused >> i & 1;
        if (quanta[i] && !paused) {
            d->since_ps[i] = now_ps;
            d->stats.pauses[i]++;
            d->paused |= (uint8_t)(1u << i);
        } else if (!quanta[i] && paused) {
            d->stats.paused_ps[i] += now_ps - d->since_ps[i];
            d->paused &= (uint8_t)~(1u << i);
        }
        uint64_t ps = (uint64_t)(((unsigned __int128)quanta[i] * QUANTUM_BITS * FAB_PS_PER_S + d->rate_bps - 1) / d->rate_bps);
        d->until_ps[i] = now_ps + ps;
    }
}

/* --- sending -------------------------------------------------------------------------------------------------------- */

static inline uint64_t bytes_ps(const fab_dir_t *d, uint64_t n) { return d->byte_ps ? n * d->byte_ps : n * 8 * FAB_PS_PER_S / d->rate_bps; }

static void capture(fab_dir_t *d, uint64_t start_ps, const uint8_t *data, uint32_t len)
{
    uint64_t ns = start_ps / 1000;
    uint32_t head[4] = {(uint32_t)(ns / 1000000000u), (uint32_t)(ns % 1000000000u), len, len};
    fwrite(head, sizeof head, 1, d->capture);
    fwrite(data, len, 1, d->capture);
}

/* Takes over the frame. */
static void dir_send(fab_dir_t *d, uint8_t *data, uint32_t len, void *frame, uint64_t start_ps)
{
    fab_t *f = d->fabric;
    fab_stats_t *s = &d->stats;
    bool control = is_control(data, len);
    if (start_ps < d->free_ps) { /* a port that is faster than its wire: the frame waits */
        start_ps = d->free_ps;
        s->late_frames++;
    }
    uint32_t padded = len > FAB_MIN_FRAME_BYTES ? len : FAB_MIN_FRAME_BYTES;
    uint64_t arrival_ps = start_ps + bytes_ps(d, FAB_HEAD_BYTES + padded + FAB_FCS_BYTES) + d->delay_ps;
    uint64_t wire_bytes = FAB_HEAD_BYTES + padded + FAB_FCS_BYTES + FAB_GAP_BYTES;
    uint64_t wire_ps = bytes_ps(d, wire_bytes);
    d->free_ps = start_ps + wire_ps;
    s->sent_frames++;
    s->sent_bytes += len;
    s->wire_bits += wire_bytes * 8;
    if (control)
        control_sent(d, data, len);
    if (d->capture)
        capture(d, start_ps, data, len);

    uint64_t *lost = NULL;
    if (!d->up)
        lost = &s->lost_down;
    else if (d->loss && fab_random(&d->rng) < d->loss)
        lost = &s->lost_error;
    else if (d->byte_survival && fab_random(&d->rng) >= survival(d->byte_survival, padded + FAB_FCS_BYTES))
        lost = &s->lost_error;
    else if (control && d->pfc_loss && fab_random(&d->rng) < d->pfc_loss)
        lost = &s->lost_pfc;
    if (d->jitter_ps)
        arrival_ps += (uint64_t)((unsigned __int128)fab_random(&d->rng) * (d->jitter_ps + 1) >> 64);
    if (arrival_ps < d->last_ps + wire_ps && d->last_ps) {
        if (d->jitter_ps) /* order is kept, and frames do not overlap */
            arrival_ps = d->last_ps + wire_ps;
        else if (arrival_ps < d->last_ps) /* the delay was made shorter */
            arrival_ps = d->last_ps;
    }
    if (f->tracing)
        fab_trace_frame(d->trace, start_ps, lost ? 0 : arrival_ps, data, len);
    if (lost) {
        ++*lost;
        release(d->from, data, frame);
        return;
    }
    d->last_ps = arrival_ps;
    fab_ring_t *ring = &d->data;
    if (control) {
        arrival_ps += d->response_ps;
        if (arrival_ps < d->last_control_ps)
            arrival_ps = d->last_control_ps;
        d->last_control_ps = arrival_ps;
        ring = &d->control;
    }
    bool idle = ring->count == 0;
    if (!ring_push(ring, (fab_flight_t){arrival_ps, data, frame, len})) {
        s->lost_unknown++;
        fab_break(f, "wire %u: no memory", d->number);
        release(d->from, data, frame);
        return;
    }
    s->in_flight++;
    if (idle) {
        dir_plan(d);
        fab_part_plan(d->to);
    }
}

void fab_output_packet(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps)
{
    (void)end_ps;
    fab_part_t *p = arg;
    p->out_frames++;
    p->flying++;
    fab_dir_t *d = port < FAB_PORTS ? p->out[port] : NULL;
    if (!d) {
        p->unconnected++;
        release(p, pkt->data, pkt);
        return;
    }
    dir_send(d, pkt->data, pkt->len, pkt, start_ps);
}

void fab_output_bytes(void *arg, const uint8_t *frame, uint32_t len, uint32_t port, uint64_t start_ps, uint64_t end_ps)
{
    (void)end_ps;
    fab_part_t *p = arg;
    p->out_frames++;
    fab_dir_t *d = port < FAB_PORTS ? p->out[port] : NULL;
    if (!d) {
        p->unconnected++;
        return;
    }
    uint8_t *data = fab_buffer_get(p->fabric, len);
    if (!data) {
        fab_break(p->fabric, "part %u: no memory for a frame of %u bytes", p->number, len);
        return;
    }
    memcpy(data, frame, len);
    dir_send(d, data, len, NULL, start_ps);
}

/* --- arriving ------------------------------------------------------------------------------------------------------- */

void fab_dir_arrive(fab_dir_t *d)
{
    fab_ring_t *r = first(d);
    fab_flight_t flight = ring_pop(r);
    fab_part_t *to = d->to;
    d->stats.in_flight--;
    dir_plan(d);
    if (!to->self) { /* nobody is there */
        d->stats.lost_down++;
        release(d->from, flight.data, flight.frame);
        return;
    }
    d->stats.delivered_frames++;
    d->stats.delivered_bytes += flight.len;
    d->fabric->hops++;
    to->in_frames++;
    if (r == &d->control)
        control_acts(d, flight.data, flight.len, flight.arrival_ps);
    to->ops.receive(to->self, d->to_port, flight.data, flight.len, flight.arrival_ps);
    release(d->from, flight.data, flight.frame);
}

bool fab_dir_keep(fab_dir_t *d)
{
    for (uint32_t k = 0; k < 2; k++) {
        fab_ring_t *r = k ? &d->control : &d->data;
        for (uint32_t i = 0; i < r->count; i++) {
            fab_flight_t *flight = &r->at[(r->head + i) & (r->size - 1)];
            if (!flight->frame)
                continue;
            uint8_t *copy = fab_buffer_get(d->fabric, flight->len);
            if (!copy)
                return false;
            memcpy(copy, flight->data, flight->len);
            release(d->from, flight->data, flight->frame);
            flight->data = copy;
            flight->frame = NULL;
        }
    }
    d->told = 0; /* a new sender has told nothing */
    return true;
}

void fab_dir_lose(fab_dir_t *d)
{
    for (fab_ring_t *r; (r = first(d));) {
        fab_flight_t flight = ring_pop(r);
        d->stats.in_flight--;
        d->stats.lost_down++;
        release(d->from, flight.data, flight.frame);
    }
    dir_plan(d);
    fab_part_plan(d->to);
}

void fab_dir_free(fab_dir_t *d)
{
    fab_dir_lose(d);
    if (d->capture)
        fclose(d->capture);
    free(d->data.at);
    free(d->control.at);
    free(d);
}

const char *fab_dir_check(const fab_dir_t *d)
{
    const fab_stats_t *s = &d->stats;
    if (s->in_flight != (uint64_t)d->data.count + d->control.count)
        return "the number of frames in flight is wrong";
    if (s->sent_frames != s->delivered_frames + s->lost_error + s->lost_pfc + s->lost_down + s->lost_unknown + s->in_flight)
        return "frames are not conserved: sent differs from delivered, lost and in flight";
    for (uint32_t k = 0; k < 2; k++) {
        const fab_ring_t *r = k ? &d->control : &d->data;
        for (uint32_t i = 1; i < r->count; i++)
            if (r->at[(r->head + i) & (r->size - 1)].arrival_ps < r->at[(r->head + i - 1) & (r->size - 1)].arrival_ps)
                return "frames on the wire are out of order";
    }
    return NULL;
}

/* --- settings and state --------------------------------------------------------------------------------------------- */

fab_dir_t *fab_get_dir(fab_t *f, uint32_t dir) { return dir < f->n_dirs ? f->dirs[dir] : NULL; }

int fab_set_wire(fab_t *f, uint32_t dir, uint64_t rate_bps, uint64_t delay_ps, uint64_t jitter_ps, uint64_t response_ps)
{
    if (dir >= f->n_dirs || rate_bps == 0)
        return -1;
    fab_dir_t *d = f->dirs[dir];
    d->rate_bps = rate_bps;
    d->byte_ps = 8 * FAB_PS_PER_S % rate_bps ? 0 : 8 * FAB_PS_PER_S / rate_bps;
    d->delay_ps = delay_ps;
    d->jitter_ps = jitter_ps;
    d->response_ps = response_ps;
    f->lookahead_ps = f->most_lookahead_ps;
    for (uint32_t i = 0; i < f->n_dirs; i++) {
        const fab_dir_t *o = f->dirs[i];
        if (!o->rate_bps)
            continue; /* about to be set */
        uint64_t least_ps = o->delay_ps + bytes_ps(o, FAB_HEAD_BYTES + FAB_MIN_FRAME_BYTES + FAB_FCS_BYTES);
        if (least_ps < f->lookahead_ps)
            f->lookahead_ps = least_ps ? least_ps : 1;
    }
    return 0;
}

int fab_set_errors(fab_t *f, uint32_t dir, uint64_t loss, uint64_t pfc_loss, uint64_t byte_survival)
{
    if (dir >= f->n_dirs)
        return -1;
    f->dirs[dir]->loss = loss;
    f->dirs[dir]->pfc_loss = pfc_loss;
    f->dirs[dir]->byte_survival = byte_survival;
    return 0;
}

void fab_set_paired(fab_t *f, uint32_t dir, bool paired) { f->dirs[dir]->paired = paired; }

int fab_set_up(fab_t *f, uint32_t link, bool up)
{
    if (2 * link >= f->n_dirs)
        return -1;
    for (uint32_t i = 2 * link; i < 2 * link + 2; i++) {
        fab_dir_t *d = f->dirs[i];
        if (d->up == up)
            continue;
        d->up = up;
        if (up)
            continue;
        fab_dir_lose(d);
        if (d->free_ps > f->now_ps)
            d->free_ps = f->now_ps;
        d->last_ps = 0;
        settle(d, f->now_ps);
        for (uint32_t k = 0; k < FAB_PRIORITIES; k++) /* a port that goes down forgets its pauses */
            if (d->paused >> k & 1)
                d->stats.paused_ps[k] += f->now_ps - d->since_ps[k];
        d->paused = d->told = 0;
    }
    return 0;
}

void fab_read_stats(fab_t *f, uint32_t dir, fab_stats_t *out)
{
    const fab_dir_t *d = f->dirs[dir];
    *out = d->stats;
    for (uint32_t i = 0; i < FAB_PRIORITIES; i++)
        out->paused_ps[i] = fab_dir_read(f->dirs[dir], FAB_DIR_PAUSED_PS, i, f->now_ps);
}

uint64_t fab_dir_read(void *dir, uint32_t kind, uint32_t index, uint64_t now_ps)
{
    const fab_dir_t *d = dir;
    switch (kind) {
    case FAB_DIR_BYTES: return d->stats.sent_bytes;
    case FAB_DIR_FRAMES: return d->stats.sent_frames;
    case FAB_DIR_IN_FLIGHT: return d->stats.in_flight;
    case FAB_DIR_PFC_FRAMES: return d->stats.pfc_frames;
    case FAB_DIR_WIRE_BITS: return d->stats.wire_bits;
    case FAB_DIR_PAUSED: return (d->paused >> (index & 7) & 1) && d->until_ps[index & 7] > now_ps;
    case FAB_DIR_PAUSED_PS: {
        uint64_t ps = d->stats.paused_ps[index & 7];
        if (d->paused >> (index & 7) & 1)
            ps += (d->until_ps[index & 7] < now_ps ? d->until_ps[index & 7] : now_ps) - d->since_ps[index & 7];
        return ps;
    }
    default: return 0;
    }
}

int fab_capture(fab_t *f, uint32_t dir, const char *path)
{
    if (dir >= f->n_dirs) {
        errno = EINVAL;
        return -1;
    }
    fab_dir_t *d = f->dirs[dir];
    if (d->capture) {
        int failed = ferror(d->capture), code = fclose(d->capture);
        d->capture = NULL;
        if (failed || code)
            return -1;
    }
    if (!path)
        return 0;
    d->capture = fopen(path, "wb");
    if (!d->capture)
        return -1;
    struct {
        uint32_t magic;
        uint16_t major, minor;
        uint32_t zone, accuracy, snap, type;
    } head = {PCAP_NANOSECONDS, 2, 4, 0, 0, 65535, PCAP_ETHERNET};
    return fwrite(&head, sizeof head, 1, d->capture) == 1 ? 0 : -1;
}
