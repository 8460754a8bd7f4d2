#include "util.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

int64_t realtime_offset_ns(void)
{
    /* The narrowest of a few brackets, since the process may lose the CPU between two reads. */
    uint64_t best = NEVER;
    int64_t offset = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t before = now_ns(), real = clock_ns(CLOCK_REALTIME), after = now_ns();
        if (after - before < best) {
            best = after - before;
            offset = (int64_t)(real - (before + (after - before) / 2));
        }
    }
    return offset;
}

static _Noreturn void die(int status, const char *format, va_list arguments)
{
    fflush(stdout);
    fputs("error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(status);
}

void wrong_use(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    die(2, format, arguments);
}

void failed(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    die(1, format, arguments);
}

uint64_t parse_number(const char *option, const char *text, uint64_t low, uint64_t high)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 0) : 0;
    if (!end || *end || errno)
        wrong_use("%s: '%s' is not a number (decimal or 0x...)", option, text);
    if (value < low || value > high)
        wrong_use("%s: %llu is out of range, must be %llu..%llu", option, value, (unsigned long long)low,
                  (unsigned long long)high);
    return value;
}

/* A decimal number, with a fraction or not, times `unit`; exact, and an error when it is not a whole number of ones. */
static bool scaled_decimal(const char *text, size_t length, uint64_t unit, uint64_t *value)
{
    u128 sum = 0, scale = 1;
    bool point = false, digits = false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '.' && !point) {
            point = true;
        } else if (isdigit((unsigned char)text[i])) {
            digits = true;
            sum = sum * 10 + (unsigned)(text[i] - '0');
            if (point)
                scale *= 10;
            if (sum > (u128)1 << 80 || scale > (u128)1 << 64)
                return false;
        } else {
            return false;
        }
    }
    u128 total = sum * unit;
    if (!digits || total % scale || total / scale > (u128)INT64_MAX)
        return false;
    *value = (uint64_t)(total / scale);
    return true;
}

struct suffix {
    const char *text;
    uint64_t unit;
};

static uint64_t parse_scaled(const char *option, const char *text, const struct suffix *suffixes, const char *rule)
{
    size_t number = strspn(text, "0123456789.");
    uint64_t value;
    for (const struct suffix *s = suffixes; s->text; s++) {
        if (strcmp(text + number, s->text) == 0) {
            if (!scaled_decimal(text, number, s->unit, &value))
                break;
            return value;
        }
    }
    wrong_use("%s: '%s' is not %s", option, text, rule);
}

uint64_t parse_rate_bps(const char *option, const char *text)
{
    static const struct suffix suffixes[] = {
        {"", 1},        {"bps", 1},        {"k", 1000},          {"K", 1000},          {"kbps", 1000},           {"M", 1000000},
        {"Mbps", 1000000}, {"G", NS_PER_S}, {"Gbps", NS_PER_S}, {"T", 1000 * NS_PER_S}, {"Tbps", 1000 * NS_PER_S}, {NULL, 0},
    };
    uint64_t rate = parse_scaled(option, text, suffixes, "a rate in bit/s, such as 100M, 2.5G or 64k");
    if (rate == 0 || rate > 1600 * NS_PER_S)
        wrong_use("%s: %s is out of range, must be 1 bit/s..1.6T", option, text);
    return rate;
}

uint64_t parse_duration_ns(const char *option, const char *text)
{
    static const struct suffix suffixes[] = {
        {"", NS_PER_S}, {"s", NS_PER_S}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}, {"min", 60 * NS_PER_S}, {NULL, 0},
    };
    uint64_t ns = parse_scaled(option, text, suffixes, "a duration, such as 10, 2.5s, 500ms or 250us");
    if (ns > 1000000 * NS_PER_S)
        wrong_use("%s: %s is out of range, must be at most 1000000 s", option, text);
    return ns;
}

void parse_mac(const char *option, const char *text, uint8_t mac[6])
{
    const char *at = text;
    for (int i = 0; i < 6; i++) {
        if (!isxdigit((unsigned char)at[0]) || !isxdigit((unsigned char)at[1]) || at[2] != (i < 5 ? ':' : '\0'))
            wrong_use("%s: '%s' is not a MAC address (six pairs of hexadecimal digits)", option, text);
        mac[i] = (uint8_t)strtoul((char[]){at[0], at[1], 0}, NULL, 16);
        at += i < 5 ? 3 : 2;
    }
}

void parse_address(const char *option, const char *text, struct address *address)
{
    address->family = strchr(text, ':') ? AF_INET6 : AF_INET;
    if (inet_pton(address->family, text, address->bytes) != 1)
        wrong_use("%s: '%s' is not an IPv4 or IPv6 address", option, text);
}

const char *format_address(const struct address *address, char text[INET6_ADDRSTRLEN])
{
    return inet_ntop(address->family, address->bytes, text, INET6_ADDRSTRLEN);
}

void json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

void interface_open(const char *name, struct interface *interface)
{
    memset(interface, 0, sizeof *interface);
    if (strlen(name) >= IFNAMSIZ)
        wrong_use("--interface: '%s' is longer than %d characters", name, IFNAMSIZ - 1);
    strcpy(interface->name, name);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {0};
    strcpy(request.ifr_name, name);
    if (fd < 0 || ioctl(fd, SIOCGIFINDEX, &request) < 0)
        failed("interface %s: %s", name, strerror(errno));
    interface->index = request.ifr_ifindex;
    if (ioctl(fd, SIOCGIFFLAGS, &request) < 0 || !(request.ifr_flags & IFF_UP))
        failed("interface %s is down", name);
    if (ioctl(fd, SIOCGIFHWADDR, &request) < 0)
        failed("interface %s: hardware address: %s", name, strerror(errno));
    memcpy(interface->mac, request.ifr_hwaddr.sa_data, 6);
    if (ioctl(fd, SIOCGIFMTU, &request) < 0)
        failed("interface %s: MTU: %s", name, strerror(errno));
    interface->mtu_bytes = (uint32_t)request.ifr_mtu;
    close(fd);
}

bool interface_address(const char *name, int family, struct address *address)
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list) < 0)
        return false;
    for (struct ifaddrs *a = list; a && !found; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != family || strcmp(a->ifa_name, name) != 0)
            continue;
        if (family == AF_INET) {
            memcpy(address->bytes, &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, 4);
        } else {
            const struct in6_addr *six = &((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr;
            if (IN6_IS_ADDR_LINKLOCAL(six))
                continue;
            memcpy(address->bytes, six, 16);
        }
        address->family = family;
        found = true;
    }
    freeifaddrs(list);
    return found;
}

uint64_t interface_tx_dropped(const char *name)
{
    struct ifaddrs *list = NULL;
    uint64_t dropped = 0;
    if (getifaddrs(&list) < 0)
        return 0;
    for (struct ifaddrs *a = list; a; a = a->ifa_next)
        if (a->ifa_addr && a->ifa_addr->sa_family == AF_PACKET && a->ifa_data && strcmp(a->ifa_name, name) == 0)
            dropped = ((struct rtnl_link_stats *)a->ifa_data)->tx_dropped;
    freeifaddrs(list);
    return dropped;
}

int stop_fd_open(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        failed("signalfd: %s", strerror(errno));
    return fd;
}

bool stop_requested(int stop_fd)
{
    struct pollfd poll_stop = {.fd = stop_fd, .events = POLLIN};
    return poll(&poll_stop, 1, 0) > 0;
}
