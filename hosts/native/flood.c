/* flood: one frame sent as fast as the interface takes it, and a counter at the other end, for packets a second.
 *
 * `flood send` sends the frame that is given in hexadecimal, 16 bits of it (a source port, say) counted up if wanted, so that
 * hashes spread. `flood count` counts what arrives; its rate is from the first arrival to the last. */
#define _GNU_SOURCE
#include "socket.h"

#include <errno.h>
#include <getopt.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64
#define FRAME_ROOM 9216

static const char help[] =
    "Usage: flood send IF --frame HEX [--duration TIME] [--packets N] [--vary OFFSET,COUNT] [--rate PPS]\n"
    "       flood count IF [--match OFFSET=HEX] [--duration TIME] [--idle-timeout TIME]\n"
    "send: the frame as fast as it goes (or PPS a second); --vary counts the 16 bits at OFFSET up, modulo COUNT.\n"
    "count: frames, those only that hold HEX at OFFSET if --match is given. JSON lines: \"ready\", at the end \"result\".\n";

static uint8_t hex_digit(char c, const char *option)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | 0x20) : NULL;
    if (!at)
        wrong_use("%s: '%c' is not a hexadecimal digit", option, c);
    return (uint8_t)(at - digits);
}

static uint32_t parse_hex(const char *option, const char *text, uint8_t *bytes, uint32_t room)
{
    size_t digits = strlen(text);
    if (digits % 2 || digits / 2 > room || !digits)
        wrong_use("%s: %zu hexadecimal digits, must be an even number up to %u", option, digits, 2 * room);
    for (size_t i = 0; i < digits / 2; i++)
        bytes[i] = (uint8_t)(hex_digit(text[2 * i], option) << 4 | hex_digit(text[2 * i + 1], option));
    return (uint32_t)(digits / 2);
}

struct setup {
    struct interface interface;
    uint8_t frame[FRAME_ROOM], match[64];
    uint32_t frame_bytes, match_bytes, match_offset, vary_offset, vary_count;
    uint64_t duration_ns, idle_ns, packets, rate_pps;
};

static void send_all(struct setup *s, int stop_fd)
{
    static uint8_t frames[BATCH][FRAME_ROOM];
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    for (int i = 0; i < BATCH; i++) {
        memcpy(frames[i], s->frame, s->frame_bytes);
        parts[i] = (struct iovec){.iov_base = frames[i], .iov_len = s->frame_bytes};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
    }
    int fd = tx_socket_open(&s->interface, true);
    puts("{\"event\":\"ready\",\"role\":\"send\"}");
    fflush(stdout);
    uint64_t begin_ns = now_ns(), sent = 0, full = 0, now = begin_ns;
    for (uint32_t round = 1;; round++) {
        now = now_ns();
        if (now - begin_ns >= s->duration_ns || sent >= s->packets || (round % 64 == 0 && stop_requested(stop_fd)))
            break;
        uint64_t count = s->packets - sent < BATCH ? s->packets - sent : BATCH;
        if (s->rate_pps) {
            uint64_t due = (uint64_t)((u128)(now - begin_ns) * s->rate_pps / NS_PER_S) + 1;
            count = due - sent < count ? due - sent : count;
            if (due <= sent || !count)
                continue; /* spins: a wake-up costs more than the gap */
        }
        for (uint64_t i = 0; i < count && s->vary_count; i++)
            put16(frames[i] + s->vary_offset, (get16(s->frame + s->vary_offset) + (uint32_t)((sent + i) % s->vary_count)));
        int done = sendmmsg(fd, messages, (unsigned)count, 0);
        if (done > 0)
            sent += (uint64_t)done;
        else if (errno == ENOBUFS || errno == EAGAIN)
            full++;
        else if (errno != EINTR)
            failed("interface %s: send: %s", s->interface.name, strerror(errno));
    }
    printf("{\"event\":\"result\",\"role\":\"send\",\"sent\":%llu,\"queue_full\":%llu,\"duration_ns\":%llu,\"pps\":%llu}\n",
           (unsigned long long)sent, (unsigned long long)full, (unsigned long long)(now - begin_ns),
           (unsigned long long)(now > begin_ns ? (u128)sent * NS_PER_S / (now - begin_ns) : 0));
}

struct count {
    const struct setup *setup;
    uint64_t frames, other, bytes, first_ns, last_ns;
};

static void on_frame(void *context, const struct rx_frame *frame)
{
    struct count *c = context;
    const struct setup *s = c->setup;
    if (s->match_bytes && (frame->length < s->match_offset + s->match_bytes ||
                           memcmp(frame->bytes + s->match_offset, s->match, s->match_bytes) != 0)) {
        c->other++;
        return;
    }
    c->first_ns = c->frames ? c->first_ns : frame->arrived_ns;
    c->last_ns = frame->arrived_ns;
    c->frames++;
    c->bytes += frame->length;
}

static void count_all(struct setup *s, int stop_fd)
{
    struct rx_ring ring;
    struct count c = {.setup = s};
    rx_ring_open_all(&ring, &s->interface, 64u << 20, 10);
    puts("{\"event\":\"ready\",\"role\":\"count\"}");
    fflush(stdout);
    uint64_t begin_ns = now_ns();
    for (;;) {
        uint32_t taken = rx_ring_drain(&ring, on_frame, &c);
        uint64_t now = now_ns();
        if (now - begin_ns >= s->duration_ns || (c.frames && s->idle_ns && now > c.last_ns + s->idle_ns))
            break;
        struct pollfd fds[] = {{.fd = ring.fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
        poll(fds, 2, taken ? 0 : 20);
        if (fds[1].revents) {
            usleep(30000); /* a block that is partly filled is handed over within its time */
            rx_ring_drain(&ring, on_frame, &c);
            break;
        }
    }
    uint64_t span_ns = c.last_ns - c.first_ns;
    printf("{\"event\":\"result\",\"role\":\"count\",\"frames\":%llu,\"bytes\":%llu,\"other\":%llu,\"kernel_drops\":%llu,"
           "\"span_ns\":%llu,\"pps\":%llu}\n",
           (unsigned long long)c.frames, (unsigned long long)c.bytes, (unsigned long long)c.other,
           (unsigned long long)rx_ring_drops(&ring), (unsigned long long)span_ns,
           (unsigned long long)(span_ns ? (u128)(c.frames - 1) * NS_PER_S / span_ns : 0));
    rx_ring_close(&ring);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"frame", required_argument, NULL, 'f'},    {"duration", required_argument, NULL, 'd'},
        {"packets", required_argument, NULL, 'n'},  {"vary", required_argument, NULL, 'v'},
        {"rate", required_argument, NULL, 'r'},     {"match", required_argument, NULL, 'm'},
        {"idle-timeout", required_argument, NULL, 'i'}, {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static struct setup s = {.duration_ns = NEVER, .packets = NEVER};
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        char *second = optarg ? strpbrk(optarg, ",=") : NULL;
        switch (option) {
        case 'f': s.frame_bytes = parse_hex("--frame", optarg, s.frame, FRAME_ROOM); break;
        case 'd': s.duration_ns = parse_duration_ns("--duration", optarg); break;
        case 'i': s.idle_ns = parse_duration_ns("--idle-timeout", optarg); break;
        case 'n': s.packets = parse_number("--packets", optarg, 1, NEVER - 1); break;
        case 'r': s.rate_pps = parse_number("--rate", optarg, 1, NS_PER_S); break;
        case 'v':
        case 'm':
            if (!second)
                wrong_use("--%s: '%s' is not OFFSET%s", option == 'v' ? "vary" : "match", optarg,
                          option == 'v' ? ",COUNT" : "=HEX");
            *second++ = 0;
            if (option == 'v') {
                s.vary_offset = (uint32_t)parse_number("--vary", optarg, 0, FRAME_ROOM - 2);
                s.vary_count = (uint32_t)parse_number("--vary", second, 1, 65536);
            } else {
                s.match_offset = (uint32_t)parse_number("--match", optarg, 0, FRAME_ROOM);
                s.match_bytes = parse_hex("--match", second, s.match, sizeof s.match);
            }
            break;
        case 'h': fputs(help, stdout); return 0;
        default: fputs(help, stderr); return 2;
        }
    }
    if (argc - optind != 2 || (strcmp(argv[optind], "send") && strcmp(argv[optind], "count"))) {
        fputs(help, stderr);
        return 2;
    }
    bool sends = strcmp(argv[optind], "send") == 0;
    if (sends && s.frame_bytes < 14)
        wrong_use("--frame is required, 14 bytes at least");
    if (s.vary_count && s.vary_offset + 2 > s.frame_bytes)
        wrong_use("--vary: offset %u lies beyond the frame of %u bytes", s.vary_offset, s.frame_bytes);
    interface_open(argv[optind + 1], &s.interface);
    int stop_fd = stop_fd_open();
    if (sends)
        send_all(&s, stop_fd);
    else
        count_all(&s, stop_fd);
    return 0;
}
