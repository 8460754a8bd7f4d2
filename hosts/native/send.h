/* What the sender's command line (send_main.c) sets up and its engine (send.c) runs. */
#ifndef DCBLAB_HOSTS_SEND_H
#define DCBLAB_HOSTS_SEND_H

#include "frame.h"
#include "pfc.h"
#include "socket.h"

#define MAX_FLOWS 1024
#define FRAME_OVERHEAD_BYTES 24 /* FCS, preamble, gap */

struct flow {
    struct frame_spec spec;
    struct frame frame;
    int priority;
    uint64_t rate_bps, bits; /* what one packet counts for the rate */
    uint64_t base_ns, scheduled, due_ns;
    uint64_t sent, limit;
    uint64_t pause_shift_ns;
    uint32_t first_psn;
};

struct sender {
    struct interface interface;
    int tx, stop_fd;
    struct control_rx control;
    struct pfc_gates gates;
    struct flow **flows;
    uint32_t flow_count;
    bool keep_backlog, bypass;
    uint64_t link_rate_bps, tick_ns, packets, duration_ns, start_at_ns, progress_ns;
    uint64_t begin_ns, end_ns, last_sent_ns;
    u128 wire_free; /* time after begin_ns at which the link is free, times link_rate_bps: exact */
    uint64_t enobufs, batches, sent, sent_bytes, payload_bytes;
    const char *overhead;
};

void flow_schedule(struct flow *flow); /* sets due_ns from base_ns and scheduled */

/* Moves the schedules of a priority by a pause that has ended; `context` is the sender. */
void sender_on_resumed(void *context, int priority, uint64_t since_ns, uint64_t until_ns);

/* Sends from begin_ns until end_ns, the last packet or a stop. */
void sender_run(struct sender *s);

void sender_print_result(struct sender *s, uint64_t now, uint64_t dropped_before);

#endif
