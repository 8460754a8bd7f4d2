/* The RoCEv2 receiver: counts per queue pair what arrived, and what did not.
 *
 * Sequence numbers start at 0 with every run of a sender, so a receiver that was there first also sees what was lost at the
 * start; what is lost after the last arrival only the sender's count can tell. With --drain-rate it plays a NIC whose
 * host is slow: a receive buffer that drains at that rate and asks for PFC by its XOFF and XON marks. */
#define _GNU_SOURCE
#include "frame.h"
#include "pfc.h"
#include "roce.h"
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define WINDOW 65536u /* sequence numbers behind the highest in which duplicates are told from late ones */

/* Latency in buckets of 1/16 of a power of two: below 32 ns exact, above at most 1/16 too much. */
#define LATENCY_BUCKETS 1024u

struct flow {
    struct address src, dst;
    uint16_t udp_source_port;
    uint32_t dest_qp, run;
    uint64_t received, bytes, payload_bytes, lost, reordered, duplicates, stale, psn_errors, icrc_errors, payload_errors;
    uint64_t ecn[4];
    uint64_t by_pcp[8], untagged;
    uint8_t dscp;
    uint64_t dscp_changes;
    uint64_t next_sequence; /* one above the highest seen */
    uint32_t psn_offset;    /* PSN minus sequence, modulo 2^24: constant */
    uint64_t first_ns, last_ns, max_gap_ns;
    uint64_t latency_min_ns, latency_max_ns;
    u128 latency_sum_ns;
    uint32_t latency_log[LATENCY_BUCKETS];
    uint64_t seen[WINDOW / 64];
    struct flow *next;
};

struct buffer { /* the receive buffer of --drain-rate */
    uint64_t drain_bps, xoff_bytes, xon_bytes, size_bytes, link_rate_bps;
    uint16_t quanta;
    uint8_t priority;
    bool xoff;
    uint64_t bytes, at_ns, remainder; /* occupancy at a time; bit-nanoseconds left over */
    uint64_t refresh_ns, xoff_tx, xon_tx, dropped, peak_bytes;
};

struct receiver {
    struct interface interface;
    struct rx_ring ring;
    struct control_rx control;
    int tx, stop_fd;
    struct flow *buckets[1024];
    struct flow *last_flow, **order;
    uint32_t flow_count;
    bool verify, until_stdin_closes;
    struct buffer buffer;
    struct pfc_gates gates; /* only for its counters: a receiver sends nothing that PFC could stop */
    uint64_t received, other, malformed, last_ns;
    uint64_t expect, duration_ns, idle_ns, progress_ns, begin_ns;
};

static struct flow *find_flow(struct receiver *r, const struct probe *p)
{
    struct flow *f = r->last_flow;
    if (f && f->run == p->run && f->dest_qp == p->dest_qp && f->udp_source_port == p->udp_source_port &&
        memcmp(&f->src, &p->src, sizeof f->src) == 0 && memcmp(&f->dst, &p->dst, sizeof f->dst) == 0)
        return f;
    uint32_t hash = (p->run * 2654435761u ^ p->dest_qp * 40503u ^ p->udp_source_port) * 2654435761u >> 22;
    for (f = r->buckets[hash]; f; f = f->next)
        if (f->run == p->run && f->dest_qp == p->dest_qp && f->udp_source_port == p->udp_source_port &&
            memcmp(&f->src, &p->src, sizeof f->src) == 0 && memcmp(&f->dst, &p->dst, sizeof f->dst) == 0)
            return r->last_flow = f;
    f = calloc(1, sizeof *f);
    struct flow **order = realloc(r->order, (r->flow_count + 1) * sizeof *order);
    if (!f || !order)
        failed("out of memory for queue pair %u", r->flow_count + 1);
    r->order = order;
    r->order[r->flow_count++] = f;
    f->src = p->src;
    f->dst = p->dst;
    f->udp_source_port = p->udp_source_port;
    f->dest_qp = p->dest_qp;
    f->run = p->run;
    f->dscp = p->dscp;
    f->psn_offset = (p->psn - (uint32_t)p->sequence) & 0xffffff;
    f->latency_min_ns = NEVER;
    f->next = r->buckets[hash];
    r->buckets[hash] = f;
    return r->last_flow = f;
}

static bool test_and_set(struct flow *f, uint64_t sequence)
{
    uint64_t *word = &f->seen[sequence % WINDOW / 64], bit = 1ull << sequence % 64;
    bool was = *word & bit;
    *word |= bit;
    return was;
}

static void note_sequence(struct flow *f, uint64_t sequence)
{
    if (sequence >= f->next_sequence) {
        uint64_t gap = sequence - f->next_sequence;
        f->lost += gap;
        if (gap >= WINDOW)
            memset(f->seen, 0, sizeof f->seen);
        else
            for (uint64_t i = f->next_sequence; i < sequence; i++)
                f->seen[i % WINDOW / 64] &= ~(1ull << i % 64);
        f->next_sequence = sequence + 1;
        f->seen[sequence % WINDOW / 64] |= 1ull << sequence % 64;
    } else if (f->next_sequence - sequence > WINDOW) {
        f->stale++; /* too late to tell a duplicate from a late first copy */
    } else if (test_and_set(f, sequence)) {
        f->duplicates++;
    } else {
        f->reordered++;
        f->lost--;
    }
}

static uint32_t latency_bucket(uint64_t ns)
{
    if (ns < 32)
        return (uint32_t)ns;
    uint32_t shift = 59 - (uint32_t)__builtin_clzll(ns); /* leaves five bits, the top one set */
    return shift * 16 + (uint32_t)(ns >> shift);
}

static uint64_t bucket_top_ns(uint32_t bucket)
{
    if (bucket < 32)
        return bucket;
    uint32_t shift = bucket / 16 - 1;
    return ((uint64_t)(bucket % 16 + 16 + 1) << shift) - 1;
}

/* The least latency that `permille` of the packets did not exceed, as the upper end of its bucket. */
static uint64_t latency_quantile_ns(const struct flow *f, uint64_t permille)
{
    uint64_t wanted = (f->received * permille + 999) / 1000, sum = 0;
    for (uint32_t i = 0; i < LATENCY_BUCKETS; i++) {
        sum += f->latency_log[i];
        if (sum >= wanted && sum)
            return bucket_top_ns(i) < f->latency_max_ns ? bucket_top_ns(i) : f->latency_max_ns;
    }
    return 0;
}

static void send_pfc(struct receiver *r, uint16_t quanta)
{
    uint8_t frame[MAC_CONTROL_BYTES];
    uint16_t times[8] = {0};
    times[r->buffer.priority] = quanta;
    pfc_build(frame, r->interface.mac, (uint8_t)(1 << r->buffer.priority), times);
    tx_send_one(r->tx, &r->interface, frame, sizeof frame);
}

static void buffer_drain(struct buffer *b, uint64_t now)
{
    if (now <= b->at_ns)
        return;
    u128 bits = (u128)(now - b->at_ns) * b->drain_bps + b->remainder;
    uint64_t bytes = (uint64_t)(bits / (8 * NS_PER_S));
    b->remainder = bytes >= b->bytes ? 0 : (uint64_t)(bits % (8 * NS_PER_S));
    b->bytes = bytes >= b->bytes ? 0 : b->bytes - bytes;
    b->at_ns = now;
}

/* Sends XOFF, its refresh or XON as the occupancy asks. Returns when to look again. */
static uint64_t buffer_signal(struct receiver *r, uint64_t now)
{
    struct buffer *b = &r->buffer;
    if (!b->drain_bps)
        return NEVER;
    buffer_drain(b, now);
    if (!b->xoff && b->bytes >= b->xoff_bytes) {
        b->xoff = true;
        b->refresh_ns = 0;
    }
    if (b->xoff && b->bytes <= b->xon_bytes) {
        b->xoff = false;
        b->xon_tx++;
        send_pfc(r, 0);
    }
    if (!b->xoff)
        return NEVER;
    if (now >= b->refresh_ns) {
        b->xoff_tx++;
        send_pfc(r, b->quanta);
        b->refresh_ns = now + pfc_quanta_ns(b->quanta, b->link_rate_bps) / 2;
    }
    uint64_t excess = b->bytes - b->xon_bytes;
    uint64_t drained_ns = now + (uint64_t)(((u128)excess * 8 * NS_PER_S + b->drain_bps - 1) / b->drain_bps);
    return drained_ns < b->refresh_ns ? drained_ns : b->refresh_ns;
}

static bool buffer_admit(struct receiver *r, uint64_t bytes, uint64_t now)
{
    struct buffer *b = &r->buffer;
    if (!b->drain_bps)
        return true;
    buffer_drain(b, now);
    if (b->bytes + bytes > b->size_bytes) {
        b->dropped++;
        return false;
    }
    b->bytes += bytes;
    if (b->bytes > b->peak_bytes)
        b->peak_bytes = b->bytes;
    buffer_signal(r, now);
    return true;
}

static void on_frame(void *context, const struct rx_frame *frame)
{
    struct receiver *r = context;
    struct probe p;
    r->last_ns = frame->arrived_ns;
    if (!frame_read(frame->bytes, frame->length, r->verify, &p)) {
        r->malformed++;
        return;
    }
    if (!p.ours) {
        r->other++;
        return;
    }
    if (!buffer_admit(r, frame->length, frame->arrived_ns))
        return;
    struct flow *f = find_flow(r, &p);
    if (r->verify && !p.icrc_ok) { /* its numbers cannot be trusted */
        f->icrc_errors++;
        return;
    }
    note_sequence(f, p.sequence);
    r->received++;
    f->received++;
    f->bytes += frame->length + (frame->tagged ? 4 : 0);
    f->payload_bytes += p.payload_bytes;
    f->psn_errors += ((p.psn - (uint32_t)p.sequence) & 0xffffff) != f->psn_offset;
    f->payload_errors += r->verify && !p.payload_ok;
    f->ecn[p.ecn]++;
    f->dscp_changes += f->dscp != p.dscp;
    f->dscp = p.dscp;
    if (frame->tagged)
        f->by_pcp[frame->tci >> 13]++;
    else
        f->untagged++;
    uint64_t latency_ns = frame->arrived_ns > p.time_ns ? frame->arrived_ns - p.time_ns : 0;
    if (latency_ns < f->latency_min_ns)
        f->latency_min_ns = latency_ns;
    if (latency_ns > f->latency_max_ns)
        f->latency_max_ns = latency_ns;
    f->latency_sum_ns += latency_ns;
    f->latency_log[latency_bucket(latency_ns)]++;
    if (f->received == 1)
        f->first_ns = frame->arrived_ns;
    else if (frame->arrived_ns > f->last_ns && frame->arrived_ns - f->last_ns > f->max_gap_ns)
        f->max_gap_ns = frame->arrived_ns - f->last_ns;
    f->last_ns = frame->arrived_ns;
}

static void on_control(void *context, const struct rx_frame *frame)
{
    struct receiver *r = context;
    pfc_receive(&r->gates, frame->bytes, frame->length, frame->arrived_ns);
}

static void print_flow(const struct flow *f)
{
    char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];
    printf("{\"src\":\"%s\",\"dst\":\"%s\",\"udp_source_port\":%u,\"dest_qp\":%u,\"run\":%u,\"dscp\":%u,\"dscp_changes\":%llu",
           format_address(&f->src, src), format_address(&f->dst, dst), f->udp_source_port, f->dest_qp, f->run, f->dscp,
           (unsigned long long)f->dscp_changes);
    printf(",\"received\":%llu,\"bytes\":%llu,\"payload_bytes\":%llu,\"lost\":%llu,\"reordered\":%llu,\"duplicates\":%llu,"
           "\"stale\":%llu,\"psn_errors\":%llu,\"icrc_errors\":%llu,\"payload_errors\":%llu",
           (unsigned long long)f->received, (unsigned long long)f->bytes, (unsigned long long)f->payload_bytes,
           (unsigned long long)f->lost, (unsigned long long)f->reordered, (unsigned long long)f->duplicates,
           (unsigned long long)f->stale, (unsigned long long)f->psn_errors, (unsigned long long)f->icrc_errors,
           (unsigned long long)f->payload_errors);
    printf(",\"ce_marked\":%llu,\"ect0\":%llu,\"ect1\":%llu,\"not_ect\":%llu,\"untagged\":%llu,\"by_pcp\":[",
           (unsigned long long)f->ecn[3], (unsigned long long)f->ecn[2], (unsigned long long)f->ecn[1],
           (unsigned long long)f->ecn[0], (unsigned long long)f->untagged);
    for (int i = 0; i < 8; i++)
        printf("%s%llu", i ? "," : "", (unsigned long long)f->by_pcp[i]);
    printf("],\"latency_min_ns\":%llu,\"latency_mean_ns\":%llu,\"latency_max_ns\":%llu,"
           "\"latency_p50_ns\":%llu,\"latency_p99_ns\":%llu,\"latency_p999_ns\":%llu,\"first_ns\":%llu,\"last_ns\":%llu,"
           "\"max_gap_ns\":%llu}",
           (unsigned long long)(f->received ? f->latency_min_ns : 0),
           (unsigned long long)(f->received ? f->latency_sum_ns / f->received : 0), (unsigned long long)f->latency_max_ns,
           (unsigned long long)latency_quantile_ns(f, 500), (unsigned long long)latency_quantile_ns(f, 990),
           (unsigned long long)latency_quantile_ns(f, 999), (unsigned long long)f->first_ns, (unsigned long long)f->last_ns, (unsigned long long)f->max_gap_ns);
}

static void print_state(struct receiver *r, const char *event, uint64_t now)
{
    struct flow t = {.first_ns = NEVER};
    for (uint32_t i = 0; i < r->flow_count; i++) {
        const struct flow *f = r->order[i];
        t.bytes += f->bytes;
        t.payload_bytes += f->payload_bytes;
        t.lost += f->lost;
        t.reordered += f->reordered;
        t.duplicates += f->duplicates;
        t.stale += f->stale;
        t.icrc_errors += f->icrc_errors;
        for (int e = 0; e < 4; e++)
            t.ecn[e] += f->ecn[e];
        t.first_ns = f->received && f->first_ns < t.first_ns ? f->first_ns : t.first_ns;
        t.last_ns = f->last_ns > t.last_ns ? f->last_ns : t.last_ns;
    }
    uint64_t span_ns = t.last_ns > t.first_ns ? t.last_ns - t.first_ns : 0;
    printf("{\"event\":\"%s\",\"role\":\"recv\",\"interface\":", event);
    json_string(stdout, r->interface.name);
    printf(",\"received\":%llu,\"bytes\":%llu,\"payload_bytes\":%llu,\"lost\":%llu,\"reordered\":%llu,\"duplicates\":%llu,"
           "\"stale\":%llu,\"icrc_errors\":%llu,\"ce_marked\":%llu,\"ect\":%llu,\"not_ect\":%llu,\"other\":%llu,"
           "\"malformed\":%llu,\"kernel_drops\":%llu,\"duration_ns\":%llu,\"span_ns\":%llu,\"goodput_bps\":%llu",
           (unsigned long long)r->received, (unsigned long long)t.bytes, (unsigned long long)t.payload_bytes,
           (unsigned long long)t.lost, (unsigned long long)t.reordered, (unsigned long long)t.duplicates,
           (unsigned long long)t.stale, (unsigned long long)t.icrc_errors, (unsigned long long)t.ecn[3],
           (unsigned long long)(t.ecn[1] + t.ecn[2]), (unsigned long long)t.ecn[0], (unsigned long long)r->other,
           (unsigned long long)r->malformed, (unsigned long long)rx_ring_drops(&r->ring),
           (unsigned long long)(now - r->begin_ns), (unsigned long long)span_ns,
           (unsigned long long)(span_ns ? (u128)t.payload_bytes * 8 * NS_PER_S / span_ns : 0));
}

static void print_result(struct receiver *r, uint64_t now)
{
    print_state(r, "result", now);
    if (r->buffer.drain_bps)
        printf(",\"buffer\":{\"peak_bytes\":%llu,\"dropped\":%llu,\"pfc_xoff_tx\":%llu,\"pfc_xon_tx\":%llu}",
               (unsigned long long)r->buffer.peak_bytes, (unsigned long long)r->buffer.dropped,
               (unsigned long long)r->buffer.xoff_tx, (unsigned long long)r->buffer.xon_tx);
    fputc(',', stdout);
    pfc_print(stdout, &r->gates);
    fputs(",\"flows\":[", stdout);
    for (uint32_t i = 0; i < r->flow_count; i++) {
        fputs(i ? "," : "", stdout);
        print_flow(r->order[i]);
    }
    puts("]}");
    fflush(stdout);
}

static bool stdin_closed(void)
{
    char bytes[256];
    return read(0, bytes, sizeof bytes) == 0;
}

static void run(struct receiver *r)
{
    uint64_t progress_at_ns = r->begin_ns + r->progress_ns;
    for (;;) {
        control_rx_drain(&r->control, on_control, r);
        rx_ring_drain(&r->ring, on_frame, r);
        uint64_t now = now_ns(), again_ns = buffer_signal(r, now);
        if (r->received >= r->expect)
            return;
        if (r->idle_ns && r->last_ns && now >= r->last_ns + r->idle_ns)
            return;
        if (r->duration_ns && now >= r->begin_ns + r->duration_ns)
            return;
        if (r->progress_ns && now >= progress_at_ns) {
            print_state(r, "progress", now);
            puts("}");
            fflush(stdout);
            progress_at_ns += r->progress_ns;
        }
        if (r->progress_ns && progress_at_ns < again_ns)
            again_ns = progress_at_ns;
        if (r->idle_ns && r->last_ns && r->last_ns + r->idle_ns < again_ns)
            again_ns = r->last_ns + r->idle_ns;
        if (r->duration_ns && r->begin_ns + r->duration_ns < again_ns)
            again_ns = r->begin_ns + r->duration_ns;
        uint64_t left = again_ns > now ? again_ns - now : 0;
        struct timespec timeout = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)};
        struct pollfd fds[] = {{.fd = r->ring.fd, .events = POLLIN},
                               {.fd = r->control.fd, .events = POLLIN},
                               {.fd = r->stop_fd, .events = POLLIN},
                               {.fd = r->until_stdin_closes ? 0 : -1, .events = POLLIN}};
        if (ppoll(fds, 4, again_ns == NEVER ? NULL : &timeout, NULL) < 0 && errno != EINTR)
            failed("ppoll: %s", strerror(errno));
        if (fds[2].revents || (fds[3].revents && stdin_closed())) {
            /* What arrived before the stop still counts: a partly filled block is handed over within its time. */
            struct timespec settle = {.tv_nsec = 30000000};
            nanosleep(&settle, NULL);
            rx_ring_drain(&r->ring, on_frame, r);
            control_rx_drain(&r->control, on_control, r);
            return;
        }
        if (fds[0].revents & POLLERR)
            failed("interface %s went down", r->interface.name);
    }
}

enum {
    OPT_EXPECT = 256, OPT_IDLE, OPT_DURATION, OPT_STDIN, OPT_RING, OPT_NO_VERIFY, OPT_PROGRESS, OPT_DRAIN, OPT_XOFF, OPT_XON, OPT_BUFFER,
    OPT_QUANTA, OPT_PRIORITY, OPT_LINK_RATE, OPT_HELP,
};

static const struct option options[] = {
    {"interface", required_argument, NULL, 'i'},
    {"dev", required_argument, NULL, 'i'}, /* another spelling */
    {"expect", required_argument, NULL, OPT_EXPECT},
    {"idle-timeout", required_argument, NULL, OPT_IDLE},
    {"duration", required_argument, NULL, OPT_DURATION},
    {"until-stdin-closes", no_argument, NULL, OPT_STDIN},
    {"ring", required_argument, NULL, OPT_RING},
    {"no-verify", no_argument, NULL, OPT_NO_VERIFY},
    {"progress", required_argument, NULL, OPT_PROGRESS},
    {"drain-rate", required_argument, NULL, OPT_DRAIN},
    {"xoff", required_argument, NULL, OPT_XOFF},
    {"xon", required_argument, NULL, OPT_XON},
    {"buffer", required_argument, NULL, OPT_BUFFER},
    {"quanta", required_argument, NULL, OPT_QUANTA},
    {"priority", required_argument, NULL, OPT_PRIORITY},
    {"link-rate", required_argument, NULL, OPT_LINK_RATE},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static const char help[] =
    "Usage: roce recv --interface IF [options]\n"
    "Counts RoCEv2 packets of `roce send` per queue pair. JSON lines on stdout: one \"ready\" when frames are being taken, then\n"
    "\"progress\" if asked for, at the end one \"result\". Ends on SIGINT or SIGTERM, or by one of:\n\n"
    "  -i, --interface IF        interface to receive on (also --dev)\n"
    "      --expect N            end after N packets\n"
    "      --idle-timeout TIME   end when nothing has come for TIME, once something came (500ms, 2s)\n"
    "      --duration TIME       end after TIME\n"
    "      --until-stdin-closes  end when stdin closes\n"
    "      --ring MIB            receive ring, 1..256 (default 8)\n"
    "      --no-verify           do not check ICRC and payload\n"
    "      --progress TIME       a progress line this often\n"
    "A slow host, which sends PFC itself:\n"
    "      --drain-rate RATE     take bytes out of the receive buffer at this rate\n"
    "      --xoff BYTES, --xon BYTES, --buffer BYTES   marks and size of the buffer (60000, 30000, 200000)\n"
    "      --priority N          priority to stop (default 3)\n"
    "      --quanta N            time in the XOFF frames, refreshed at half of it (default 65535)\n"
    "      --link-rate RATE      rate of the link; needed with --drain-rate\n";

int recv_main(int argc, char **argv)
{
    static struct receiver r = {.verify = true,
                                .expect = NEVER,
                                .buffer = {.xoff_bytes = 60000, .xon_bytes = 30000, .size_bytes = 200000, .quanta = 65535,
                                           .priority = 3}};
    const char *interface = NULL;
    uint64_t ring_mib = 8;
    for (int option, index = 0; (option = getopt_long(argc, argv, "i:h", options, &index)) != -1;) {
        char name[40];
        snprintf(name, sizeof name, "--%s", option == 'i' || option == 'h' ? "interface" : options[index].name);
        switch (option) {
        case 'i': interface = optarg; break;
        case OPT_EXPECT: r.expect = parse_number(name, optarg, 1, NEVER - 1); break;
        case OPT_IDLE: r.idle_ns = parse_duration_ns(name, optarg); break;
        case OPT_DURATION: r.duration_ns = parse_duration_ns(name, optarg); break;
        case OPT_STDIN: r.until_stdin_closes = true; break;
        case OPT_RING: ring_mib = parse_number(name, optarg, 1, 256); break;
        case OPT_NO_VERIFY: r.verify = false; break;
        case OPT_PROGRESS: r.progress_ns = parse_duration_ns(name, optarg); break;
        case OPT_DRAIN: r.buffer.drain_bps = parse_rate_bps(name, optarg); break;
        case OPT_XOFF: r.buffer.xoff_bytes = parse_number(name, optarg, 1, UINT32_MAX); break;
        case OPT_XON: r.buffer.xon_bytes = parse_number(name, optarg, 0, UINT32_MAX); break;
        case OPT_BUFFER: r.buffer.size_bytes = parse_number(name, optarg, 1, UINT32_MAX); break;
        case OPT_QUANTA: r.buffer.quanta = (uint16_t)parse_number(name, optarg, 1, 65535); break;
        case OPT_PRIORITY: r.buffer.priority = (uint8_t)parse_number(name, optarg, 0, 7); break;
        case OPT_LINK_RATE: r.buffer.link_rate_bps = parse_rate_bps(name, optarg); break;
        case OPT_HELP: case 'h': fputs(help, stdout); return 0;
        default: fputs("Try 'roce recv --help'.\n", stderr); return 2;
        }
    }
    if (optind < argc)
        wrong_use("unexpected argument '%s'", argv[optind]);
    if (!interface)
        wrong_use("--interface is required");
    if (r.buffer.drain_bps && !r.buffer.link_rate_bps)
        wrong_use("--drain-rate: needs --link-rate (a quantum is 512 bit times of the link)");
    if (r.buffer.xon_bytes >= r.buffer.xoff_bytes)
        wrong_use("--xon: %llu must be less than --xoff %llu", (unsigned long long)r.buffer.xon_bytes,
                  (unsigned long long)r.buffer.xoff_bytes);
    if (r.buffer.xoff_bytes > r.buffer.size_bytes)
        wrong_use("--xoff: %llu must not be more than --buffer %llu", (unsigned long long)r.buffer.xoff_bytes,
                  (unsigned long long)r.buffer.size_bytes);
    interface_open(interface, &r.interface);
    r.stop_fd = stop_fd_open();
    r.gates.link_rate_bps = 1;
    int claim = roce_port_claim();
    if (r.buffer.drain_bps)
        r.tx = tx_socket_open(&r.interface, true);
    control_rx_open(&r.control, &r.interface);
    rx_ring_open(&r.ring, &r.interface, (size_t)ring_mib << 20, r.buffer.drain_bps ? 1 : 10);
    prctl(PR_SET_TIMERSLACK, 1000ul, 0, 0, 0);
    r.begin_ns = now_ns();
    r.buffer.at_ns = r.begin_ns;
    fputs("{\"event\":\"ready\",\"role\":\"recv\",\"interface\":", stdout);
    json_string(stdout, r.interface.name);
    puts("}");
    fflush(stdout);
    run(&r);
    print_result(&r, now_ns());
    rx_ring_close(&r.ring);
    if (claim >= 0)
        close(claim);
    for (uint32_t i = 0; i < r.flow_count; i++)
        free(r.order[i]);
    free(r.order);
    return 0;
}
