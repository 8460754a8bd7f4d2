/* Small things that every host program needs: clocks, option values, errors, JSON strings, signals.
 *
 * Errors go to stderr and name the option, the value and the rule. Exit status 2 is wrong use, 1 a failed run. */
#ifndef DCBLAB_HOSTS_UTIL_H
#define DCBLAB_HOSTS_UTIL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define NS_PER_S 1000000000ull
#define NEVER UINT64_MAX

typedef unsigned __int128 u128;

struct address {
    int family; /* AF_INET, AF_INET6, or 0 when not given */
    uint8_t bytes[16];
};

uint64_t now_ns(void); /* CLOCK_MONOTONIC */

/* CLOCK_REALTIME minus CLOCK_MONOTONIC: turns the kernel's packet stamps into the clock of the senders. */
int64_t realtime_offset_ns(void);

_Noreturn void wrong_use(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void failed(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Option values. Each refuses what does not parse or lies outside [low, high]. Numbers may be hexadecimal (0x..). */
uint64_t parse_number(const char *option, const char *text, uint64_t low, uint64_t high);
uint64_t parse_rate_bps(const char *option, const char *text);    /* 100M, 2.5G, 64k, 1000 */
uint64_t parse_duration_ns(const char *option, const char *text); /* 10, 2.5s, 500ms, 250us, 40ns */
void parse_mac(const char *option, const char *text, uint8_t mac[6]);
void parse_address(const char *option, const char *text, struct address *address);
const char *format_address(const struct address *address, char text[INET6_ADDRSTRLEN]);

/* Writes `text` as a JSON string, quotes included. */
void json_string(FILE *out, const char *text);

static inline void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value);
}

static inline void put64(uint8_t *at, uint64_t value)
{
    put32(at, (uint32_t)(value >> 32));
    put32(at + 4, (uint32_t)value);
}

static inline uint32_t get16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static inline uint32_t get32(const uint8_t *at)
{
    return get16(at) << 16 | get16(at + 2);
}

static inline uint64_t get64(const uint8_t *at)
{
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

/* A link: what the kernel knows of an interface in this network namespace. */
struct interface {
    char name[16];
    int index;
    uint8_t mac[6];
    uint32_t mtu_bytes;
};

void interface_open(const char *name, struct interface *interface); /* fails the run when it is absent or down */
bool interface_address(const char *name, int family, struct address *address);
uint64_t interface_tx_dropped(const char *name); /* the kernel's count, 32 bits wide */

/* SIGINT and SIGTERM as a file descriptor: readable when the user wants an end. */
int stop_fd_open(void);
bool stop_requested(int stop_fd);

#endif
