/* Making and ending a switch core: the fields of its program, found by name, and what it owns. See core.h. */
#include "core.h"

#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- fields of the program, by name --------------------------------------------------------------------------------- */

static sw_bind_t bind(const pl_program_t *program, const char *header, const char *field)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", header, field);
    for (uint32_t i = 0; i < program->n_fields; i++) {
        const pl_field_t *f = &program->fields[i];
        if (strcmp(f->name, name) == 0)
            return (sw_bind_t){(int32_t)f->cell, f->bits >= 64 ? UINT64_MAX : (1ull << f->bits) - 1};
    }
    return (sw_bind_t){-1, 0};
}

/* The header instance named tm, or x.tm, that has the fields of the contract; NULL for a plain program. */
static const char *find_tm(const pl_program_t *program, char *out, size_t size)
{
    static const char suffix[] = "tm.pause_valid";
    for (uint32_t i = 0; i < program->n_fields; i++) {
        const char *name = program->fields[i].name;
        size_t n = strlen(name), k = sizeof suffix - 1;
        if (n < k || n >= size || strcmp(name + n - k, suffix) != 0 || (n > k && name[n - k - 1] != '.'))
            continue;
        memcpy(out, name, n);
        out[n - (sizeof ".pause_valid" - 1)] = '\0';
        return out;
    }
    return NULL;
}

static void bind_fields(sw_t *sw)
{
    const pl_program_t *p = sw->program;
    const char *std = "standard_metadata";
    sw->f.ingress_port = bind(p, std, "ingress_port");
    sw->f.egress_spec = bind(p, std, "egress_spec");
    sw->f.egress_port = bind(p, std, "egress_port");
    sw->f.instance_type = bind(p, std, "instance_type");
    sw->f.packet_length = bind(p, std, "packet_length");
    sw->f.enq_timestamp = bind(p, std, "enq_timestamp");
    sw->f.enq_qdepth = bind(p, std, "enq_qdepth");
    sw->f.deq_timedelta = bind(p, std, "deq_timedelta");
    sw->f.deq_qdepth = bind(p, std, "deq_qdepth");
    sw->f.ingress_ts = bind(p, std, "ingress_global_timestamp");
    sw->f.egress_ts = bind(p, std, "egress_global_timestamp");
    sw->f.mcast_grp = bind(p, std, "mcast_grp");
    sw->f.egress_rid = bind(p, std, "egress_rid");
    sw->f.priority = bind(p, std, "priority");
    char buffer[256];
    const char *tm = find_tm(p, buffer, sizeof buffer);
    if (!tm)
        tm = "/"; /* a name that no header has: every binding is absent */
    sw->f.tm_valid = bind(p, tm, "$valid$");
    sw->f.tm_pg = bind(p, tm, "pg");
    sw->f.tm_lossless = bind(p, tm, "lossless");
    sw->f.tm_pause_valid = bind(p, tm, "pause_valid");
    sw->f.tm_pause_vector = bind(p, tm, "pause_vector");
    sw->f.tm_pfc_request = bind(p, tm, "pfc_request");
    sw->f.tm_pfc_vector = bind(p, tm, "pfc_vector");
    sw->f.tm_priority = bind(p, tm, "priority");
    sw->f.tm_pause_forever = bind(p, tm, "pause_forever");
    sw->f.tm_event = bind(p, tm, "event");
    sw->f.tm_event_port = bind(p, tm, "event_port");
    sw->f.tm_event_priority = bind(p, tm, "event_priority");
    sw->f.tm_cnm_request = bind(p, tm, "cnm_request");
    sw->f.tm_cnm_qfb = bind(p, tm, "cnm_qfb");
    sw->f.tm_cnm_priority = bind(p, tm, "cnm_priority");
    sw->f.tm_cnm_qoff = bind(p, tm, "cnm_qoff");
    sw->f.tm_cnm_qdelta = bind(p, tm, "cnm_qdelta");
    sw->f.tm_cnm_cpid = bind(p, tm, "cnm_cpid");
    sw->f.tm_enq_depth = bind(p, tm, "enq_depth_bytes");
    sw->f.tm_deq_depth = bind(p, tm, "deq_depth_bytes");
    for (uint32_t i = 0; i < TM_QUEUES; i++) {
        char name[32];
        snprintf(name, sizeof name, "pause_time%u", i);
        sw->f.tm_pause_time[i] = bind(p, tm, name);
        snprintf(name, sizeof name, "pfc_time%u", i);
        sw->f.tm_pfc_time[i] = bind(p, tm, name);
    }
    sw->tm->pfc_capable = sw->f.tm_pfc_request.cell >= 0;
}

/* --- creation ------------------------------------------------------------------------------------------------------- */

static void digest_sink(void *arg, uint32_t list_id, const uint8_t *bytes, uint32_t len)
{
    sw_t *sw = arg;
    sw_record_t r = {.type = SW_EVENT_DIGEST, .id = list_id, .data_bytes = len, .start_ps = sw->now_ps, .end_ps = sw->now_ps};
    sw_ring_put(&sw->events, &r, bytes, SW_EVENT_BYTES / 2); /* digests may fill half: a packet-in always finds room */
}

void sw_output_to_list(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps)
{
    sw_t *sw = arg;
    pkt->out_port = (uint16_t)port;
    pkt->enq_ps = start_ps;
    pkt->rx_ps = end_ps;
    pkt->next = NULL;
    if (sw->out_tail)
        sw->out_tail->next = pkt;
    else
        sw->out_head = pkt;
    sw->out_tail = pkt;
    sw->out_len++;
}

sw_t *sw_create(uint64_t seed, uint32_t cpu_port, uint32_t drop_port, uint32_t n_queues, char *error, uint64_t error_bytes)
{
    const pl_program_t *program = pl_program();
    if (program->abi_version != PL_ABI_VERSION) {
        snprintf(error, error_bytes, "program has ABI version %u, the core %u", program->abi_version, PL_ABI_VERSION);
        return NULL;
    }
    if (cpu_port >= TM_PORTS || drop_port >= TM_PORTS || cpu_port == drop_port || n_queues < 1 || n_queues > TM_QUEUES) {
        snprintf(error, error_bytes, "cpu_port %u, drop_port %u: two different ports of 0..511; priority_queues %u: 1..8", cpu_port, drop_port,
                 n_queues);
        return NULL;
    }
    sw_t *sw = calloc(1, sizeof *sw);
    if (!sw)
        return NULL;
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&sw->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    sw->program = program;
    sw->cpu_port = cpu_port;
    sw->drop_port = drop_port;
    sw->n_queues = n_queues;
    sw->clock_ps = UINT64_MAX;
    sw->output = sw_output_to_list;
    sw->output_arg = sw;
    sw_slab_init(&sw->slab, program->phv_bytes, program->headroom_bytes, SW_MEMORY_BYTES);
    sw->tm = tm_create(n_queues);
    sw->pl = program->create(seed);
    sw->groups = calloc(SW_GROUPS, sizeof *sw->groups);
    sw->sessions = calloc(SW_GROUPS, sizeof *sw->sessions);
    sw->scratch = sw_slab_get(&sw->slab, 0);
    if (sw_ring_init(&sw->events, SW_EVENT_BYTES) < 0 || !sw->tm || !sw->pl || !sw->groups || !sw->sessions || !sw->scratch) {
        snprintf(error, error_bytes, "out of memory or file descriptors");
        sw_destroy(sw);
        return NULL;
    }
    bind_fields(sw);
    sw->tm->seed = seed;
    program->set_drop_port(sw->pl, drop_port);
    program->set_digest_sink(sw->pl, digest_sink, sw);
    return sw;
}

void sw_pkt_free(sw_t *sw, pkt_t *pkt) { sw_slab_put(&sw->slab, pkt); }

void sw_free_list(sw_t *sw, pkt_t *pkt)
{
    while (pkt) {
        pkt_t *next = pkt->next;
        sw_pkt_free(sw, pkt);
        pkt = next;
    }
}

void sw_destroy(sw_t *sw)
{
    sw_driver_stop(sw);
    if (sw->tm) {
        for (uint32_t port = 0; port < TM_PORTS; port++)
            sw_free_list(sw, tm_remove_port(sw->tm, port, sw->now_ps));
        tm_destroy(sw->tm);
    }
    sw_free_list(sw, sw->reentry_head);
    sw_free_list(sw, sw->out_head);
    if (sw->scratch)
        sw_pkt_free(sw, sw->scratch);
    if (sw->pl)
        sw->program->destroy(sw->pl);
    for (uint32_t i = 0; i < SW_GROUPS; i++) {
        if (sw->groups)
            free(sw->groups[i]);
        if (sw->sessions)
            free(sw->sessions[i]);
    }
    free(sw->groups);
    free(sw->sessions);
    sw_ring_destroy(&sw->events);
    sw_slab_destroy(&sw->slab);
    pthread_mutex_destroy(&sw->mutex);
    free(sw);
}

pl_t *sw_pipeline(sw_t *sw) { return sw->pl; }
tm_t *sw_tm(sw_t *sw) { return sw->tm; }

void sw_set_output(sw_t *sw, sw_output_fn output, void *arg)
{
    sw->output = output ? output : sw_output_to_list;
    sw->output_arg = output ? arg : sw;
}
