/* The sender's command line: options to queue pairs, sockets, start, result. */
#define _GNU_SOURCE
#include "roce.h"
#include "send.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum {
    OPT_SRC_MAC = 256, OPT_DST_MAC, OPT_SRC, OPT_DST, OPT_QPS, OPT_DEST_QP, OPT_UDP_PORT, OPT_DSCP, OPT_ECN, OPT_VLAN, OPT_PCP,
    OPT_DEI, OPT_TTL, OPT_OPCODE, OPT_PKEY, OPT_PSN, OPT_PAYLOAD, OPT_RATE, OPT_RATE_OF, OPT_LINK_RATE, OPT_PACKETS, OPT_DURATION,
    OPT_PRIORITY, OPT_NO_PFC, OPT_PAUSE, OPT_BACKLOG, OPT_TICK, OPT_PROGRESS, OPT_START_AT, OPT_WAIT, OPT_NO_BYPASS, OPT_FLOW, OPT_DRY_RUN,
    OPT_HELP,
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
    {"dry-run", required_argument, NULL, OPT_DRY_RUN},
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
    "      --dry-run N           print the first N frames of each queue pair and their times instead (no root needed)\n"
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
        if (fds[1].revents) /* sender_run() sees it too and ends at once */
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

static void free_flows(struct sender *s)
{
    for (uint32_t i = 0; i < s->flow_count; i++)
        free(s->flows[i]);
    free(s->flows);
}

static void print_frames(const struct sender *s, uint64_t count)
{
    for (uint32_t i = 0; i < s->flow_count; i++) {
        struct flow *f = s->flows[i];
        for (uint64_t n = 0; n < count && n < f->limit; n++) {
            f->scheduled = n;
            flow_schedule(f);
            frame_fill(&f->frame, f->first_psn + (uint32_t)n, n, f->due_ns);
            printf("{\"event\":\"frame\",\"flow\":%u,\"due_ns\":%llu,\"bytes\":\"", i, (unsigned long long)f->due_ns);
            for (uint32_t b = 0; b < f->frame.length; b++)
                printf("%02x", f->frame.bytes[b]);
            puts("\"}");
        }
    }
}

int send_main(int argc, char **argv)
{
    struct sender s = {.tick_ns = 1000000, .bypass = true, .overhead = "wire", .gates = {.enabled = 0xff}};
    struct settings set = {.spec = {.dscp = 26, .ecn = 2, .ttl = 64, .udp_source_port = 49152, .opcode = UC_SEND_ONLY,
                                    .pkey = 0xffff, .dest_qp = 0x100, .payload_bytes = 1024}};
    uint64_t qps = 0, packets = 0, dry_run = 0;
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
            case OPT_DRY_RUN: dry_run = parse_number(name, optarg, 1, 1000000); break;
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
    if (dry_run) {
        print_frames(&s, dry_run);
        free_flows(&s);
        return 0;
    }
    s.packets = 0;
    for (uint32_t i = 0; i < s.flow_count; i++)
        s.packets = s.flows[i]->limit == NEVER || s.packets == NEVER ? NEVER : s.packets + s.flows[i]->limit;
    s.gates.link_rate_bps = s.link_rate_bps ? s.link_rate_bps : 1;
    s.gates.resumed = sender_on_resumed;
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
        flow_schedule(f);
    }
    sender_run(&s);
    uint64_t end_ns = now_ns();
    sender_print_result(&s, end_ns < s.end_ns ? end_ns : s.end_ns, dropped);
    free_flows(&s);
    return 0;
}
