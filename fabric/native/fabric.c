/* Parts, event heap and the run. See fabric.h. */
#include "fabric.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define STUCK_LIMIT 1000000u /* events of parts in a row that leave a deadline at the same time */

/* --- heaps: four children, keys in the entries ---------------------------------------------------------------------- */

static inline bool before(const fab_heap_entry_t *a, const fab_heap_entry_t *b)
{
    return a->time_ps < b->time_ps || (a->time_ps == b->time_ps && a->number < b->number);
}

static inline void put(fab_heap_t *h, uint32_t slot, fab_heap_entry_t e)
{
    h->at[slot] = e;
    e.item->slot = (int32_t)slot;
}

static void sift_up(fab_heap_t *h, uint32_t slot, fab_heap_entry_t e)
{
    while (slot) {
        uint32_t parent = (slot - 1) / 4;
        if (!before(&e, &h->at[parent]))
            break;
        put(h, slot, h->at[parent]);
        slot = parent;
    }
    put(h, slot, e);
}

static void sift_down(fab_heap_t *h, uint32_t slot, fab_heap_entry_t e)
{
    for (;;) {
        uint32_t child = 4 * slot + 1;
        if (child >= h->len)
            break;
        uint32_t end = child + 4 < h->len ? child + 4 : h->len, least = child;
        for (uint32_t i = child + 1; i < end; i++)
            if (before(&h->at[i], &h->at[least]))
                least = i;
        if (!before(&h->at[least], &e))
            break;
        put(h, slot, h->at[least]);
        slot = least;
    }
    put(h, slot, e);
}

/* There is room for each item from its creation on. */
bool fab_heap_reserve(fab_heap_t *h, uint32_t size)
{
    if (size <= h->size)
        return true;
    fab_heap_entry_t *more = realloc(h->at, 2 * size * sizeof *more);
    if (!more)
        return false;
    h->at = more;
    h->size = 2 * size;
    return true;
}

void fab_heap_set(fab_heap_t *h, fab_item_t *item, uint64_t time_ps, uint32_t number)
{
    fab_heap_entry_t e = {time_ps, number, item};
    if (time_ps == FAB_NEVER) {
        if (item->slot < 0)
            return;
        uint32_t slot = (uint32_t)item->slot;
        item->slot = -1;
        fab_heap_entry_t last = h->at[--h->len];
        if (last.item == item)
            return;
        if (slot && before(&last, &h->at[(slot - 1) / 4]))
            sift_up(h, slot, last);
        else
            sift_down(h, slot, last);
        return;
    }
    if (item->slot < 0) {
        sift_up(h, h->len++, e);
        return;
    }
    uint32_t slot = (uint32_t)item->slot;
    if (before(&e, &h->at[slot]))
        sift_up(h, slot, e);
    else
        sift_down(h, slot, e);
}

/* --- creation ------------------------------------------------------------------------------------------------------- */

fab_t *fab_create(uint64_t seed, uint64_t most_lookahead_ps, bool tracing, bool debug)
{
    fab_t *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->seed = seed;
    f->tracing = tracing;
    f->debug = debug;
    f->lookahead_ps = f->most_lookahead_ps = most_lookahead_ps ? most_lookahead_ps : 1;
    return f;
}

void fab_destroy(fab_t *f)
{
    for (uint32_t i = 0; i < f->n_dirs; i++)
        fab_dir_free(f->dirs[i]);
    for (uint32_t i = 0; i < f->n_parts; i++) {
        free(f->parts[i]->in.at);
        free(f->parts[i]);
    }
    for (uint32_t i = 0; i < f->n_samplers; i++) {
        free(f->samplers[i]->sources);
        free(f->samplers[i]->values);
        free(f->samplers[i]);
    }
    for (uint32_t i = 0; i < FAB_CLASSES; i++) {
        while (f->buffers[i]) {
            fab_buffer_t *next = f->buffers[i]->next;
            free(f->buffers[i]);
            f->buffers[i] = next;
        }
    }
    free(f->parts);
    free(f->dirs);
    free(f->samplers);
    free(f->heap.at);
    free(f->sampling.at);
    free(f);
}

/* One element more in an array of pointers. */
static bool append(void ***array, uint32_t *n, void *element)
{
    if ((*n & (*n - 1)) == 0) {
        void **more = realloc(*array, (*n ? 2 * *n : 1) * sizeof *more);
        if (!more)
            return false;
        *array = more;
    }
    (*array)[(*n)++] = element;
    return true;
}

/* ops NULL: nobody is there. */
static void part_put(fab_part_t *p, const fab_ops_t *ops, void *self)
{
    p->self = ops ? self : NULL;
    if (!ops)
        return;
    p->ops = *ops;
    if (ops->events)
        p->events_seen = ops->events(self);
    if (ops->read_stats) {
        sw_stats_t stats;
        ops->read_stats(self, &stats);
        p->base_frames = stats.transmitted;
    }
}

int64_t fab_add_part(fab_t *f, const fab_ops_t *ops, void *self)
{
    if ((ops && (!ops->receive || !ops->next_deadline || !ops->advance || !self)) || !fab_heap_reserve(&f->heap, f->n_parts + 1))
        return -1;
    fab_part_t *p = calloc(1, sizeof *p);
    if (!p || !append((void ***)&f->parts, &f->n_parts, p)) {
        free(p);
        return -1;
    }
    p->item = (fab_item_t){-1};
    p->number = f->n_parts - 1;
    p->fabric = f;
    p->deadline_ps = FAB_NEVER;
    part_put(p, ops, self);
    return p->number;
}

fab_part_t *fab_get_part(fab_t *f, uint32_t part) { return part < f->n_parts ? f->parts[part] : NULL; }

void fab_forget_part(fab_t *f, uint32_t part)
{
    if (part < f->n_parts) {
        f->parts[part]->self = NULL;
        f->parts[part]->deadline_ps = FAB_NEVER;
        fab_part_plan(f->parts[part]);
    }
}

int fab_replace_part(fab_t *f, uint32_t part, const fab_ops_t *ops, void *self)
{
    if (part >= f->n_parts || (ops && (!ops->receive || !ops->next_deadline || !ops->advance || !self)))
        return -1;
    fab_part_t *p = f->parts[part];
    for (uint32_t i = 0; i < FAB_PORTS; i++)
        if (p->out[i] && !fab_dir_keep(p->out[i]))
            return -1;
    p->deadline_ps = FAB_NEVER;
    fab_part_plan(p);
    p->in_frames = p->out_frames = p->base_frames = p->events_seen = 0;
    part_put(p, ops, self);
    return 0;
}

static fab_dir_t *new_dir(fab_t *f, fab_part_t *from, uint32_t from_port, fab_part_t *to, uint32_t to_port)
{
    uint32_t leading = 1;
    for (uint32_t i = 0; i < f->n_dirs; i++)
        leading += f->dirs[i]->to == to;
    if (!fab_heap_reserve(&to->in, leading))
        return NULL;
    fab_dir_t *d = calloc(1, sizeof *d);
    if (!d || !append((void ***)&f->dirs, &f->n_dirs, d)) {
        free(d);
        return NULL;
    }
    d->item = (fab_item_t){-1};
    d->number = f->n_dirs - 1;
    d->fabric = f;
    d->up = true;
    d->from = from;
    d->from_port = from_port;
    d->to = to;
    d->to_port = to_port;
    d->trace[0] = 0x6a09e667f3bcc908ull;
    d->trace[1] = 0xbb67ae8584caa73bull;
    d->rng = f->seed + 0x632be59bd9b4e019ull * (d->number + 1);
    from->out[from_port] = d;
    return d;
}

int64_t fab_connect(fab_t *f, uint32_t a, uint32_t a_port, uint32_t b, uint32_t b_port, uint64_t rate_bps, uint64_t delay_ps)
{
    if (a >= f->n_parts || b >= f->n_parts || a_port >= FAB_PORTS || b_port >= FAB_PORTS || rate_bps == 0)
        return -1;
    fab_part_t *pa = f->parts[a], *pb = f->parts[b];
    if (pa->out[a_port] || pb->out[b_port] || (pa == pb && a_port == b_port))
        return -1;
    fab_dir_t *there = new_dir(f, pa, a_port, pb, b_port);
    fab_dir_t *back = there ? new_dir(f, pb, b_port, pa, a_port) : NULL;
    if (!back)
        return -1;
    fab_set_wire(f, there->number, rate_bps, delay_ps, 0, 0);
    fab_set_wire(f, back->number, rate_bps, delay_ps, 0, 0);
    return there->number / 2;
}

/* --- the run -------------------------------------------------------------------------------------------------------- */

void fab_break(fab_t *f, const char *format, ...)
{
    if (f->error[0])
        return; /* the first one tells */
    int n = snprintf(f->error, sizeof f->error, "at %llu ps: ", (unsigned long long)f->now_ps);
    va_list args;
    va_start(args, format);
    vsnprintf(f->error + n, sizeof f->error - (size_t)n, format, args);
    va_end(args);
}

void fab_part_plan(fab_part_t *p)
{
    uint64_t t = p->deadline_ps;
    if (p->in.len && p->in.at[0].time_ps < t)
        t = p->in.at[0].time_ps;
    if (p->item.slot < 0 ? t != FAB_NEVER : t != p->fabric->heap.at[p->item.slot].time_ps)
        fab_heap_set(&p->fabric->heap, &p->item, t, p->number);
}

static void read_deadline(fab_part_t *p, uint64_t now_ps)
{
    uint64_t t = p->self ? p->ops.next_deadline(p->self) : FAB_NEVER;
    p->deadline_ps = t < now_ps ? now_ps : t;
}

/* Settings may have changed since the last run. */
static void refresh(fab_t *f)
{
    for (uint32_t i = 0; i < f->n_parts; i++) {
        read_deadline(f->parts[i], f->now_ps);
        fab_part_plan(f->parts[i]);
    }
}

/* True: the part has something new for its controller. */
static bool part_events(fab_part_t *p)
{
    if (!p->ops.events || !p->self)
        return false;
    uint64_t n = p->ops.events(p->self);
    if (n == p->events_seen)
        return false;
    p->events_seen = n;
    p->told_events = 1;
    return true;
}

static const char *part_check(fab_part_t *p)
{
    if (!p->self)
        return NULL;
    const char *broken = p->ops.check ? p->ops.check(p->ops.check_arg) : NULL;
    if (broken || !p->ops.read_stats || !p->ops.live)
        return broken;
    sw_stats_t s;
    p->ops.read_stats(p->self, &s);
    uint64_t made = s.received + s.copies + s.pfc_made + s.events_made;
    uint64_t gone = s.rx_dropped + s.ingress_dropped + s.egress_dropped + s.tm_dropped + s.group_dropped + s.transmitted + s.to_cpu +
                    s.cpu_dropped + s.memory_dropped;
    uint64_t held = p->ops.live(p->self) - p->flying;
    if (made != gone + held)
        return "frames of the switch are not conserved: received and made differ from sent, dropped and held";
    if (s.transmitted != p->base_frames + p->out_frames)
        return "the switch counts another number of frames transmitted than the fabric got";
    if (s.received < p->in_frames)
        return "the switch counts fewer frames received than the fabric delivered";
    return NULL;
}

/* Part p, the wires that leave it and (where not NULL) the one that brought it a frame. */
static void check(fab_part_t *p, const fab_dir_t *d)
{
    fab_t *f = p->fabric;
    const char *broken = part_check(p);
    if (broken)
        fab_break(f, "part %u: %s", p->number, broken);
    for (uint32_t i = 0; i < FAB_PORTS; i++)
        if (p->out[i] && (broken = fab_dir_check(p->out[i])))
            fab_break(f, "wire %u: %s", p->out[i]->number, broken);
    if (d && (broken = fab_dir_check(d)))
        fab_break(f, "wire %u: %s", d->number, broken);
}

static void check_heap(fab_t *f, const fab_heap_t *h)
{
    for (uint32_t i = 0; i < h->len; i++) {
        if (h->at[i].item->slot != (int32_t)i)
            fab_break(f, "an event heap lost an item");
        if (h->at[i].time_ps < f->now_ps)
            fab_break(f, "an event at %llu ps was left behind", (unsigned long long)h->at[i].time_ps);
    }
}

const char *fab_check(fab_t *f)
{
    check_heap(f, &f->heap);
    check_heap(f, &f->sampling);
    for (uint32_t i = 0; i < f->n_parts; i++) {
        check(f->parts[i], NULL);
        check_heap(f, &f->parts[i]->in);
    }
    return f->error[0] ? f->error : NULL;
}

#define OF(type, pointer) ((type *)((char *)(pointer) - offsetof(type, item)))

/* Everything of one part up to and at end_ps. What is due before an arrival the part does itself, at its own times. */
static void part_run(fab_part_t *p, uint64_t end_ps)
{
    fab_t *f = p->fabric;
    while (p->in.len && p->in.at[0].time_ps <= end_ps)
        fab_dir_arrive(OF(fab_dir_t, p->in.at[0].item));
    f->stuck = 0;
    for (read_deadline(p, 0); p->deadline_ps <= end_ps; read_deadline(p, 0)) {
        p->ops.advance(p->self, end_ps);
        if (++f->stuck > STUCK_LIMIT) {
            fab_break(f, "part %u has something due again and again, and time stands still", p->number);
            return;
        }
    }
}

/* The same, one event at a time, with a look at the invariants after each. */
static void part_run_checked(fab_part_t *p, uint64_t end_ps)
{
    fab_t *f = p->fabric;
    uint64_t last_ps = 0;
    for (f->stuck = 0; !f->error[0];) {
        read_deadline(p, 0);
        uint64_t arrival_ps = p->in.len ? p->in.at[0].time_ps : FAB_NEVER;
        uint64_t t = arrival_ps <= p->deadline_ps ? arrival_ps : p->deadline_ps;
        if (t > end_ps)
            return;
        if (t < last_ps || t < f->now_ps)
            fab_break(f, "part %u: time went back to %llu ps", p->number, (unsigned long long)t);
        f->stuck = t == last_ps ? f->stuck + 1 : 0;
        if (f->stuck > STUCK_LIMIT)
            fab_break(f, "part %u has something due again and again, and time stands still", p->number);
        last_ps = t;
        fab_dir_t *d = NULL;
        if (arrival_ps == t)
            fab_dir_arrive(d = OF(fab_dir_t, p->in.at[0].item));
        else
            p->ops.advance(p->self, t);
        check(p, d);
    }
}

static void sample(fab_t *f, uint64_t now_ps)
{
    while (f->sampling.len && f->sampling.at[0].time_ps <= now_ps)
        fab_sample(f, OF(fab_sampler_t, f->sampling.at[0].item));
}

int fab_run(fab_t *f, uint64_t limit_ps, uint64_t max_hops)
{
    refresh(f);
    uint64_t end_hops = max_hops > UINT64_MAX - f->hops ? UINT64_MAX : f->hops + max_hops;
    for (;;) {
        if (f->error[0])
            return FAB_BROKEN;
        uint64_t first_ps = f->heap.len ? f->heap.at[0].time_ps : FAB_NEVER;
        uint64_t sample_ps = f->sampling.len ? f->sampling.at[0].time_ps : FAB_NEVER;
        if (limit_ps == FAB_NEVER && first_ps == FAB_NEVER)
            return FAB_TIME; /* nothing but samples is left */
        if (first_ps > limit_ps && sample_ps > limit_ps)
            break;
        if (f->hops >= end_hops)
            return FAB_SLICE;
        uint64_t end_ps = first_ps < FAB_NEVER - f->lookahead_ps ? first_ps + f->lookahead_ps - 1 : FAB_NEVER - 1;
        if (end_ps > limit_ps)
            end_ps = limit_ps;
        if (end_ps > sample_ps)
            end_ps = sample_ps;
        if (first_ps < f->now_ps)
            fab_break(f, "time went back to %llu ps", (unsigned long long)first_ps);
        f->windows++;
        bool told = false;
        while (f->heap.len && f->heap.at[0].time_ps <= end_ps) {
            fab_part_t *p = OF(fab_part_t, f->heap.at[0].item);
            if (f->debug)
                part_run_checked(p, end_ps);
            else
                part_run(p, end_ps);
            fab_part_plan(p);
            told |= part_events(p);
            if (f->error[0])
                return FAB_BROKEN;
        }
        f->now_ps = end_ps;
        if (sample_ps <= end_ps)
            sample(f, end_ps);
        if (told)
            return FAB_EVENT;
    }
    if (limit_ps != FAB_NEVER && limit_ps > f->now_ps)
        f->now_ps = limit_ps;
    return FAB_TIME;
}

void fab_wait(fab_t *f, uint64_t now_ps)
{
    if (now_ps > f->now_ps)
        f->now_ps = now_ps;
    for (uint32_t i = 0; i < f->n_parts; i++)
        if (f->parts[i]->self && f->parts[i]->ops.wait)
            f->parts[i]->ops.wait(f->parts[i]->self, f->now_ps);
}

uint64_t fab_now(const fab_t *f) { return f->now_ps; }

uint64_t fab_next(fab_t *f)
{
    refresh(f);
    uint64_t t = f->heap.len ? f->heap.at[0].time_ps : FAB_NEVER;
    return f->sampling.len && f->sampling.at[0].time_ps < t ? f->sampling.at[0].time_ps : t;
}

const char *fab_error(const fab_t *f) { return f->error; }

uint32_t fab_take_events(fab_t *f, uint32_t *parts, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_parts && n < capacity; i++) {
        if (f->parts[i]->told_events) {
            f->parts[i]->told_events = 0;
            parts[n++] = i;
        }
    }
    return n;
}

void fab_totals(const fab_t *f, uint64_t out[4])
{
    out[0] = f->hops;
    out[1] = f->windows;
    fab_trace_read(f, out + 2);
}
