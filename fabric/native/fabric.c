/* Parts, event heap and the run. See fabric.h. */
#include "fabric.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define STUCK_LIMIT 1000000u /* events of parts in a row that leave a deadline at the same time */

/* --- event heap: four children, keys in the entries ---------------------------------------------------------------- */

static inline bool before(const fab_heap_entry_t *a, const fab_heap_entry_t *b)
{
    return a->time_ps < b->time_ps || (a->time_ps == b->time_ps && a->order < b->order);
}

static inline void put(fab_t *f, uint32_t slot, fab_heap_entry_t e)
{
    f->heap[slot] = e;
    e.item->slot = (int32_t)slot;
}

static void sift_up(fab_t *f, uint32_t slot, fab_heap_entry_t e)
{
    while (slot) {
        uint32_t parent = (slot - 1) / 4;
        if (!before(&e, &f->heap[parent]))
            break;
        put(f, slot, f->heap[parent]);
        slot = parent;
    }
    put(f, slot, e);
}

static void sift_down(fab_t *f, uint32_t slot, fab_heap_entry_t e)
{
    for (;;) {
        uint32_t child = 4 * slot + 1;
        if (child >= f->heap_len)
            break;
        uint32_t end = child + 4 < f->heap_len ? child + 4 : f->heap_len, least = child;
        for (uint32_t i = child + 1; i < end; i++)
            if (before(&f->heap[i], &f->heap[least]))
                least = i;
        if (!before(&f->heap[least], &e))
            break;
        put(f, slot, f->heap[least]);
        slot = least;
    }
    put(f, slot, e);
}

/* Puts, moves or (FAB_NEVER) takes out an item. There is room for each item from its creation on. */
int fab_heap_set(fab_t *f, fab_item_t *item, uint64_t time_ps, uint64_t order)
{
    fab_heap_entry_t e = {time_ps, order, item};
    if (time_ps == FAB_NEVER) {
        if (item->slot < 0)
            return 0;
        uint32_t slot = (uint32_t)item->slot;
        item->slot = -1;
        fab_heap_entry_t last = f->heap[--f->heap_len];
        if (last.item == item)
            return 0;
        if (slot && before(&last, &f->heap[(slot - 1) / 4]))
            sift_up(f, slot, last);
        else
            sift_down(f, slot, last);
        return 0;
    }
    if (item->slot < 0) {
        sift_up(f, f->heap_len++, e);
        return 0;
    }
    uint32_t slot = (uint32_t)item->slot;
    if (before(&e, &f->heap[slot]))
        sift_up(f, slot, e);
    else
        sift_down(f, slot, e);
    return 0;
}

/* Room for one item more. */
static bool heap_grow(fab_t *f)
{
    uint32_t items = f->n_parts + f->n_dirs + f->n_samplers + 2;
    if (items <= f->heap_size)
        return true;
    fab_heap_entry_t *more = realloc(f->heap, 2 * items * sizeof *more);
    if (!more)
        return false;
    f->heap = more;
    f->heap_size = 2 * items;
    return true;
}

/* --- creation ------------------------------------------------------------------------------------------------------- */

fab_t *fab_create(uint64_t seed, bool tracing, bool debug)
{
    fab_t *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->seed = seed;
    f->tracing = tracing;
    f->debug = debug;
    f->trace[0] = 0x6a09e667f3bcc908ull;
    f->trace[1] = 0xbb67ae8584caa73bull;
    return f;
}

void fab_destroy(fab_t *f)
{
    for (uint32_t i = 0; i < f->n_dirs; i++)
        fab_dir_free(f->dirs[i]);
    for (uint32_t i = 0; i < f->n_parts; i++)
        free(f->parts[i]);
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
    free(f->heap);
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

int64_t fab_add_part(fab_t *f, const fab_ops_t *ops, void *self)
{
    if (!ops->receive || !ops->next_deadline || !ops->advance || !self || !heap_grow(f))
        return -1;
    fab_part_t *p = calloc(1, sizeof *p);
    if (!p || !append((void ***)&f->parts, &f->n_parts, p)) {
        free(p);
        return -1;
    }
    p->item = (fab_item_t){-1, FAB_PART};
    p->number = f->n_parts - 1;
    p->fabric = f;
    p->ops = *ops;
    p->self = self;
    p->deadline_ps = FAB_NEVER;
    if (ops->events)
        p->events_seen = ops->events(self);
    if (ops->read_stats) {
        sw_stats_t stats;
        ops->read_stats(self, &stats);
        p->base_frames = stats.transmitted;
    }
    return p->number;
}

fab_part_t *fab_get_part(fab_t *f, uint32_t part) { return part < f->n_parts ? f->parts[part] : NULL; }

void fab_forget_part(fab_t *f, uint32_t part)
{
    if (part < f->n_parts) {
        f->parts[part]->self = NULL;
        fab_heap_set(f, &f->parts[part]->item, FAB_NEVER, 0);
    }
}

static fab_dir_t *new_dir(fab_t *f, fab_part_t *from, uint32_t from_port, fab_part_t *to, uint32_t to_port)
{
    if (!heap_grow(f))
        return NULL;
    fab_dir_t *d = calloc(1, sizeof *d);
    if (!d || !append((void ***)&f->dirs, &f->n_dirs, d)) {
        free(d);
        return NULL;
    }
    d->item = (fab_item_t){-1, FAB_DIR};
    d->number = f->n_dirs - 1;
    d->fabric = f;
    d->up = true;
    d->from = from;
    d->from_port = from_port;
    d->to = to;
    d->to_port = to_port;
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

static void part_plan(fab_t *f, fab_part_t *p)
{
    if (!p->self)
        return;
    uint64_t t = p->ops.next_deadline(p->self);
    if (t < f->now_ps)
        t = f->now_ps;
    if (t != p->deadline_ps || (p->item.slot < 0 && t != FAB_NEVER)) {
        p->deadline_ps = t;
        fab_heap_set(f, &p->item, t, fab_order(1, p->number));
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
    uint64_t made = s.received + s.copies + s.pfc_made;
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

/* After an event of part p (and the wire that brought it). */
static void event_check(fab_t *f, fab_part_t *p, const fab_dir_t *d)
{
    const char *broken = part_check(p);
    if (broken)
        fab_break(f, "part %u: %s", p->number, broken);
    for (uint32_t i = 0; i < FAB_PORTS; i++)
        if (p->out[i] && (broken = fab_dir_check(p->out[i])))
            fab_break(f, "wire %u: %s", p->out[i]->number, broken);
    if (d && (broken = fab_dir_check(d)))
        fab_break(f, "wire %u: %s", d->number, broken);
}

const char *fab_check(fab_t *f)
{
    for (uint32_t i = 0; i < f->n_parts; i++)
        event_check(f, f->parts[i], NULL);
    for (uint32_t i = 0; i < f->heap_len; i++) {
        if (f->heap[i].item->slot != (int32_t)i)
            fab_break(f, "the event heap lost an item");
        if (f->heap[i].time_ps < f->now_ps)
            fab_break(f, "an event at %llu ps was left behind", (unsigned long long)f->heap[i].time_ps);
    }
    return f->error[0] ? f->error : NULL;
}

#define OF(type, pointer) ((type *)((char *)(pointer) - offsetof(type, item)))

int fab_run(fab_t *f, uint64_t limit_ps, uint64_t max_events)
{
    if (f->error[0])
        return FAB_BROKEN;
    for (uint32_t i = 0; i < f->n_parts; i++) /* settings may have changed since the last run */
        part_plan(f, f->parts[i]);
    uint64_t end = max_events > UINT64_MAX - f->events ? UINT64_MAX : f->events + max_events;
    while (f->heap_len && f->heap[0].time_ps <= limit_ps) {
        if (f->events == end)
            return FAB_SLICE;
        if (limit_ps == FAB_NEVER && f->heap_len == f->sampling)
            break; /* nothing but samples is left */
        f->events++;
        fab_item_t *item = f->heap[0].item;
        uint64_t now_ps = f->heap[0].time_ps;
        if (now_ps < f->now_ps)
            fab_break(f, "time went back to %llu ps", (unsigned long long)now_ps);
        f->now_ps = now_ps;
        fab_part_t *p;
        fab_dir_t *d = NULL;
        if (item->kind == FAB_DIR) {
            d = OF(fab_dir_t, item);
            p = d->to;
            fab_dir_arrive(d);
            f->stuck = 0;
        } else if (item->kind == FAB_PART) {
            p = OF(fab_part_t, item);
            p->ops.advance(p->self, now_ps);
        } else {
            fab_sample(f, OF(fab_sampler_t, item));
            continue;
        }
        part_plan(f, p);
        if (!d && p->deadline_ps <= now_ps) {
            if (++f->stuck > STUCK_LIMIT)
                fab_break(f, "part %u has something due again and again, and time stands still", p->number);
        } else {
            f->stuck = 0;
        }
        if (f->debug)
            event_check(f, p, d);
        if (f->error[0])
            return FAB_BROKEN;
        if (part_events(p))
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
    for (uint32_t i = 0; i < f->n_parts; i++)
        part_plan(f, f->parts[i]);
    return f->heap_len ? f->heap[0].time_ps : FAB_NEVER;
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
    out[1] = f->events;
    out[2] = f->trace[0];
    out[3] = f->trace[1];
}
