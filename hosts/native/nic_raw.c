/* Frames that are nobody's here: LLDP and whatever else a program of the host sends and hears through the NIC. They wait in
 * the queue of their priority behind its gate, or, without a gate, behind PFC alone; what is received waits for who takes it. */
#include "nic_core.h"

#include <stdlib.h>
#include <string.h>

static void put(nic_raw_queue_t *queue, const uint8_t *frame, uint32_t len, uint64_t now)
{
    nic_raw_t *raw = malloc(sizeof *raw + len);
    if (!raw)
        abort();
    raw->next = NULL;
    raw->time_ps = now;
    raw->len = len;
    memcpy(raw->bytes, frame, len);
    if (queue->tail)
        queue->tail->next = raw;
    else
        queue->head = raw;
    queue->tail = raw;
    queue->count++;
}

static nic_raw_t *take(nic_raw_queue_t *queue)
{
    nic_raw_t *raw = queue->head;
    queue->head = raw->next;
    if (!queue->head)
        queue->tail = NULL;
    queue->count--;
    return raw;
}

void raw_free(nic_raw_queue_t *queue)
{
    while (queue->head)
        free(take(queue));
}

int nic_send_raw(nic_t *nic, const uint8_t *frame, uint32_t len, uint32_t priority, uint64_t now_ps, char *error,
                 size_t error_bytes)
{
    if (len < 14 || len > NIC_MAX_FRAME_BYTES)
        return refuse(error, error_bytes, "frame: %u bytes, must be 14..%u", len, NIC_MAX_FRAME_BYTES);
    if (priority > NIC_RAW_UNGATED)
        return refuse(error, error_bytes, "priority: %u is out of range, must be 0..7, or 8 for none", priority);
    nic_run(nic, now_ps, 0);
    nic_raw_queue_t *queue = &nic->raw[priority];
    if (nic->link_down || queue->count == NIC_RAW_MAX) {
        nic->stats.raw_tx_drop++;
        return 0;
    }
    put(queue, frame, len, now_ps);
    if (priority == NIC_RAW_UNGATED)
        nic_kick(nic, now_ps);
    else
        control_push(nic, priority, &(nic_control_t){.kind = CONTROL_RAW}, now_ps);
    return 1;
}

uint32_t raw_take(nic_t *nic, uint32_t queue)
{
    if (!nic->raw[queue].head)
        return 0; /* the link was down in between */
    nic_raw_t *raw = take(&nic->raw[queue]);
    uint32_t len = raw->len;
    memcpy(nic->tx, raw->bytes, len);
    free(raw);
    nic->stats.raw_tx++;
    return len;
}

void raw_flush(nic_t *nic)
{
    for (uint32_t i = 0; i <= NIC_RAW_UNGATED; i++) {
        nic->stats.raw_tx_drop += nic->raw[i].count;
        raw_free(&nic->raw[i]);
    }
}

void raw_rx(nic_t *nic, const uint8_t *frame, uint32_t len, uint64_t now)
{
    if (!(nic->config.events_mask >> NIC_EVENT_RAW & 1))
        return;
    if (nic->received.count == NIC_RAW_MAX) {
        nic->stats.raw_rx_lost++;
        return;
    }
    put(&nic->received, frame, len, now);
    nic->stats.raw_rx++;
    nic_event(nic, NIC_EVENT_RAW, get16(frame + 12), len, now);
}

uint32_t nic_take_raw(nic_t *nic, uint8_t *frame, uint32_t room, uint64_t *time_ps)
{
    if (!nic->received.head || nic->received.head->len > room)
        return 0;
    nic_raw_t *raw = take(&nic->received);
    uint32_t len = raw->len;
    memcpy(frame, raw->bytes, len);
    *time_ps = raw->time_ps;
    free(raw);
    return len;
}
