/* Ids to text, whole and streamed. The first byte chooses the tokenizer and whether special tokens are left out; then two
 * bytes an id, little-endian, signed: some lie outside the map. */
#include "fuzz/tokenizers.h"

enum { FUZZ_BYTES_MAX = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct ids ids = {0};
    struct buf text = {0};
    if (n > FUZZ_BYTES_MAX) return 0;
    uint8_t flags = input_byte(&in);
    while (in.n > 0) {
        uint32_t low = input_byte(&in), high = input_byte(&in);
        ids_push(&ids, (int16_t)(high << 8 | low));
    }
    const struct tokenizer *t = fixed_tokenizer(flags % 8 % TOKENIZERS);
    claim(claim_decoding(t, &ids, flags & 8, &text) == 0, "%s", err_message());
    ids_free(&ids);
    buf_free(&text);
    return 0;
}
