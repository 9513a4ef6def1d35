/* config.json, behind a NUL byte generation_config.json (without one it is not there), and the table of positions. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/configs.h"

enum { FUZZ_BYTES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct model_config c;
    if (n > FUZZ_BYTES_MAX) return 0;
    int mark = files_mark();
    struct input config = input_until(&in, '\0');
    fuzz_write("config.json", config.data, config.n);
    if (in.n > 0)
        fuzz_write("generation_config.json", in.data, in.n);
    else
        fuzz_remove("generation_config.json");
    forget_error();
    int rc = checkpoint_config(fuzz_checkpoint(), &c);
    if (rc == 0) {
        claim_config(&c);
    } else {
        claim_refusal(rc);
        claim(strncmp(err_message(), fuzz_dir(), strlen(fuzz_dir())) == 0, "no file is named: %s", err_message());
    }
    claim_files_closed(mark);
    return 0;
}
