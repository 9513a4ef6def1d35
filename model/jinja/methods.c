/* Methods of strings and of mappings, as Python has them. */
#include <string.h>
#include <utf8proc.h>

#include "model/jinja/internal.h"

/* --- white space and case ---------------------------------------------------------------------------------------- */

/* Python's white space, which has four separators more than Unicode's. */
static bool is_space(uint32_t c) {
    return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Is the character at `at` one that strip takes? */
static bool is_stripped(struct jinja_text t, size_t at, size_t length, const struct jinja_text *set) {
    uint32_t c;
    size_t found;
    if (set) return jinja_find(*set, jinja_part(t, at, length), 0, &found);
    return utf8_decode(t.bytes + at, length, &c) > 0 && is_space(c);
}

/* Where the last character begins. */
static size_t last_character(struct jinja_text t) {
    size_t at = t.n - 1;
    while (at > 0 && t.n - at < 4 && ((unsigned char)t.bytes[at] & 0xc0) == 0x80) at--;
    return at + jinja_character(t, at) == t.n ? at : t.n - 1;
}

struct jinja_text jinja_strip(struct jinja_text t, const struct jinja_text *set, bool left, bool right) {
    while (left && t.n > 0) {
        const size_t length = jinja_character(t, 0);
        if (!is_stripped(t, 0, length, set)) break;
        t = jinja_part(t, length, t.n - length);
    }
    while (right && t.n > 0) {
        const size_t at = last_character(t);
        if (!is_stripped(t, at, t.n - at, set)) break;
        t.n = at;
    }
    return t;
}

static bool is_letter(uint32_t c) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

enum letter_case { LOWER, UPPER, CAPITAL, TITLE, WORDS };

static struct jinja_value in_case(struct jinja_run *run, struct jinja_text t, enum letter_case how) {
    struct jinja_out out = {.arena = &run->arena};
    bool is_first = true;
    for (size_t at = 0, length; at < t.n; at += length) {
        uint32_t c;
        char bytes[4];
        length = jinja_character(t, at);
        struct jinja_text one = jinja_part(t, at, length);
        if (utf8_decode(one.bytes, length, &c) > 0) {
            const bool is_upper = how == UPPER || (how != LOWER && is_first);
            const utf8proc_int32_t to =
                is_upper ? utf8proc_toupper((utf8proc_int32_t)c) : utf8proc_tolower((utf8proc_int32_t)c);
            is_first = how == TITLE ? !is_letter(c)
                                    : how == WORDS && (is_space(c) || (c < 128 && c && strchr("-({[<", (int)c)));
            const char plain[4] = {1, 1, 1, 1};
            const size_t n = (size_t)utf8_encode((uint32_t)to, bytes);
            one = (struct jinja_text){bytes, one.plain && one.plain[0] ? plain : NULL, n};
            jinja_add(&out, one);
            continue;
        }
        jinja_add(&out, one);
    }
    return jinja_string(jinja_take(&out));
}

/* --- arguments --------------------------------------------------------------------------------------------------- */

static int need_text(const struct jinja_call *c, int i, const char *what) {
    if (c->at[i].type == JINJA_TEXT) return 0;
    return err_set(ERR_FORMAT, "'%s' takes a string, not %s", what, jinja_type_name(c->at[i]));
}

/* An integer, if one is given. */
static int take_count(const struct jinja_call *c, int i, const char *what, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (!c->given[i] || c->at[i].type == JINJA_NONE) return 0;
    if (c->at[i].type != JINJA_INT)
        return err_set(ERR_FORMAT, "'%s' takes an integer, not %s", what, jinja_type_name(c->at[i]));
    *out = c->at[i].integer;
    return 0;
}

/* --- of strings -------------------------------------------------------------------------------------------------- */

static int strip(const struct jinja_call *c, bool left, bool right, struct jinja_value *out) {
    const bool has_set = c->given[0] && c->at[0].type != JINJA_NONE;
    if (has_set) TRY(need_text(c, 0, "strip"));
    *out = jinja_string(jinja_strip(c->self.text, has_set ? &c->at[0].text : NULL, left, right));
    return 0;
}
static int run_strip(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return strip(c, true, true, out);
}
static int run_lstrip(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return strip(c, true, false, out);
}
static int run_rstrip(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return strip(c, false, true, out);
}

static int run_lower(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = in_case(run, c->self.text, LOWER);
    return 0;
}
static int run_upper(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = in_case(run, c->self.text, UPPER);
    return 0;
}
static int run_capitalize(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = in_case(run, c->self.text, CAPITAL);
    return 0;
}
static int run_title(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = in_case(run, c->self.text, TITLE);
    return 0;
}

/* Jinja's filter: a word begins behind white space, a hyphen or an opening bracket. */
struct jinja_value jinja_title(struct jinja_run *run, struct jinja_text t) {
    return in_case(run, t, WORDS);
}

static int run_format(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    return jinja_format_braces(run, c->self.text, c->at[0].list, c->at[1].dict, out);
}

static bool has_at(struct jinja_text t, struct jinja_text word, bool at_end) {
    if (word.n > t.n) return false;
    return jinja_same_text(jinja_part(t, at_end ? t.n - word.n : 0, word.n), word);
}

/* A word, or one of a tuple. */
static int affix(const struct jinja_call *c, bool at_end, struct jinja_value *out) {
    bool is_so = false;
    if (c->at[0].type == JINJA_TUPLE)
        for (size_t i = 0; i < c->at[0].list->n; i++) {
            const struct jinja_value word = c->at[0].list->items[i];
            is_so |= word.type == JINJA_TEXT && has_at(c->self.text, word.text, at_end);
        }
    else {
        TRY(need_text(c, 0, at_end ? "endswith" : "startswith"));
        is_so = has_at(c->self.text, c->at[0].text, at_end);
    }
    *out = jinja_bool(is_so);
    return 0;
}
static int run_startswith(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return affix(c, false, out);
}
static int run_endswith(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return affix(c, true, out);
}
static int run_removeprefix(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    const struct jinja_text t = c->self.text;
    (void)run;
    TRY(need_text(c, 0, "removeprefix"));
    const size_t n = has_at(t, c->at[0].text, false) ? c->at[0].text.n : 0;
    *out = jinja_string(jinja_part(t, n, t.n - n));
    return 0;
}
static int run_removesuffix(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    const struct jinja_text t = c->self.text;
    (void)run;
    TRY(need_text(c, 0, "removesuffix"));
    *out = jinja_string(jinja_part(t, 0, has_at(t, c->at[0].text, true) ? t.n - c->at[0].text.n : t.n));
    return 0;
}

/* The words between white space: `most` cuts at most, the rest is the last word. */
static void split_blank(struct jinja_run *run, struct jinja_text t, int64_t most, struct jinja_list *list) {
    for (t = jinja_strip(t, NULL, true, false); t.n > 0; t = jinja_strip(t, NULL, true, false)) {
        size_t n = 0;
        while (n < t.n && !is_stripped(t, n, jinja_character(t, n), NULL)) n += jinja_character(t, n);
        if (most >= 0 && (int64_t)list->n == most) n = jinja_strip(t, NULL, false, true).n;
        jinja_push(&run->arena, list, jinja_string(jinja_part(t, 0, n)));
        if (most >= 0 && (int64_t)list->n > most) return;
        t = jinja_part(t, n, t.n - n);
    }
}

static int run_split(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_text t = c->self.text;
    int64_t most;
    size_t at;
    TRY(take_count(c, 1, "split", -1, &most));
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    if (!c->given[0] || c->at[0].type == JINJA_NONE) {
        split_blank(run, t, most, out->list);
        return 0;
    }
    TRY(need_text(c, 0, "split"));
    const struct jinja_text word = c->at[0].text;
    if (word.n == 0) return err_set(ERR_FORMAT, "'split' takes a string that is not empty");
    TRY(jinja_room(run, t.n / word.n, 2 * sizeof *out));
    for (; (most < 0 || (int64_t)out->list->n < most) && jinja_find(t, word, 0, &at);
         t = jinja_part(t, at + word.n, t.n - at - word.n))
        jinja_push(&run->arena, out->list, jinja_string(jinja_part(t, 0, at)));
    jinja_push(&run->arena, out->list, jinja_string(t));
    return 0;
}

/* Where a word stands last before `end`. */
static bool find_last(struct jinja_text t, struct jinja_text word, size_t *at) {
    if (word.n > t.n) return false;
    for (*at = t.n - word.n + 1; (*at)-- > 0;)
        if (jinja_same_text(jinja_part(t, *at, word.n), word)) return true;
    return false;
}

static int run_rsplit(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_text t = c->self.text;
    struct jinja_list parts = {0};
    int64_t most;
    size_t at;
    TRY(take_count(c, 1, "rsplit", -1, &most));
    if (most < 0) return run_split(run, c, out);
    TRY(need_text(c, 0, "rsplit"));
    if (c->at[0].text.n == 0) return err_set(ERR_FORMAT, "'rsplit' takes a string that is not empty");
    for (; (int64_t)parts.n < most && find_last(t, c->at[0].text, &at); t = jinja_part(t, 0, at))
        jinja_push(&run->arena, &parts, jinja_string(jinja_part(t, at + c->at[0].text.n, t.n - at - c->at[0].text.n)));
    jinja_push(&run->arena, &parts, jinja_string(t));
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    while (parts.n > 0) jinja_push(&run->arena, out->list, parts.items[--parts.n]);
    return 0;
}

static int run_splitlines(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_text t = c->self.text;
    const bool keeps_ends = jinja_true(c->at[0]);
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    while (t.n > 0) {
        size_t n = 0;
        while (n < t.n && t.bytes[n] != '\n' && t.bytes[n] != '\r') n++;
        const size_t end = n < t.n ? n + (t.bytes[n] == '\r' && n + 1 < t.n && t.bytes[n + 1] == '\n' ? 2 : 1) : n;
        jinja_push(&run->arena, out->list, jinja_string(jinja_part(t, 0, keeps_ends ? end : n)));
        t = jinja_part(t, end, t.n - end);
    }
    return 0;
}

static int run_replace(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_out text = {.arena = &run->arena};
    struct jinja_text t = c->self.text;
    int64_t most, count = 0;
    size_t at;
    TRY(need_text(c, 0, "replace"));
    TRY(need_text(c, 1, "replace"));
    TRY(take_count(c, 2, "replace", -1, &most));
    const struct jinja_text old = c->at[0].text, new = c->at[1].text;
    TRY(jinja_room(run, t.n / (old.n ? old.n : 1) + 1, new.n + 1));
    for (; (most < 0 || count < most) && jinja_find(t, old, 0, &at); count++) {
        if (old.n == 0) at = count > 0 && t.n > 0 ? jinja_character(t, 0) : 0;
        jinja_add(&text, jinja_part(t, 0, at));
        jinja_add(&text, new);
        t = jinja_part(t, at + old.n, t.n - at - old.n);
        if (old.n == 0 && t.n == 0) break;
    }
    jinja_add(&text, t);
    *out = jinja_string(jinja_take(&text));
    return 0;
}

static int run_find(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    size_t at;
    (void)run;
    TRY(need_text(c, 0, "find"));
    const bool is_there = jinja_find(c->self.text, c->at[0].text, 0, &at);
    *out = jinja_int(is_there ? (int64_t)jinja_characters(jinja_part(c->self.text, 0, at)) : -1);
    return 0;
}
static int run_rfind(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    size_t at;
    (void)run;
    TRY(need_text(c, 0, "rfind"));
    const bool is_there = find_last(c->self.text, c->at[0].text, &at);
    *out = jinja_int(is_there ? (int64_t)jinja_characters(jinja_part(c->self.text, 0, at)) : -1);
    return 0;
}

static int run_count(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    int64_t count = 0;
    (void)run;
    TRY(need_text(c, 0, "count"));
    const struct jinja_text word = c->at[0].text;
    if (word.n == 0) count = (int64_t)jinja_characters(c->self.text) + 1;
    for (size_t at = 0; word.n > 0 && jinja_find(c->self.text, word, at, &at); at += word.n) count++;
    *out = jinja_int(count);
    return 0;
}

static int run_join(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    struct jinja_out text = {.arena = &run->arena};
    struct jinja_list *items;
    TRY(jinja_items(run, c->at[0], &items));
    TRY(jinja_room(run, items->n, c->self.text.n + 1));
    for (size_t i = 0; i < items->n; i++) {
        if (items->items[i].type != JINJA_TEXT)
            return err_set(ERR_FORMAT, "'join' takes strings, not %s", jinja_type_name(items->items[i]));
        if (i > 0) jinja_add(&text, c->self.text);
        jinja_add(&text, items->items[i].text);
        TRY(jinja_step(run));
    }
    *out = jinja_string(jinja_take(&text));
    return 0;
}

/* Are all characters of a kind, and is there one? */
static int all_are(const struct jinja_call *c, bool letters, bool digits, struct jinja_value *out) {
    const struct jinja_text t = c->self.text;
    bool is_so = t.n > 0;
    for (size_t at = 0; at < t.n && is_so; at += jinja_character(t, at)) {
        uint32_t code;
        is_so = utf8_decode(t.bytes + at, t.n - at, &code) > 0 &&
                ((letters && is_letter(code)) ||
                 (digits && utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND));
    }
    *out = jinja_bool(is_so);
    return 0;
}
static int run_isalpha(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return all_are(c, true, false, out);
}
static int run_isdigit(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return all_are(c, false, true, out);
}
static int run_isalnum(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    (void)run;
    return all_are(c, true, true, out);
}

/* --- of mappings ------------------------------------------------------------------------------------------------- */

static int run_get(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    const struct jinja_value *found = jinja_get(c->self.dict, c->at[0]);
    (void)run;
    *out = found ? *found : c->given[1] ? c->at[1] : jinja_none();
    return 0;
}

static int run_keys(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < c->self.dict->n; i++) jinja_push(&run->arena, out->list, c->self.dict->pairs[i].key);
    return 0;
}
static int run_values(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < c->self.dict->n; i++) jinja_push(&run->arena, out->list, c->self.dict->pairs[i].value);
    return 0;
}
static int run_items(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    *out = jinja_new_list(&run->arena, JINJA_LIST);
    for (size_t i = 0; i < c->self.dict->n; i++) {
        struct jinja_value pair = jinja_new_list(&run->arena, JINJA_TUPLE);
        jinja_push(&run->arena, pair.list, c->self.dict->pairs[i].key);
        jinja_push(&run->arena, pair.list, c->self.dict->pairs[i].value);
        jinja_push(&run->arena, out->list, pair);
    }
    return 0;
}

static int run_list_count(struct jinja_run *run, const struct jinja_call *c, struct jinja_value *out) {
    int64_t count = 0;
    for (size_t i = 0; i < c->self.list->n; i++)
        count += jinja_equal(c->self.list->items[i], c->at[0], &run->steps_left);
    *out = jinja_int(count);
    return 0;
}

const struct jinja_function *jinja_method_find(enum jinja_type of, struct jinja_text name) {
    static const struct jinja_function texts[] = {{"strip", "chars", run_strip},
                                                  {"lstrip", "chars", run_lstrip},
                                                  {"rstrip", "chars", run_rstrip},
                                                  {"lower", "", run_lower},
                                                  {"upper", "", run_upper},
                                                  {"capitalize", "", run_capitalize},
                                                  {"title", "", run_title},
                                                  {"startswith", "prefix", run_startswith},
                                                  {"endswith", "suffix", run_endswith},
                                                  {"removeprefix", "prefix", run_removeprefix},
                                                  {"removesuffix", "suffix", run_removesuffix},
                                                  {"split", "sep maxsplit", run_split},
                                                  {"rsplit", "sep maxsplit", run_rsplit},
                                                  {"splitlines", "keepends", run_splitlines},
                                                  {"replace", "old new count", run_replace},
                                                  {"find", "sub", run_find},
                                                  {"rfind", "sub", run_rfind},
                                                  {"count", "sub", run_count},
                                                  {"join", "iterable", run_join},
                                                  {"format", NULL, run_format},
                                                  {"isalpha", "", run_isalpha},
                                                  {"isdigit", "", run_isdigit},
                                                  {"isalnum", "", run_isalnum}};
    static const struct jinja_function dicts[] = {
        {"get", "key default", run_get}, {"keys", "", run_keys}, {"values", "", run_values}, {"items", "", run_items}};
    static const struct jinja_function lists[] = {{"count", "value", run_list_count}};
    const bool is_list = of == JINJA_LIST || of == JINJA_TUPLE;
    const struct jinja_function *all = of == JINJA_TEXT ? texts : of == JINJA_DICT ? dicts : lists;
    size_t n = of == JINJA_TEXT   ? sizeof texts / sizeof *texts
               : of == JINJA_DICT ? sizeof dicts / sizeof *dicts
               : is_list          ? 1
                                  : 0;
    for (size_t i = 0; i < n; i++)
        if (jinja_is(name, all[i].name)) return &all[i];
    return NULL;
}
