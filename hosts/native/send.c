/* The paced RoCEv2 sender.
 *
 * Each queue pair has a schedule: packet n is due at base + n * bits / rate, computed anew each time, so that the average is
 * exact whatever the wake-ups were. The link is a second limit: frames that are late go out no faster than it would carry
 * them. A pause moves the schedule of the queue pairs of its priority by its length (a NIC's rate limiter does not save up), unless
 * the backlog is to be kept. MAC control frames are looked for before every batch. */
#define _GNU_SOURCE
#include "send.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BATCH 16
#define LATE_NS 250000000 /* how long after the end what was due before it may still go */

void flow_schedule(struct flow *f)
{
    f->due_ns = f->base_ns + (uint64_t)((u128)f->scheduled * f->bits * NS_PER_S / f->rate_bps);
}

void sender_on_resumed(void *context, int priority, uint64_t since_ns, uint64_t until_ns)
{
    struct sender *s = context;
    for (uint32_t i = 0; i < s->flow_count && !s->keep_backlog; i++) {
        struct flow *f = s->flows[i];
        uint64_t from = f->due_ns > since_ns ? f->due_ns : since_ns;
        if (f->priority != priority || from >= until_ns)
            continue;
        f->base_ns += until_ns - from;
        f->pause_shift_ns += until_ns - from;
        flow_schedule(f);
    }
}

static void on_control(void *context, const struct rx_frame *frame)
{
    struct sender *s = context;
    pfc_receive(&s->gates, frame->bytes, frame->length, frame->arrived_ns);
}

static void look(struct sender *s)
{
    control_rx_drain(&s->control, on_control, s);
    pfc_expire(&s->gates, now_ns());
}

/* The next queue pair to serve at `now`, or NULL and the time to look again. After the end of the run, what became due before
 * it is still served, but no pause is waited for. */
static struct flow *next_flow(struct sender *s, uint64_t now, uint64_t *again_ns)
{
    struct flow *best = NULL;
    bool over = now >= s->end_ns;
    *again_ns = NEVER;
    for (uint32_t i = 0; i < s->flow_count; i++) {
        struct flow *f = s->flows[i];
        const struct pfc_gate *gate = &s->gates.gate[f->priority];
        if (f->sent == f->limit || f->due_ns >= s->end_ns || (over && gate->paused))
            continue;
        uint64_t ready_ns = f->due_ns;
        if (gate->paused && gate->until_ns > ready_ns)
            ready_ns = gate->until_ns;
        if (ready_ns <= now) {
            if (!best || f->due_ns < best->due_ns)
                best = f;
        } else if (ready_ns < *again_ns) {
            *again_ns = ready_ns;
        }
    }
    if (best && s->link_rate_bps) {
        u128 at = (u128)(now - s->begin_ns) * s->link_rate_bps, slack = (u128)2 * s->tick_ns * s->link_rate_bps;
        if (s->wire_free + slack < at)
            s->wire_free = at - slack;
        if (s->wire_free > at) {
            *again_ns = s->begin_ns + (uint64_t)((s->wire_free + s->link_rate_bps - 1) / s->link_rate_bps);
            return NULL;
        }
        s->wire_free += (u128)(best->frame.length + FRAME_OVERHEAD_BYTES) * 8 * NS_PER_S;
    }
    return best;
}

static void snooze(struct sender *s, uint64_t until_ns)
{
    uint64_t now = now_ns();
    uint64_t left = until_ns > now ? until_ns - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
    struct pollfd fds[] = {{.fd = s->control.fd, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};
    if (ppoll(fds, 2, until_ns == NEVER ? NULL : &timeout, NULL) < 0 && errno != EINTR)
        failed("ppoll: %s", strerror(errno));
}

/* Sends a built batch in order. A full kernel queue is waited for; a frame whose priority is paused meanwhile is held. */
static void transmit(struct sender *s, struct mmsghdr *messages, struct flow *const *owners, unsigned count)
{
    for (unsigned at = 0; at < count;) {
        if (s->gates.gate[owners[at]->priority].paused) {
            uint64_t until_ns = s->gates.gate[owners[at]->priority].until_ns;
            snooze(s, until_ns < s->end_ns ? until_ns : s->end_ns);
            look(s);
            if (!s->gates.gate[owners[at]->priority].paused)
                continue;
            if (now_ns() < s->end_ns && !stop_requested(s->stop_fd))
                continue;
            for (; at < count; at++) /* built but never sent: not offered to the wire */
                owners[at]->sent--;
            return;
        }
        unsigned open = at;
        while (open < count && !s->gates.gate[owners[open]->priority].paused)
            open++;
        int done = sendmmsg(s->tx, messages + at, open - at, 0);
        if (done > 0) {
            for (unsigned i = at; i < at + (unsigned)done; i++) {
                s->sent++;
                s->sent_bytes += owners[i]->frame.length;
                s->payload_bytes += owners[i]->spec.payload_bytes;
            }
            at += (unsigned)done;
            s->last_sent_ns = now_ns();
            continue;
        }
        if (errno == ENOBUFS || errno == EAGAIN) { /* the kernel took nothing: the same frame again, a little later */
            s->enobufs++;
            snooze(s, now_ns() + 100000);
            look(s);
        } else if (errno != EINTR) {
            failed("interface %s: send of %u bytes: %s", s->interface.name, owners[at]->frame.length, strerror(errno));
        }
    }
    s->batches++;
}

static uint64_t offered(const struct sender *s, uint64_t end_ns)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->flow_count; i++) {
        const struct flow *f = s->flows[i];
        uint64_t first_ns = f->base_ns - f->pause_shift_ns;
        uint64_t n = end_ns <= first_ns
                         ? 0
                         : (uint64_t)(((u128)(end_ns - first_ns) * f->rate_bps + (u128)f->bits * NS_PER_S - 1) /
                                      ((u128)f->bits * NS_PER_S));
        if (n > f->limit)
            n = f->limit;
        sum += n > f->sent ? n : f->sent;
    }
    return sum;
}

static void print_state(const struct sender *s, const char *event, uint64_t now)
{
    uint64_t duration_ns = now > s->begin_ns ? now - s->begin_ns : 0, paused_ns = 0, xoff = 0, xon = 0;
    bool seen[8] = {false};
    for (uint32_t i = 0; i < s->flow_count; i++) {
        int p = s->flows[i]->priority;
        const struct pfc_gate *g = &s->gates.gate[p];
        if (!seen[p]) {
            paused_ns += g->paused_ns + (g->paused && now > g->since_ns ? now - g->since_ns : 0);
            xoff += g->xoff_rx;
            xon += g->xon_rx;
        }
        seen[p] = true;
    }
    uint64_t late_ns = s->last_sent_ns > now ? s->last_sent_ns - now : 0; /* `now` is the end of the run at most */
    uint64_t wire_bytes = s->sent_bytes + s->sent * FRAME_OVERHEAD_BYTES;
    printf("{\"event\":\"%s\",\"role\":\"send\",\"interface\":", event);
    json_string(stdout, s->interface.name);
    printf(",\"offered\":%llu,\"sent\":%llu,\"bytes\":%llu,\"payload_bytes\":%llu,\"duration_ns\":%llu,"
           "\"late_ns\":%llu,\"achieved_bps\":%llu,\"paused_ns\":%llu,\"pfc_xoff_rx\":%llu,\"pfc_xon_rx\":%llu",
           (unsigned long long)offered(s, now), (unsigned long long)s->sent, (unsigned long long)s->sent_bytes,
           (unsigned long long)s->payload_bytes, (unsigned long long)duration_ns, (unsigned long long)late_ns,
           (unsigned long long)(duration_ns ? (u128)wire_bytes * 8 * NS_PER_S / (duration_ns + late_ns) : 0),
           (unsigned long long)paused_ns, (unsigned long long)xoff, (unsigned long long)xon);
}

void sender_print_result(struct sender *s, uint64_t now, uint64_t dropped_before)
{
    pfc_finish(&s->gates, now);
    print_state(s, "result", now);
    printf(",\"enobufs\":%llu,\"interface_tx_dropped\":%u,\"pfc_kernel_drops\":%u,",
           (unsigned long long)s->enobufs, (uint32_t)(interface_tx_dropped(s->interface.name) - dropped_before),
           control_rx_drops(&s->control));
    pfc_print(stdout, &s->gates);
    fputs(",\"flows\":[", stdout);
    for (uint32_t i = 0; i < s->flow_count; i++) {
        const struct flow *f = s->flows[i];
        char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
        printf("%s{\"src\":\"%s\",\"dst\":\"%s\",\"udp_source_port\":%u,\"dest_qp\":%u,\"run\":%u,\"priority\":%d,"
               "\"dscp\":%u,\"frame_bytes\":%u,\"rate_bps\":%llu,\"sent\":%llu}",
               i ? "," : "", format_address(&f->spec.src, src), format_address(&f->spec.dst, dst),
               f->spec.udp_source_port, f->spec.dest_qp, f->spec.run, f->priority, f->spec.dscp, f->frame.length,
               (unsigned long long)f->rate_bps, (unsigned long long)f->sent);
    }
    puts("]}");
    fflush(stdout);
}

void sender_run(struct sender *s)
{
    static struct frame slots[BATCH];
    struct iovec parts[BATCH];
    struct mmsghdr messages[BATCH];
    struct flow *owners[BATCH];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < BATCH; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    look(s);
    for (int p = 0; p < 8; p++) { /* a pause that began before the run counts from its begin */
        s->gates.gate[p].paused_ns = 0;
        if (s->gates.gate[p].since_ns < s->begin_ns)
            s->gates.gate[p].since_ns = s->begin_ns;
    }
    uint64_t woke_ns = s->begin_ns, progress_at_ns = s->begin_ns + s->progress_ns;
    for (uint32_t busy = 0;; busy++) {
        look(s);
        uint64_t now = now_ns(), again_ns = 0;
        bool over = now >= s->end_ns;
        uint64_t limit_ns = over ? s->end_ns + LATE_NS : s->end_ns;
        if (s->sent == s->packets || (over && now >= limit_ns) || (busy % 64 == 0 && stop_requested(s->stop_fd)))
            return;
        if (s->progress_ns && now >= progress_at_ns && !over) {
            print_state(s, "progress", now);
            puts("}");
            fflush(stdout);
            progress_at_ns += s->progress_ns;
        }
        unsigned count = 0;
        struct flow *f = NULL;
        while (count < BATCH && (f = next_flow(s, now, &again_ns))) {
            struct frame *slot = &slots[count];
            memcpy(slot->bytes, f->frame.bytes, f->frame.length);
            memcpy((char *)slot + offsetof(struct frame, length), (char *)&f->frame + offsetof(struct frame, length),
                   sizeof *slot - offsetof(struct frame, length));
            frame_fill(slot, f->first_psn + (uint32_t)f->sent, f->sent, now);
            parts[count] = (struct iovec){.iov_base = slot->bytes, .iov_len = slot->length};
            owners[count++] = f;
            f->sent++;
            f->scheduled++;
            flow_schedule(f);
        }
        if (count) {
            transmit(s, messages, owners, count);
            continue;
        }
        if (over && again_ns == NEVER)
            return;
        /* Wake-ups come at most once a tick; what was due meanwhile goes out together. */
        if (again_ns < woke_ns + s->tick_ns)
            again_ns = woke_ns + s->tick_ns;
        if (s->progress_ns && progress_at_ns < again_ns && !over)
            again_ns = progress_at_ns;
        snooze(s, again_ns < limit_ns ? again_ns : limit_ns);
        woke_ns = now_ns();
        busy = UINT32_MAX; /* look at the stop descriptor next time */
    }
}
