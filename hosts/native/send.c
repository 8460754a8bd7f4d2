/* The paced RoCEv2 sender.
 *
 * Each queue pair has a schedule: packet n is due at base + n * bits / rate, computed anew each time, so that the average is
 * exact whatever the wake-ups were. The link is a second limit: frames that are late go out no faster than it would carry
 * them. A pause moves the schedule of the queue pairs of its priority by its length (a NIC's rate limiter does not save up), unless
 * the backlog is to be kept. MAC control frames are looked for before every batch. */
#define _GNU_SOURCE
#include "frame.h"
#include "pfc.h"
#include "roce.h"
#include "socket.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BATCH 16
#define MAX_FLOWS 1024
#define FRAME_OVERHEAD_BYTES 24 /* FCS, preamble, gap */

struct flow {
    struct frame_spec spec;
    struct frame frame;
    int priority;
    uint64_t rate_bps, bits; /* what one packet counts for the rate */
    uint64_t base_ns, scheduled, due_ns;
    uint64_t sent, limit;
    uint64_t pause_shift_ns;
    uint32_t first_psn;
};

struct sender {
    struct interface interface;
    int tx, stop_fd;
    struct control_rx control;
    struct pfc_gates gates;
    struct flow **flows;
    uint32_t flow_count;
    bool keep_backlog, bypass;
    uint64_t link_rate_bps, tick_ns, packets, duration_ns, start_at_ns, progress_ns;
    uint64_t begin_ns, end_ns;
    u128 wire_free; /* time after begin_ns at which the link is free, times link_rate_bps: exact */
    uint64_t enobufs, batches, sent, sent_bytes, payload_bytes;
    const char *overhead;
};

static void schedule(struct flow *f)
{
    f->due_ns = f->base_ns + (uint64_t)((u128)f->scheduled * f->bits * NS_PER_S / f->rate_bps);
}

static void on_resumed(void *context, int priority, uint64_t since_ns, uint64_t until_ns)
{
    struct sender *s = context;
    for (uint32_t i = 0; i < s->flow_count && !s->keep_backlog; i++) {
        struct flow *f = s->flows[i];
        uint64_t from = f->due_ns > since_ns ? f->due_ns : since_ns;
        if (f->priority != priority || from >= until_ns)
            continue;
        f->base_ns += until_ns - from;
        f->pause_shift_ns += until_ns - from;
        schedule(f);
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

/* The next queue pair to serve at `now`, or NULL and the time to look again. */
static struct flow *next_flow(struct sender *s, uint64_t now, uint64_t *again_ns)
{
    struct flow *best = NULL;
    *again_ns = s->end_ns;
    for (uint32_t i = 0; i < s->flow_count; i++) {
        struct flow *f = s->flows[i];
        if (f->sent == f->limit)
            continue;
        const struct pfc_gate *gate = &s->gates.gate[f->priority];
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
    uint64_t wire_bytes = s->sent_bytes + s->sent * FRAME_OVERHEAD_BYTES;
    printf("{\"event\":\"%s\",\"role\":\"send\",\"interface\":", event);
    json_string(stdout, s->interface.name);
    printf(",\"offered\":%llu,\"sent\":%llu,\"bytes\":%llu,\"payload_bytes\":%llu,\"duration_ns\":%llu,"
           "\"achieved_bps\":%llu,\"paused_ns\":%llu,\"pfc_xoff_rx\":%llu,\"pfc_xon_rx\":%llu",
           (unsigned long long)offered(s, now), (unsigned long long)s->sent, (unsigned long long)s->sent_bytes,
           (unsigned long long)s->payload_bytes, (unsigned long long)duration_ns,
           (unsigned long long)(duration_ns ? (u128)wire_bytes * 8 * NS_PER_S / duration_ns : 0),
           (unsigned long long)paused_ns, (unsigned long long)xoff, (unsigned long long)xon);
}

static void print_result(struct sender *s, uint64_t now, uint64_t dropped_before)
{
    pfc_finish(&s->gates, now);
    print_state(s, "result", now);
    printf(",\"enobufs\":%llu,\"interface_tx_dropped\":%u,", (unsigned long long)s->enobufs,
           (uint32_t)(interface_tx_dropped(s->interface.name) - dropped_before));
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

static void run(struct sender *s)
{
    static struct frame slots[BATCH];
    struct iovec parts[BATCH];
    struct mmsghdr messages[BATCH];
    struct flow *owners[BATCH];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < BATCH; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    uint64_t woke_ns = s->begin_ns, progress_at_ns = s->begin_ns + s->progress_ns;
    for (uint32_t busy = 0;; busy++) {
        look(s);
        uint64_t now = now_ns(), again_ns = 0;
        bool last = now >= s->end_ns;
        if (s->sent == s->packets || (busy % 64 == 0 && stop_requested(s->stop_fd)))
            return;
        if (last) { /* what became due before the end still goes, unless there is no end to it */
            if (now >= s->end_ns + 2 * s->tick_ns)
                return;
            now = s->end_ns - 1;
        }
        if (s->progress_ns && now >= progress_at_ns) {
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
            schedule(f);
        }
        if (count) {
            transmit(s, messages, owners, count);
            continue;
        }
        if (last)
            return;
        /* Wake-ups come at most once a tick; what was due meanwhile goes out together. */
        if (again_ns < woke_ns + s->tick_ns)
            again_ns = woke_ns + s->tick_ns;
        if (s->progress_ns && progress_at_ns < again_ns)
            again_ns = progress_at_ns;
        snooze(s, again_ns < s->end_ns ? again_ns : s->end_ns);
        woke_ns = now_ns();
        busy = UINT32_MAX; /* look at the stop descriptor next time */
    }
}

enum {
    OPT_SRC_MAC = 256, OPT_DST_MAC, OPT_SRC, OPT_DST, OPT_QPS, OPT_DEST_QP, OPT_UDP_PORT, OPT_DSCP, OPT_ECN, OPT_VLAN, OPT_PCP,
    OPT_DEI, OPT_TTL, OPT_OPCODE, OPT_PKEY, OPT_PSN, OPT_PAYLOAD, OPT_RATE, OPT_RATE_OF, OPT_LINK_RATE, OPT_PACKETS, OPT_DURATION,
    OPT_PRIORITY, OPT_NO_PFC, OPT_PAUSE, OPT_BACKLOG, OPT_TICK, OPT_PROGRESS, OPT_START_AT, OPT_WAIT, OPT_NO_BYPASS, OPT_FLOW, OPT_HELP,
}; /* clang-format would put one a line */

static const struct option options[] = {
    {"interface", required_argument, NULL, 'i'},       {"src-mac", required_argument, NULL, OPT_SRC_MAC},
    {"dst-mac", required_argument, NULL, OPT_DST_MAC}, {"src", required_argument, NULL, OPT_SRC},
    {"dst", required_argument, NULL, OPT_DST},         {"qps", required_argument, NULL, OPT_QPS},
    {"dest-qp", required_argument, NULL, OPT_DEST_QP}, {"udp-source-port", required_argument, NULL, OPT_UDP_PORT},
    {"dscp", required_argument, NULL, OPT_DSCP},       {"ecn", required_argument, NULL, OPT_ECN},
    {"vlan", required_argument, NULL, OPT_VLAN},       {"pcp", required_argument, NULL, OPT_PCP},
    {"dei", no_argument, NULL, OPT_DEI},               {"ttl", required_argument, NULL, OPT_TTL},
    {"opcode", required_argument, NULL, OPT_OPCODE},   {"pkey", required_argument, NULL, OPT_PKEY},
    {"psn", required_argument, NULL, OPT_PSN},         {"payload", required_argument, NULL, OPT_PAYLOAD},
    {"rate", required_argument, NULL, OPT_RATE},       {"rate-of", required_argument, NULL, OPT_RATE_OF},
    {"link-rate", required_argument, NULL, OPT_LINK_RATE}, {"packets", required_argument, NULL, OPT_PACKETS},
    {"duration", required_argument, NULL, OPT_DURATION},   {"priority", required_argument, NULL, OPT_PRIORITY},
    {"no-pfc", no_argument, NULL, OPT_NO_PFC},         {"honour-pause", no_argument, NULL, OPT_PAUSE},
    {"backlog", required_argument, NULL, OPT_BACKLOG}, {"tick", required_argument, NULL, OPT_TICK},
    {"progress", required_argument, NULL, OPT_PROGRESS}, {"start-at", required_argument, NULL, OPT_START_AT},
    {"wait", no_argument, NULL, OPT_WAIT},             {"no-bypass", no_argument, NULL, OPT_NO_BYPASS},
    {"flow", required_argument, NULL, OPT_FLOW},       {"help", no_argument, NULL, OPT_HELP},
    {"dev", required_argument, NULL, 'i'},             {"qp", required_argument, NULL, OPT_DEST_QP}, /* other spellings */
    {"src-ip", required_argument, NULL, OPT_SRC},      {"dst-ip", required_argument, NULL, OPT_DST},
    {NULL, 0, NULL, 0},
};

static const char help[] =
    "Usage: roce send --interface IF --dst ADDRESS --dst-mac MAC --link-rate RATE [options]\n"
    "Sends RoCEv2 packets with sequence numbers, paced, and honours the PFC frames that come back. JSON lines on stdout:\n"
    "one \"ready\", then \"progress\" if asked for, at the end one \"result\".\n\n"
    "  -i, --interface IF        interface to send on (also --dev)\n"
    "      --dst ADDRESS         IPv4 or IPv6 destination (also --dst-ip)\n"
    "      --src ADDRESS         source (default: the interface's own; also --src-ip)\n"
    "      --dst-mac MAC         next hop\n"
    "      --src-mac MAC         source (default: the interface's own)\n"
    "      --link-rate RATE      rate of the link, for quanta and as a ceiling; needed unless --no-pfc\n"
    "      --rate RATE           of all queue pairs together, such as 60M (default: the link rate)\n"
    "      --rate-of WHAT        what the rate counts: wire (frame + 24 bytes; default), frame, payload\n"
    "      --packets N           stop after N packets in all\n"
    "      --duration TIME       stop after TIME (10, 2.5s, 500ms); without either: until SIGINT or SIGTERM\n"
    "      --payload BYTES       payload of a packet, 24.. (default 1024)\n"
    "      --qps N               queue pairs, served in turn (default 1)\n"
    "      --dest-qp N           destination QP of the first; the others count up (default 0x100; also --qp)\n"
    "      --udp-source-port N   UDP source port of the first; the others count up (default 49152)\n"
    "      --flow KEY=VALUE,...  a queue pair of its own; keys dst, dst-mac, src, src-mac, dest-qp, udp-source-port, dscp, ecn,\n"
    "                            priority, rate, payload, packets; what is not given is as the options say. May be repeated\n"
    "      --dscp N              0..63 (default 26)          --ecn N      0..3 (default 2, ECT(0))\n"
    "      --vlan VID            add an 802.1Q tag           --pcp N      its priority (default 0); --dei sets DEI\n"
    "      --priority N          priority that PFC stops (default: the PCP if tagged; DSCP 26 is 3, 48 is 6, else 0)\n"
    "      --no-pfc              ignore PFC (still counted)  --honour-pause   obey PAUSE (opcode 0x0001) too\n"
    "      --backlog drop|keep   what was due while paused: not made up for (default), or sent late at link rate\n"
    "      --opcode NAME         uc-send (default), rc-send, uc-write, rc-write\n"
    "      --pkey N, --psn N, --ttl N   P_Key (0xffff), first PSN (0), TTL or hop limit (64)\n"
    "      --tick TIME           shortest time between wake-ups (default 1ms)\n"
    "      --progress TIME       a progress line this often\n"
    "      --start-at NS         start at this CLOCK_MONOTONIC time; --wait: start when a line comes on stdin\n"
    "      --no-bypass           through the queueing discipline, so that tcpdump on this interface sees the frames\n";

struct settings {
    struct frame_spec spec;
    bool src_mac, dst_mac, priority_given;
    int priority;
    uint64_t rate_bps, packets;
    uint32_t first_psn;
};

static int default_priority(const struct frame_spec *spec)
{
    if (spec->tagged)
        return spec->pcp;
    return spec->dscp == 26 ? 3 : spec->dscp == 48 ? 6 : 0;
}

/* The options that may also stand in a --flow. False: not one of them. */
static bool set_flow_option(struct settings *set, int option, const char *name, const char *value)
{
    struct frame_spec *spec = &set->spec;
    switch (option) {
    case OPT_SRC_MAC: parse_mac(name, value, spec->src_mac); set->src_mac = true; break;
    case OPT_DST_MAC: parse_mac(name, value, spec->dst_mac); set->dst_mac = true; break;
    case OPT_SRC: parse_address(name, value, &spec->src); break;
    case OPT_DST: parse_address(name, value, &spec->dst); break;
    case OPT_DEST_QP: spec->dest_qp = (uint32_t)parse_number(name, value, 0, 0xffffff); break;
    case OPT_UDP_PORT: spec->udp_source_port = (uint16_t)parse_number(name, value, 0, 65535); break;
    case OPT_DSCP: spec->dscp = (uint8_t)parse_number(name, value, 0, 63); break;
    case OPT_ECN: spec->ecn = (uint8_t)parse_number(name, value, 0, 3); break;
    case OPT_PRIORITY: set->priority = (int)parse_number(name, value, 0, 7); set->priority_given = true; break;
    case OPT_RATE: set->rate_bps = parse_rate_bps(name, value); break;
    case OPT_PAYLOAD: spec->payload_bytes = (uint32_t)parse_number(name, value, PROBE_BYTES, 9000); break;
    case OPT_PACKETS: set->packets = parse_number(name, value, 1, UINT64_MAX - 1); break;
    default: return false;
    }
    return true;
}

static void add_flow(struct sender *s, struct settings set, uint64_t rate_bps, uint64_t limit)
{
    struct frame_spec *spec = &set.spec;
    if (s->flow_count == MAX_FLOWS)
        wrong_use("--qps and --flow: more than %d queue pairs", MAX_FLOWS);
    if (!spec->dst.family)
        wrong_use("--dst is required");
    if (!set.dst_mac)
        wrong_use("--dst-mac is required (MAC address of the next hop towards --dst)");
    if (!spec->src.family && !interface_address(s->interface.name, spec->dst.family, &spec->src))
        wrong_use("--src is required: interface %s has no global address of that family", s->interface.name);
    if (spec->src.family != spec->dst.family)
        wrong_use("--src and --dst: one is IPv4, the other IPv6");
    if (!set.src_mac)
        memcpy(spec->src_mac, s->interface.mac, 6);
    if (frame_ip_bytes(spec) > s->interface.mtu_bytes)
        failed("--payload %u: makes an IP packet of %u bytes, interface %s has an MTU of %u", spec->payload_bytes,
               frame_ip_bytes(spec), s->interface.name, s->interface.mtu_bytes);
    struct flow *f = calloc(1, sizeof *f);
    s->flows = realloc(s->flows, (s->flow_count + 1) * sizeof *s->flows);
    if (!f || !s->flows)
        failed("out of memory");
    s->flows[s->flow_count++] = f;
    f->spec = *spec;
    frame_build(&f->frame, spec);
    f->priority = set.priority_given ? set.priority : default_priority(spec);
    f->rate_bps = rate_bps;
    f->limit = limit;
    f->first_psn = set.first_psn;
    f->bits = strcmp(s->overhead, "wire") == 0    ? (f->frame.length + FRAME_OVERHEAD_BYTES) * 8
              : strcmp(s->overhead, "frame") == 0 ? f->frame.length * 8
                                                  : spec->payload_bytes * 8;
}

static void add_flow_text(struct sender *s, struct settings set, char *text, uint64_t rate_bps, uint64_t limit)
{
    set.rate_bps = set.packets = 0;
    for (char *save = NULL, *pair = strtok_r(text, ",", &save); pair; pair = strtok_r(NULL, ",", &save)) {
        char *value = strchr(pair, '=');
        if (!value)
            wrong_use("--flow: '%s' is not KEY=VALUE", pair);
        *value++ = 0;
        int option = 0;
        for (const struct option *o = options; o->name; o++)
            if (strcmp(o->name, pair) == 0)
                option = o->val;
        char name[64];
        snprintf(name, sizeof name, "--flow %s", pair);
        if (!set_flow_option(&set, option, name, value))
            wrong_use("--flow: unknown key '%s'", pair);
    }
    add_flow(s, set, set.rate_bps ? set.rate_bps : rate_bps, set.packets ? set.packets : limit);
}

static int parse_opcode(const char *text)
{
    static const struct {
        const char *name;
        int opcode;
    } names[] = {{"uc-send", UC_SEND_ONLY}, {"rc-send", RC_SEND_ONLY}, {"uc-write", UC_RDMA_WRITE_ONLY}, {"rc-write", RC_RDMA_WRITE_ONLY}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i].name) == 0)
            return names[i].opcode;
    wrong_use("--opcode: '%s' is not uc-send, rc-send, uc-write or rc-write", text);
}

static void wait_for_start(struct sender *s, bool wait_line)
{
    if (wait_line) {
        struct pollfd fds[] = {{.fd = 0, .events = POLLIN}, {.fd = s->stop_fd, .events = POLLIN}};
        while (ppoll(fds, 2, NULL, NULL) < 0 && errno == EINTR)
            ;
        if (fds[1].revents) /* run() sees it too and ends at once */
            return;
        char line[256];
        if (read(0, line, sizeof line) <= 0)
            failed("--wait: stdin ended before a line came");
    }
    while (s->start_at_ns > now_ns() && !stop_requested(s->stop_fd)) {
        struct timespec at = {.tv_sec = (time_t)(s->start_at_ns / NS_PER_S), .tv_nsec = (long)(s->start_at_ns % NS_PER_S)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    }
}

int send_main(int argc, char **argv)
{
    struct sender s = {.tick_ns = 1000000, .bypass = true, .overhead = "wire", .gates = {.enabled = 0xff}};
    struct settings set = {.spec = {.dscp = 26, .ecn = 2, .ttl = 64, .udp_source_port = 49152, .opcode = UC_SEND_ONLY,
                                    .pkey = 0xffff, .dest_qp = 0x100, .payload_bytes = 1024}};
    uint64_t qps = 0, packets = 0;
    const char *interface = NULL;
    char **flow_texts = calloc((size_t)argc, sizeof *flow_texts);
    size_t flow_text_count = 0;
    bool wait_line = false;
    for (int option, index = 0; (option = getopt_long(argc, argv, "i:h", options, &index)) != -1;) {
        char name[40];
        snprintf(name, sizeof name, "--%s", option == 'i' || option == 'h' ? "interface" : options[index].name);
        if (option == OPT_RATE || option == OPT_PACKETS || !set_flow_option(&set, option, name, optarg)) {
            switch (option) {
            case 'i': interface = optarg; break;
            case OPT_RATE: set.rate_bps = parse_rate_bps(name, optarg); break;
            case OPT_PACKETS: packets = parse_number(name, optarg, 1, UINT64_MAX - 1); break;
            case OPT_QPS: qps = parse_number(name, optarg, 1, MAX_FLOWS); break;
            case OPT_VLAN: set.spec.vlan_id = (uint16_t)parse_number(name, optarg, 0, 4094); set.spec.tagged = true; break;
            case OPT_PCP: set.spec.pcp = (uint8_t)parse_number(name, optarg, 0, 7); set.spec.tagged = true; break;
            case OPT_DEI: set.spec.dei = 1; set.spec.tagged = true; break;
            case OPT_TTL: set.spec.ttl = (uint8_t)parse_number(name, optarg, 1, 255); break;
            case OPT_OPCODE: set.spec.opcode = (uint8_t)parse_opcode(optarg); break;
            case OPT_PKEY: set.spec.pkey = (uint16_t)parse_number(name, optarg, 0, 65535); break;
            case OPT_PSN: set.first_psn = (uint32_t)parse_number(name, optarg, 0, 0xffffff); break;
            case OPT_RATE_OF:
                if (strcmp(optarg, "wire") && strcmp(optarg, "frame") && strcmp(optarg, "payload"))
                    wrong_use("--rate-of: '%s' is not wire, frame or payload", optarg);
                s.overhead = optarg;
                break;
            case OPT_LINK_RATE: s.link_rate_bps = parse_rate_bps(name, optarg); break;
            case OPT_DURATION: s.duration_ns = parse_duration_ns(name, optarg); break;
            case OPT_NO_PFC: s.gates.enabled = 0; break;
            case OPT_PAUSE: s.gates.pause_enabled = true; break;
            case OPT_BACKLOG:
                if (strcmp(optarg, "drop") && strcmp(optarg, "keep"))
                    wrong_use("--backlog: '%s' is not drop or keep", optarg);
                s.keep_backlog = strcmp(optarg, "keep") == 0;
                break;
            case OPT_TICK:
                s.tick_ns = parse_duration_ns(name, optarg);
                if (s.tick_ns < 10000 || s.tick_ns > NS_PER_S)
                    wrong_use("--tick: %s is out of range, must be 10us..1s", optarg);
                break;
            case OPT_PROGRESS: s.progress_ns = parse_duration_ns(name, optarg); break;
            case OPT_START_AT: s.start_at_ns = parse_number(name, optarg, 0, INT64_MAX); break;
            case OPT_WAIT: wait_line = true; break;
            case OPT_NO_BYPASS: s.bypass = false; break;
            case OPT_FLOW: flow_texts[flow_text_count++] = optarg; break;
            case OPT_HELP: case 'h': fputs(help, stdout); return 0;
            default: fputs("Try 'roce send --help'.\n", stderr); return 2;
            }
        }
    }
    if (optind < argc)
        wrong_use("unexpected argument '%s'", argv[optind]);
    if (!interface)
        wrong_use("--interface is required");
    if (!s.link_rate_bps && (s.gates.enabled || s.gates.pause_enabled))
        wrong_use("--link-rate is required to honour PFC (a quantum is 512 bit times of the link); or give --no-pfc");
    if (!set.rate_bps && !s.link_rate_bps)
        wrong_use("--rate or --link-rate is required");
    interface_open(interface, &s.interface);
    s.stop_fd = stop_fd_open();
    set.spec.run = (uint32_t)(now_ns() ^ (uint64_t)getpid() << 20) | 1;
    uint64_t total_bps = set.rate_bps ? set.rate_bps : s.link_rate_bps;
    uint64_t plain = qps ? qps : flow_text_count ? 0 : 1, count = plain + flow_text_count;
    if (total_bps < count)
        wrong_use("--rate: %llu bit/s is less than 1 bit/s for each of %llu queue pairs", (unsigned long long)total_bps,
                  (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        struct settings one = set;
        one.spec.dest_qp = (uint32_t)((set.spec.dest_qp + i) & 0xffffff);
        one.spec.udp_source_port = (uint16_t)(set.spec.udp_source_port + i);
        /* What does not divide evenly goes to the first ones. */
        uint64_t rate = total_bps / count + (i < total_bps % count);
        uint64_t limit = packets ? packets / count + (i < packets % count) : NEVER;
        if (i < plain)
            add_flow(&s, one, rate, limit);
        else
            add_flow_text(&s, one, flow_texts[i - plain], rate, limit);
    }
    free(flow_texts);
    s.packets = 0;
    for (uint32_t i = 0; i < s.flow_count; i++)
        s.packets = s.flows[i]->limit == NEVER || s.packets == NEVER ? NEVER : s.packets + s.flows[i]->limit;
    s.gates.link_rate_bps = s.link_rate_bps ? s.link_rate_bps : 1;
    s.gates.resumed = on_resumed;
    s.gates.context = &s;
    s.tx = tx_socket_open(&s.interface, s.bypass);
    control_rx_open(&s.control, &s.interface);
    prctl(PR_SET_TIMERSLACK, 1000ul, 0, 0, 0);
    fputs("{\"event\":\"ready\",\"role\":\"send\",\"interface\":", stdout);
    json_string(stdout, s.interface.name);
    printf(",\"flows\":%u,\"run\":%u}\n", s.flow_count, set.spec.run);
    fflush(stdout);
    wait_for_start(&s, wait_line);
    uint64_t dropped = interface_tx_dropped(s.interface.name);
    s.begin_ns = now_ns();
    s.end_ns = s.duration_ns ? s.begin_ns + s.duration_ns : NEVER;
    for (uint32_t i = 0; i < s.flow_count; i++) { /* spread over one interval, so that queue pairs alternate */
        struct flow *f = s.flows[i];
        f->base_ns = s.begin_ns + (uint64_t)((u128)f->bits * NS_PER_S / f->rate_bps * i / s.flow_count);
        schedule(f);
    }
    run(&s);
    uint64_t end_ns = now_ns();
    print_result(&s, end_ns < s.end_ns ? end_ns : s.end_ns, dropped);
    for (uint32_t i = 0; i < s.flow_count; i++)
        free(s.flows[i]);
    free(s.flows);
    return 0;
}
