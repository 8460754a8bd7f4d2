/* Switch core. See core.h. The order of what a packet's requests do is simple_switch's (clone, digest, resubmit, multicast,
 * drop, unicast); a digest leaves by digest_sink while its control ends. */
#include "core.h"

#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static inline uint64_t get(const pkt_t *pkt, sw_bind_t b, uint64_t otherwise) { return b.cell < 0 ? otherwise : pkt->phv[b.cell]; }

static inline void set(pkt_t *pkt, sw_bind_t b, uint64_t value)
{
    if (b.cell >= 0)
        pkt->phv[b.cell] = value & b.mask;
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

static void output_to_list(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps)
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
    sw->output = output_to_list;
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
    program->set_drop_port(sw->pl, drop_port);
    program->set_digest_sink(sw->pl, digest_sink, sw);
    return sw;
}

void sw_pkt_free(sw_t *sw, pkt_t *pkt) { sw_slab_put(&sw->slab, pkt); }

static void free_list(sw_t *sw, pkt_t *pkt)
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
            free_list(sw, tm_remove_port(sw->tm, port, sw->now_ps));
        tm_destroy(sw->tm);
    }
    free_list(sw, sw->reentry_head);
    free_list(sw, sw->out_head);
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
    sw->output = output ? output : output_to_list;
    sw->output_arg = output ? arg : sw;
}

/* --- packets -------------------------------------------------------------------------------------------------------- */

static inline void request_clear(pl_requests_t *req, uint32_t truncate_bytes)
{
    *req = (pl_requests_t){.clone_field_list = -1, .resubmit_field_list = -1, .recirculate_field_list = -1, .truncate_bytes = truncate_bytes};
}

static inline void clock_at(sw_t *sw, uint64_t now_ps)
{
    sw->now_ps = now_ps;
    if (now_ps != sw->clock_ps) {
        sw->clock_ps = now_ps;
        sw->program->clock(sw->pl, now_ps);
    }
}

static pkt_t *copy_frame(sw_t *sw, const pkt_t *pkt)
{
    pkt_t *copy = sw_slab_get(&sw->slab, pkt->len);
    sw->stats.copies++;
    if (!copy) {
        sw->stats.memory_dropped++;
        tm_count_drop(sw->tm, TM_DROP_RX, pkt->in_port * TM_QUEUES + TM_RX_NO_MEMORY, 1, pkt->len);
        return NULL;
    }
    memcpy(copy->data, pkt->data, pkt->len);
    copy->len = pkt->len;
    copy->payload_offset = pkt->payload_offset;
    copy->packet_length = pkt->packet_length;
    copy->rx_ps = pkt->rx_ps;
    copy->in_port = pkt->in_port;
    request_clear(&copy->req, UINT32_MAX); /* truncate() is for this packet, not for its copies, as in simple_switch */
    return copy;
}

static pkt_t *copy_packet(sw_t *sw, const pkt_t *pkt)
{
    pkt_t *copy = copy_frame(sw, pkt);
    if (copy)
        memcpy(copy->phv, pkt->phv, sw->program->phv_bytes);
    return copy;
}

static void egress(sw_t *sw, pkt_t *pkt, const tm_service_t *service, uint64_t now_ps);

/* From the end of ingress (or of a copy) into the queue of `port`. */
static void enqueue(sw_t *sw, pkt_t *pkt, uint32_t port, uint64_t now_ps)
{
    pkt->out_port = (uint16_t)port;
    if (port == sw->cpu_port) { /* no queue and no rate */
        tm_service_t now = {.start_ps = now_ps, .port = (uint16_t)port};
        pkt->enq_ps = now_ps;
        set(pkt, sw->f.enq_timestamp, now_ps / 1000000);
        egress(sw, pkt, &now, now_ps);
        return;
    }
    pkt->queue = (uint8_t)(get(pkt, sw->f.priority, 0) & 7);
    bool tm_valid = get(pkt, sw->f.tm_valid, 0);
    pkt->pg = tm_valid ? (uint8_t)get(pkt, sw->f.tm_pg, 0) & 7 : 0;
    pkt->lossless = tm_valid && get(pkt, sw->f.tm_lossless, 0);
    const tm_queue_t *q = &sw->tm->ports[port].queues[pkt->queue];
    set(pkt, sw->f.enq_timestamp, now_ps / 1000000);
    set(pkt, sw->f.enq_qdepth, q->packets);
    set(pkt, sw->f.tm_enq_depth, q->bytes);
    if (tm_enqueue(sw->tm, pkt, now_ps)) {
        sw->stats.tm_dropped++;
        sw_pkt_free(sw, pkt);
    }
}

/* A copy of `pkt` (which stays the caller's) to each member of the list, truncated as the list says. */
static void replicate(sw_t *sw, const pkt_t *pkt, const sw_replicas_t *list, uint64_t now_ps)
{
    for (uint32_t i = 0; list && i < list->n; i++) {
        pkt_t *copy = copy_packet(sw, pkt);
        if (!copy)
            continue;
        if (list->truncate_bytes)
            copy->req.truncate_bytes = list->truncate_bytes;
        set(copy, sw->f.egress_rid, list->to[i].rid);
        enqueue(sw, copy, list->to[i].port, now_ps);
    }
}

/* `prototype` has the frame and the PHV of the clone. */
static void clone_out(sw_t *sw, pkt_t *prototype, const sw_replicas_t *session, uint64_t now_ps)
{
    if (session->cos)
        set(prototype, sw->f.priority, session->cos);
    replicate(sw, prototype, session, now_ps);
    sw->stats.group_dropped++;
    sw_pkt_free(sw, prototype);
}

static void reenter(sw_t *sw, pkt_t *pkt, uint8_t instance, uint64_t now_ps)
{
    pkt->refs_spare = instance;
    pkt->enq_ps = now_ps + SW_REENTRY_PS;
    pkt->next = NULL;
    if (sw->reentry_tail)
        sw->reentry_tail->next = pkt;
    else
        sw->reentry_head = pkt;
    sw->reentry_tail = pkt;
    sw->reentry_len++;
    sw->stats.reentered++;
}

static void parse_as(sw_t *sw, pkt_t *pkt, uint8_t instance, uint64_t now_ps)
{
    set(pkt, sw->f.ingress_port, pkt->in_port);
    set(pkt, sw->f.packet_length, pkt->len);
    set(pkt, sw->f.instance_type, instance);
    set(pkt, sw->f.ingress_ts, now_ps / 1000000);
    pkt->payload_offset = 0;
    sw->program->parse(sw->pl, pkt);
}

/* ingress of a parsed packet, and what it asked for */
static void ingress(sw_t *sw, pkt_t *pkt, uint64_t now_ps)
{
    request_clear(&pkt->req, UINT32_MAX);
    sw->program->ingress(sw->pl, pkt);

    if (get(pkt, sw->f.tm_pause_valid, 0) && get(pkt, sw->f.tm_valid, 0)) {
        uint16_t times[TM_QUEUES];
        for (uint32_t i = 0; i < TM_QUEUES; i++)
            times[i] = (uint16_t)get(pkt, sw->f.tm_pause_time[i], 0);
        tm_pause(sw->tm, pkt->in_port, (uint32_t)get(pkt, sw->f.tm_pause_vector, 0), times, now_ps);
    }
    if (pkt->req.clone) {
        const sw_replicas_t *session = sw->sessions[pkt->req.clone_session & 0xffff];
        pkt_t *copy = session ? copy_frame(sw, pkt) : NULL;
        if (copy) {
            sw->program->reset_phv(copy);
            if (pkt->req.clone_field_list >= 0)
                sw->program->copy_fields(sw->pl, pkt->req.clone_field_list, copy, pkt);
            parse_as(sw, copy, INSTANCE_INGRESS_CLONE, now_ps);
            request_clear(&copy->req, UINT32_MAX);
            clone_out(sw, copy, session, now_ps);
        }
    }
    if (pkt->req.resubmit) {
        reenter(sw, pkt, INSTANCE_RESUBMIT, now_ps);
        return;
    }
    uint64_t group = get(pkt, sw->f.mcast_grp, 0);
    if (group) {
        set(pkt, sw->f.instance_type, INSTANCE_REPLICATION);
        replicate(sw, pkt, sw->groups[group & 0xffff], now_ps);
        sw->stats.group_dropped++;
        sw_pkt_free(sw, pkt);
        return;
    }
    uint64_t port = get(pkt, sw->f.egress_spec, sw->drop_port);
    if (port == sw->drop_port || port >= TM_PORTS) {
        sw->stats.ingress_dropped++;
        sw_pkt_free(sw, pkt);
        return;
    }
    set(pkt, sw->f.instance_type, INSTANCE_NORMAL);
    enqueue(sw, pkt, (uint32_t)port, now_ps);
}

static void run_reentry(sw_t *sw)
{
    pkt_t *pkt = sw->reentry_head;
    sw->reentry_head = pkt->next;
    if (!sw->reentry_head)
        sw->reentry_tail = NULL;
    sw->reentry_len--;
    pkt->next = NULL;
    uint64_t now_ps = pkt->enq_ps;
    clock_at(sw, now_ps);
    uint8_t instance = pkt->refs_spare;
    int32_t fields = instance == INSTANCE_RESUBMIT ? pkt->req.resubmit_field_list : pkt->req.recirculate_field_list;
    uint8_t *start = pkt->buf + sw->slab.headroom_bytes;
    if (pkt->data < start && pkt->len <= pkt->buf_bytes - sw->slab.headroom_bytes) {
        memmove(start, pkt->data, pkt->len); /* room for headers again */
        pkt->data = start;
    } else if (pkt->data < start) {
        pkt_t *larger = copy_packet(sw, pkt);
        sw->stats.copies--; /* it takes the place of this one */
        if (larger)
            larger->req = pkt->req;
        sw_pkt_free(sw, pkt);
        if (!larger)
            return;
        pkt = larger;
    }
    if (fields >= 0)
        memcpy(sw->scratch->phv, pkt->phv, sw->program->phv_bytes);
    sw->program->reset_phv(pkt);
    if (fields >= 0)
        sw->program->copy_fields(sw->pl, fields, pkt, sw->scratch);
    parse_as(sw, pkt, instance, now_ps);
    ingress(sw, pkt, now_ps);
}

static void to_cpu(sw_t *sw, pkt_t *pkt, uint64_t now_ps)
{
    sw_record_t r = {.type = SW_EVENT_PACKET_IN, .data_bytes = pkt->len, .start_ps = now_ps, .end_ps = now_ps};
    if (sw_ring_put(&sw->events, &r, pkt->data, 0)) {
        sw->stats.to_cpu++;
    } else {
        sw->stats.cpu_dropped++;
        tm_count_drop(sw->tm, TM_DROP_QUEUE_LIMIT, sw->cpu_port * TM_QUEUES, 1, pkt->len);
    }
    sw_pkt_free(sw, pkt);
}

static void egress_clone(sw_t *sw, pkt_t *pkt, uint64_t now_ps)
{
    const sw_replicas_t *session = sw->sessions[pkt->req.clone_session & 0xffff];
    pkt_t *copy = session ? copy_packet(sw, pkt) : NULL;
    if (!copy)
        return;
    sw->program->reset_metadata(copy);
    if (pkt->req.clone_field_list >= 0)
        sw->program->copy_fields(sw->pl, pkt->req.clone_field_list, copy, pkt);
    set(copy, sw->f.instance_type, INSTANCE_EGRESS_CLONE);
    set(copy, sw->f.ingress_port, pkt->in_port);
    request_clear(&copy->req, UINT32_MAX);
    clone_out(sw, copy, session, now_ps);
}

/* Egress, deparse and what follows, for a packet that left its queue, a PFC request, or one for the CPU. Ends the service. */
static void egress(sw_t *sw, pkt_t *pkt, const tm_service_t *service, uint64_t now_ps)
{
    uint32_t port = service->port;
    bool queued = port != sw->cpu_port;
    uint32_t truncate_bytes = pkt->req.truncate_bytes;
    set(pkt, sw->f.egress_port, port);
    set(pkt, sw->f.egress_spec, sw->drop_port + 1); /* anything but the drop port */
    set(pkt, sw->f.packet_length, pkt->len);
    set(pkt, sw->f.egress_ts, now_ps / 1000000);
    request_clear(&pkt->req, truncate_bytes);
    sw->program->egress(sw->pl, pkt);

    if (pkt->req.clone)
        egress_clone(sw, pkt, now_ps);
    if (get(pkt, sw->f.egress_spec, 0) == sw->drop_port) {
        sw->stats.egress_dropped++;
        if (queued)
            tm_discard(sw->tm, port, now_ps);
        sw_pkt_free(sw, pkt);
        return;
    }
    sw->program->deparse(sw->pl, pkt);
    if (pkt->len > pkt->req.truncate_bytes)
        pkt->len = pkt->req.truncate_bytes;
    if (pkt->req.recirculate || pkt->len == 0) {
        if (queued)
            tm_discard(sw->tm, port, now_ps);
        if (pkt->req.recirculate) {
            reenter(sw, pkt, INSTANCE_RECIRC, now_ps);
        } else {
            sw->stats.egress_dropped++;
            sw_pkt_free(sw, pkt);
        }
        return;
    }
    if (!queued) {
        to_cpu(sw, pkt, now_ps);
        return;
    }
    uint64_t end_ps = tm_sent(sw->tm, port, service->queue, pkt->len, now_ps);
    sw->stats.transmitted++;
    sw->output(sw->output_arg, pkt, port, now_ps, end_ps);
}

/* An empty packet that the program turns into the PFC frame. */
static void make_pfc(sw_t *sw, const tm_service_t *service)
{
    pkt_t *pkt = sw_slab_get(&sw->slab, 0);
    if (!pkt) {
        tm_count_drop(sw->tm, TM_DROP_RX, service->port * TM_QUEUES + TM_RX_NO_MEMORY, 1, TM_MIN_FRAME_BYTES);
        tm_discard(sw->tm, service->port, service->start_ps);
        return;
    }
    sw->stats.pfc_made++;
    sw->program->reset_phv(pkt);
    request_clear(&pkt->req, UINT32_MAX);
    pkt->in_port = pkt->out_port = service->port;
    set(pkt, sw->f.instance_type, INSTANCE_TM_PFC);
    set(pkt, sw->f.tm_valid, 1);
    set(pkt, sw->f.tm_pfc_request, 1);
    set(pkt, sw->f.tm_pfc_vector, service->pfc_vector);
    for (uint32_t i = 0; i < TM_QUEUES; i++)
        set(pkt, sw->f.tm_pfc_time[i], service->pfc_time[i]);
    egress(sw, pkt, service, service->start_ps);
}

static void dequeued(sw_t *sw, const tm_service_t *service)
{
    pkt_t *pkt = service->pkt;
    set(pkt, sw->f.deq_timedelta, (service->start_ps - pkt->enq_ps) / 1000000);
    set(pkt, sw->f.deq_qdepth, service->left_packets);
    set(pkt, sw->f.tm_deq_depth, service->left_bytes);
    egress(sw, pkt, service, service->start_ps);
}

/* --- events --------------------------------------------------------------------------------------------------------- */

uint64_t sw_next_deadline(const sw_t *sw)
{
    uint64_t t = tm_deadline(sw->tm);
    return sw->reentry_head && sw->reentry_head->enq_ps < t ? sw->reentry_head->enq_ps : t;
}

void sw_advance(sw_t *sw, uint64_t now_ps)
{
    for (;;) {
        uint64_t limit = now_ps;
        if (sw->reentry_head && sw->reentry_head->enq_ps <= now_ps) {
            uint64_t due = sw->reentry_head->enq_ps;
            if (due <= tm_deadline(sw->tm)) {
                run_reentry(sw);
                continue;
            }
            limit = due - 1;
        }
        tm_service_t service;
        if (!tm_next(sw->tm, limit, &service)) {
            if (limit == now_ps)
                break;
            continue;
        }
        clock_at(sw, service.start_ps);
        if (service.pkt)
            dequeued(sw, &service);
        else
            make_pfc(sw, &service);
    }
    if (now_ps > sw->now_ps)
        clock_at(sw, now_ps); /* the pipeline's clock too: ages and meters are asked for between packets */
}

void sw_wait(sw_t *sw, uint64_t now_ps)
{
    if (now_ps <= sw->now_ps)
        return;
    if (sw_next_deadline(sw) < now_ps)
        sw_advance(sw, now_ps - 1);
    clock_at(sw, now_ps);
}

int sw_receive(sw_t *sw, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    if (now_ps < sw->now_ps)
        now_ps = sw->now_ps;
    else if (now_ps > 0 && sw_next_deadline(sw) < now_ps)
        sw_advance(sw, now_ps - 1); /* what was due before this frame came */
    clock_at(sw, now_ps);
    sw->stats.received++;
    if (port >= TM_PORTS)
        port = TM_PORTS - 1;
    pkt_t *pkt = len <= SW_MAX_FRAME_BYTES ? sw_slab_get(&sw->slab, len) : NULL;
    if (!pkt) {
        uint32_t why = len > SW_MAX_FRAME_BYTES ? TM_RX_TOO_LONG : TM_RX_NO_MEMORY;
        tm_count_drop(sw->tm, TM_DROP_RX, port * TM_QUEUES + why, 1, len);
        sw->stats.rx_dropped++;
        return -1;
    }
    memcpy(pkt->data, frame, len);
    pkt->len = len;
    pkt->rx_ps = now_ps;
    pkt->in_port = (uint16_t)port;
    sw->program->reset_phv(pkt);
    parse_as(sw, pkt, INSTANCE_NORMAL, now_ps);
    ingress(sw, pkt, now_ps);
    return 0;
}

int sw_add_port(sw_t *sw, uint32_t port, uint64_t now_ps)
{
    return port == sw->cpu_port || port == sw->drop_port ? -1 : tm_add_port(sw->tm, port, now_ps);
}

int sw_remove_port(sw_t *sw, uint32_t port, uint64_t now_ps)
{
    if (port >= TM_PORTS || !sw->tm->ports[port].present)
        return -1;
    pkt_t *list = tm_remove_port(sw->tm, port, now_ps);
    for (const pkt_t *p = list; p; p = p->next)
        sw->stats.tm_dropped++;
    free_list(sw, list);
    return 0;
}

/* --- for Python ----------------------------------------------------------------------------------------------------- */

uint64_t sw_outputs_take(sw_t *sw, uint8_t *out, uint64_t capacity)
{
    uint64_t n = 0;
    pthread_mutex_lock(&sw->mutex);
    while (sw->out_head) {
        pkt_t *pkt = sw->out_head;
        uint64_t total = (sizeof(sw_record_t) + pkt->len + 7) & ~7ull;
        if (n + total > capacity)
            break;
        sw_record_t r = {(uint32_t)total, pkt->out_port, 0, pkt->len, pkt->enq_ps, pkt->rx_ps};
        memcpy(out + n, &r, sizeof r);
        memcpy(out + n + sizeof r, pkt->data, pkt->len);
        n += total;
        sw->out_head = pkt->next;
        if (!sw->out_head)
            sw->out_tail = NULL;
        sw->out_len--;
        sw_pkt_free(sw, pkt);
    }
    pthread_mutex_unlock(&sw->mutex);
    return n;
}

uint64_t sw_events_take(sw_t *sw, uint8_t *out, uint64_t capacity)
{
    sw_lock(sw);
    uint64_t n = sw_ring_take(&sw->events, out, capacity);
    pthread_mutex_unlock(&sw->mutex); /* nothing that the driver would have to wake for */
    return n;
}

int sw_inject(sw_t *sw, uint32_t port, const uint8_t *frame, uint32_t len, uint64_t now_ps)
{
    sw_lock(sw);
    int result = sw_receive(sw, port, frame, len, now_ps == TM_NEVER ? sw_now(sw) : now_ps);
    sw_unlock(sw);
    return result;
}

void sw_run(sw_t *sw, uint64_t now_ps)
{
    sw_lock(sw);
    sw_advance(sw, now_ps);
    sw_unlock(sw);
}
int sw_event_fd(const sw_t *sw) { return sw->events.event_fd; }
uint64_t sw_events_lost(const sw_t *sw) { return sw->events.lost; }
uint64_t sw_events_put(const sw_t *sw) { return sw->events.tail; }
void sw_read_stats(const sw_t *sw, sw_stats_t *out) { *out = sw->stats; }
uint64_t sw_packets_live(const sw_t *sw) { return sw->slab.live - sw->out_len - 1; /* scratch */ }

static int set_replicas(sw_replicas_t **slot, const uint16_t *ports, const uint16_t *rids, uint32_t n, uint32_t cos, uint32_t truncate_bytes)
{
    for (uint32_t i = 0; i < n; i++)
        if (ports[i] >= TM_PORTS)
            return -1;
    sw_replicas_t *list = calloc(1, sizeof *list + n * sizeof list->to[0]);
    if (!list)
        return -1;
    list->n = n;
    list->cos = (uint8_t)cos;
    list->truncate_bytes = truncate_bytes;
    for (uint32_t i = 0; i < n; i++) {
        list->to[i].port = ports[i];
        list->to[i].rid = rids[i];
    }
    free(*slot);
    *slot = list;
    return 0;
}

static int delete_replicas(sw_replicas_t **slot)
{
    if (!*slot)
        return -1;
    free(*slot);
    *slot = NULL;
    return 0;
}

int sw_set_multicast(sw_t *sw, uint32_t group, const uint16_t *ports, const uint16_t *rids, uint32_t n)
{
    return group < 1 || group >= SW_GROUPS ? -1 : set_replicas(&sw->groups[group], ports, rids, n, 0, 0);
}

int sw_delete_multicast(sw_t *sw, uint32_t group) { return group >= SW_GROUPS ? -1 : delete_replicas(&sw->groups[group]); }

int sw_set_clone_session(sw_t *sw, uint32_t session, const uint16_t *ports, const uint16_t *rids, uint32_t n, uint32_t cos, uint32_t truncate_bytes)
{
    return session >= SW_GROUPS || cos > 7 ? -1 : set_replicas(&sw->sessions[session], ports, rids, n, cos, truncate_bytes);
}

int sw_delete_clone_session(sw_t *sw, uint32_t session) { return session >= SW_GROUPS ? -1 : delete_replicas(&sw->sessions[session]); }

/* --- sharing with a driver thread ----------------------------------------------------------------------------------- */

void sw_lock(sw_t *sw)
{
    __atomic_fetch_add(&sw->waiting, 1, __ATOMIC_ACQ_REL);
    pthread_mutex_lock(&sw->mutex);
    __atomic_fetch_sub(&sw->waiting, 1, __ATOMIC_ACQ_REL);
}

void sw_unlock(sw_t *sw)
{
    if (sw->driver)
        sw_driver_kick(sw); /* what changed may be due sooner than what it sleeps for */
    pthread_mutex_unlock(&sw->mutex);
}

uint64_t sw_now(sw_t *sw)
{
    pthread_mutex_lock(&sw->mutex);
    uint64_t now_ps = sw->driver ? sw_driver_now(sw) : sw->now_ps;
    pthread_mutex_unlock(&sw->mutex);
    return now_ps;
}

/* --- bench ---------------------------------------------------------------------------------------------------------- */

struct bench_sink {
    sw_t *sw;
    uint64_t frames;
};

static void bench_output(void *arg, pkt_t *pkt, uint32_t port, uint64_t start_ps, uint64_t end_ps)
{
    (void)port, (void)start_ps, (void)end_ps;
    struct bench_sink *sink = arg;
    sink->frames++;
    sw_pkt_free(sink->sw, pkt);
}

uint64_t sw_bench(sw_t *sw, const uint8_t *const *frames, const uint32_t *lens, const uint16_t *ports, uint32_t n, uint64_t count,
                  uint64_t gap_ps, uint64_t *sent)
{
    struct bench_sink sink = {sw, 0};
    sw_output_fn output = sw->output;
    void *arg = sw->output_arg;
    sw_set_output(sw, bench_output, &sink);
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    uint64_t now = sw->now_ps;
    for (uint64_t i = 0, k = 0; i < count; i++, k = k + 1 == n ? 0 : k + 1) {
        sw_receive(sw, ports[k], frames[k], lens[k], now);
        now += gap_ps;
        if (gap_ps == 0)
            sw_advance(sw, now);
    }
    while (sw_next_deadline(sw) != TM_NEVER && sink.frames < count) {
        uint64_t due = sw_next_deadline(sw);
        sw_advance(sw, due);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    sw_set_output(sw, output == output_to_list ? NULL : output, arg);
    *sent = sink.frames;
    return (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)b.tv_nsec - (uint64_t)a.tv_nsec;
}
