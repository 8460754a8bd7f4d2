/* Memory of the switch core. See sw_store.h. */
#include "sw_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct sw_chunk {
    struct sw_chunk *next;
    uint64_t bytes;
};

/* Bytes for the frame, behind the headroom. The last class takes the largest frame and a header stack that grew it. */
static const uint32_t class_bytes[SW_SLAB_CLASSES] = {256, 2048, SW_MAX_FRAME_BYTES + 512};
static const uint32_t class_batch[SW_SLAB_CLASSES] = {128, 64, 16};

void sw_slab_init(sw_slab_t *s, uint32_t phv_bytes, uint32_t headroom_bytes, uint64_t limit_bytes)
{
    memset(s, 0, sizeof *s);
    s->phv_bytes = phv_bytes;
    s->head_bytes = (uint32_t)(sizeof(pkt_t) + phv_bytes + 63) & ~63u;
    s->headroom_bytes = ((headroom_bytes > PKT_HEADROOM ? headroom_bytes : PKT_HEADROOM) + 63) & ~63u;
    s->limit_bytes = limit_bytes;
}

void sw_slab_destroy(sw_slab_t *s)
{
    while (s->chunks) {
        struct sw_chunk *next = s->chunks->next;
        free(s->chunks);
        s->chunks = next;
    }
    memset(s->free_list, 0, sizeof s->free_list);
}

static bool grow(sw_slab_t *s, uint32_t class)
{
    uint64_t each = s->head_bytes + s->headroom_bytes + class_bytes[class];
    uint64_t bytes = 64 + each * class_batch[class];
    if (s->used_bytes + bytes > s->limit_bytes)
        return false;
    struct sw_chunk *c = aligned_alloc(64, (bytes + 63) & ~63ull);
    if (!c)
        return false;
    c->next = s->chunks;
    c->bytes = bytes;
    s->chunks = c;
    s->used_bytes += bytes;
    uint8_t *at = (uint8_t *)c + 64;
    for (uint32_t i = 0; i < class_batch[class]; i++, at += each) {
        pkt_t *pkt = (pkt_t *)at;
        pkt->buf = at + s->head_bytes;
        pkt->buf_bytes = s->headroom_bytes + class_bytes[class];
        pkt->next = s->free_list[class];
        s->free_list[class] = pkt;
    }
    return true;
}

pkt_t *sw_slab_get(sw_slab_t *s, uint32_t frame_bytes)
{
    uint32_t class = 0;
    while (class < SW_SLAB_CLASSES && class_bytes[class] < frame_bytes)
        class++;
#ifdef __SANITIZE_ADDRESS__
    /* Each packet an allocation of its own, as large as asked for, so that the sanitizer sees every byte out of bounds. */
    if (class == SW_SLAB_CLASSES)
        return NULL;
    uint32_t room = frame_bytes < 256 ? 256 : frame_bytes;
    pkt_t *fresh = malloc(s->head_bytes + s->headroom_bytes + room);
    if (!fresh)
        return NULL;
    fresh->buf = (uint8_t *)fresh + s->head_bytes;
    fresh->buf_bytes = s->headroom_bytes + room;
    fresh->next = NULL;
    fresh->data = fresh->buf + s->headroom_bytes;
    fresh->len = fresh->payload_offset = 0;
    s->live++;
    return fresh;
#endif
    if (class == SW_SLAB_CLASSES || (!s->free_list[class] && !grow(s, class)))
        return NULL;
    pkt_t *pkt = s->free_list[class];
    s->free_list[class] = pkt->next;
    pkt->next = NULL;
    pkt->data = pkt->buf + s->headroom_bytes;
    pkt->len = 0;
    pkt->payload_offset = 0;
    s->live++;
    return pkt;
}

void sw_slab_put(sw_slab_t *s, pkt_t *pkt)
{
#ifdef __SANITIZE_ADDRESS__
    s->live--;
    free(pkt);
    return;
#endif
    uint32_t class = 0;
    while (s->headroom_bytes + class_bytes[class] != pkt->buf_bytes)
        class++;
    pkt->next = s->free_list[class];
    s->free_list[class] = pkt;
    s->live--;
}

/* --- event ring ----------------------------------------------------------------------------------------------------- */

int sw_ring_init(sw_ring_t *r, uint64_t size)
{
    memset(r, 0, sizeof *r);
    r->size = size;
    r->bytes = malloc(size);
    r->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return r->bytes && r->event_fd >= 0 ? 0 : -1;
}

void sw_ring_destroy(sw_ring_t *r)
{
    free(r->bytes);
    r->bytes = NULL;
    if (r->event_fd >= 0)
        close(r->event_fd);
    r->event_fd = -1;
}

static void ring_copy_in(sw_ring_t *r, uint64_t at, const void *data, uint64_t n)
{
    uint64_t offset = at & (r->size - 1);
    uint64_t first = n < r->size - offset ? n : r->size - offset;
    memcpy(r->bytes + offset, data, first);
    memcpy(r->bytes, (const uint8_t *)data + first, n - first);
}

static void ring_copy_out(const sw_ring_t *r, uint64_t at, void *data, uint64_t n)
{
    uint64_t offset = at & (r->size - 1);
    uint64_t first = n < r->size - offset ? n : r->size - offset;
    memcpy(data, r->bytes + offset, first);
    memcpy((uint8_t *)data + first, r->bytes, n - first);
}

bool sw_ring_put(sw_ring_t *r, const sw_record_t *head, const uint8_t *data, uint64_t reserve)
{
    sw_record_t h = *head;
    uint64_t total = (sizeof h + h.data_bytes + 7) & ~7ull;
    if (r->tail - r->head + total + reserve > r->size) {
        r->lost++;
        return false;
    }
    h.total_bytes = (uint32_t)total;
    ring_copy_in(r, r->tail, &h, sizeof h);
    if (h.data_bytes)
        ring_copy_in(r, r->tail + sizeof h, data, h.data_bytes);
    bool was_empty = r->head == r->tail;
    r->tail += total;
    if (was_empty) {
        uint64_t one = 1;
        while (write(r->event_fd, &one, sizeof one) < 0 && errno == EINTR)
            ;
    }
    return true;
}

uint64_t sw_ring_take(sw_ring_t *r, uint8_t *out, uint64_t capacity)
{
    uint64_t n = 0;
    while (r->head != r->tail) {
        sw_record_t h;
        ring_copy_out(r, r->head, &h, sizeof h);
        if (n + h.total_bytes > capacity)
            break;
        ring_copy_out(r, r->head, out + n, h.total_bytes);
        r->head += h.total_bytes;
        n += h.total_bytes;
    }
    if (r->head == r->tail) {
        uint64_t count;
        while (read(r->event_fd, &count, sizeof count) < 0 && errno == EINTR)
            ;
    }
    return n;
}
