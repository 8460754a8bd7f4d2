/* Real-time driver of a switch core: a thread between packet sockets and sw_receive / sw_advance.
 *
 * The driver owns the core while it runs, except to those who hold sw_lock. Its clock is CLOCK_MONOTONIC in picoseconds since
 * the core's time at start, so that 64 bits last for 213 days of running. */
#ifndef DCB_DRIVER_H
#define DCB_DRIVER_H

#include <stdint.h>

struct sw;

/* 0, or -1 with a message. pcap_dir: NULL, or where <interface>_in.pcap and _out.pcap are written. */
int sw_driver_start(struct sw *sw, const char *pcap_dir, char *error, uint64_t error_bytes);
void sw_driver_stop(struct sw *sw);
int sw_driver_add(struct sw *sw, uint32_t port, const char *interface, char *error, uint64_t error_bytes);
int sw_driver_remove(struct sw *sw, uint32_t port);
void sw_driver_kick(struct sw *sw);
uint64_t sw_driver_now(struct sw *sw);
/* 1: the port has a live interface, 0: its interface is down or gone, -1: no such port */
int sw_driver_port_up(struct sw *sw, uint32_t port);

#endif
