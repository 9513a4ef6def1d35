/* The page allocator against a list of what is out. The first byte is the number of pages; then a byte a step: pages are
 * taken, or given back from a place of the list, or one that is not out is given back. */
#include "model/kv_pages.h"

#include <string.h>

#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 256, PAGES_MAX = 64 };

struct ledger {
    struct kv_pages *pages;
    int count, out_count;
    int32_t out[PAGES_MAX]; /* what is taken */
};

static bool is_out(const struct ledger *l, int32_t page) {
    for (int i = 0; i < l->out_count; i++)
        if (l->out[i] == page) return true;
    return false;
}

static void take(struct ledger *l, int count) {
    int32_t got[PAGES_MAX];
    int free_pages = l->count - 1 - l->out_count;
    forget_error();
    int rc = kv_pages_take(l->pages, count, got);
    claim(rc == (count > free_pages ? ERR_BUSY : 0), "the code %d for %d of %d", rc, count, free_pages);
    if (rc != 0) {
        claim_refusal(rc);
        return;
    }
    for (int i = 0; i < count; i++) {
        claim(got[i] >= 1 && got[i] < l->count && !is_out(l, got[i]), "page %d", got[i]);
        claim(i == 0 || got[i - 1] < got[i], "page %d does not ascend", got[i]);
    }
    for (int i = 0; i < count; i++) l->out[l->out_count++] = got[i];
}

static void give(struct ledger *l, int first, int count) {
    if (l->out_count == 0) return;
    first %= l->out_count;
    if (count > l->out_count - first) count = l->out_count - first;
    kv_pages_give(l->pages, count, l->out + first);
    l->out_count -= count;
    memmove(l->out + first, l->out + first + count, (size_t)(l->out_count - first) * sizeof *l->out);
}

/* Said, and nothing else. */
static void give_wrong(struct ledger *l, int32_t page) {
    if (is_out(l, page)) return;
    forget_error();
    kv_pages_give(l->pages, 1, &page);
    claim(strstr(err_message(), "is given back but not taken"), "%s", err_message());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct ledger l = {.pages = (struct kv_pages *)&l};
    if (n > FUZZ_BYTES_MAX) return 0;
    l.count = input_byte(&in) % (PAGES_MAX + 1);
    forget_error();
    int rc = kv_pages_create(&l.pages, l.count);
    claim((rc == 0) == (l.count > 0) && (rc == 0) == (l.pages != NULL), "the code %d", rc);
    while (rc == 0 && in.n > 0) {
        int step = input_byte(&in);
        if (step & 0x80)
            give(&l, step & 7, step >> 3 & 15);
        else if (step & 0x40)
            give_wrong(&l, (step & 0x3f) - 1);
        else
            take(&l, step);
        claim(kv_pages_free_count(l.pages) == l.count - 1 - l.out_count, "%d are free", kv_pages_free_count(l.pages));
    }
    kv_pages_destroy(l.pages);
    return 0;
}
