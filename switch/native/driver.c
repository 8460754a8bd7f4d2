/* Real-time driver. See driver.h.
 *
 * One thread: frames from the rings into the core, sw_advance, frames that came out to the sockets, sleep until the core's next
 * deadline or a frame. A socket that is full blocks its port in the traffic manager: frames wait in their queues, where they
 * are charged and can make PFC, and nothing is lost. A netlink socket tells of interfaces that go down, vanish or return. */
#define _GNU_SOURCE
#include "driver.h"

#include "core.h"
#include "sw_port.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define RX_BATCH 64u
#define MAX_AGE_NS 10000000000ull /* of a frame in a ring */
#define TX_PENDING 256u
#define TX_FLUSH 64u
#define TX_RETRY_PS 100000000ull       /* after ENOBUFS: the device's queue is full, and nothing tells when it is not */
#define STATS_PS 20000000000ull        /* how often the kernel's overrun counters are read while there is traffic */
#define NO_SLEEP_PS 3000000ull         /* a deadline this near is not worth a system call */

enum { TAG_TIMER = -1, TAG_KICK = -2, TAG_NETLINK = -3 };

typedef struct driver_port {
    bool used, up, blocked, want_out, has_head;
    sw_rx_t head;            /* the oldest frame of the ring, if has_head */
    uint64_t head_ps;        /* its arrival in core time */
    char interface[IFNAMSIZ];
    sw_socket_t socket;
    pkt_t *pending[TX_PENDING];
    uint32_t n_pending;
    uint64_t retry_ps; /* TM_NEVER: no timed retry */
    FILE *pcap_in, *pcap_out;
} driver_port_t;

typedef struct sw_driver {
    sw_t *sw;
    pthread_t thread;
    int epoll_fd, timer_fd, kick_fd, netlink_fd;
    bool stop, sleeping, started;
    bool stats_dirty;
    uint64_t stats_ps;
    uint64_t armed_ps;       /* what the timer is set to */
    uint64_t core_base_ps;   /* core time at... */
    uint64_t clock_base_ps;  /* ...this time of CLOCK_MONOTONIC */
    char *pcap_dir;
    uint32_t n_ports;
    uint16_t numbers[TM_PORTS]; /* ports with an interface, as they came */
    driver_port_t *ports[TM_PORTS];
} sw_driver_t;

static uint64_t monotonic_ps(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * TM_PS_PER_S + (uint64_t)t.tv_nsec * 1000;
}

static inline uint64_t driver_now(const sw_driver_t *d) { return monotonic_ps() - d->clock_base_ps + d->core_base_ps; }

uint64_t sw_driver_now(sw_t *sw) { return driver_now(sw->driver); }

void sw_driver_kick(sw_t *sw)
{
    sw_driver_t *d = sw->driver;
    if (__atomic_load_n(&d->sleeping, __ATOMIC_ACQUIRE)) {
        uint64_t one = 1;
        while (write(d->kick_fd, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
}

static int watch(sw_driver_t *d, int op, int fd, int32_t tag, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)(uint32_t)tag};
    return epoll_ctl(d->epoll_fd, op, fd, &e);
}

/* --- sending -------------------------------------------------------------------------------------------------------- */

static void drop_pending(sw_driver_t *d, driver_port_t *p, uint32_t port, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t queue = p->pending[i]->queue;
        tm_count_drop(d->sw->tm, TM_DROP_PORT, port * TM_QUEUES + (queue < TM_QUEUES ? queue : 0), 1, p->pending[i]->len);
        d->sw->stats.transmitted--;
        d->sw->stats.tm_dropped++;
        sw_pkt_free(d->sw, p->pending[i]);
    }
    p->n_pending -= n;
    memmove(p->pending, p->pending + n, p->n_pending * sizeof p->pending[0]);
}

static void set_want_out(sw_driver_t *d, driver_port_t *p, uint32_t port, bool want)
{
    if (p->want_out != want) {
        p->want_out = want;
        watch(d, EPOLL_CTL_MOD, p->socket.fd, (int32_t)port, want ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
}

static void flush(sw_driver_t *d, driver_port_t *p, uint32_t port, uint64_t now_ps)
{
    p->retry_ps = TM_NEVER;
    while (p->n_pending) {
        int sent = sw_socket_tx(&p->socket, p->pending, p->n_pending);
        if (sent > 0) {
            for (int i = 0; i < sent; i++) {
                if (p->pcap_out)
                    sw_pcap_write(p->pcap_out, p->pending[i]->data, p->pending[i]->len);
                sw_pkt_free(d->sw, p->pending[i]);
            }
            p->n_pending -= (uint32_t)sent;
            memmove(p->pending, p->pending + sent, p->n_pending * sizeof p->pending[0]);
            continue;
        }
        if (errno == EAGAIN || errno == ENOBUFS) {
            if (errno == ENOBUFS)
                p->retry_ps = now_ps + TX_RETRY_PS;
            else
                set_want_out(d, p, port, true);
            if (!p->blocked) {
                p->blocked = true;
                tm_block_port(d->sw->tm, port, true, now_ps);
            }
            return;
        }
        drop_pending(d, p, port, errno == EMSGSIZE || errno == EINVAL ? 1 : p->n_pending); /* too long; or the interface is down */
    }
    set_want_out(d, p, port, false);
    if (p->blocked) {
        p->blocked = false;
        tm_block_port(d->sw->tm, port, false, now_ps);
    }
}

static void output(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps)
{
    (void)end_ps;
    sw_driver_t *d = arg;
    driver_port_t *p = d->ports[port];
    if (!p || !p->up || p->n_pending == TX_PENDING) { /* full is never: the port is blocked long before */
        tm_count_drop(d->sw->tm, TM_DROP_PORT, port * TM_QUEUES + (pkt->queue & 7u), 1, pkt->len);
        sw_pkt_free(d->sw, pkt);
        return;
    }
    p->pending[p->n_pending++] = pkt;
    if (p->n_pending % TX_FLUSH == 0)
        flush(d, p, port, start_ps);
}

/* --- receiving ------------------------------------------------------------------------------------------------------ */

static uint64_t realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void take_head(driver_port_t *p, uint64_t now_ps, uint64_t real_ns)
{
    p->has_head = p->socket.fd >= 0 && sw_socket_rx(&p->socket, &p->head);
    if (!p->has_head)
        return;
    uint64_t age_ns = real_ns > p->head.time_ns ? real_ns - p->head.time_ns : 0;
    if (age_ns > MAX_AGE_NS)
        age_ns = 0; /* somebody has set the clock */
    p->head_ps = age_ns * 1000 < now_ps ? now_ps - age_ns * 1000 : 0;
}

/* Frames of all ports in the order and at the times of their arrival: a thread that was kept from the processor finds
 * milliseconds of them, and handing them in at once would overflow queues that would have drained meanwhile. */
static bool receive(sw_driver_t *d, uint64_t now_ps)
{
    uint64_t real_ns = realtime_ns();
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_ports; i++)
        if (!d->ports[d->numbers[i]]->has_head)
            take_head(d->ports[d->numbers[i]], now_ps, real_ns);
    for (; n < RX_BATCH * d->n_ports; n++) {
        driver_port_t *p = NULL;
        uint32_t port = 0;
        for (uint32_t i = 0; i < d->n_ports; i++) {
            driver_port_t *q = d->ports[d->numbers[i]];
            if (q->has_head && (!p || q->head_ps < p->head_ps)) {
                p = q;
                port = d->numbers[i];
            }
        }
        if (!p)
            break;
        if (p->head.full_len > p->head.len || p->head.len > SW_MAX_FRAME_BYTES) {
            tm_count_drop(d->sw->tm, TM_DROP_RX, port * TM_QUEUES + TM_RX_TOO_LONG, 1, p->head.full_len);
        } else {
            if (p->pcap_in)
                sw_pcap_write(p->pcap_in, p->head.frame, p->head.len);
            sw_receive(d->sw, port, p->head.frame, p->head.len, p->head_ps);
        }
        sw_socket_rx_done(&p->socket);
        take_head(p, now_ps, real_ns);
    }
    return n > 0;
}

static void read_overruns(sw_driver_t *d, uint64_t now_ps)
{
    d->stats_ps = now_ps;
    for (uint32_t i = 0; i < d->n_ports; i++) {
        driver_port_t *p = d->ports[d->numbers[i]];
        uint32_t n = p->socket.fd >= 0 ? sw_socket_overruns(&p->socket) : 0;
        if (n)
            tm_count_drop(d->sw->tm, TM_DROP_RX, d->numbers[i] * TM_QUEUES + TM_RX_OVERRUN, n, 0); /* their lengths are not known */
        if (p->pcap_in)
            fflush(p->pcap_in);
        if (p->pcap_out)
            fflush(p->pcap_out);
    }
}

/* --- interfaces ----------------------------------------------------------------------------------------------------- */

static void detach(sw_driver_t *d, driver_port_t *p)
{
    if (p->socket.fd >= 0)
        watch(d, EPOLL_CTL_DEL, p->socket.fd, 0, 0);
    sw_socket_close(&p->socket);
    p->has_head = false;
    p->want_out = false;
}

static int attach(sw_driver_t *d, driver_port_t *p, uint32_t port, const char **what)
{
    if (sw_socket_open(&p->socket, p->interface, what) < 0)
        return -1;
    *what = "epoll";
    if (watch(d, EPOLL_CTL_ADD, p->socket.fd, (int32_t)port, EPOLLIN) < 0) {
        sw_socket_close(&p->socket);
        return -1;
    }
    return 0;
}

static void set_up(sw_driver_t *d, driver_port_t *p, uint32_t port, bool up, uint64_t now_ps)
{
    if (up == p->up)
        return;
    p->up = up;
    if (up) {
        p->blocked = false;
        p->retry_ps = TM_NEVER;
        sw_add_port(d->sw, port, now_ps);
    } else {
        drop_pending(d, p, port, p->n_pending);
        p->retry_ps = TM_NEVER;
        if (p->socket.fd >= 0)
            set_want_out(d, p, port, false);
        sw_remove_port(d->sw, port, now_ps);
    }
}

/* What the interface is now: up, down, gone, or another one of the same name. */
static void refresh(sw_driver_t *d, driver_port_t *p, uint32_t port, uint64_t now_ps)
{
    bool up;
    int index = sw_interface_index(p->interface, &up);
    if (p->socket.fd >= 0 && index != p->socket.ifindex) {
        set_up(d, p, port, false, now_ps);
        detach(d, p);
    }
    const char *what;
    if (index && p->socket.fd < 0 && attach(d, p, port, &what) < 0)
        up = false;
    set_up(d, p, port, index && up, now_ps);
}

static void read_netlink(sw_driver_t *d, uint64_t now_ps)
{
    char buffer[16384];
    bool any = false;
    while (recv(d->netlink_fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0 || errno == ENOBUFS)
        any = true;
    for (uint32_t i = 0; any && i < d->n_ports; i++)
        refresh(d, d->ports[d->numbers[i]], d->numbers[i], now_ps);
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

static void arm(sw_driver_t *d, uint64_t at_ps)
{
    if (at_ps == d->armed_ps)
        return;
    d->armed_ps = at_ps;
    struct itimerspec t;
    memset(&t, 0, sizeof t);
    if (at_ps != TM_NEVER) {
        uint64_t ns = (at_ps - d->core_base_ps + d->clock_base_ps + 999) / 1000;
        t.it_value.tv_sec = (time_t)(ns / 1000000000u);
        t.it_value.tv_nsec = (long)(ns % 1000000000u);
    }
    timerfd_settime(d->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void let_others_in(sw_t *sw)
{
    pthread_mutex_unlock(&sw->mutex);
    for (int i = 0; i < 1000 && __atomic_load_n(&sw->waiting, __ATOMIC_ACQUIRE); i++)
        sched_yield();
    pthread_mutex_lock(&sw->mutex);
}

static void sleep_until(sw_driver_t *d, uint64_t at_ps)
{
    struct epoll_event events[32];
    arm(d, at_ps);
    __atomic_store_n(&d->sleeping, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&d->sw->mutex);
    int n = epoll_wait(d->epoll_fd, events, 32, -1);
    pthread_mutex_lock(&d->sw->mutex);
    __atomic_store_n(&d->sleeping, false, __ATOMIC_RELEASE);
    uint64_t now_ps = driver_now(d);
    for (int i = 0; i < n; i++) {
        int32_t tag = (int32_t)(uint32_t)events[i].data.u64;
        uint64_t count;
        if (tag == TAG_TIMER) {
            d->armed_ps = TM_NEVER;
            if (read(d->timer_fd, &count, sizeof count) < 0)
                continue;
        } else if (tag == TAG_KICK) {
            if (read(d->kick_fd, &count, sizeof count) < 0)
                continue;
        } else if (tag == TAG_NETLINK) {
            read_netlink(d, now_ps);
        } else if (d->ports[tag]) {
            driver_port_t *p = d->ports[tag];
            if (events[i].events & (EPOLLERR | EPOLLHUP)) {
                int error;
                socklen_t size = sizeof error;
                getsockopt(p->socket.fd, SOL_SOCKET, SO_ERROR, &error, &size); /* clears it */
                refresh(d, p, (uint32_t)tag, now_ps);
            }
            if ((events[i].events & EPOLLOUT) && p->socket.fd >= 0)
                flush(d, p, (uint32_t)tag, now_ps);
        }
    }
}

static void *run(void *arg)
{
    sw_driver_t *d = arg;
    sw_t *sw = d->sw;
    prctl(PR_SET_NAME, "dcbswitch-io");
    prctl(PR_SET_TIMERSLACK, 1ul);
    pthread_mutex_lock(&sw->mutex);
    while (!d->stop) {
        uint64_t now_ps = driver_now(d);
        bool busy = receive(d, now_ps);
        sw_advance(sw, now_ps);
        uint64_t due = TM_NEVER;
        for (uint32_t i = 0; i < d->n_ports; i++) {
            driver_port_t *p = d->ports[d->numbers[i]];
            if (p->n_pending && !p->want_out && (p->retry_ps == TM_NEVER || p->retry_ps <= now_ps))
                flush(d, p, d->numbers[i], now_ps);
            if (p->retry_ps < due)
                due = p->retry_ps;
        }
        d->stats_dirty |= busy;
        if (d->stats_dirty && now_ps - d->stats_ps > STATS_PS) {
            d->stats_dirty = busy;
            read_overruns(d, now_ps);
        }
        if (__atomic_load_n(&sw->waiting, __ATOMIC_ACQUIRE))
            let_others_in(sw);
        if (busy || d->stop) /* whoever was let in may have asked for the end, and saw us awake */
            continue;
        uint64_t next = sw_next_deadline(sw);
        if (next < due)
            due = next;
        if (d->stats_dirty && d->stats_ps + STATS_PS < due)
            due = d->stats_ps + STATS_PS;
        if (due != TM_NEVER && due <= driver_now(d) + NO_SLEEP_PS)
            continue;
        sleep_until(d, due);
    }
    pthread_mutex_unlock(&sw->mutex);
    return NULL;
}

/* --- control -------------------------------------------------------------------------------------------------------- */

static void driver_free(sw_driver_t *d)
{
    int fds[] = {d->epoll_fd, d->timer_fd, d->kick_fd, d->netlink_fd};
    for (uint32_t i = 0; i < 4; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(d->pcap_dir);
    free(d);
}

static int netlink_open(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
    if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof addr) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int sw_driver_start(sw_t *sw, const char *pcap_dir, char *error, uint64_t error_bytes)
{
    if (sw->driver) {
        snprintf(error, error_bytes, "already running");
        return -1;
    }
    sw_driver_t *d = calloc(1, sizeof *d);
    if (!d) {
        snprintf(error, error_bytes, "out of memory");
        return -1;
    }
    d->sw = sw;
    d->armed_ps = TM_NEVER;
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    d->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    d->netlink_fd = netlink_open();
    d->pcap_dir = pcap_dir ? strdup(pcap_dir) : NULL;
    if (d->epoll_fd < 0 || d->timer_fd < 0 || d->kick_fd < 0 || d->netlink_fd < 0 || watch(d, EPOLL_CTL_ADD, d->timer_fd, TAG_TIMER, EPOLLIN) < 0 ||
        watch(d, EPOLL_CTL_ADD, d->kick_fd, TAG_KICK, EPOLLIN) < 0 || watch(d, EPOLL_CTL_ADD, d->netlink_fd, TAG_NETLINK, EPOLLIN) < 0) {
        snprintf(error, error_bytes, "%s", strerror(errno));
        driver_free(d);
        return -1;
    }
    sw_lock(sw);
    d->core_base_ps = sw->now_ps;
    d->clock_base_ps = monotonic_ps();
    sw->driver = d;
    sw_set_output(sw, output, d);
    int failed = pthread_create(&d->thread, NULL, run, d);
    if (failed) {
        sw->driver = NULL;
        sw_set_output(sw, NULL, NULL);
        snprintf(error, error_bytes, "thread: %s", strerror(failed));
        driver_free(d);
    }
    sw_unlock(sw);
    return failed ? -1 : 0;
}

int sw_driver_add(sw_t *sw, uint32_t port, const char *interface, char *error, uint64_t error_bytes)
{
    sw_lock(sw);
    sw_driver_t *d = sw->driver;
    int result = -1;
    driver_port_t *p = NULL;
    const char *what = NULL;
    if (!d)
        snprintf(error, error_bytes, "the driver is not running");
    else if (port >= TM_PORTS || port == sw->cpu_port || port == sw->drop_port || d->ports[port] || sw->tm->ports[port].present)
        snprintf(error, error_bytes, "the port is in use, or is the CPU or the drop port");
    else if (strlen(interface) >= IFNAMSIZ)
        snprintf(error, error_bytes, "interface name longer than %d characters", IFNAMSIZ - 1);
    else if (!(p = calloc(1, sizeof *p)))
        snprintf(error, error_bytes, "out of memory");
    if (!p)
        goto out;
    p->socket.fd = -1;
    p->retry_ps = TM_NEVER;
    strcpy(p->interface, interface);
    if (d->pcap_dir) {
        p->pcap_in = sw_pcap_open(d->pcap_dir, interface, "in");
        p->pcap_out = sw_pcap_open(d->pcap_dir, interface, "out");
    }
    if (d->pcap_dir && (!p->pcap_in || !p->pcap_out))
        snprintf(error, error_bytes, "pcap file in %s: %s", d->pcap_dir, strerror(errno));
    else if (attach(d, p, port, &what) < 0)
        snprintf(error, error_bytes, "%s: %s", what, strerror(errno));
    else
        result = 0;
    if (result == 0) {
        d->ports[port] = p;
        d->numbers[d->n_ports++] = (uint16_t)port;
        refresh(d, p, port, driver_now(d));
    } else {
        if (p->pcap_in)
            fclose(p->pcap_in);
        if (p->pcap_out)
            fclose(p->pcap_out);
        free(p);
    }
out:
    sw_unlock(sw);
    return result;
}

static void forget(sw_driver_t *d, uint32_t port)
{
    driver_port_t *p = d->ports[port];
    set_up(d, p, port, false, driver_now(d));
    if (p->socket.fd >= 0) {
        uint32_t n = sw_socket_overruns(&p->socket);
        tm_count_drop(d->sw->tm, TM_DROP_RX, port * TM_QUEUES + TM_RX_OVERRUN, n, 0);
    }
    detach(d, p);
    if (p->pcap_in)
        fclose(p->pcap_in);
    if (p->pcap_out)
        fclose(p->pcap_out);
    d->ports[port] = NULL;
    for (uint32_t i = 0; i < d->n_ports; i++) {
        if (d->numbers[i] == port) {
            memmove(&d->numbers[i], &d->numbers[i + 1], (d->n_ports - i - 1) * sizeof d->numbers[0]);
            d->n_ports--;
            break;
        }
    }
    free(p);
}

int sw_driver_remove(sw_t *sw, uint32_t port)
{
    sw_lock(sw);
    sw_driver_t *d = sw->driver;
    int result = d && port < TM_PORTS && d->ports[port] ? 0 : -1;
    if (result == 0)
        forget(d, port);
    sw_unlock(sw);
    return result;
}

int sw_driver_port_up(sw_t *sw, uint32_t port)
{
    sw_lock(sw);
    sw_driver_t *d = sw->driver;
    int result = d && port < TM_PORTS && d->ports[port] ? d->ports[port]->up : -1;
    sw_unlock(sw);
    return result;
}

void sw_driver_stop(sw_t *sw)
{
    sw_driver_t *d = sw->driver;
    if (!d)
        return;
    sw_lock(sw);
    d->stop = true;
    sw_unlock(sw); /* wakes it */
    pthread_join(d->thread, NULL);
    sw_lock(sw);
    uint64_t now_ps = driver_now(d);
    while (d->n_ports) {
        uint32_t port = d->numbers[0];
        if (d->ports[port]->n_pending)
            flush(d, d->ports[port], port, now_ps);
        forget(d, port);
    }
    if (now_ps > sw->now_ps)
        sw->now_ps = now_ps;
    sw->driver = NULL;
    sw_set_output(sw, NULL, NULL);
    sw_unlock(sw);
    driver_free(d);
}
