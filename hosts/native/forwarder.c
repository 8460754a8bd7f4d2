/* forwarder: the least that a packet-socket program can do, as the yardstick of `make bench`.
 *
 * Takes frames from each of two interfaces and sends them, untouched, out of the other: one thread, one packet socket an
 * interface, recvmmsg and sendmmsg, no ring, no classification; an 802.1Q tag, which the kernel takes off, is lost. JSON lines: "ready", at the end "result". */
#define _GNU_SOURCE
#include "socket.h"

#include <errno.h>
#include <getopt.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 64
#define FRAME_ROOM 9216

static const char help[] =
    "Usage: forwarder IF IF [--duration TIME]\n"
    "Forwards every frame between two interfaces until SIGINT or SIGTERM, or for TIME.\n";

struct side {
    struct interface interface;
    int fd;
    uint64_t received, sent, bytes, dropped;
};

static uint8_t frames[BATCH][FRAME_ROOM];

static uint32_t kernel_drops(int fd)
{
    struct tpacket_stats stats = {0};
    socklen_t length = sizeof stats;
    getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length);
    return stats.tp_drops;
}

/* Moves one batch. Returns the number of frames taken. */
static int move(struct side *from, struct side *to)
{
    struct mmsghdr messages[BATCH];
    struct iovec parts[BATCH];
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){.iov_base = frames[i], .iov_len = FRAME_ROOM};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    }
    int count = recvmmsg(from->fd, messages, BATCH, MSG_DONTWAIT, NULL);
    if (count < 0) {
        if (errno != EAGAIN && errno != EINTR)
            failed("interface %s: %s", from->interface.name, strerror(errno));
        return 0;
    }
    from->received += (uint64_t)count;
    for (int i = 0; i < count; i++)
        parts[i].iov_len = messages[i].msg_len;
    for (int at = 0; at < count;) {
        int done = sendmmsg(to->fd, messages + at, (unsigned)(count - at), 0);
        if (done > 0) {
            for (int i = at; i < at + done; i++)
                to->bytes += messages[i].msg_len;
            to->sent += (uint64_t)done;
            at += done;
        } else if (errno == ENOBUFS || errno == EAGAIN || errno == EMSGSIZE) {
            to->dropped++; /* a switch without buffers: the frame is gone */
            at++;
        } else if (errno != EINTR) {
            failed("interface %s: send: %s", to->interface.name, strerror(errno));
        }
    }
    return count;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"duration", required_argument, NULL, 'd'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    uint64_t duration_ns = NEVER;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (option) {
        case 'd': duration_ns = parse_duration_ns("--duration", optarg); break;
        case 'h': fputs(help, stdout); return 0;
        default: fputs(help, stderr); return 2;
        }
    }
    if (argc - optind != 2)
        wrong_use("two interfaces are required, %d given", argc - optind);
    static struct side sides[2];
    for (int i = 0; i < 2; i++) {
        interface_open(argv[optind + i], &sides[i].interface);
        sides[i].fd = raw_socket_open(&sides[i].interface);
    }
    int stop_fd = stop_fd_open();
    puts("{\"event\":\"ready\",\"role\":\"forwarder\"}");
    fflush(stdout);
    uint64_t begin_ns = now_ns(), end_ns = duration_ns == NEVER ? NEVER : begin_ns + duration_ns;
    for (uint32_t busy = 1;; busy++) {
        int moved = move(&sides[0], &sides[1]) + move(&sides[1], &sides[0]);
        if (moved && busy % 256)
            continue;
        uint64_t now = now_ns();
        if (now >= end_ns)
            break;
        uint64_t left_ms = end_ns == NEVER ? 1000 : (end_ns - now) / 1000000 + 1;
        struct pollfd fds[] = {{.fd = sides[0].fd, .events = POLLIN},
                               {.fd = sides[1].fd, .events = POLLIN},
                               {.fd = stop_fd, .events = POLLIN}};
        poll(fds, 3, moved ? 0 : left_ms < 1000 ? (int)left_ms : 1000);
        if (fds[2].revents)
            break;
    }
    printf("{\"event\":\"result\",\"role\":\"forwarder\",\"duration_ns\":%llu,\"interfaces\":[",
           (unsigned long long)(now_ns() - begin_ns));
    for (int i = 0; i < 2; i++) {
        fputs(i ? ",{\"name\":" : "{\"name\":", stdout);
        json_string(stdout, sides[i].interface.name);
        printf(",\"received\":%llu,\"sent\":%llu,\"sent_bytes\":%llu,\"tx_dropped\":%llu,\"kernel_drops\":%u}",
               (unsigned long long)sides[i].received, (unsigned long long)sides[i].sent,
               (unsigned long long)sides[i].bytes, (unsigned long long)sides[i].dropped, kernel_drops(sides[i].fd));
    }
    puts("]}");
    return 0;
}
