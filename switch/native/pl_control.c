/* Control of action profiles and of the indexed externs (pl_tables.h). */
#include "pl_tables.h"

#include <stdlib.h>

/* ---- action profiles and selectors: ids are the caller's, entries and groups refer by index ----------------------- */

static pl_member_t *member_at(const pl_profile_t *p, uint32_t index)
{
    return (pl_member_t *)(p->members + (size_t)index * p->stride);
}

int32_t pl_find_member(const pl_profile_t *p, uint32_t id)
{
    for (uint32_t i = 0; i < p->capacity; i++)
        if (member_at(p, i)->used && member_at(p, i)->id == id)
            return (int32_t)i;
    return -1;
}

int32_t pl_find_group(const pl_profile_t *p, uint32_t id)
{
    for (uint32_t i = 0; i < p->group_capacity; i++)
        if (p->groups[i].used && p->groups[i].id == id)
            return (int32_t)i;
    return -1;
}

int pl_member_set(pl_t *pl, uint32_t profile, uint32_t id, uint32_t action, const uint64_t *data, uint32_t n_data)
{
    if (profile >= pl->desc->n_profiles || n_data > pl->profiles[profile].desc->data_cells)
        return PL_RANGE;
    pl_profile_t *p = &pl->profiles[profile];
    int32_t index = pl_find_member(p, id);
    if (index < 0) {
        if (p->n_members >= p->desc->max_size)
            return PL_FULL;
        if (p->first_free == UINT32_MAX) {
            uint32_t capacity = p->capacity ? 2 * p->capacity : 16;
            uint8_t *members = realloc(p->members, (size_t)capacity * p->stride);
            if (!members)
                return PL_NO_MEMORY;
            p->members = members;
            for (uint32_t i = capacity; i-- > p->capacity;) {
                memset(member_at(p, i), 0, p->stride);
                member_at(p, i)->next_free = p->first_free;
                p->first_free = i;
            }
            p->capacity = capacity;
        }
        index = (int32_t)p->first_free;
        p->first_free = member_at(p, (uint32_t)index)->next_free;
        p->n_members++;
        member_at(p, (uint32_t)index)->id = id;
        member_at(p, (uint32_t)index)->refs = 0;
        member_at(p, (uint32_t)index)->used = 1;
    }
    pl_member_t *m = member_at(p, (uint32_t)index);
    m->action = action;
    for (uint32_t i = 0; i < n_data; i++)
        m->cells[i] = data[i];
    return PL_OK;
}

int pl_member_delete(pl_t *pl, uint32_t profile, uint32_t id)
{
    if (profile >= pl->desc->n_profiles)
        return PL_RANGE;
    pl_profile_t *p = &pl->profiles[profile];
    int32_t index = pl_find_member(p, id);
    if (index < 0)
        return PL_NO_MEMBER;
    pl_member_t *m = member_at(p, (uint32_t)index);
    if (m->refs)
        return PL_IN_USE;
    m->used = 0;
    m->next_free = p->first_free;
    p->first_free = (uint32_t)index;
    p->n_members--;
    return PL_OK;
}

static void release_members(pl_profile_t *p, pl_group_t *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        member_at(p, g->members[i])->refs--;
}

int pl_group_set(pl_t *pl, uint32_t profile, uint32_t id, const uint32_t *ids, const uint32_t *weights, uint32_t n)
{
    if (profile >= pl->desc->n_profiles)
        return PL_RANGE;
    pl_profile_t *p = &pl->profiles[profile];
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (pl_find_member(p, ids[i]) < 0)
            return PL_NO_MEMBER;
        total += weights[i];
    }
    if (total > 1u << 20)
        return PL_RANGE;
    uint32_t *members = malloc((total ? total : 1) * sizeof *members);
    if (!members)
        return PL_NO_MEMORY;
    int32_t index = pl_find_group(p, id);
    if (index < 0) {
        if (p->first_free_group == UINT32_MAX) {
            uint32_t capacity = p->group_capacity ? 2 * p->group_capacity : 16;
            pl_group_t *groups = realloc(p->groups, capacity * sizeof *groups);
            if (!groups) {
                free(members);
                return PL_NO_MEMORY;
            }
            p->groups = groups;
            for (uint32_t i = capacity; i-- > p->group_capacity;) {
                groups[i] = (pl_group_t){.next_free = p->first_free_group};
                p->first_free_group = i;
            }
            p->group_capacity = capacity;
        }
        index = (int32_t)p->first_free_group;
        p->first_free_group = p->groups[index].next_free;
        p->groups[index] = (pl_group_t){.id = id, .used = 1};
        p->n_groups++;
    }
    pl_group_t *g = &p->groups[index];
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = (uint32_t)pl_find_member(p, ids[i]);
        for (uint32_t k = 0; k < weights[i]; k++) {
            members[at++] = m;
            member_at(p, m)->refs++;
        }
    }
    release_members(p, g);
    free(g->members);
    g->members = members;
    g->n = g->capacity = at;
    return PL_OK;
}

int pl_group_delete(pl_t *pl, uint32_t profile, uint32_t id)
{
    if (profile >= pl->desc->n_profiles)
        return PL_RANGE;
    pl_profile_t *p = &pl->profiles[profile];
    int32_t index = pl_find_group(p, id);
    if (index < 0)
        return PL_NO_GROUP;
    pl_group_t *g = &p->groups[index];
    if (g->refs)
        return PL_IN_USE;
    release_members(p, g);
    free(g->members);
    *g = (pl_group_t){.next_free = p->first_free_group};
    p->first_free_group = (uint32_t)index;
    p->n_groups--;
    return PL_OK;
}

/* ---- indexed externs ------------------------------------------------------------------------------------------------ */

int pl_counter(pl_t *pl, uint32_t counter, uint32_t index, pl_count_t *value, int write)
{
    if (counter >= pl->desc->n_counters || index >= pl->desc->counters[counter].size)
        return PL_RANGE;
    if (write)
        pl->counters[counter][index] = *value;
    else
        *value = pl->counters[counter][index];
    return PL_OK;
}

int pl_counter_all(const pl_t *pl, uint32_t counter, pl_count_t *values, uint32_t n)
{
    if (counter >= pl->desc->n_counters || n > pl->desc->counters[counter].size)
        return PL_RANGE;
    memcpy(values, pl->counters[counter], n * sizeof *values);
    return PL_OK;
}

int pl_register(pl_t *pl, uint32_t reg, uint32_t index, uint64_t *cells, int write)
{
    if (reg >= pl->desc->n_registers || index >= pl->desc->registers[reg].size)
        return PL_RANGE;
    size_t n = (pl->desc->registers[reg].bits + 63) / 64;
    uint64_t *element = pl->registers[reg] + index * n;
    if (write)
        memcpy(element, cells, n * sizeof *cells);
    else
        memcpy(cells, element, n * sizeof *cells);
    return PL_OK;
}

int pl_meter_set(pl_t *pl, uint32_t meter, uint32_t index, const uint64_t *rates)
{
    if (meter >= pl->desc->n_meters || index >= pl->desc->meters[meter].size)
        return PL_RANGE;
    if (rates)
        pl_meter_configure(&pl->meters[meter][index], rates, pl->now_ps);
    else
        pl->meters[meter][index].configured = 0;
    return PL_OK;
}

int pl_vset_write(pl_t *pl, uint32_t vset, const uint64_t *members, uint32_t n)
{
    if (vset >= pl->desc->n_vsets)
        return PL_RANGE;
    pl_vset_t *set = &pl->vsets[vset];
    if (n > set->desc->max_size)
        return PL_FULL;
    uint64_t *copy = malloc(((size_t)n * 2 * set->words + 1) * sizeof *copy);
    if (!copy)
        return PL_NO_MEMORY;
    memcpy(copy, members, (size_t)n * 2 * set->words * sizeof *copy);
    free(set->members);
    set->members = copy;
    set->n = n;
    return PL_OK;
}

uint64_t pl_failed_asserts(const pl_t *pl) { return pl->failed_asserts; }
