/* Traffic generator. See tester.h. */
#include "tester.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX
#define PS_PER_S 1000000000000ull
#define PRIORITIES 8u
#define MAX_FRAME_BYTES 16384u
#define MIN_FRAME_BYTES 60u
#define OVERHEAD_BYTES 24u /* preamble 8, FCS 4, gap 12 */
#define QUANTUM_BITS 512u

typedef struct flow {
    uint8_t **frames;
    uint32_t *lens;
    uint32_t n, next; /* templates; which is next */
    uint32_t priority, stamp_at;
    uint64_t next_ps, gap_ps, left, sent;
} flow_t;

struct tester {
    uint64_t rate_bps;
    uint32_t port, pfc_enable;
    tester_output_fn output;
    void *arg;
    flow_t *flows;
    uint32_t n_flows, rotor;
    uint64_t free_ps, wire_rem; /* the wire is free wire_rem / rate_bps ps later than free_ps */
    uint64_t deadline_ps;
    uint32_t paused;
    uint64_t until_ps[PRIORITIES];
    uint8_t *records;
    uint64_t record_limit, record_bytes, record_size;
    uint64_t counts[TESTER_RECORDS_LOST + 1];
};

tester_t *tester_create(uint64_t rate_bps, uint32_t port, uint32_t pfc_enable)
{
    tester_t *t = rate_bps ? calloc(1, sizeof *t) : NULL;
    if (!t)
        return NULL;
    t->rate_bps = rate_bps;
    t->port = port;
    t->pfc_enable = pfc_enable;
    t->deadline_ps = NEVER;
    return t;
}

static void free_flow(flow_t *f)
{
    for (uint32_t i = 0; f->frames && i < f->n; i++)
        free(f->frames[i]);
    free(f->frames);
    free(f->lens);
}

void tester_destroy(tester_t *t)
{
    for (uint32_t i = 0; i < t->n_flows; i++)
        free_flow(&t->flows[i]);
    free(t->flows);
    free(t->records);
    free(t);
}

void tester_set_output(tester_t *t, tester_output_fn output, void *arg)
{
    t->output = output;
    t->arg = arg;
}

/* When a flow may send, the wire aside. */
static inline uint64_t open_ps(const tester_t *t, const flow_t *f)
{
    if (!f->left)
        return NEVER;
    if (f->priority < PRIORITIES && (t->paused >> f->priority & 1) && t->until_ps[f->priority] > f->next_ps)
        return t->until_ps[f->priority];
    return f->next_ps;
}

static void plan(tester_t *t)
{
    uint64_t least = NEVER;
    for (uint32_t i = 0; i < t->n_flows && least > t->free_ps; i++) {
        uint64_t at = open_ps(t, &t->flows[i]);
        if (at < least)
            least = at;
    }
    t->deadline_ps = least < t->free_ps ? t->free_ps : least;
}

int tester_add_flow(tester_t *t, const uint8_t *const *frames, const uint32_t *lens, uint32_t n, uint32_t priority, uint64_t start_ps,
                    uint64_t gap_ps, uint64_t count, uint32_t stamp_at)
{
    if (!n || priority > PRIORITIES)
        return -1;
    flow_t *more = realloc(t->flows, (t->n_flows + 1) * sizeof *more);
    if (!more)
        return -1;
    t->flows = more;
    flow_t f = {.n = n, .priority = priority, .next_ps = start_ps, .gap_ps = gap_ps, .left = count, .stamp_at = stamp_at};
    f.frames = calloc(n, sizeof *f.frames);
    f.lens = calloc(n, sizeof *f.lens);
    bool fits = f.frames && f.lens;
    for (uint32_t i = 0; fits && i < n; i++) {
        f.lens[i] = lens[i];
        f.frames[i] = lens[i] && lens[i] <= MAX_FRAME_BYTES && (!stamp_at || stamp_at + 8 <= lens[i]) ? malloc(lens[i]) : NULL;
        if (f.frames[i])
            memcpy(f.frames[i], frames[i], lens[i]);
        else
            fits = false;
    }
    if (!fits) {
        free_flow(&f);
        return -1;
    }
    t->flows[t->n_flows] = f;
    t->n_flows++;
    plan(t);
    return (int)t->n_flows - 1;
}

int tester_stop_flow(tester_t *t, uint32_t flow)
{
    if (flow >= t->n_flows)
        return -1;
    t->flows[flow].left = 0;
    plan(t);
    return 0;
}

void tester_set_record(tester_t *t, uint64_t limit_bytes) { t->record_limit = limit_bytes; }

static void record(tester_t *t, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    uint64_t total = (12 + (uint64_t)len + 7) & ~7ull;
    if (t->record_bytes + total > t->record_limit) {
        t->counts[TESTER_RECORDS_LOST]++;
        return;
    }
    if (t->record_bytes + total > t->record_size) {
        uint64_t size = 2 * (t->record_bytes + total);
        uint8_t *more = realloc(t->records, size);
        if (!more) {
            t->counts[TESTER_RECORDS_LOST]++;
            return;
        }
        t->records = more;
        t->record_size = size;
    }
    uint8_t *at = t->records + t->record_bytes;
    memset(at + total - 8, 0, 8);
    memcpy(at, &now_ps, 8);
    memcpy(at + 8, &len, 4);
    memcpy(at + 12, frame, len);
    t->record_bytes += total;
}

uint64_t tester_take(tester_t *t, uint8_t *out, uint64_t capacity)
{
    uint64_t n = 0;
    while (n < t->record_bytes) {
        uint32_t len;
        memcpy(&len, t->records + n + 8, 4);
        uint64_t total = (12 + (uint64_t)len + 7) & ~7ull;
        if (n + total > capacity)
            break;
        n += total;
    }
    if (n) {
        memcpy(out, t->records, n);
        memmove(t->records, t->records + n, t->record_bytes - n);
        t->record_bytes -= n;
    }
    return n;
}

uint64_t tester_read(tester_t *t, uint32_t kind, uint32_t index, uint64_t now_ps)
{
    (void)index, (void)now_ps;
    if (kind == TESTER_WAITING) {
        uint64_t n = 0;
        for (uint32_t i = 0; i < t->n_flows; i++)
            n += t->flows[i].left;
        return n;
    }
    return kind <= TESTER_RECORDS_LOST ? t->counts[kind] : 0;
}

/* --- traffic -------------------------------------------------------------------------------------------------------- */

static inline uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }

static void pause(tester_t *t, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    bool pfc = be16(frame + 14) == 0x0101 && len >= 34;
    t->counts[TESTER_RX_CONTROL]++;
    for (uint32_t i = 0; pfc && i < PRIORITIES; i++) {
        if (!(be16(frame + 16) & t->pfc_enable & 1u << i))
            continue;
        uint64_t quanta = be16(frame + 18 + 2 * i);
        if (quanta) {
            if (!(t->paused >> i & 1) || t->until_ps[i] <= now_ps)
                t->counts[TESTER_PAUSES]++;
            t->paused |= 1u << i;
            t->until_ps[i] = now_ps + (uint64_t)(((unsigned __int128)quanta * QUANTUM_BITS * PS_PER_S + t->rate_bps - 1) / t->rate_bps);
        } else {
            t->paused &= ~(1u << i);
        }
    }
    if (t->free_ps < now_ps) { /* what a pause held and an XON frees goes from now on, not from when it was due */
        t->free_ps = now_ps;
        t->wire_rem = 0;
    }
    plan(t);
}

void tester_receive(tester_t *t, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    (void)port;
    if (now_ps && t->deadline_ps < now_ps)
        tester_advance(t, now_ps - 1);
    t->counts[TESTER_RX_FRAMES]++;
    t->counts[TESTER_RX_BYTES] += len;
    if (t->record_limit)
        record(t, frame, len, now_ps);
    if (len >= 18 && be16(frame + 12) == 0x8808)
        pause(t, frame, len, now_ps);
}

uint64_t tester_next_deadline(const tester_t *t) { return t->deadline_ps; }

static void send(tester_t *t, flow_t *f, uint64_t now_ps)
{
    uint8_t *frame = f->frames[f->next];
    uint32_t len = f->lens[f->next];
    if (++f->next == f->n)
        f->next = 0;
    for (uint32_t i = 0; f->stamp_at && i < 8; i++)
        frame[f->stamp_at + i] = (uint8_t)(f->sent >> (56 - 8 * i));
    f->sent++;
    if (f->left != NEVER)
        f->left--;
    f->next_ps += f->gap_ps;
    uint64_t total = ((len > MIN_FRAME_BYTES ? len : MIN_FRAME_BYTES) + OVERHEAD_BYTES) * 8ull * PS_PER_S;
    if (now_ps == t->free_ps)
        total += t->wire_rem;
    t->free_ps = now_ps + total / t->rate_bps;
    t->wire_rem = total % t->rate_bps;
    t->counts[TESTER_TX_FRAMES]++;
    t->counts[TESTER_TX_BYTES] += len;
    if (t->output)
        t->output(t->arg, frame, len, t->port, now_ps, t->free_ps);
}

void tester_advance(tester_t *t, uint64_t now_ps)
{
    while (t->deadline_ps <= now_ps) {
        uint64_t at = t->deadline_ps;
        for (uint32_t k = 0, i = t->rotor; k < t->n_flows; k++) {
            if (++i >= t->n_flows)
                i = 0;
            if (open_ps(t, &t->flows[i]) > at)
                continue;
            t->rotor = i;
            send(t, &t->flows[i], at);
            break;
        }
        plan(t);
    }
}
