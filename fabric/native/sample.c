/* Series of samples, and the trace: a running hash over every frame, for each wire. See fabric.h. */
#include "fabric.h"

#include <stdlib.h>
#include <string.h>

/* --- series --------------------------------------------------------------------------------------------------------- */

int64_t fab_add_sampler(fab_t *f, uint64_t interval_ps, uint64_t first_ps, uint64_t end_ps, const fab_source_t *sources, uint32_t n)
{
    if (interval_ps == 0 || n == 0 || first_ps < f->now_ps)
        return -1;
    uint32_t size = f->n_samplers;
    fab_sampler_t *s = calloc(1, sizeof *s);
    fab_sampler_t **more = realloc(f->samplers, (size + 1) * sizeof *more);
    if (more)
        f->samplers = more;
    if (s)
        s->sources = malloc(n * sizeof *sources);
    if (!s || !more || !s->sources || !fab_heap_reserve(&f->sampling, size + 1)) {
        if (s)
            free(s->sources);
        free(s);
        return -1;
    }
    memcpy(s->sources, sources, n * sizeof *sources);
    s->item = (fab_item_t){-1};
    s->number = size;
    s->n_sources = n;
    s->interval_ps = interval_ps;
    s->next_ps = first_ps;
    s->end_ps = end_ps;
    f->samplers[f->n_samplers++] = s;
    if (first_ps <= end_ps)
        fab_heap_set(&f->sampling, &s->item, first_ps, s->number);
    return s->number;
}

void fab_sample(fab_t *f, fab_sampler_t *s)
{
    uint64_t width = s->n_sources + 1;
    if (s->rows == s->capacity) {
        uint64_t capacity = s->capacity ? 2 * s->capacity : 256;
        uint64_t *more = realloc(s->values, capacity * width * sizeof *more);
        if (!more) {
            fab_break(f, "series %u: no memory for %llu samples", s->number, (unsigned long long)capacity);
            fab_heap_set(&f->sampling, &s->item, FAB_NEVER, 0);
            return;
        }
        s->values = more;
        s->capacity = capacity;
    }
    uint64_t *row = s->values + s->rows++ * width;
    row[0] = s->next_ps;
    for (uint32_t i = 0; i < s->n_sources; i++)
        row[i + 1] = s->sources[i].read ? s->sources[i].read(s->sources[i].object, s->sources[i].kind, s->sources[i].index, s->next_ps) : 0;
    bool over = s->end_ps - s->next_ps < s->interval_ps;
    s->next_ps += s->interval_ps;
    fab_heap_set(&f->sampling, &s->item, over ? FAB_NEVER : s->next_ps, s->number);
}

int fab_point_source(fab_t *f, uint32_t sampler, uint32_t source, const fab_source_t *to)
{
    if (sampler >= f->n_samplers || source >= f->samplers[sampler]->n_sources)
        return -1;
    f->samplers[sampler]->sources[source] = *to;
    return 0;
}

uint64_t fab_sample_rows(fab_t *f, uint32_t sampler) { return f->samplers[sampler]->rows; }

uint64_t fab_take_samples(fab_t *f, uint32_t sampler, uint64_t *out, uint64_t rows)
{
    fab_sampler_t *s = f->samplers[sampler];
    uint64_t width = s->n_sources + 1, n = rows < s->rows ? rows : s->rows;
    if (n == 0)
        return 0;
    memcpy(out, s->values, n * width * sizeof *out);
    memmove(s->values, s->values + n * width, (s->rows - n) * width * sizeof *out);
    s->rows -= n;
    return n;
}

/* --- trace ---------------------------------------------------------------------------------------------------------- *
 * 128 bits, made by folded multiplication; not a cryptographic hash. Bytes are read little-endian. */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the trace hash and the captures are written for little-endian machines"
#endif

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t word(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static const uint64_t K[8] = {0x243f6a8885a308d3ull, 0x13198a2e03707344ull, 0xa4093822299f31d1ull, 0x082efa98ec4e6c89ull,
                              0x452821e638d01377ull, 0xbe5466cf34e90c6dull, 0xc0ac29b7c97c50ddull, 0x3f84d5b5b5470917ull};

void fab_trace_frame(uint64_t trace[2], uint64_t start_ps, uint64_t arrival_ps, const uint8_t *data, uint32_t len)
{
    uint64_t a = start_ps ^ K[0], b = arrival_ps ^ K[1], c = K[2], d = len ^ K[3];
    uint32_t at = 0;
    for (; at + 64 <= len; at += 64) { /* four lanes that do not wait for each other */
        a = mix(a ^ word(data + at), K[4] ^ word(data + at + 8));
        b = mix(b ^ word(data + at + 16), K[5] ^ word(data + at + 24));
        c = mix(c ^ word(data + at + 32), K[6] ^ word(data + at + 40));
        d = mix(d ^ word(data + at + 48), K[7] ^ word(data + at + 56));
    }
    if (at < len) {
        uint8_t rest[64] = {0};
        memcpy(rest, data + at, len - at);
        a = mix(a ^ word(rest), K[4] ^ word(rest + 8));
        b = mix(b ^ word(rest + 16), K[5] ^ word(rest + 24));
        c = mix(c ^ word(rest + 32), K[6] ^ word(rest + 40));
        d = mix(d ^ word(rest + 48), K[7] ^ word(rest + 56));
    }
    trace[0] = mix(trace[0] ^ a, K[0] ^ b) + c;
    trace[1] = mix(trace[1] ^ c, K[1] ^ d) + a;
}

void fab_trace_read(const fab_t *f, uint64_t out[2])
{
    out[0] = out[1] = f->n_dirs;
    for (uint32_t i = 0; i < f->n_dirs; i++) {
        const uint64_t *t = f->dirs[i]->trace;
        out[0] = mix(out[0] ^ t[0], K[4] ^ t[1]) + i;
        out[1] = mix(out[1] ^ t[1], K[5] ^ out[0]) + t[0];
    }
}
