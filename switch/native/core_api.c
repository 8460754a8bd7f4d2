/* What others call on a core beside packets and time: taking out what waits, settings, sharing with a driver thread, and the
 * bench. See core.h. */
#include "core.h"

#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- taking out what waits ------------------------------------------------------------------------------------------ */

uint64_t sw_outputs_take(sw_t *sw, uint8_t *out, uint64_t capacity)
{
    uint64_t n = 0;
    pthread_mutex_lock(&sw->mutex);
    while (sw->out_head) {
        pkt_t *pkt = sw->out_head;
        uint64_t total = (sizeof(sw_record_t) + pkt->len + 7) & ~7ull;
        if (n + total > capacity)
            break;
        sw_record_t r = {(uint32_t)total, pkt->out_port, 0, pkt->len, pkt->enq_ps, pkt->rx_ps};
        memcpy(out + n, &r, sizeof r);
        memcpy(out + n + sizeof r, pkt->data, pkt->len);
        n += total;
        sw->out_head = pkt->next;
        if (!sw->out_head)
            sw->out_tail = NULL;
        sw->out_len--;
        sw_pkt_free(sw, pkt);
    }
    pthread_mutex_unlock(&sw->mutex);
    return n;
}

uint64_t sw_events_take(sw_t *sw, uint8_t *out, uint64_t capacity)
{
    sw_lock(sw);
    uint64_t n = sw_ring_take(&sw->events, out, capacity);
    pthread_mutex_unlock(&sw->mutex); /* nothing that the driver would have to wake for */
    return n;
}

int sw_inject(sw_t *sw, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    sw_lock(sw);
    int result = sw_receive(sw, port, frame, len, now_ps == TM_NEVER ? sw_now(sw) : now_ps);
    sw_unlock(sw);
    return result;
}

void sw_run(sw_t *sw, uint64_t now_ps)
{
    sw_lock(sw);
    sw_advance(sw, now_ps);
    sw_unlock(sw);
}
int sw_event_fd(const sw_t *sw) { return sw->events.event_fd; }
uint64_t sw_events_lost(const sw_t *sw) { return sw->events.lost; }
uint64_t sw_events_put(const sw_t *sw) { return sw->events.tail; }
void sw_read_stats(const sw_t *sw, sw_stats_t *out) { *out = sw->stats; }
uint64_t sw_packets_live(const sw_t *sw) { return sw->slab.live - sw->out_len - 1; /* scratch */ }

/* --- settings that flush packets ------------------------------------------------------------------------------------ */

int sw_set_storm(sw_t *sw, uint32_t port, uint32_t priority, uint32_t action, uint64_t now_ps)
{
    int result = tm_set_storm(sw->tm, port, priority, action, now_ps);
    sw_free_flushed(sw);
    return result;
}

int sw_set_watchdog(sw_t *sw, uint32_t port, uint32_t priority, uint32_t detect_us, uint32_t restore_us, uint32_t action, bool empty_queue,
                    uint64_t now_ps)
{
    int result = tm_set_watchdog(sw->tm, port, priority, detect_us, restore_us, action, empty_queue, now_ps);
    sw_free_flushed(sw);
    return result;
}

/* --- replication ---------------------------------------------------------------------------------------------------- */

static int set_replicas(sw_replicas_t **slot, const uint16_t *ports, const uint16_t *rids, uint32_t n, uint32_t cos, uint32_t truncate_bytes)
{
    for (uint32_t i = 0; i < n; i++)
        if (ports[i] >= TM_PORTS)
            return -1;
    sw_replicas_t *list = calloc(1, sizeof *list + n * sizeof list->to[0]);
    if (!list)
        return -1;
    list->n = n;
    list->cos = (uint8_t)cos;
    list->truncate_bytes = truncate_bytes;
    for (uint32_t i = 0; i < n; i++) {
        list->to[i].port = ports[i];
        list->to[i].rid = rids[i];
    }
    free(*slot);
    *slot = list;
    return 0;
}

static int delete_replicas(sw_replicas_t **slot)
{
    if (!*slot)
        return -1;
    free(*slot);
    *slot = NULL;
    return 0;
}

int sw_set_multicast(sw_t *sw, uint32_t group, const uint16_t *ports, const uint16_t *rids, uint32_t n)
{
    return group < 1 || group >= SW_GROUPS ? -1 : set_replicas(&sw->groups[group], ports, rids, n, 0, 0);
}

int sw_delete_multicast(sw_t *sw, uint32_t group) { return group >= SW_GROUPS ? -1 : delete_replicas(&sw->groups[group]); }

int sw_set_clone_session(sw_t *sw, uint32_t session, const uint16_t *ports, const uint16_t *rids, uint32_t n, uint32_t cos, uint32_t truncate_bytes)
{
    return session >= SW_GROUPS || cos > 7 ? -1 : set_replicas(&sw->sessions[session], ports, rids, n, cos, truncate_bytes);
}

int sw_delete_clone_session(sw_t *sw, uint32_t session) { return session >= SW_GROUPS ? -1 : delete_replicas(&sw->sessions[session]); }

/* --- sharing with a driver thread ----------------------------------------------------------------------------------- */

void sw_lock(sw_t *sw)
{
    __atomic_fetch_add(&sw->waiting, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&sw->mutex);
    __atomic_fetch_sub(&sw->waiting, 1, __ATOMIC_ACQ_REL);
}

void sw_unlock(sw_t *sw)
{
    if (sw->driver)
        sw_driver_kick(sw); /* what changed may be due sooner than what it sleeps for */
    pthread_mutex_unlock(&sw->mutex);
}

uint64_t sw_now(sw_t *sw)
{
    pthread_mutex_lock(&sw->mutex);
    uint64_t now_ps = sw->driver ? sw_driver_now(sw) : sw->now_ps;
    pthread_mutex_unlock(&sw->mutex);
    return now_ps;
}

/* --- bench ---------------------------------------------------------------------------------------------------------- */

struct bench_sink {
    sw_t *sw;
    uint64_t frames;
};

static void bench_output(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps)
{
    (void)port, (void)start_ps, (void)end_ps;
    struct bench_sink *sink = arg;
    sink->frames++;
    sw_pkt_free(sink->sw, pkt);
}

uint64_t sw_bench(sw_t *sw, const uint8_t *const *frames, const uint32_t *lens, const uint16_t *ports, uint32_t n, uint64_t count,
                  uint64_t gap_ps, uint64_t *sent)
{
    struct bench_sink sink = {sw, 0};
    sw_output_fn output = sw->output;
    void *arg = sw->output_arg;
    sw_set_output(sw, bench_output, &sink);
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    uint64_t now = sw->now_ps;
    for (uint64_t i = 0, k = 0; i < count; i++, k = k + 1 == n ? 0 : k + 1) {
        sw_receive(sw, ports[k], frames[k], lens[k], now);
        now += gap_ps;
        if (gap_ps == 0)
            sw_advance(sw, now);
    }
    while (sw_next_deadline(sw) != TM_NEVER && sink.frames < count) {
        uint64_t due = sw_next_deadline(sw);
        sw_advance(sw, due);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    sw_set_output(sw, output == sw_output_to_list ? NULL : output, arg);
    *sent = sink.frames;
    return (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
}
