/* Makes and destroys a pipeline's state from the description that the generator emitted, and its log. */
#include "pl_tables.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t splitmix64(uint64_t x)
{
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* calloc that accepts a count of 0. */
static void *zeroed(size_t n, size_t size) { return calloc(n ? n : 1, size); }

void pl_state_destroy(pl_t *pl)
{
    if (!pl)
        return;
    const pl_desc_t *d = pl->desc;
    for (uint32_t i = 0; pl->tables && i < d->n_tables; i++)
        pl_table_free(&pl->tables[i]);
    for (uint32_t i = 0; pl->profiles && i < d->n_profiles; i++) {
        for (uint32_t g = 0; g < pl->profiles[i].group_capacity; g++)
            free(pl->profiles[i].groups[g].members);
        free(pl->profiles[i].groups);
        free(pl->profiles[i].members);
    }
    for (uint32_t i = 0; pl->counters && i < d->n_counters; i++)
        free(pl->counters[i]);
    for (uint32_t i = 0; pl->meters && i < d->n_meters; i++)
        free(pl->meters[i]);
    for (uint32_t i = 0; pl->registers && i < d->n_registers; i++)
        free(pl->registers[i]);
    for (uint32_t i = 0; pl->vsets && i < d->n_vsets; i++)
        free(pl->vsets[i].members);
    free(pl->tables);
    free(pl->profiles);
    free(pl->counters);
    free(pl->meters);
    free(pl->registers);
    free(pl->vsets);
    free(pl);
}

pl_t *pl_state_create(const pl_desc_t *d, uint64_t seed)
{
    pl_t *pl = calloc(1, sizeof *pl);
    if (!pl)
        return NULL;
    pl->desc = d;
    pl->drop_port = 511;
    pl->rng = splitmix64(seed);
    if (!pl->rng)
        pl->rng = 0x9E3779B97F4A7C15u;
    pl->tables = zeroed(d->n_tables, sizeof *pl->tables);
    pl->profiles = zeroed(d->n_profiles, sizeof *pl->profiles);
    pl->counters = zeroed(d->n_counters, sizeof *pl->counters);
    pl->meters = zeroed(d->n_meters, sizeof *pl->meters);
    pl->registers = zeroed(d->n_registers, sizeof *pl->registers);
    pl->vsets = zeroed(d->n_vsets, sizeof *pl->vsets);
    if (!pl->tables || !pl->profiles || !pl->counters || !pl->meters || !pl->registers || !pl->vsets)
        goto fail;
    for (uint32_t i = 0; i < d->n_profiles; i++) {
        pl_profile_t *p = &pl->profiles[i];
        p->desc = &d->profiles[i];
        p->stride = (uint32_t)(sizeof(pl_member_t) + 8u * p->desc->data_cells);
        p->first_free = p->first_free_group = UINT32_MAX;
    }
    for (uint32_t i = 0; i < d->n_counters; i++)
        if (!(pl->counters[i] = zeroed(d->counters[i].size, sizeof(pl_count_t))))
            goto fail;
    for (uint32_t i = 0; i < d->n_meters; i++)
        if (!(pl->meters[i] = zeroed(d->meters[i].size, sizeof(pl_meter_t))))
            goto fail;
    for (uint32_t i = 0; i < d->n_registers; i++)
        if (!(pl->registers[i] = zeroed((size_t)d->registers[i].size * ((d->registers[i].bits + 63) / 64), 8)))
            goto fail;
    for (uint32_t i = 0; i < d->n_vsets; i++) {
        pl->vsets[i].desc = &d->vsets[i];
        pl->vsets[i].words = (d->vsets[i].bits + 63) / 64;
    }
    for (uint32_t i = 0; i < d->n_tables; i++)
        if (pl_table_init(&pl->tables[i], &d->tables[i]) != PL_OK)
            goto fail;
    return pl;
fail:
    pl_state_destroy(pl);
    return NULL;
}

void pl_log_line(pl_t *pl, const char *line)
{
    if (pl->log_sink)
        pl->log_sink(pl->log_arg, line);
    else
        fprintf(stderr, "%s\n", line);
}

void pl_log(pl_t *pl, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pl_log_line(pl, line);
}

void pl_no_room(const pkt_t *p, uint32_t size)
{
    fprintf(stderr, "pipeline: %u bytes of headers do not fit before the payload, %zu are free (headroom_bytes)\n", size,
            (size_t)(p->data + p->payload_offset - p->buf));
    abort();
}

size_t pl_append(char *line, size_t used, size_t size, const char *text)
{
    size_t n = strlen(text), room = size - 1 - used;
    if (n > room)
        n = room;
    memcpy(line + used, text, n);
    line[used + n] = 0;
    return used + n;
}

size_t pl_append_number(char *line, size_t used, size_t size, const uint64_t *limbs, unsigned n)
{
    enum { MAX_LIMBS = 32, DIGITS = 20 * MAX_LIMBS + 2 };
    uint64_t value[MAX_LIMBS];
    char digits[DIGITS];
    size_t at = DIGITS - 1;
    int negative = limbs[n - 1] >> 63 != 0;
    if (n > MAX_LIMBS)
        return pl_append(line, used, size, "(a number of more than 2047 bits)");
    for (unsigned i = 0, carry = 1; i < n; i++) {
        value[i] = negative ? ~limbs[i] + carry : limbs[i];
        carry = carry && value[i] == 0;
    }
    digits[at] = 0;
    do {
        pl_u128 rest = 0;
        for (unsigned i = n; i-- > 0;) {
            rest = rest << 64 | value[i];
            value[i] = (uint64_t)(rest / 10);
            rest %= 10;
        }
        digits[--at] = (char)('0' + (int)rest);
    } while (!pl_w_zero(value, n));
    if (negative)
        digits[--at] = '-';
    return pl_append(line, used, size, digits + at);
}

/* push_front and pop_front of P4_16: elements that come in are invalid and zero. */
void pl_stack_push(uint64_t *first, uint32_t stride, uint32_t size, uint64_t *next, uint64_t count)
{
    if (count > size)
        count = size;
    *next = *next + count < size ? *next + count : size;
    memmove(first + count * stride, first, (size - count) * stride * sizeof *first);
    memset(first, 0, count * stride * sizeof *first);
}

void pl_stack_pop(uint64_t *first, uint32_t stride, uint32_t size, uint64_t *next, uint64_t count)
{
    if (count > size)
        count = size;
    *next = *next > count ? *next - count : 0;
    memmove(first, first + count * stride, (size - count) * stride * sizeof *first);
    memset(first + (size - count) * stride, 0, count * stride * sizeof *first);
}
