/* duet bench peers: what is installed beside duet, on the same models, in the same run. python3 runs assets/peers.py, which says what
 * it expects and writes; what is missing is a sentence. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/json_number.h"
#include "cli/bench_tables.h"
#include "model/files/shape.h"

extern char **environ;

enum { ENGINES_MAX = PLOT_COLORS };
static const char OWN[] = "duet";

/* --- duet itself --------------------------------------------------------------------------------------------- */

static struct peer_row *add_row(struct peers_bench *r, const char *name, int k) {
    struct peer_row *row = &r->rows[r->count++];
    *row = (struct peer_row){.k = k};
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

static int measure_own(const struct bench *b, struct peers_bench *r, int k) {
    struct bench_run run;
    cli_note("duet, K = %d", k);
    TRY(bench_generate(b->engine, &b->prompts, b->o, k, &run));
    struct peer_row *row = add_row(r, OWN, k);
    row->round_ms = run.round_ms;
    row->tokens = k > 0 ? acceptance_mean_length(&run.stats) : 1;
    row->rate = bench_rate(&run);
    return 0;
}

static int measure_duet(const struct bench *b, struct peers_bench *r) {
    TRY(probe_set_timing(b->engine, 0));
    TRY(measure_own(b, r, 0));
    for (int i = 0; i < b->o->k_count; i++)
        if (b->o->ks[i] > 0 && b->o->ks[i] <= engine_info(b->engine).k_max) TRY(measure_own(b, r, b->o->ks[i]));
    return 0;
}

/* --- the request ---------------------------------------------------------------------------------------------- */

/* {"config": ...} of a shape, {"directory": ...} of files. */
static int put_model(struct buf *out, const char *name, const struct checkpoint *c, bool is_shape) {
    json_put_name(out, name);
    if (!c) {
        buf_puts(out, "null");
        return 0;
    }
    buf_putc(out, '{');
    json_put_name(out, is_shape ? "config" : "directory");
    if (is_shape)
        TRY(model_shape_text(out, checkpoint_name(c)));
    else
        json_put_string(out, checkpoint_name(c), strlen(checkpoint_name(c)));
    buf_putc(out, '}');
    return 0;
}

static void put_number(struct buf *out, const char *name, double value) {
    json_put_name(out, name);
    json_put_number(out, value);
}

static int put_request(struct buf *out, const struct bench *b) {
    const struct options *o = b->o;
    const char *device = engine_info(b->engine).is_async ? "cuda" : "cpu";
    buf_putc(out, '{');
    json_put_name(out, "device"), json_put_string(out, device, strlen(device));
    put_number(out, "gpu", o->gpu);
    put_number(out, "threads", o->threads);
    TRY(put_model(out, "target", b->models.target, o->shape != NULL));
    TRY(put_model(out, "draft", b->models.draft, o->shape != NULL));
    put_number(out, "batch", o->batch);
    json_put_name(out, "ks");
    buf_putc(out, '[');
    for (int i = 0; i < o->k_count; i++)
        if (o->ks[i] > 0) json_put_element(out), json_put_number(out, o->ks[i]);
    buf_putc(out, ']');
    json_put_name(out, "prompt");
    put_json_ids(out, b->prompts.ids[0].data, b->prompts.ids[0].len);
    put_number(out, "max_tokens", b->prompts.max_tokens[0]);
    put_number(out, "temperature", json_number_of_float(o->sampling.temperature));
    buf_putc(out, '}');
    return 0;
}

/* --- the answer ----------------------------------------------------------------------------------------------- */

static bool get_text(const cJSON *object, const char *name, struct buf *out) {
    buf_clear(out);
    return json_string(json_get(object, name), out);
}

static int read_row(struct peers_bench *r, const cJSON *object, const char *peer, int batch, double alpha) {
    int64_t k;
    double round_ms, tokens;
    TRY(json_get_int(object, "k", -1, 0, K_MAX, &k));
    if (r->count == PEER_ROWS_MAX || k < 0 || !json_number(json_get(object, "round_ms"), &round_ms) ||
        !json_number(json_get(object, "tokens_per_round"), &tokens) || !(round_ms > 0))
        return err_set(ERR_FORMAT, "a row of '%s' lacks its figures", peer);
    struct peer_row *row = add_row(r, peer, (int)k);
    row->round_ms = round_ms;
    row->tokens = alpha > 0 && k > 0 ? acceptance_predicted_length(alpha, (int)k) : tokens;
    row->rate = batch * row->tokens / round_ms * 1e3;
    return 0;
}

int bench_peers_read(struct peers_bench *r, const char *line, int batch, double alpha) {
    struct buf peer = {0}, text = {0};
    cJSON *object = NULL;
    int rc = json_parse(&object, line, strlen(line));
    if (rc == 0 && get_text(object, "note", &text))
        cli_note("%s", buf_text(&text));
    else if (rc == 0 && !get_text(object, "peer", &peer))
        rc = err_set(ERR_FORMAT, "neither a peer nor a note");
    else if (rc == 0 && get_text(object, "skipped", &text))
        buf_printf(&r->missing, "%s: skipped, %s.\n", buf_text(&peer), buf_text(&text));
    else if (rc == 0)
        rc = read_row(r, object, buf_text(&peer), batch, alpha);
    cJSON_Delete(object);
    buf_free(&peer);
    buf_free(&text);
    return rc;
}

/* --- python3 --------------------------------------------------------------------------------------------------- */

/* Starts it with its output in a pipe; nothing of what packages say on standard error is ours. An errno, or 0. */
static int spawn(const char *script, const char *request, pid_t *pid, int *out) {
    char *const arguments[] = {"python3", (char *)script, (char *)request, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2];
    if (pipe(ends) != 0) return errno;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc == 0) {
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_addclose(&actions, ends[0]);
        rc = posix_spawnp(pid, arguments[0], &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    *out = ends[0];
    if (rc != 0) close(ends[0]);
    return rc;
}

/* Lines up to the end of its output. A line that is not the script's own, as of a package that prints, is passed over. */
static int read_lines(struct peers_bench *r, int fd, int batch, double alpha) {
    FILE *in = fdopen(fd, "r");
    char *line = NULL;
    size_t size = 0;
    if (!in) {
        close(fd);
        return err_set(ERR_MEMORY, "out of memory for a pipe");
    }
    while (getline(&line, &size, in) >= 0)
        if (*line == '{') (void)bench_peers_read(r, line, batch, alpha);
    free(line);
    fclose(in);
    return 0;
}

/* At a sudden end of duet the script ends too. */
static void end_script(void *pid) {
    kill(*(const pid_t *)pid, SIGTERM);
}

static void note_end(struct peers_bench *r, const char *script, int status) {
    if (status == 0) return;
    const bool by_signal = WIFSIGNALED(status);
    buf_printf(&r->missing, "%s ended before its time, with %s %d; what it had measured is above.\n", script,
               by_signal ? "signal" : "status", by_signal ? WTERMSIG(status) : WEXITSTATUS(status));
}

static int run_script(const struct options *o, struct peers_bench *r, const char *script, const char *request) {
    static pid_t pid;
    int fd = -1, status = 0, reason = spawn(script, request, &pid, &fd);
    if (reason == ENOENT) {
        buf_puts(&r->missing, "PyTorch and transformers: skipped, there is no python3.\n");
        return 0;
    }
    if (reason != 0) return err_set(ERR_IO, "python3: %s", strerror(reason));
    signals_set_last_words(end_script, &pid);
    int rc = read_lines(r, fd, o->batch, (double)o->simulate_alpha);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    signals_set_last_words(NULL, NULL);
    note_end(r, script, status);
    return rc;
}

/* --- the table ------------------------------------------------------------------------------------------------- */

static void show(struct sheet *s, const struct options *o, const struct peers_bench *r) {
    static const struct sheet_column columns[] = {{"engine", "engine"},        {"K", "k"},
                                                  {"round ms", "round_ms"},    {"tokens a round", "tokens_per_round"},
                                                  {"tok/s", "tok_per_second"}, {"times", "times_duet_plain"}};
    struct table *t = sheet_add_table(s, "engines", columns, "lrrrrr", "3");
    struct lines lines = lines_of(&r->missing);
    struct buf sentence = {0};
    const char *line;
    size_t n;
    for (int i = 0; i < r->count; i++) {
        const struct peer_row *row = &r->rows[i];
        table_add(t, "%s", row->name);
        table_add(t, "%d", row->k);
        sheet_add_figure(t, row->round_ms, 4);
        sheet_add_figure(t, row->tokens, 3);
        sheet_add_figure(t, row->rate, 1);
        sheet_add_figure(t, row->rate / r->rows[0].rate, 3);
    }
    while (lines_next(&lines, &line, &n)) {
        buf_clear(&sentence);
        buf_append(&sentence, line, n);
        sheet_note_missing(s, buf_text(&sentence));
    }
    buf_free(&sentence);
    sheet_note(
        s, "times: of duet's tokens a second at K = 0. PyTorch's decoder has random weights, and reads as many bytes.");
    sheet_show(s, o);
}

/* Bars by K, an engine a colour. */
static int draw(struct bench *b, const struct peers_bench *r) {
    static double k[PEER_ROWS_MAX], rate[PEER_ROWS_MAX];
    struct plot_series bars[ENGINES_MAX];
    int count = 0;
    for (int i = 0; i < r->count; i++) {
        k[i] = r->rows[i].k, rate[i] = r->rows[i].rate;
        if (i > 0 && strcmp(r->rows[i].name, r->rows[i - 1].name) == 0)
            bars[count - 1].count++;
        else if (count < ENGINES_MAX)
            bars[count] = (struct plot_series){r->rows[i].name, PLOT_BARS, count, &k[i], &rate[i], NULL, 1}, count++;
    }
    const struct plot_panel panel = {"tokens a second", "K, tokens drafted a round", "tok/s", bars, count, NAN};
    return bench_draw(b, "duet and what is installed beside it", &panel, 1);
}

/* The engine gives its memory back before the others start. */
int bench_peers(struct bench *b) {
    static struct peers_bench r;
    struct sheet s = {0};
    struct buf request = {0}, script = {0};
    r = (struct peers_bench){0};
    bench_describe(&s, b, 0);
    int rc = models_find_file(&script, "peers.py");
    if (rc == 0) rc = measure_duet(b, &r);
    if (rc == 0) rc = put_request(&request, b);
    engine_destroy(b->engine);
    b->engine = NULL;
    if (rc == 0) rc = run_script(b->o, &r, buf_text(&script), buf_text(&request));
    if (rc == 0) show(&s, b->o, &r);
    if (rc == 0) rc = draw(b, &r);
    sheet_free(&s);
    buf_free(&request);
    buf_free(&script);
    buf_free(&r.missing);
    return rc;
}
