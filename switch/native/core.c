/* Switch core. See core.h. The order of what a packet's requests do is simple_switch's (clone, digest, resubmit, multicast,
 * drop, unicast); a digest leaves by digest_sink while its control ends. */
#include "core.h"

#include <string.h>

static inline uint64_t get(const pkt_t *pkt, sw_bind_t b, uint64_t otherwise) { return b.cell < 0 ? otherwise : pkt->phv[b.cell]; }

static inline void set(pkt_t *pkt, sw_bind_t b, uint64_t value)
{
    if (b.cell >= 0)
        pkt->phv[b.cell] = value & b.mask;
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
static void make_cnm(sw_t *sw, const pkt_t *sampled, uint64_t now_ps);

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
    pkt->priority = tm_valid ? (uint8_t)get(pkt, sw->f.tm_priority, pkt->queue) & 7 : pkt->queue;
    pkt->pg = tm_valid ? (uint8_t)get(pkt, sw->f.tm_pg, 0) & 7 : 0;
    pkt->lossless = tm_valid && get(pkt, sw->f.tm_lossless, 0);
    pkt->unsampled = (uint8_t)get(pkt, sw->f.tm_cnm_request, 0);
    const tm_queue_t *q = &sw->tm->ports[port].queues[pkt->queue];
    set(pkt, sw->f.enq_timestamp, now_ps / 1000000);
    set(pkt, sw->f.enq_qdepth, q->packets);
    set(pkt, sw->f.tm_enq_depth, q->bytes);
    if (tm_enqueue(sw->tm, pkt, now_ps)) {
        sw->stats.tm_dropped++;
        sw_pkt_free(sw, pkt);
    } else if (sw->tm->cnm.due) {
        make_cnm(sw, pkt, now_ps);
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

/* The beginning of the sampled frame as it came in, for the port that it came in on. A program that knows no CNMs makes none. */
static void make_cnm(sw_t *sw, const pkt_t *sampled, uint64_t now_ps)
{
    const tm_cnm_t cnm = sw->tm->cnm;
    sw->tm->cnm.due = 0;
    if (sw->f.tm_cnm_request.cell < 0 || sampled->in_port == sw->cpu_port)
        return;
    pkt_t *pkt = copy_frame(sw, sampled);
    if (!pkt)
        return;
    if (pkt->len > SW_CNM_COPY_BYTES)
        pkt->len = SW_CNM_COPY_BYTES;
    sw->program->reset_phv(pkt);
    parse_as(sw, pkt, INSTANCE_TM_CNM, now_ps);
    request_clear(&pkt->req, UINT32_MAX);
    set(pkt, sw->f.priority, cnm.priority);
    set(pkt, sw->f.tm_valid, 1);
    set(pkt, sw->f.tm_priority, cnm.priority);
    set(pkt, sw->f.tm_cnm_request, 1);
    set(pkt, sw->f.tm_cnm_qfb, cnm.qfb);
    set(pkt, sw->f.tm_cnm_priority, sampled->priority);
    set(pkt, sw->f.tm_cnm_qoff, (uint64_t)(int64_t)cnm.qoff);
    set(pkt, sw->f.tm_cnm_qdelta, (uint64_t)(int64_t)cnm.qdelta);
    set(pkt, sw->f.tm_cnm_cpid, cnm.cpid);
    enqueue(sw, pkt, sampled->in_port, now_ps);
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
        uint32_t vector = (uint32_t)get(pkt, sw->f.tm_pause_vector, 0), forever = (uint32_t)get(pkt, sw->f.tm_pause_forever, 0);
        tm_pause(sw->tm, pkt->in_port, vector, forever, times, now_ps);
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

/* An empty packet that the program turns into a packet-in. A program that knows no events hears nothing of them. */
static void make_event(sw_t *sw, const tm_service_t *service)
{
    if (sw->f.tm_event.cell < 0)
        return;
    pkt_t *pkt = sw_slab_get(&sw->slab, 0);
    if (!pkt) {
        tm_count_drop(sw->tm, TM_DROP_RX, service->port * TM_QUEUES + TM_RX_NO_MEMORY, 1, 0);
        return;
    }
    sw->stats.events_made++;
    sw->program->reset_phv(pkt);
    request_clear(&pkt->req, UINT32_MAX);
    pkt->in_port = service->port;
    pkt->out_port = (uint16_t)sw->cpu_port;
    pkt->enq_ps = service->start_ps;
    set(pkt, sw->f.instance_type, INSTANCE_TM_EVENT);
    set(pkt, sw->f.tm_valid, 1);
    set(pkt, sw->f.tm_event, service->event);
    set(pkt, sw->f.tm_event_port, service->port);
    set(pkt, sw->f.tm_event_priority, service->priority);
    tm_service_t now = {.start_ps = service->start_ps, .port = (uint16_t)sw->cpu_port};
    egress(sw, pkt, &now, service->start_ps);
}

void sw_free_flushed(sw_t *sw)
{
    pkt_t *list = tm_flushed(sw->tm);
    for (const pkt_t *p = list; p; p = p->next)
        sw->stats.tm_dropped++;
    sw_free_list(sw, list);
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
        if (service.event) {
            sw_free_flushed(sw);
            make_event(sw, &service);
        } else if (service.pkt) {
            dequeued(sw, &service);
        } else {
            make_pfc(sw, &service);
        }
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
    sw_free_list(sw, list);
    return 0;
}
