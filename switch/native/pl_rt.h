/* The pipeline run time: tables, action profiles, counters, meters, registers, value sets, generator.
 *
 * The generated C describes its program in constant pl_desc_t data and includes this header for what runs per packet (all
 * inline, no function pointers); pl_state.c makes and destroys a pl_t from the description, pl_tables.c and pl_control.c
 * change it. Everything in a pl_t belongs to one thread at a time: the owner of the switch core holds a lock.
 *
 * A table key is a few 64-bit words. Fields of up to 64 bits share words and never straddle them, wider ones start a
 * word of their own, least significant word first (switch/codegen/layout.py decides, for this side and for Python).
 */
#ifndef DCB_PL_RT_H
#define DCB_PL_RT_H

#include "abi.h"
#include "pl_bits.h"
#include "pl_hash.h"
#include "pl_wide.h"

#define PL_NO_ACTION UINT32_MAX
#define PL_MAX_KEY_WORDS 64u

enum { PL_MATCH_NONE = 0, PL_MATCH_DIRECT = 1, PL_MATCH_EXACT = 2, PL_MATCH_LPM = 3, PL_MATCH_TERNARY = 4 };
enum { PL_KIND_ACTION = 0, PL_KIND_MEMBER = 1, PL_KIND_GROUP = 2 };

/* Results of control functions; Python turns the negative ones into PipelineError. */
enum {
    PL_OK = 0, PL_FULL = -1, PL_NO_ENTRY = -2, PL_NO_MEMBER = -3, PL_NO_GROUP = -4, PL_IN_USE = -5, PL_NO_MEMORY = -6,
    PL_RANGE = -7, PL_EXISTS = -8, PL_NO_METER = -9,
};

/* ---- description of a program, emitted by the generator --------------------------------------------------------- */

typedef struct pl_key_field {
    uint16_t word, shift;       /* place of the least significant bit; shift is 0 for fields wider than a word */
    uint16_t bits;
    uint8_t is_range, is_lpm;
} pl_key_field_t;

typedef struct pl_table_desc {
    const char *name;
    uint8_t match;              /* PL_MATCH_* */
    uint8_t key_words;
    uint8_t direct_bits;        /* PL_MATCH_DIRECT: bits of the whole key */
    uint8_t n_fields;
    const pl_key_field_t *fields;
    uint32_t data_cells;        /* of the longest action */
    uint32_t max_size;
    int32_t profile;            /* index or -1 */
    int32_t meter;              /* index of the direct meter array or -1 */
    uint32_t default_action;    /* id or PL_NO_ACTION */
    const uint64_t *default_data;
    uint32_t n_default_data;
} pl_table_desc_t;

typedef struct pl_profile_desc { const char *name; uint32_t max_size, data_cells; } pl_profile_desc_t;
typedef struct pl_counter_desc { const char *name; uint32_t size; } pl_counter_desc_t;
typedef struct pl_meter_desc { const char *name; uint32_t size; uint8_t bytes; } pl_meter_desc_t;
typedef struct pl_register_desc { const char *name; uint32_t size, bits; } pl_register_desc_t;
typedef struct pl_vset_desc { const char *name; uint32_t bits, max_size; } pl_vset_desc_t;

typedef struct pl_desc {
    const pl_table_desc_t *tables;
    const pl_profile_desc_t *profiles;
    const pl_counter_desc_t *counters;
    const pl_meter_desc_t *meters;
    const pl_register_desc_t *registers;
    const pl_vset_desc_t *vsets;
    uint32_t n_tables, n_profiles, n_counters, n_meters, n_registers, n_vsets;
} pl_desc_t;

/* ---- state ------------------------------------------------------------------------------------------------------ */

typedef struct pl_count { uint64_t packets, bytes; } pl_count_t;

/* Two rates, three colours; the arithmetic is specified in switch/meter.py. */
typedef struct pl_meter {
    pl_u128 committed, peak;    /* tokens * 10^12 */
    uint64_t cir, cburst, pir, pburst;
    uint64_t last_ps;
    uint64_t configured;
} pl_meter_t;

/* What a lookup yields. The cells hold the data of the action, then the key (and for LPM the prefix length). */
typedef struct pl_entry {
    uint32_t action;            /* action id, or for a profile's table the index of the member or group */
    uint32_t kind;              /* PL_KIND_* */
    uint32_t handle;            /* its index; callers see generation << 32 | index */
    uint32_t prefix_len;
    uint64_t last_hit_ps;
    pl_count_t count;
    uint64_t cells[];
} pl_entry_t;

/* The part of an entry that lookups do not need. */
typedef struct pl_cold {
    int64_t rank;               /* larger wins */
    uint64_t seq;               /* then the earlier one */
    pl_meter_t *meter;          /* direct meter, once configured */
    uint32_t used;
    uint32_t next_free;
    uint32_t generation;        /* how often the place was freed: part of the handle that callers see */
} pl_cold_t;

typedef struct pl_table {
    const pl_table_desc_t *desc;
    uint8_t *entries;           /* stride bytes each */
    pl_cold_t *cold;
    uint32_t stride, capacity, n_entries, first_free;
    uint64_t next_seq;
    pl_entry_t *miss;           /* the default entry */
    uint32_t key_at;            /* index of the key among an entry's cells */
    /* PL_MATCH_DIRECT: handle + 1 by key. PL_MATCH_EXACT and LPM: open addressing, (hash << 32 | handle + 1) */
    uint32_t *direct;
    uint64_t *slots;
    uint32_t slot_mask;
    /* LPM: prefix lengths in use, longest first, with their masks of key_words words */
    uint32_t n_prefixes;
    uint32_t *prefixes;
    uint64_t *prefix_masks;
    uint32_t *prefix_users;     /* entries by prefix length */
    /* PL_MATCH_TERNARY: rows of mask, value and, with range fields, high words, in winning order */
    uint64_t *rows;
    uint32_t *row_handles;
    uint32_t row_words, row_capacity;
} pl_table_t;

typedef struct pl_id_map { uint32_t *slots; uint32_t mask, used; } pl_id_map_t; /* caller's id -> index */

typedef struct pl_member {
    uint32_t action, id, refs, used, next_free, spare;
    uint64_t cells[];
} pl_member_t;

typedef struct pl_group {
    uint32_t id, n, capacity, refs, used, next_free;
    uint32_t *members;          /* member indexes, each repeated weight times */
} pl_group_t;

typedef struct pl_profile {
    const pl_profile_desc_t *desc;
    uint8_t *members;
    uint32_t stride, capacity, n_members, first_free;
    pl_group_t *groups;
    uint32_t group_capacity, n_groups, first_free_group;
    uint64_t round_robin;
} pl_profile_t;

typedef struct pl_vset {
    const pl_vset_desc_t *desc;
    uint32_t words, n;
    uint64_t *members;          /* value words, then mask words, per member */
} pl_vset_t;

struct pl {
    uint64_t now_ps;
    uint64_t rng;
    uint32_t drop_port;
    pl_table_t *tables;
    pl_profile_t *profiles;
    pl_count_t **counters;
    pl_meter_t **meters;
    uint64_t **registers;       /* (bits + 63) / 64 cells per element */
    pl_vset_t *vsets;
    const pl_desc_t *desc;
    void (*digest_sink)(void *arg, uint32_t list_id, const uint8_t *bytes, uint32_t len);
    void *digest_arg;
    void (*log_sink)(void *arg, const char *line);
    void *log_arg;
    uint64_t failed_asserts;
};

pl_t *pl_state_create(const pl_desc_t *desc, uint64_t seed);
void pl_state_destroy(pl_t *pl);
void pl_log(pl_t *pl, const char *format, ...) __attribute__((format(printf, 2, 3)));
void pl_log_line(pl_t *pl, const char *line);

size_t pl_append(char *line, size_t used, size_t size, const char *text);
size_t pl_append_number(char *line, size_t used, size_t size, const uint64_t *limbs, unsigned n); /* signed, decimal */
void pl_stack_push(uint64_t *first, uint32_t stride, uint32_t size, uint64_t *next, uint64_t count);
void pl_stack_pop(uint64_t *first, uint32_t stride, uint32_t size, uint64_t *next, uint64_t count);

void pl_no_room(const pkt_t *p, uint32_t size) __attribute__((noreturn, cold));

/* ---- per packet --------------------------------------------------------------------------------------------------- */

/* Moves `data` so that `size` bytes of headers fit before the payload. */
PL_INLINE void pl_make_room(pkt_t *p, uint32_t size)
{
    uint8_t *payload = p->data + p->payload_offset;
    if (PL_UNLIKELY((size_t)(payload - p->buf) < size))
        pl_no_room(p, size); /* the owner broke the promise of headroom_bytes */
    p->data = payload - size;
    p->len = p->len - p->payload_offset + size;
    p->payload_offset = size;
}

PL_INLINE pl_entry_t *pl_entry_at(const pl_table_t *t, uint32_t handle)
{
    return (pl_entry_t *)(t->entries + (size_t)handle * t->stride);
}

PL_INLINE uint32_t pl_key_hash(const uint64_t *key, unsigned words)
{
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (unsigned i = 0; i < words; i++) {
        h = (h ^ key[i]) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    return (uint32_t)(h ^ (h >> 17));
}

PL_INLINE pl_entry_t *pl_find_direct(const pl_table_t *t, uint64_t key)
{
    uint32_t v = t->direct[key];
    return v ? pl_entry_at(t, v - 1) : NULL;
}

PL_INLINE pl_entry_t *pl_find_exact(const pl_table_t *t, const uint64_t *key, unsigned words)
{
    uint32_t h = pl_key_hash(key, words);
    if (!t->n_entries)
        return NULL;
    for (uint32_t i = h & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        uint64_t slot = t->slots[i];
        if (!slot)
            return NULL;
        if ((uint32_t)(slot >> 32) != h)
            continue;
        pl_entry_t *e = pl_entry_at(t, (uint32_t)slot - 1);
        const uint64_t *have = e->cells + t->key_at;
        uint64_t diff = 0;
        for (unsigned w = 0; w < words; w++)
            diff |= have[w] ^ key[w];
        if (PL_LIKELY(!diff))
            return e;
    }
}

/* The longest prefix: an entry's stored key is (masked words, prefix length). */
PL_INLINE pl_entry_t *pl_find_lpm(const pl_table_t *t, const uint64_t *key, unsigned words)
{
    for (uint32_t i = 0; i < t->n_prefixes; i++) {
        uint64_t masked[PL_MAX_KEY_WORDS + 1];
        const uint64_t *mask = t->prefix_masks + (size_t)i * words;
        for (unsigned w = 0; w < words; w++)
            masked[w] = key[w] & mask[w];
        masked[words] = t->prefixes[i];
        pl_entry_t *e = pl_find_exact(t, masked, words + 1);
        if (e)
            return e;
    }
    return NULL;
}

/* A field of a packed key is inside low..high. */
PL_INLINE int pl_in_range(const pl_key_field_t *f, const uint64_t *key, const uint64_t *low, const uint64_t *high)
{
    if (f->bits <= 64) {
        uint64_t m = pl_mask64(f->bits);
        uint64_t v = (key[f->word] >> f->shift) & m;
        return v >= ((low[f->word] >> f->shift) & m) && v <= ((high[f->word] >> f->shift) & m);
    }
    unsigned n = (f->bits + 63u) / 64u;
    for (unsigned i = n; i-- > 0;) { /* unsigned comparison, most significant word first */
        uint64_t v = key[f->word + i], l = low[f->word + i];
        if (v != l) {
            if (v < l)
                return 0;
            break;
        }
    }
    for (unsigned i = n; i-- > 0;) {
        uint64_t v = key[f->word + i], h = high[f->word + i];
        if (v != h)
            return v < h;
    }
    return 1;
}

/* `with_range`: the table has range fields; their bits are outside the mask. */
PL_INLINE pl_entry_t *pl_find_ternary(const pl_table_t *t, const uint64_t *key, unsigned words, int with_range)
{
    const uint64_t *row = t->rows;
    for (uint32_t i = 0; i < t->n_entries; i++, row += (with_range ? 3 : 2) * words) {
        uint64_t diff = 0;
        for (unsigned w = 0; w < words; w++)
            diff |= (key[w] ^ row[words + w]) & row[w];
        if (diff)
            continue;
        if (with_range) {
            int inside = 1;
            for (unsigned f = 0; f < t->desc->n_fields && inside; f++)
                if (t->desc->fields[f].is_range)
                    inside = pl_in_range(&t->desc->fields[f], key, row + words, row + 2 * words);
            if (!inside)
                continue;
        }
        return pl_entry_at(t, t->row_handles[i]);
    }
    return NULL;
}

PL_INLINE const pl_member_t *pl_member_at(const pl_profile_t *profile, uint32_t index)
{
    return (const pl_member_t *)(profile->members + (size_t)index * profile->stride);
}

/* The member behind an entry; NULL for an empty group. `hash` is read for groups alone. */
PL_INLINE const pl_member_t *pl_choose(const pl_profile_t *profile, const pl_entry_t *e, uint64_t hash)
{
    if (e->kind == PL_KIND_MEMBER)
        return pl_member_at(profile, e->action);
    const pl_group_t *group = &profile->groups[e->action];
    return group->n ? pl_member_at(profile, group->members[hash % group->n]) : NULL;
}

PL_INLINE int pl_vset_has(const pl_vset_t *set, const uint64_t *key, const uint64_t *mask, unsigned words)
{
    for (uint32_t i = 0; i < set->n; i++) {
        const uint64_t *value = set->members + (size_t)i * 2 * words;
        uint64_t diff = 0;
        for (unsigned w = 0; w < words; w++)
            diff |= (key[w] ^ value[w]) & value[words + w] & mask[w];
        if (!diff)
            return 1;
    }
    return 0;
}

PL_INLINE void pl_count(pl_count_t *c, uint64_t bytes)
{
    c->packets++;
    c->bytes += bytes;
}

/* Rates are cir, cburst, pir, pburst. */
PL_INLINE void pl_meter_configure(pl_meter_t *m, const uint64_t *rates, uint64_t now_ps)
{
    const pl_u128 scale = 1000000000000u;
    *m = (pl_meter_t){.committed = rates[1] * scale, .peak = rates[3] * scale, .cir = rates[0], .cburst = rates[1],
                      .pir = rates[2], .pburst = rates[3], .last_ps = now_ps, .configured = 1};
}

/* The colour of a packet: 0 green, 1 yellow, 2 red. `size`: bytes, or 1 for a packet meter. */
PL_INLINE unsigned pl_meter_execute(pl_meter_t *m, uint64_t size, uint64_t now_ps)
{
    const pl_u128 scale = 1000000000000u;
    if (!m->configured)
        return 0;
    uint64_t elapsed = now_ps > m->last_ps ? now_ps - m->last_ps : 0;
    m->last_ps += elapsed;
    pl_u128 committed = m->committed + (pl_u128)m->cir * elapsed, committed_max = (pl_u128)m->cburst * scale;
    pl_u128 peak = m->peak + (pl_u128)m->pir * elapsed, peak_max = (pl_u128)m->pburst * scale;
    m->committed = committed < committed_max ? committed : committed_max;
    m->peak = peak < peak_max ? peak : peak_max;
    pl_u128 need = (pl_u128)size * scale;
    if (m->peak < need)
        return 2;
    m->peak -= need;
    if (m->committed < need)
        return 1;
    m->committed -= need;
    return 0;
}

/* xorshift64*, as specified in switch/rng.py. */
PL_INLINE uint64_t pl_random(pl_t *pl)
{
    uint64_t s = pl->rng;
    s ^= s >> 12;
    s ^= s << 25;
    s ^= s >> 27;
    pl->rng = s;
    return s * 0x2545F4914F6CDD1Du;
}

PL_INLINE uint64_t pl_random_uniform(pl_t *pl, uint64_t low, uint64_t high)
{
    uint64_t span = high - low + 1, drawn = pl_random(pl);
    return low + (span ? drawn % span : drawn);
}

#endif
