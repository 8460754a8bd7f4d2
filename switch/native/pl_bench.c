/* The pipeline alone under load: one frame through parser, ingress, egress and deparser, n times (make bench). */
#include "pl_rt.h"

#include <stdlib.h>
#include <time.h>

/* Nanoseconds of processor time for n packets, or 0 without memory. Standard metadata that a target sets is written for each packet: the
 * cells of ingress_port, egress_spec and egress_port (UINT32_MAX: not there). `outputs` counts what was not dropped. */
uint64_t pl_bench(pl_t *pl, const uint8_t *frame, uint32_t len, uint64_t n, const uint32_t *cells, uint64_t port,
                  uint64_t *outputs);

uint64_t pl_bench(pl_t *pl, const uint8_t *frame, uint32_t len, uint64_t n, const uint32_t *cells, uint64_t port,
                  uint64_t *outputs)
{
    const pl_program_t *program = pl_program();
    uint32_t room = program->headroom_bytes > PKT_HEADROOM ? program->headroom_bytes : PKT_HEADROOM;
    pkt_t *p = calloc(1, sizeof *p + program->phv_bytes);
    uint8_t *buf = malloc(room + len);
    uint64_t spent = 0, sent = 0;
    if (p && buf) {
        struct timespec start, stop;
        p->buf = buf;
        p->buf_bytes = room + len;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        for (uint64_t i = 0; i < n; i++) {
            p->data = buf + room;
            p->len = len;
            memcpy(p->data, frame, len);
            program->reset_phv(p);
            if (cells[0] != UINT32_MAX)
                p->phv[cells[0]] = port;
            program->parse(pl, p);
            p->req = (pl_requests_t){.clone_field_list = -1, .resubmit_field_list = -1, .recirculate_field_list = -1,
                                     .truncate_bytes = UINT32_MAX};
            program->ingress(pl, p);
            uint64_t out = cells[1] != UINT32_MAX ? p->phv[cells[1]] : 0;
            if (out == pl->drop_port)
                continue;
            if (cells[1] != UINT32_MAX)
                p->phv[cells[1]] = 0;
            if (cells[2] != UINT32_MAX)
                p->phv[cells[2]] = out;
            program->egress(pl, p);
            if (cells[1] != UINT32_MAX && p->phv[cells[1]] == pl->drop_port)
                continue;
            program->deparse(pl, p);
            sent++;
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &stop);
        spent = (uint64_t)(stop.tv_sec - start.tv_sec) * 1000000000u + (uint64_t)stop.tv_nsec - (uint64_t)start.tv_nsec;
    }
    if (outputs)
        *outputs = sent;
    free(buf);
    free(p);
    return spent;
}
