/* The configuration file. The first byte chooses the command, the rest is the file. */
#include "cli/config_file.h"

#include <string.h>

#include "engine/engine.h"
#include "fuzz/fuzz.h"

enum { FUZZ_BYTES_MAX = 1024 };

static int parse(struct options *o, struct buf *text, enum command c, struct input in) {
    char name[] = "duet", command[16], *argv[3] = {name, command, NULL};
    snprintf(command, sizeof command, "%s", command_table[c].name);
    claim(options_parse_arguments(o, c ? 2 : 1, argv) == 0, "%s", err_message());
    buf_append(text, in.data, in.n);
    return config_file_parse(o, text, "FILE");
}

static void claim_points(const char *value, const struct buf *text) {
    claim(!value || strcmp(value, "auto") == 0 || (value >= text->data && value <= text->data + text->len),
          "'%s' is not of the file", value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct input in = {data, n};
    struct options o, again;
    struct buf text = {0}, other = {0};
    if (n > FUZZ_BYTES_MAX) return 0;
    enum command c = (enum command)(input_byte(&in) % COMMANDS);
    forget_error();
    int rc = parse(&o, &text, c, in);
    claim(parse(&again, &other, c, in) == rc, "twice gives two things");
    if (rc != 0) {
        claim(rc == ERR_USAGE, "the code %d", rc);
        claim_refusal(rc);
        claim(strncmp(err_message(), "FILE, line ", 11) == 0, "no place: %s", err_message());
    } else {
        claim(o.given == again.given, "twice gives two things");
        claim(!o.help && !o.version && !o.man && !o.completion && !o.config, "an option of one call");
        claim((o.k == K_AUTO || (o.k >= 0 && o.k <= K_MAX)) && sampling_check(&o.sampling) == 0, "%s", err_message());
        for (int i = 0; i < option_count; i++)
            claim(!(o.given >> i & 1) || option_table[i].commands >> c & 1, "--%s is none of this command",
                  option_table[i].name);
        claim_points(o.target, &text);
        claim_points(o.device, &text);
        claim_points(o.system, &text);
        for (int i = 0; i < o.stop_count; i++) claim_points(o.stop[i], &text);
    }
    buf_free(&text);
    buf_free(&other);
    return 0;
}
