#define _GNU_SOURCE
#include "socket.h"

#include "frame.h"
#include "pfc.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

#define ALL_PROTOCOLS 0x0003 /* ETH_P_ALL */

static int packet_socket(void)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        failed("packet socket: %s%s", strerror(errno), errno == EPERM ? " (needs root or CAP_NET_RAW)" : "");
    return fd;
}

static void bind_socket(int fd, const struct interface *interface, uint16_t protocol)
{
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = interface->index};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        failed("interface %s: bind: %s", interface->name, strerror(errno));
}

static void option(int fd, int level, int name, int value, const char *text)
{
    if (setsockopt(fd, level, name, &value, sizeof value) < 0)
        failed("%s: %s", text, strerror(errno));
}

int tx_socket_open(const struct interface *interface, bool bypass)
{
    int fd = packet_socket();
    if (bypass)
        option(fd, SOL_PACKET, PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS");
    bind_socket(fd, interface, 0);
    return fd;
}

void tx_send_one(int fd, const struct interface *interface, const uint8_t *frame, uint32_t length)
{
    while (send(fd, frame, length, 0) < 0) {
        if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR)
            failed("interface %s: send: %s", interface->name, strerror(errno));
        struct timespec pause = {.tv_nsec = 50000};
        nanosleep(&pause, NULL);
    }
}

static uint64_t monotonic(uint64_t realtime_ns, int64_t offset_ns, uint64_t low, uint64_t high)
{
    uint64_t t = realtime_ns - (uint64_t)offset_ns;
    return t < low ? low : t > high ? high : t;
}

void control_rx_open(struct control_rx *rx, const struct interface *interface)
{
    rx->fd = packet_socket();
    option(rx->fd, SOL_SOCKET, SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS");
    option(rx->fd, SOL_SOCKET, SO_RCVBUF, 1 << 20, "SO_RCVBUF");
    option(rx->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
    struct packet_mreq group = {.mr_ifindex = interface->index, .mr_type = PACKET_MR_MULTICAST, .mr_alen = 6};
    memcpy(group.mr_address, pfc_destination, 6);
    if (setsockopt(rx->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &group, sizeof group) < 0)
        failed("interface %s: PACKET_ADD_MEMBERSHIP: %s", interface->name, strerror(errno));
    rx->realtime_offset_ns = realtime_offset_ns();
    rx->last_ns = now_ns();
    bind_socket(rx->fd, interface, MAC_CONTROL_TYPE);
}

void control_rx_drain(struct control_rx *rx, rx_take *take, void *context)
{
    for (;;) {
        uint8_t bytes[2048];
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(sizeof(struct timespec))];
        } control;
        struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        ssize_t length = recvmsg(rx->fd, &message, MSG_DONTWAIT);
        uint64_t now = now_ns();
        if (length < 0) {
            if (errno == EAGAIN)
                rx->last_ns = now; /* nothing that comes later arrived before this */
            else if (errno != EINTR)
                failed("MAC control socket: %s", strerror(errno));
            return;
        }
        struct rx_frame frame = {.bytes = bytes, .length = (uint32_t)length, .arrived_ns = now};
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
                struct timespec t;
                memcpy(&t, CMSG_DATA(c), sizeof t);
                uint64_t real = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
                rx->realtime_offset_ns = realtime_offset_ns();
                /* Between the last look and now, whatever somebody did to the wall clock. */
                frame.arrived_ns = monotonic(real, rx->realtime_offset_ns, rx->last_ns, now);
            }
        }
        rx->last_ns = frame.arrived_ns;
        take(context, &frame);
    }
}

uint32_t control_rx_drops(const struct control_rx *rx)
{
    struct tpacket_stats stats = {0};
    socklen_t length = sizeof stats;
    getsockopt(rx->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length);
    return stats.tp_drops;
}

int raw_socket_open(const struct interface *interface)
{
    int fd = packet_socket();
    option(fd, SOL_PACKET, PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS");
    option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
    option(fd, SOL_SOCKET, SO_RCVBUF, 64 << 20, "SO_RCVBUF");
    int bytes = 64 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes); /* past rmem_max, where allowed */
    struct packet_mreq all = {.mr_ifindex = interface->index, .mr_type = PACKET_MR_PROMISC};
    if (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) < 0)
        failed("interface %s: PACKET_ADD_MEMBERSHIP: %s", interface->name, strerror(errno));
    bind_socket(fd, interface, ALL_PROTOCOLS);
    return fd;
}

static void ring_open(struct rx_ring *ring, const struct interface *interface, const struct sock_fprog *filter,
                      size_t ring_bytes, uint32_t retire_ms)
{
    memset(ring, 0, sizeof *ring);
    ring->fd = packet_socket();
    option(ring->fd, SOL_PACKET, PACKET_VERSION, TPACKET_V3, "PACKET_VERSION");
    option(ring->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING");
    if (filter && setsockopt(ring->fd, SOL_SOCKET, SO_ATTACH_FILTER, filter, sizeof *filter) < 0)
        failed("SO_ATTACH_FILTER: %s", strerror(errno));
    ring->block_bytes = 128 * 1024;
    ring->blocks = (uint32_t)(ring_bytes / ring->block_bytes);
    if (ring->blocks < 4)
        ring->blocks = 4;
    struct tpacket_req3 request = {
        .tp_block_size = ring->block_bytes,
        .tp_block_nr = ring->blocks,
        .tp_frame_size = 2048,
        .tp_frame_nr = ring->block_bytes / 2048 * ring->blocks,
        .tp_retire_blk_tov = retire_ms,
    };
    if (setsockopt(ring->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) < 0)
        failed("PACKET_RX_RING of %u blocks: %s", ring->blocks, strerror(errno));
    ring->map_bytes = (size_t)ring->block_bytes * ring->blocks;
    ring->map = mmap(NULL, ring->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
    if (ring->map == MAP_FAILED)
        failed("mapping the receive ring: %s", strerror(errno));
    ring->realtime_offset_ns = realtime_offset_ns();
    bind_socket(ring->fd, interface, ALL_PROTOCOLS);
}

void rx_ring_open(struct rx_ring *ring, const struct interface *interface, size_t ring_bytes, uint32_t retire_ms)
{
    /* UDP to port 4791 over IPv4 (not a later fragment) or IPv6, tag already taken off. */
    static struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0800, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x86dd, 7, 12),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 10),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 20),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 8, 0),
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 14),
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, 16),
        BPF_JUMP(BPF_JMP | BPF_JA, 3, 0, 0),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 20),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 56),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ROCE_PORT, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0xffff),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof program[0], .filter = program};
    ring_open(ring, interface, &filter, ring_bytes, retire_ms);
}

void rx_ring_open_all(struct rx_ring *ring, const struct interface *interface, size_t ring_bytes, uint32_t retire_ms)
{
    ring_open(ring, interface, NULL, ring_bytes, retire_ms);
}

void rx_ring_close(struct rx_ring *ring)
{
    munmap(ring->map, ring->map_bytes);
    close(ring->fd);
}

uint32_t rx_ring_drain(struct rx_ring *ring, rx_take *take, void *context)
{
    uint32_t taken = 0;
    ring->realtime_offset_ns = realtime_offset_ns(); /* anew, since somebody may set the wall clock */
    for (;;) {
        struct tpacket_block_desc *block = (void *)(ring->map + (size_t)ring->next * ring->block_bytes);
        if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
            return taken;
        const uint8_t *at = (const uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
        for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
            const struct tpacket3_hdr *header = (const void *)at;
            struct rx_frame frame = {
                .bytes = at + header->tp_mac,
                .length = header->tp_snaplen,
                .arrived_ns = monotonic((uint64_t)header->tp_sec * NS_PER_S + header->tp_nsec,
                                        ring->realtime_offset_ns, 0, NEVER),
                .tagged = header->tp_status & TP_STATUS_VLAN_VALID,
                .tci = (uint16_t)header->hv1.tp_vlan_tci,
            };
#ifdef __SANITIZE_ADDRESS__ /* the sanitizer does not see the ends of frames in a mapped ring */
            uint8_t *copy = malloc(frame.length);
            frame.bytes = memcpy(copy, frame.bytes, frame.length);
#endif
            take(context, &frame);
#ifdef __SANITIZE_ADDRESS__
            free(copy);
#endif
            taken++;
            at += header->tp_next_offset;
        }
        __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
        ring->next = (ring->next + 1) % ring->blocks;
    }
}

uint64_t rx_ring_drops(struct rx_ring *ring)
{
    struct tpacket_stats_v3 stats;
    socklen_t length = sizeof stats;
    if (getsockopt(ring->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0)
        ring->drops += stats.tp_drops; /* reading clears it */
    return ring->drops;
}

int roce_port_claim(void)
{
    static struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sock_fprog filter = {.len = 1, .filter = nothing};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0), off = 0, on = 1;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};
    if (fd >= 0) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    } else {
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        six.sin6_family = 0;
    }
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* several receivers on one host */
    setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
    int bound = six.sin6_family ? bind(fd, (struct sockaddr *)&six, sizeof six)
                                : bind(fd, (struct sockaddr *)&four, sizeof four);
    if (bound < 0) {
        close(fd);
        return -1;
    }
    return fd;
}
