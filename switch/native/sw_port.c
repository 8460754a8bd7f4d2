/* Packet sockets and pcap files. See sw_port.h. */
#define _GNU_SOURCE
#include "sw_port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TX_BATCH 64u
#define RX_RESERVE 32u /* room before the frame, for the tag that is put back */
#define BLOCK_BYTES (1u << 16)
#define SEND_BUFFER_BYTES (104 * 1024)

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

int sw_interface_index(const char *interface, bool *up)
{
    struct ifreq ifr;
    memset(&ifr, 0, sizeof ifr);
    strncpy(ifr.ifr_name, interface, IFNAMSIZ - 1);
    *up = false;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    int index = 0;
    if (ioctl(fd, SIOCGIFINDEX, &ifr) == 0) {
        index = ifr.ifr_ifindex;
        if (ioctl(fd, SIOCGIFFLAGS, &ifr) == 0)
            *up = (ifr.ifr_flags & IFF_UP) && (ifr.ifr_flags & IFF_RUNNING);
    }
    close(fd);
    return index;
}

static uint32_t interface_mtu(int fd, const char *interface)
{
    struct ifreq ifr;
    memset(&ifr, 0, sizeof ifr);
    strncpy(ifr.ifr_name, interface, IFNAMSIZ - 1);
    return ioctl(fd, SIOCGIFMTU, &ifr) == 0 && ifr.ifr_mtu > 0 ? (uint32_t)ifr.ifr_mtu : 1500;
}

static int ring_open(sw_socket_t *s, uint32_t mtu, const char **what)
{
    int version = TPACKET_V2, reserve = RX_RESERVE, one = 1;
    *what = "PACKET_VERSION";
    if (setsockopt(s->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) < 0)
        return -1;
    *what = "PACKET_RESERVE";
    if (setsockopt(s->fd, SOL_PACKET, PACKET_RESERVE, &reserve, sizeof reserve) < 0)
        return -1;
    setsockopt(s->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one); /* older kernels: sw_socket_rx looks at the type */
    if (mtu > 9216)
        mtu = 9216;
    uint32_t need = mtu + 14 + 8 + TPACKET2_HDRLEN + RX_RESERVE + 64;
    s->slot_bytes = need <= 2048 ? 2048 : need <= 4096 ? 4096 : 16384;
    s->n_slots = need <= 2048 ? 8192 : need <= 4096 ? 4096 : 1024; /* 16 MiB: a second of full frames at 100 Mb/s */
    struct tpacket_req req = {.tp_block_size = BLOCK_BYTES, .tp_frame_size = s->slot_bytes, .tp_frame_nr = s->n_slots};
    req.tp_block_nr = s->n_slots / (BLOCK_BYTES / s->slot_bytes);
    *what = "PACKET_RX_RING";
    if (setsockopt(s->fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof req) < 0)
        return -1;
    s->ring_bytes = (uint64_t)req.tp_block_size * req.tp_block_nr;
    *what = "mmap";
    s->ring = mmap(NULL, s->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (s->ring == MAP_FAILED) {
        s->ring = NULL;
        return -1;
    }
    return 0;
}

int sw_socket_open(sw_socket_t *s, const char *interface, const char **what)
{
    memset(s, 0, sizeof *s);
    s->fd = -1;
    bool up;
    *what = "no such interface";
    errno = ENODEV;
    s->ifindex = sw_interface_index(interface, &up);
    if (!s->ifindex)
        return -1;
    *what = "packet socket";
    s->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); /* protocol 0: nothing arrives before bind */
    if (s->fd < 0)
        return -1;
    /* What a shaped link has not sent yet is charged to the socket. Small, so that frames wait where the program sees them:
     * in the traffic manager. The kernel doubles it; a plain veth charges nothing. */
    int send_bytes = SEND_BUFFER_BYTES;
    setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    struct packet_mreq promiscuous = {.mr_ifindex = s->ifindex, .mr_type = PACKET_MR_PROMISC};
    struct sockaddr_ll addr = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = s->ifindex};
    if (ring_open(s, interface_mtu(s->fd, interface), what) < 0)
        goto failed;
    *what = "promiscuous mode";
    if (setsockopt(s->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) < 0)
        goto failed;
    *what = "bind";
    if (bind(s->fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        goto failed;
    return 0;
failed:;
    int error = errno;
    sw_socket_close(s);
    errno = error;
    return -1;
}

void sw_socket_close(sw_socket_t *s)
{
    if (s->ring)
        munmap(s->ring, s->ring_bytes);
    if (s->fd >= 0)
        close(s->fd);
    s->ring = NULL;
    s->fd = -1;
}

static inline struct tpacket2_hdr *slot(const sw_socket_t *s)
{
    uint32_t per_block = BLOCK_BYTES / s->slot_bytes;
    return (struct tpacket2_hdr *)(s->ring + (uint64_t)(s->next_slot / per_block) * BLOCK_BYTES +
                                   (uint64_t)(s->next_slot % per_block) * s->slot_bytes);
}

void sw_socket_rx_done(sw_socket_t *s)
{
    __atomic_store_n(&slot(s)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    if (++s->next_slot == s->n_slots)
        s->next_slot = 0;
}

bool sw_socket_rx(sw_socket_t *s, sw_rx_t *rx)
{
    for (;;) {
        struct tpacket2_hdr *h = slot(s);
        uint32_t status = __atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE);
        if (!(status & TP_STATUS_USER))
            return false;
        const struct sockaddr_ll *from = (const void *)((const uint8_t *)h + TPACKET_ALIGN(sizeof *h));
        if (from->sll_pkttype == PACKET_OUTGOING) {
            sw_socket_rx_done(s);
            continue;
        }
        rx->frame = (uint8_t *)h + h->tp_mac;
        rx->len = h->tp_snaplen;
        rx->full_len = h->tp_len;
        rx->time_ns = h->tp_sec * 1000000000ull + h->tp_nsec;
        if ((status & TP_STATUS_VLAN_VALID) && rx->len >= 12) {
            uint16_t tpid = status & TP_STATUS_VLAN_TPID_VALID ? h->tp_vlan_tpid : ETH_P_8021Q;
            uint16_t tag[2] = {htons(tpid), htons(h->tp_vlan_tci)};
            memmove(rx->frame - 4, rx->frame, 12);
            rx->frame -= 4;
            memcpy(rx->frame + 12, tag, 4);
            rx->len += 4;
            rx->full_len += 4;
        }
        return true;
    }
}

uint32_t sw_socket_overruns(sw_socket_t *s)
{
    struct tpacket_stats stats;
    socklen_t n = sizeof stats;
    return getsockopt(s->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &n) == 0 ? stats.tp_drops : 0;
}

int sw_socket_tx(sw_socket_t *s, pkt_t *const *pkts, uint32_t n)
{
    struct mmsghdr messages[TX_BATCH];
    struct iovec vectors[TX_BATCH];
    if (n > TX_BATCH)
        n = TX_BATCH;
    memset(messages, 0, n * sizeof messages[0]);
    for (uint32_t i = 0; i < n; i++) {
        vectors[i] = (struct iovec){pkts[i]->data, pkts[i]->len};
        messages[i].msg_hdr.msg_iov = &vectors[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    int sent;
    do
        sent = sendmmsg(s->fd, messages, n, MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

/* --- pcap, nanosecond format ----------------------------------------------------------------------------------------- */

FILE *sw_pcap_open(const char *dir, const char *interface, const char *direction)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s_%s.pcap", dir, interface, direction) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    FILE *f = fopen(path, "wbe");
    if (!f)
        return NULL;
    struct {
        uint32_t magic;
        uint16_t major, minor;
        uint32_t zone, accuracy, snaplen, network;
    } head = {0xa1b23c4d, 2, 4, 0, 0, 65535, 1};
    fwrite(&head, sizeof head, 1, f);
    fflush(f);
    return f;
}

void sw_pcap_write(FILE *f, const uint8_t *frame, uint32_t len)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint32_t head[4] = {(uint32_t)t.tv_sec, (uint32_t)t.tv_nsec, len, len};
    fwrite(head, sizeof head, 1, f);
    fwrite(frame, 1, len, f);
}
