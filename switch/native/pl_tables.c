/* Tables: entry storage and the structures that lookups walk (pl_rt.h has the lookups themselves).
 *
 * An entry lives at a stable index, its handle. What finds it depends on the kind of match: a direct array, a hash with
 * linear probing (exact, and one for all prefix lengths of LPM), or rows in winning order (ternary, range, optional).
 */
#include "pl_tables.h"

#include <stdlib.h>

static pl_table_t *table_of(pl_t *pl, uint32_t table) { return table < pl->desc->n_tables ? &pl->tables[table] : NULL; }

/* The entry behind a caller's handle; a handle of an entry that is gone never comes back. */
static pl_entry_t *used_entry(const pl_table_t *t, uint64_t handle)
{
    uint32_t index = (uint32_t)handle;
    if (!t || index >= t->capacity || !t->cold[index].used || t->cold[index].generation != handle >> 32)
        return NULL;
    return pl_entry_at(t, index);
}

/* ---- masks of prefixes ------------------------------------------------------------------------------------------- */

static const pl_key_field_t *lpm_field(const pl_table_desc_t *d)
{
    for (unsigned i = 0; i < d->n_fields; i++)
        if (d->fields[i].is_lpm)
            return &d->fields[i];
    return NULL;
}

static void prefix_mask(const pl_table_desc_t *d, uint32_t prefix_len, uint64_t *mask)
{
    const pl_key_field_t *f = lpm_field(d);
    for (unsigned w = 0; w < d->key_words; w++)
        mask[w] = UINT64_MAX;
    uint32_t clear = f->bits - prefix_len;
    if (f->bits <= 64) {
        mask[f->word] &= ~(pl_mask64(clear) << f->shift);
        return;
    }
    for (unsigned w = f->word; clear; w++) {
        uint32_t n = clear < 64 ? clear : 64;
        mask[w] &= ~pl_mask64(n);
        clear -= n;
    }
}

/* ---- hash ---------------------------------------------------------------------------------------------------------- */

static unsigned stored_key_words(const pl_table_t *t)
{
    return t->desc->key_words + (t->desc->match == PL_MATCH_LPM ? 1u : 0u);
}

static void slot_add(pl_table_t *t, uint32_t hash, uint32_t handle)
{
    uint32_t i = hash & t->slot_mask;
    while (t->slots[i])
        i = (i + 1) & t->slot_mask;
    t->slots[i] = (uint64_t)hash << 32 | (handle + 1);
}

static int slots_reserve(pl_table_t *t, uint32_t entries)
{
    uint64_t want = 16;
    while (want < 2 * (uint64_t)entries)
        want *= 2;
    if (t->slots && want <= (uint64_t)t->slot_mask + 1)
        return PL_OK;
    uint64_t *slots = calloc(want, sizeof *slots);
    if (!slots)
        return PL_NO_MEMORY;
    uint64_t *old = t->slots;
    uint64_t old_size = old ? (uint64_t)t->slot_mask + 1 : 0;
    t->slots = slots;
    t->slot_mask = (uint32_t)(want - 1);
    for (uint64_t i = 0; i < old_size; i++)
        if (old[i])
            slot_add(t, (uint32_t)(old[i] >> 32), (uint32_t)old[i] - 1);
    free(old);
    return PL_OK;
}

/* Linear probing without tombstones: entries behind the hole move up where their home allows. */
static void slot_remove(pl_table_t *t, uint32_t hash, uint32_t handle)
{
    uint32_t i = hash & t->slot_mask;
    while ((uint32_t)t->slots[i] != handle + 1)
        i = (i + 1) & t->slot_mask;
    for (uint32_t j = (i + 1) & t->slot_mask; t->slots[j]; j = (j + 1) & t->slot_mask) {
        uint32_t home = (uint32_t)(t->slots[j] >> 32) & t->slot_mask;
        if (((j - home) & t->slot_mask) >= ((j - i) & t->slot_mask)) {
            t->slots[i] = t->slots[j];
            i = j;
        }
    }
    t->slots[i] = 0;
}

/* ---- prefix lengths in use ---------------------------------------------------------------------------------------- */

static void prefixes_rebuild(pl_table_t *t)
{
    uint32_t bits = lpm_field(t->desc)->bits;
    t->n_prefixes = 0;
    for (uint32_t len = bits + 1; len-- > 0;)
        if (t->prefix_users[len]) {
            t->prefixes[t->n_prefixes] = len;
            prefix_mask(t->desc, len, t->prefix_masks + (size_t)t->n_prefixes * t->desc->key_words);
            t->n_prefixes++;
        }
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

static int row_add(pl_table_t *t, uint32_t handle, const uint64_t *key, const uint64_t *mask, const uint64_t *high)
{
    unsigned words = t->desc->key_words;
    uint32_t n = t->n_entries;
    if (n == t->row_capacity) {
        uint32_t capacity = n ? 2 * n : 16;
        uint64_t *rows = realloc(t->rows, (size_t)capacity * t->row_words * sizeof *rows);
        if (!rows)
            return PL_NO_MEMORY;
        t->rows = rows;
        uint32_t *handles = realloc(t->row_handles, (size_t)capacity * sizeof *handles);
        if (!handles)
            return PL_NO_MEMORY;
        t->row_handles = handles;
        t->row_capacity = capacity;
    }
    int64_t rank = t->cold[handle].rank;
    uint32_t low = 0, top = n; /* after every row of the same or a larger rank */
    while (low < top) {
        uint32_t middle = (low + top) / 2;
        if (t->cold[t->row_handles[middle]].rank >= rank)
            low = middle + 1;
        else
            top = middle;
    }
    uint64_t *row = t->rows + (size_t)low * t->row_words;
    memmove(row + t->row_words, row, (size_t)(n - low) * t->row_words * sizeof *row);
    memmove(t->row_handles + low + 1, t->row_handles + low, (size_t)(n - low) * sizeof *t->row_handles);
    for (unsigned w = 0; w < words; w++) {
        row[w] = mask[w];
        row[words + w] = key[w];
        if (t->row_words == 3 * words)
            row[2 * words + w] = high[w];
    }
    t->row_handles[low] = handle;
    return PL_OK;
}

static void row_remove(pl_table_t *t, uint32_t handle)
{
    uint32_t i = 0, n = t->n_entries;
    while (t->row_handles[i] != handle)
        i++;
    uint64_t *row = t->rows + (size_t)i * t->row_words;
    memmove(row, row + t->row_words, (size_t)(n - i - 1) * t->row_words * sizeof *row);
    memmove(t->row_handles + i, t->row_handles + i + 1, (size_t)(n - i - 1) * sizeof *t->row_handles);
}

/* ---- life ------------------------------------------------------------------------------------------------------------ */

int pl_table_init(pl_table_t *t, const pl_table_desc_t *d)
{
    t->desc = d;
    t->key_at = d->data_cells;
    t->first_free = UINT32_MAX;
    unsigned cells = d->data_cells + d->key_words + 1u;
    t->stride = (uint32_t)(sizeof(pl_entry_t) + 8u * cells);
    t->miss = calloc(1, t->stride);
    if (!t->miss)
        return PL_NO_MEMORY;
    t->miss->handle = UINT32_MAX;
    t->miss->action = d->default_action;
    for (uint32_t i = 0; i < d->n_default_data; i++)
        t->miss->cells[i] = d->default_data[i];
    if (d->match == PL_MATCH_DIRECT && !(t->direct = calloc((size_t)1 << d->direct_bits, sizeof *t->direct)))
        return PL_NO_MEMORY;
    if (d->match == PL_MATCH_EXACT || d->match == PL_MATCH_LPM)
        if (slots_reserve(t, 8) != PL_OK)
            return PL_NO_MEMORY;
    if (d->match == PL_MATCH_LPM) {
        size_t lengths = (size_t)lpm_field(d)->bits + 1;
        t->prefixes = calloc(lengths, sizeof *t->prefixes);
        t->prefix_users = calloc(lengths, sizeof *t->prefix_users);
        t->prefix_masks = calloc(lengths * d->key_words, sizeof *t->prefix_masks);
        if (!t->prefixes || !t->prefix_users || !t->prefix_masks)
            return PL_NO_MEMORY;
    }
    t->row_words = 2u * d->key_words;
    for (unsigned i = 0; i < d->n_fields; i++)
        if (d->fields[i].is_range)
            t->row_words = 3u * d->key_words;
    return PL_OK;
}

void pl_table_free(pl_table_t *t)
{
    for (uint32_t i = 0; i < t->capacity; i++)
        free(t->cold[i].meter);
    free(t->entries);
    free(t->cold);
    free(t->miss);
    free(t->direct);
    free(t->slots);
    free(t->prefixes);
    free(t->prefix_users);
    free(t->prefix_masks);
    free(t->rows);
    free(t->row_handles);
}

static int grow(pl_table_t *t)
{
    uint32_t capacity = t->capacity ? t->capacity * 2 : 16;
    uint8_t *entries = realloc(t->entries, (size_t)capacity * t->stride);
    if (!entries)
        return PL_NO_MEMORY;
    t->entries = entries;
    pl_cold_t *cold = realloc(t->cold, capacity * sizeof *cold);
    if (!cold)
        return PL_NO_MEMORY;
    t->cold = cold;
    for (uint32_t i = capacity; i-- > t->capacity;) {
        cold[i] = (pl_cold_t){.next_free = t->first_free};
        t->first_free = i;
    }
    t->capacity = capacity;
    return PL_OK;
}

/* ---- what an entry does ----------------------------------------------------------------------------------------------- */

/* Checks and resolves the action of an entry, taking the reference to a member or group. */
static int bind(pl_t *pl, pl_table_t *t, pl_entry_t *e, uint32_t kind, uint32_t action, const uint64_t *data, uint32_t n)
{
    if (n > t->desc->data_cells)
        return PL_RANGE;
    if (kind != PL_KIND_ACTION) {
        if (t->desc->profile < 0)
            return PL_RANGE;
        pl_profile_t *p = &pl->profiles[t->desc->profile];
        int32_t index = kind == PL_KIND_MEMBER ? pl_find_member(p, action) : pl_find_group(p, action);
        if (index < 0)
            return kind == PL_KIND_MEMBER ? PL_NO_MEMBER : PL_NO_GROUP;
        if (kind == PL_KIND_MEMBER)
            ((pl_member_t *)(p->members + (size_t)index * p->stride))->refs++;
        else
            p->groups[index].refs++;
        action = (uint32_t)index;
    }
    e->kind = kind;
    e->action = action;
    for (uint32_t i = 0; i < n; i++)
        e->cells[i] = data[i];
    return PL_OK;
}

static void unbind(pl_t *pl, const pl_table_t *t, uint32_t kind, uint32_t action)
{
    if (kind == PL_KIND_ACTION)
        return;
    pl_profile_t *p = &pl->profiles[t->desc->profile];
    if (kind == PL_KIND_MEMBER)
        ((pl_member_t *)(p->members + (size_t)action * p->stride))->refs--;
    else
        p->groups[action].refs--;
}

/* ---- control ----------------------------------------------------------------------------------------------------------- */

int64_t pl_table_insert(pl_t *pl, uint32_t table, const uint64_t *key, const uint64_t *mask, const uint64_t *high,
                        uint32_t prefix_len, int64_t rank, uint32_t kind, uint32_t action, const uint64_t *data,
                        uint32_t n_data)
{
    pl_table_t *t = table_of(pl, table);
    if (!t || t->desc->match == PL_MATCH_NONE)
        return PL_RANGE;
    const pl_table_desc_t *d = t->desc;
    unsigned words = d->key_words;
    uint64_t stored[PL_MAX_KEY_WORDS + 1];
    if (t->n_entries >= d->max_size)
        return PL_FULL;
    for (unsigned w = 0; w < words; w++)
        stored[w] = key[w];
    if (d->match == PL_MATCH_LPM) {
        uint64_t lpm_mask[PL_MAX_KEY_WORDS];
        if (prefix_len > lpm_field(d)->bits)
            return PL_RANGE;
        prefix_mask(d, prefix_len, lpm_mask);
        for (unsigned w = 0; w < words; w++)
            stored[w] &= lpm_mask[w];
        stored[words] = prefix_len;
    }
    if (d->match == PL_MATCH_DIRECT && (stored[0] >> d->direct_bits || t->direct[stored[0]]))
        return stored[0] >> d->direct_bits ? PL_RANGE : PL_EXISTS;
    if ((d->match == PL_MATCH_EXACT || d->match == PL_MATCH_LPM) && pl_find_exact(t, stored, stored_key_words(t)))
        return PL_EXISTS;
    if (t->first_free == UINT32_MAX && grow(t) != PL_OK)
        return PL_NO_MEMORY;
    if ((d->match == PL_MATCH_EXACT || d->match == PL_MATCH_LPM) && slots_reserve(t, t->n_entries + 1) != PL_OK)
        return PL_NO_MEMORY;
    uint32_t handle = t->first_free;
    pl_cold_t *cold = &t->cold[handle];
    uint32_t next_free = cold->next_free;
    pl_entry_t *e = pl_entry_at(t, handle);
    memset(e, 0, t->stride);
    e->handle = handle;
    e->prefix_len = prefix_len;
    e->last_hit_ps = pl->now_ps;
    for (unsigned w = 0; w < stored_key_words(t); w++)
        e->cells[t->key_at + w] = stored[w];
    int rc = bind(pl, t, e, kind, action, data, n_data);
    if (rc != PL_OK)
        return rc;
    *cold = (pl_cold_t){.rank = rank, .seq = t->next_seq++, .used = 1, .generation = cold->generation};
    if (d->match == PL_MATCH_TERNARY) {
        for (unsigned w = 0; w < words; w++) /* a range field's low end stays whole, the rest is cut to its mask */
            stored[w] = key[w];
        if ((rc = row_add(t, handle, stored, mask, high)) != PL_OK) {
            unbind(pl, t, e->kind, e->action);
            *cold = (pl_cold_t){.next_free = next_free, .generation = cold->generation};
            return rc;
        }
    } else if (d->match == PL_MATCH_DIRECT) {
        t->direct[stored[0]] = handle + 1;
    } else {
        slot_add(t, pl_key_hash(stored, stored_key_words(t)), handle);
    }
    t->first_free = next_free;
    t->n_entries++;
    if (d->match == PL_MATCH_LPM && t->prefix_users[prefix_len]++ == 0)
        prefixes_rebuild(t);
    return (int64_t)((uint64_t)cold->generation << 32 | handle);
}

int pl_table_modify(pl_t *pl, uint32_t table, uint64_t handle, uint32_t kind, uint32_t action, const uint64_t *data,
                    uint32_t n_data)
{
    pl_table_t *t = table_of(pl, table);
    pl_entry_t *e = used_entry(t, handle);
    if (!e)
        return PL_NO_ENTRY;
    uint32_t old_kind = e->kind, old_action = e->action;
    int rc = bind(pl, t, e, kind, action, data, n_data);
    if (rc == PL_OK)
        unbind(pl, t, old_kind, old_action);
    return rc;
}

int pl_table_delete(pl_t *pl, uint32_t table, uint64_t handle)
{
    pl_table_t *t = table_of(pl, table);
    pl_entry_t *e = used_entry(t, handle);
    if (!e)
        return PL_NO_ENTRY;
    const uint64_t *key = e->cells + t->key_at;
    unbind(pl, t, e->kind, e->action);
    switch (t->desc->match) {
    case PL_MATCH_DIRECT:
        t->direct[key[0]] = 0;
        break;
    case PL_MATCH_TERNARY:
        row_remove(t, e->handle);
        break;
    default:
        slot_remove(t, pl_key_hash(key, stored_key_words(t)), e->handle);
        if (t->desc->match == PL_MATCH_LPM && --t->prefix_users[e->prefix_len] == 0)
            prefixes_rebuild(t);
    }
    pl_cold_t *cold = &t->cold[e->handle];
    free(cold->meter);
    *cold = (pl_cold_t){.next_free = t->first_free, .generation = (cold->generation + 1) & INT32_MAX};
    t->first_free = e->handle;
    t->n_entries--;
    return PL_OK;
}

int pl_table_set_default(pl_t *pl, uint32_t table, uint32_t kind, uint32_t action, const uint64_t *data, uint32_t n_data)
{
    pl_table_t *t = table_of(pl, table);
    if (!t)
        return PL_RANGE;
    uint32_t old_kind = t->miss->kind, old_action = t->miss->action;
    int rc = bind(pl, t, t->miss, kind, action, data, n_data);
    if (rc == PL_OK)
        unbind(pl, t, old_kind, old_action);
    return rc;
}

int pl_table_reset_default(pl_t *pl, uint32_t table)
{
    pl_table_t *t = table_of(pl, table);
    if (!t)
        return PL_RANGE;
    return pl_table_set_default(pl, table, PL_KIND_ACTION, t->desc->default_action, t->desc->default_data,
                                t->desc->n_default_data);
}

int64_t pl_table_hit_age_us(pl_t *pl, uint32_t table, uint64_t handle)
{
    const pl_entry_t *e = used_entry(table_of(pl, table), handle);
    if (!e)
        return PL_NO_ENTRY;
    return pl->now_ps > e->last_hit_ps ? (int64_t)((pl->now_ps - e->last_hit_ps) / 1000000u) : 0;
}

int pl_direct_counter(pl_t *pl, uint32_t table, uint64_t handle, pl_count_t *value, int write)
{
    pl_entry_t *e = used_entry(table_of(pl, table), handle);
    if (!e)
        return PL_NO_ENTRY;
    if (write)
        e->count = *value;
    else
        *value = e->count;
    return PL_OK;
}

int pl_direct_meter(pl_t *pl, uint32_t table, uint64_t handle, const uint64_t *rates)
{
    pl_table_t *t = table_of(pl, table);
    if (!used_entry(t, handle))
        return PL_NO_ENTRY;
    if (t->desc->meter < 0)
        return PL_NO_METER;
    pl_cold_t *cold = &t->cold[(uint32_t)handle];
    if (!rates) {
        free(cold->meter);
        cold->meter = NULL;
        return PL_OK;
    }
    /* pl_meter_t holds 128-bit members: malloc's alignment of 16 is what they need */
    if (!cold->meter && !(cold->meter = calloc(1, sizeof *cold->meter)))
        return PL_NO_MEMORY;
    pl_meter_configure(cold->meter, rates, pl->now_ps);
    return PL_OK;
}
