/* Components of tokenizer.json, one by one, by tokenizers of a few words. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/tokenizer_support.h"

/* --- components, by tokenizers of a few words --------------------------------------------------------------- */

static void put_entry(struct buf *vocab, const char *text, size_t n, int *id) {
    struct buf quoted = {0};
    json_put_string(&quoted, text, n);
    buf_puts(&quoted, ":");
    if (!memmem(buf_text(vocab), vocab->len, quoted.data, quoted.len))
        buf_printf(vocab, "%s%s%d", *id > 0 ? "," : "", quoted.data, *id), ++*id;
    buf_free(&quoted);
}

/* A tokenizer.json with `parts`, whose vocabulary is the pieces of `expected` (separated by '|', those in <> left to
 * added_tokens) and every character of both strings, and which takes a piece as a whole where it can. */
static struct tokenizer *load_pieces(const char *parts, const char *text, const char *expected) {
    struct buf json = {0}, vocab = {0};
    int id = 0;
    for (const char *at = expected; *at;) {
        size_t n = strcspn(at, "|");
        if (n > 0 && at[0] != '<') put_entry(&vocab, at, n, &id);
        at += n + (at[n] == '|');
    }
    const char *const sources[] = {text, expected};
    for (int i = 0; i < 2; i++)
        for (size_t at = 0, n = strlen(sources[i]), length; at < n; at += length) {
            uint32_t c;
            length = (size_t)utf8_decode(sources[i] + at, n - at, &c);
            put_entry(&vocab, sources[i] + at, length, &id);
        }
    buf_printf(&json, "{%s%s\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"merges\":[],\"vocab\":{%s}}}", parts,
               *parts ? "," : "", buf_text(&vocab));
    struct tokenizer *t = tokenizer_load_text(json.data);
    buf_free(&json);
    buf_free(&vocab);
    return t;
}

static void expect_pieces(const char *parts, const char *text, const char *expected) {
    struct tokenizer *t = load_pieces(parts, text, expected);
    struct ids ids = tokenizer_encode_all(t, text, strlen(text), true);
    struct buf got = {0};
    for (size_t i = 0; i < ids.len; i++) {
        size_t n;
        const char *token = tokenizer_token(t, ids.data[i], &n);
        if (i > 0) buf_putc(&got, '|');
        buf_append(&got, token, n);
    }
    ck_assert_str_eq(buf_text(&got), expected);
    buf_free(&got);
    ids_free(&ids);
    tokenizer_free(t);
}

#define SPLIT(pattern, behavior, invert) \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior "\",\"invert\":" invert "}"

START_TEST(split_behaviors_differ)
{
    static const char text[] = "ab--cd-";
#define DASH "{\"String\":\"-\"}"
    expect_pieces(SPLIT(DASH, "Removed", "false"), text, "ab|cd");
    expect_pieces(SPLIT(DASH, "Isolated", "false"), text, "ab|-|-|cd|-");
    expect_pieces(SPLIT(DASH, "Contiguous", "false"), text, "ab|--|cd|-");
    expect_pieces(SPLIT(DASH, "MergedWithPrevious", "false"), text, "ab-|-|cd-");
    expect_pieces(SPLIT(DASH, "MergedWithNext", "false"), text, "ab|-|-cd|-");
    expect_pieces(SPLIT(DASH, "Removed", "true"), text, "-|-|-");
    expect_pieces(SPLIT("{\"Regex\":\"[a-z]+\"}", "Removed", "true"), text, "ab|cd");
    expect_pieces(SPLIT("{\"Regex\":\"(?=c)\"}", "Isolated", "false"), text, "ab--|cd-");
}
END_TEST

START_TEST(regex_classes_are_those_of_the_reference)
{
    /* U+0085 and U+3000 are white space, U+180E and U+200B are not. */
    expect_pieces(SPLIT("{\"Regex\":\"\\\\s\"}", "Removed", "false"),
                  "ab\xc2\x85"
                  "cd\xe3\x80\x80"
                  "ef\xe1\xa0\x8eg",
                  "ab|cd|ef\xe1\xa0\x8eg");
    expect_pieces(SPLIT("{\"Regex\":\"[^\\\\s]+\"}", "Isolated", "false"), "ab  cd", "ab|  |cd");
    expect_pieces(SPLIT("{\"Regex\":\"\\\\S+\"}", "Isolated", "false"), "ab  cd", "ab|  |cd");
    expect_pieces(SPLIT("{\"Regex\":\"\\\\w+\"}", "Isolated", "false"), "ab_1\xcc\x81--", "ab_1\xcc\x81|--");
    expect_pieces(SPLIT("{\"Regex\":\"(?i:AB)|$\"}", "Isolated", "false"), "xxabxx", "xx|ab|xx");
}
END_TEST

/* What the tokenizers library makes of them. */
START_TEST(repetitions_and_options_are_those_of_the_reference)
{
#define CUT(regex, text, pieces) expect_pieces(SPLIT("{\"Regex\":\"" regex "\"}", "Isolated", "false"), text, pieces)
    CUT("a{1,2}+", "aaaaab", "aaaaa|b");
    CUT("(?:xa|a){2}+b|a{3}+", "aaaabaaaaaa", "aaaab|aaaaaa");
    CUT("[a\\\\]]{2}+b", "aaaabx", "aaaab|x");
    CUT("\\\\p{N}{1,3}+", "1234567a", "1234567|a");
    CUT("\xc3\xa9{2}+", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9z", "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9|z");
    CUT("\\\\061{2}+", "11111", "1111|1");
    CUT("a{2}+?", "aaaaaa", "aa|aa|aa");
    CUT("a{2}?", "aaaab", "aa|aa|b");
    CUT("a{2}??b", "aabx", "aab|x");
    CUT("a{2,3}?", "aaaab", "aa|aa|b");
    CUT("a{,2}+b", "aaaabx", "aaaab|x");
    CUT("a{,2}b", "aaaab", "aa|aab");
    CUT("a{ 1}|a{,}|a{", "a{ 1}xa{,}xa{", "a{ 1}|x|a{,}|x|a{");
    CUT("(?m)a.", "a\nb", "a\n|b");
    CUT("(?mi:A.)", "a\nb", "a\n|b");
    CUT("\\\\u0061|[\\\\u0063-\\\\u0064]", "abcd", "a|b|c|d");
}
END_TEST

START_TEST(regexes_that_would_be_read_otherwise_are_refused_by_name)
{
    static const char *const cases[][2] = {
        {"a(?i)b|c", "an option in the middle"},
        {"(?x:a b)", "options other than i and m"},
        {"a+{2}+", "a quantifier such as {n}+"},
        {"\\\\cA{2}+", "\\c, \\C, \\M or \\g"},
        {"\\\\u12", "\\u without four digits"},
        {"\\\\p{L", "'{' without an end"},
        {"(?#a[)b", "a comment"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[256];
        snprintf(json, sizeof json,
                 "{" SPLIT("{\"Regex\":\"%s\"}", "Isolated", "false") ",\"model\":{\"vocab\":{},\"merges\":[]}}",
                 cases[i][0]);
        tokenizer_refuse_text(json, ERR_UNSUPPORTED, cases[i][1]);
        ck_assert_ptr_nonnull(strstr(err_message(), "regex '"));
    }
}
END_TEST

START_TEST(digits_and_white_space_are_cut)
{
    expect_pieces("\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":true}", "ab12cd", "ab|1|2|cd");
    expect_pieces("\"pre_tokenizer\":{\"type\":\"Digits\"}", "ab12cd\xc2\xbd", "ab|12|cd|\xc2\xbd");
    expect_pieces("\"pre_tokenizer\":{\"type\":\"Whitespace\"}", "ab, cd  e!!", "ab|,|cd|e|!!");
    expect_pieces("\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"}", "ab, cd  e!!", "ab,|cd|e!!");
}
END_TEST

START_TEST(metaspace_follows_either_convention)
{
#define METASPACE(more) "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"" more "}"
#define TOKEN_X         ",\"added_tokens\":[{\"id\":900,\"content\":\"<x>\",\"special\":true}]"
    expect_pieces(METASPACE(",\"add_prefix_space\":true"), "ab cd", MARK "ab|" MARK "cd");
    expect_pieces(METASPACE(",\"add_prefix_space\":false"), "ab cd", "ab|" MARK "cd");
    expect_pieces(METASPACE(",\"prepend_scheme\":\"always\""), " ab  cd", MARK "ab|" MARK "|" MARK "cd");
    expect_pieces(METASPACE(",\"prepend_scheme\":\"always\"") TOKEN_X, "ab<x>cd", MARK "ab|<x>|" MARK "cd");
    expect_pieces(METASPACE(",\"prepend_scheme\":\"first\"") TOKEN_X, "ab<x>cd", MARK "ab|<x>|cd");
    expect_pieces(METASPACE(",\"prepend_scheme\":\"first\"") TOKEN_X, "<x>cd ef", "<x>|cd|" MARK "ef");
    expect_pieces(METASPACE(",\"prepend_scheme\":\"always\",\"split\":false"), "ab cd", MARK "ab" MARK "cd");
    expect_pieces(
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":"
        "\"-\"},\"behavior\":\"Isolated\"},{\"type\":\"Metaspace\",\"replacement\":\"" MARK
        "\",\"prepend_scheme\":\"first\"}]}",
        "ab-cd", MARK "ab|-|cd");
}
END_TEST

START_TEST(byte_level_maps_words_or_whole_texts)
{
#define BYTE_LEVEL(more) "\"pre_tokenizer\":{\"type\":\"ByteLevel\"" more "}"
    expect_pieces(BYTE_LEVEL(",\"add_prefix_space\":false"), "ab cd  e'll",
                  "ab|\xc4\xa0"
                  "cd|\xc4\xa0|\xc4\xa0"
                  "e|'ll");
    expect_pieces(BYTE_LEVEL(""), "ab",
                  "\xc4\xa0"
                  "ab");
    expect_pieces(BYTE_LEVEL(",\"add_prefix_space\":false,\"use_regex\":false"), "a b\n",
                  "a\xc4\xa0"
                  "b\xc4\x8a");
}
END_TEST

START_TEST(normalizers_run_in_order)
{
#define NORMALIZER(text) "\"normalizer\":" text
    expect_pieces(NORMALIZER("{\"type\":\"NFC\"}"), "e\xcc\x81", "\xc3\xa9");
    expect_pieces(NORMALIZER("{\"type\":\"NFD\"}"), "\xc3\xa9", "e\xcc\x81");
    expect_pieces(NORMALIZER("{\"type\":\"NFKC\"}"), "\xef\xac\x81x\xc2\xb2", "fix2");
    expect_pieces(NORMALIZER("{\"type\":\"NFKD\"}"), "\xef\xac\x81\xc3\xa9", "fie\xcc\x81");
    expect_pieces(NORMALIZER("{\"type\":\"Lowercase\"}"), "A\xc3\x89\xc4\xb0z", "a\xc3\xa9i\xcc\x87z");
    expect_pieces(NORMALIZER("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":false}"), "\t ab ", "ab ");
    expect_pieces(NORMALIZER("{\"type\":\"Strip\"}"), "\xc2\xa0 ab \n", "ab");
    expect_pieces(NORMALIZER("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +\"},\"content\":\"_\"}"), "a  b c",
                  "a_b_c");
    expect_pieces(NORMALIZER("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"Q\"},"
                             "{\"type\":\"Lowercase\"}]}"),
                  "AB", "qab");
}
END_TEST

START_TEST(added_tokens_obey_their_flags)
{
#define ADDED(flags) "\"added_tokens\":[{\"id\":900,\"content\":\"<x>\",\"special\":true" flags "}]"
    expect_pieces(ADDED(""), "ab <x> cd", "ab |<x>| cd");
    expect_pieces(ADDED(",\"lstrip\":true"), "ab \t<x> cd", "ab|<x>| cd");
    expect_pieces(ADDED(",\"rstrip\":true"),
                  "ab <x> \xc2\xa0"
                  "cd",
                  "ab |<x>|cd");
    expect_pieces(ADDED(",\"lstrip\":true,\"rstrip\":true"), "<x> <x>  ab", "<x>|<x>|ab");
    expect_pieces(ADDED(",\"single_word\":true"), "ab<x> <x>", "ab<x> |<x>");
    expect_pieces("\"added_tokens\":[{\"id\":900,\"content\":\"<x>\",\"special\":true},"
                  "{\"id\":901,\"content\":\"<x>>\",\"normalized\":false}]",
                  "<x>>a<x>", "<x>>|a|<x>");
}
END_TEST

START_TEST(normalized_added_tokens_are_found_after_normalising)
{
    expect_pieces("\"normalizer\":{\"type\":\"Lowercase\"},"
                  "\"added_tokens\":[{\"id\":900,\"content\":\"<X>\",\"normalized\":true}]",
                  "a<x>b<X>", "a|<X>|b|<X>");
    expect_pieces("\"normalizer\":{\"type\":\"Lowercase\"},"
                  "\"added_tokens\":[{\"id\":900,\"content\":\"<X>\",\"normalized\":false}]",
                  "ab<x><X>", "ab<x>|<X>");
}
END_TEST

#define SMALL(model, more)                                                                                     \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"ab\":3,\"c\":4,\"abc\":5,\"bc\":6," \
    "\"<0xC3>\":7,\"<0xA9>\":8},\"merges\":[\"b c\",[\"a\",\"b\"],\"a bc\"]" model "}" more "}"

static void expect_ids(const char *json, const char *text, const char *expected) {
    struct tokenizer *t = tokenizer_load_text(json);
    struct ids ids = tokenizer_encode_all(t, text, strlen(text), true);
    struct buf got = {0};
    for (size_t i = 0; i < ids.len; i++) buf_printf(&got, "%s%d", i > 0 ? " " : "", ids.data[i]);
    ck_assert_str_eq(buf_text(&got), expected);
    buf_free(&got);
    ids_free(&ids);
    tokenizer_free(t);
}

#define ENTRIES(entries)       SMALL("", ",\"added_tokens\":[" entries "]")
#define ENTRY(id, string, ...) "{\"id\":" #id ",\"content\":\"" string "\"" __VA_ARGS__ "}"

/* As the tokenizers library 0.23 has it. */
START_TEST(an_added_token_whose_string_has_an_id_keeps_it)
{
    expect_ids(ENTRIES(ENTRY(9, "bc")), "abc", "1 6"); /* recognised, so that "a bc" does not merge */
    expect_ids(ENTRIES(ENTRY(9, "bc") "," ENTRY(10, "xy")), "abcxy", "1 6 9");
    expect_ids(ENTRIES(ENTRY(9, "xy") "," ENTRY(10, "xy") "," ENTRY(11, "zz")), "axyzz", "1 9 10");
    expect_ids(ENTRIES(ENTRY(9, "xy") "," ENTRY(5, "bc") "," ENTRY(9, "zz")), "axybczz", "1 9 6 10");
    struct tokenizer *t = tokenizer_load_text(ENTRIES(ENTRY(9, "bc", ",\"special\":true") "," ENTRY(10, "xy")));
    size_t n;
    ck_assert(tokenizer_is_special(t, 6));
    ck_assert_int_eq(tokenizer_size(t), 10);
    ck_assert_ptr_null(tokenizer_token(t, 10, &n));
    tokenizer_free(t);
}
END_TEST

START_TEST(of_added_tokens_of_one_string_the_last_counts_and_special_stays)
{
    static const char *const twice[] = {ENTRIES(ENTRY(9, "xy", ",\"special\":true") "," ENTRY(10, "xy")),
                                        ENTRIES(ENTRY(9, "xy") "," ENTRY(10, "xy", ",\"special\":true")),
                                        ENTRIES(ENTRY(9, "xy") "," ENTRY(9, "xy", ",\"special\":true"))};
    expect_ids(ENTRIES(ENTRY(9, "xy", ",\"single_word\":true") "," ENTRY(10, "xy")), "axyb", "1 9 2");
    expect_ids(ENTRIES(ENTRY(9, "xy") "," ENTRY(10, "xy", ",\"single_word\":true")), "axyb", "3");
    expect_ids(ENTRIES(ENTRY(9, "xy", ",\"single_word\":true") "," ENTRY(9, "xy")), "axyb", "1 9 2");
    expect_ids(ENTRIES(ENTRY(9, "xy", ",\"normalized\":false") "," ENTRY(9, "xy", ",\"single_word\":true")), "axyb",
               "3");
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
        struct tokenizer *t = tokenizer_load_text(twice[i]);
        struct buf said = {0};
        ck_assert(tokenizer_is_special(t, 9));
        tokenizer_describe(t, &said);
        ck_assert_str_eq(buf_text(&said), "BPE, 10 tokens, 1 added");
        buf_free(&said);
        tokenizer_free(t);
        expect_ids(twice[i], "axyb", "1 9 2");
    }
}
END_TEST

START_TEST(merges_go_by_rank_then_by_place)
{
    expect_ids(SMALL("", ""), "abc", "5"); /* b c first, then a bc */
    expect_ids(SMALL("", ""), "abab", "3 3");
    expect_ids(SMALL("", ""), "cabca", "4 5 1");
    expect_ids("{\"model\":{\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"]}}", "aaaaa", "1 1 0");
    expect_ids("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[],\"ignore_merges\":true}}", "ab", "2");
    expect_ids("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[]}}", "ab", "0 1");
}
END_TEST

START_TEST(unknown_characters_become_unk_bytes_or_nothing)
{
    expect_ids(SMALL("", ""), "axxb", "3"); /* no unk_token: dropped, and the neighbours merge */
    expect_ids(SMALL(",\"unk_token\":\"<unk>\"", ""), "axxb", "1 0 0 2");
    expect_ids(SMALL(",\"unk_token\":\"<unk>\",\"fuse_unk\":true", ""), "axxbx", "1 0 2 0");
    expect_ids(SMALL(",\"unk_token\":\"<unk>\",\"byte_fallback\":true", ""),
               "\xc3\xa9"
               "a",
               "7 8 1");
    expect_ids(SMALL(",\"unk_token\":\"<unk>\",\"byte_fallback\":true", ""), "\xc3\xa8", "0");
}
END_TEST

START_TEST(spaces_inside_tokens_forbid_cutting_at_spaces)
{
    /* With a token that spans words, the whole text has to be one word. */
    expect_ids("{\"model\":{\"vocab\":{\"a\":0,\"" MARK "\":1,\"a" MARK "\":2},\"merges\":[\"a " MARK "\"]}}",
               "a" MARK "a" MARK, "2 2");
    expect_ids("{\"model\":{\"vocab\":{\"a\":0,\"" MARK "\":1,\"" MARK "a\":2},\"merges\":[\"" MARK " a\"]}}",
               "a" MARK "a" MARK MARK "a", "0 2 1 2");
}
END_TEST

START_TEST(post_processor_adds_before_and_after)
{
#define TEMPLATE(single)                                                                                  \
    "{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"special_tokens\":{\"S\":{\"ids\":[4,2]}," \
    "\"E\":{\"ids\":[6]}}}"
#define PART_S  "{\"SpecialToken\":{\"id\":\"S\"}}"
#define PART_A  "{\"Sequence\":{\"id\":\"A\"}}"
#define PART_E  "{\"SpecialToken\":{\"id\":\"E\"}}"
#define POST(p) ",\"post_processor\":" p
    expect_ids(SMALL("", POST(TEMPLATE(PART_S "," PART_A "," PART_E))), "a", "4 2 1 6");
    expect_ids(SMALL("", POST(TEMPLATE(PART_S "," PART_A))), "", "4 2");
    expect_ids(SMALL("", POST("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE(
                             PART_A "," PART_E) "," TEMPLATE(PART_S "," PART_A) "]}")),
               "a", "4 2 1 6");
    tokenizer_refuse_text(SMALL("", POST(TEMPLATE(PART_S))), ERR_FORMAT,
                          "post_processor: 'single' does not hold A once");
    tokenizer_refuse_text(SMALL("", POST("{\"type\":\"RobertaProcessing\"}")), ERR_UNSUPPORTED, "'RobertaProcessing'");
}
END_TEST

/* --- decoding ---------------------------------------------------------------------------------------------- */

static void expect_decoded(const char *json, const int32_t *list, size_t n, bool skip_special, const char *expected) {
    struct tokenizer *t = tokenizer_load_text(json);
    struct ids ids = {0};
    ids_append(&ids, list, n);
    struct buf got = tokenizer_decode_all(t, &ids, skip_special);
    ck_assert_str_eq(buf_text(&got), expected);
    tokenizer_check_streaming(t, &ids, skip_special);
    buf_free(&got);
    ids_free(&ids);
    tokenizer_free(t);
}
#define EXPECT_DECODED(json, expected, ...) \
    expect_decoded(json, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), false, expected)

#define SPOKEN(decoder)                                                                     \
    "{\"model\":{\"vocab\":{\"a\":0,\"" MARK "\":1,\"" MARK                                 \
    "b\":2,\"<0xC3>\":3,\"<0xA9>\":4,\"  \":5,\"\xc4\xa0x\":6,"                             \
    "\"\xc3\x83\":7,\"\xc2\xa9\":8,\"x y\":9,\" \":10},\"merges\":[]},\"decoder\":" decoder \
    ",\"added_tokens\":[{\"id\":11,\"content\":\"<s>\",\"special\":true}]}"
#define REPLACE_MARK       "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":\" \"}"
#define STRIP(start, stop) "{\"type\":\"Strip\",\"content\":\" \",\"start\":" start ",\"stop\":" stop "}"
#define SEQUENCE(list)     "{\"type\":\"Sequence\",\"decoders\":[" list "]}"

START_TEST(byte_tokens_are_text_only_as_a_valid_run)
{
#define FALLBACK SPOKEN(SEQUENCE("{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"))
    EXPECT_DECODED(FALLBACK,
                   "a\xc3\xa9"
                   "a",
                   0, 3, 4, 0);
    EXPECT_DECODED(FALLBACK,
                   "\xef\xbf\xbd"
                   "a",
                   3, 0);
    EXPECT_DECODED(FALLBACK, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 3, 4, 4);
    EXPECT_DECODED(FALLBACK, "\xc3\xa9\xc3\xa9", 3, 4, 3, 4);
}
END_TEST

START_TEST(leading_space_goes_once_even_when_streamed)
{
#define SPACES(start, stop) SPOKEN(SEQUENCE(REPLACE_MARK ",{\"type\":\"Fuse\"}," STRIP(start, stop)))
    EXPECT_DECODED(SPACES("1", "0"), "b b", 2, 2);
    EXPECT_DECODED(SPACES("1", "0"), " a", 1, 1, 0);
    EXPECT_DECODED(SPACES("3", "0"), "a ", 1, 5, 0, 1);
    EXPECT_DECODED(SPACES("3", "0"), "a", 1, 1, 0);
    EXPECT_DECODED(SPACES("3", "0"), "a a", 1, 0, 1, 0);
    EXPECT_DECODED(SPACES("0", "1"), " a ", 1, 0, 5);
    EXPECT_DECODED(SPACES("0", "2"), "a  a", 0, 5, 0, 1);
    EXPECT_DECODED(SPOKEN(SEQUENCE(REPLACE_MARK "," STRIP("1", "0"))), "ba", 2, 0); /* not fused: of each token */
    EXPECT_DECODED(SPOKEN(SEQUENCE("{\"type\":\"Fuse\"}," REPLACE_MARK)), "a  b", 0, 1, 2);
    EXPECT_DECODED(SPOKEN(SEQUENCE("{\"type\":\"Fuse\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\"a" MARK
                                   "a\"},\"content\":\"!\"}")),
                   "!" MARK "aa", 0, 1, 0, 1, 0, 0);
}
END_TEST

START_TEST(byte_level_joins_bytes_across_tokens)
{
#define BYTES SPOKEN("{\"type\":\"ByteLevel\"}")
    EXPECT_DECODED(BYTES, " x\xc3\xa9", 6, 7, 8);
    EXPECT_DECODED(BYTES,
                   "\xef\xbf\xbd"
                   "a\xef\xbf\xbd",
                   7, 0, 8);
    EXPECT_DECODED(BYTES, "\xef\xbf\xbdx y", 7, 9); /* a token outside the alphabet stands for itself */
    EXPECT_DECODED(BYTES, "\xef\xbf\xbd", 7);
}
END_TEST

START_TEST(metaspace_and_no_decoder_decode)
{
    EXPECT_DECODED(SPOKEN("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"first\"}"), "b ba",
                   2, 2, 0);
    EXPECT_DECODED(SPOKEN("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"never\"}"), " b b",
                   2, 2);
    EXPECT_DECODED(SPOKEN("null"), "a x y a", 0, 9, 0);
}
END_TEST

/* The text of ids [n], and that of the others as it follows it. */
static void expect_followed(const char *json, const int32_t *ids, size_t count, size_t n, const char *expected) {
    struct tokenizer *t = tokenizer_load_text(json);
    struct detokenizer *d;
    struct buf text = {0};
    ck_ok(tokenizer_decode(t, ids, n, true, &text));
    buf_putc(&text, '|');
    ck_ok(detokenizer_create(t, true, &d));
    ck_ok(detokenizer_follow(d, ids, n));
    for (size_t i = n; i < count; i++) ck_ok(detokenizer_push(d, ids[i], &text));
    ck_ok(detokenizer_finish(d, &text));
    ck_assert_str_eq(buf_text(&text), expected);
    detokenizer_free(d);
    buf_free(&text);
    tokenizer_free(t);
}
#define EXPECT_FOLLOWED(json, n, expected, ...) \
    expect_followed(json, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), n, expected)

START_TEST(text_that_follows_other_text_keeps_its_leading_space)
{
    static const char metaspace[] = SPOKEN("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"}");
    EXPECT_FOLLOWED(SPACES("1", "0"), 2, "b| ba", 11, 2, 2, 0);
    EXPECT_FOLLOWED(SPACES("1", "0"), 1, "|b b", 11, 2, 2); /* behind a BOS the text begins */
    EXPECT_FOLLOWED(SPACES("1", "0"), 0, "|b b", 2, 2);
    EXPECT_FOLLOWED(SPACES("1", "0"), 1, "| b", 1, 2); /* the one that goes is gone */
    EXPECT_FOLLOWED(metaspace, 2, "b| ba", 11, 2, 2, 0);
    EXPECT_FOLLOWED(metaspace, 1, "|b b", 11, 2, 2);
    EXPECT_FOLLOWED(SPOKEN("null"), 1, "a| x y a", 0, 9, 0);
    EXPECT_FOLLOWED(BYTES, 2, "a\xef\xbf\xbd| x", 0, 7, 6); /* half a character is the other text's */
}
END_TEST

START_TEST(special_tokens_are_kept_or_skipped)
{
    int32_t ids[] = {11, 0, 11, 77, -5, 0};
    expect_decoded(SPOKEN("{\"type\":\"Fuse\"}"), ids, 6, false, "<s>a<s>a");
    expect_decoded(SPOKEN("{\"type\":\"Fuse\"}"), ids, 6, true, "aa");
}
END_TEST

/* --- bad files --------------------------------------------------------------------------------------------- */

START_TEST(unknown_components_are_refused_by_name)
{
    tokenizer_refuse_text("{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", ERR_UNSUPPORTED, "model: type 'Unigram'");
    tokenizer_refuse_text("{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},\"unk_token\":\"a\"}}",
                          ERR_UNSUPPORTED, "model: type 'WordLevel' is not supported, only BPE is");
    tokenizer_refuse_text(
        "{\"model\":{\"type\":\"WordPiece\",\"continuing_subword_prefix\":\"##\",\"vocab\":{\"a\":0}}}",
        ERR_UNSUPPORTED, "model: type 'WordPiece' is not supported, only BPE is");
    tokenizer_refuse_text("{\"model\":{\"unk_token\":\"a\",\"continuing_subword_prefix\":\"##\","
                          "\"max_input_chars_per_word\":100,\"vocab\":{\"a\":0}}}",
                          ERR_UNSUPPORTED, "model: type 'WordPiece' is not supported, only BPE is");
    tokenizer_refuse_text("{\"model\":{\"unk_id\":0,\"vocab\":[[\"a\",0.0]]}}", ERR_UNSUPPORTED,
                          "model: type 'Unigram' is not supported, only BPE is");
    tokenizer_refuse_text(SMALL("", ",\"normalizer\":{\"type\":\"Nmt\"}"), ERR_UNSUPPORTED, "normalizer: type 'Nmt'");
    tokenizer_refuse_text(SMALL("", ",\"pre_tokenizer\":{\"type\":\"Bert\"}"), ERR_UNSUPPORTED,
                          "pre_tokenizer: type 'Bert'");
    tokenizer_refuse_text(SMALL("", ",\"decoder\":{\"type\":\"CTC\"}"), ERR_UNSUPPORTED, "decoder: type 'CTC'");
    tokenizer_refuse_text(SMALL("", ",\"decoder\":" SEQUENCE("{\"type\":\"Fuse\"},{\"type\":\"ByteLevel\"}")),
                          ERR_UNSUPPORTED, "ByteLevel after Fuse");
    tokenizer_refuse_text(SMALL(",\"end_of_word_suffix\":\"</w>\"", ""), ERR_UNSUPPORTED, "end_of_word_suffix '</w>'");
    tokenizer_refuse_text(SMALL(",\"dropout\":0.1", ""), ERR_UNSUPPORTED, "dropout");
    tokenizer_refuse_text(
        "{" SPLIT("{\"Regex\":\"[a[bc]]\"}", "Isolated", "false") ",\"model\":{\"vocab\":{},\"merges\":[]}}",
        ERR_UNSUPPORTED, "nested character classes");
    tokenizer_refuse_text(
        "{" SPLIT("{\"Regex\":\"(a\"}", "Isolated", "false") ",\"model\":{\"vocab\":{},\"merges\":[]}}",
        ERR_UNSUPPORTED, "regex '(a'");
}
END_TEST

START_TEST(malformed_files_are_refused_in_one_sentence)
{
    struct tokenizer *t;
    ck_assert_int_eq(tokenizer_load(&t, "/nonexistent/tokenizer.json"), ERR_IO);
    ck_assert_ptr_null(t);
    tokenizer_refuse_text("[]", ERR_FORMAT, "expected an object");
    tokenizer_refuse_text("{\"model\":", ERR_FORMAT, "malformed JSON");
    tokenizer_refuse_text("{}", ERR_FORMAT, "model: missing");
    tokenizer_refuse_text("{\"model\":{\"vocab\":[],\"merges\":[]}}", ERR_FORMAT, "'vocab'");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", ERR_FORMAT, "'a' has the id -1");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":1e6,\"b\":1048576},\"merges\":[]}}", ERR_FORMAT,
                          "'b' has the id 1048576");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":\"1\"},\"merges\":[]}}", ERR_FORMAT, "'a' is no integer");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", ERR_FORMAT,
                          "id 1 has two strings");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":1,\"a\":2},\"merges\":[]}}", ERR_FORMAT, "'a' has two ids");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"a b\"]}}", ERR_FORMAT, "merge 0: token 'b'");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"aa\"]}}", ERR_FORMAT, "merge 0 is not a pair");
    tokenizer_refuse_text("{\"model\":{\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}", ERR_FORMAT,
                          "merge 0 is not a pair");
    tokenizer_refuse_text(SMALL(",\"unk_token\":\"zz\"", ""), ERR_FORMAT, "unk_token 'zz'");
    tokenizer_refuse_text(SMALL("", ",\"added_tokens\":[{\"id\":3,\"content\":\"zz\"}]"), ERR_FORMAT,
                          "added_tokens[0]");
    tokenizer_refuse_text(SMALL("", ",\"normalizer\":{\"type\":\"Prepend\"}"), ERR_FORMAT,
                          "member 'prepend' is missing");
    tokenizer_refuse_text(SMALL("", ",\"normalizer\":[]"), ERR_FORMAT, "normalizer: expected an object");
}
END_TEST

START_TEST(runaway_regex_ends_with_an_error)
{
    struct tokenizer *t = tokenizer_load_text("{" SPLIT("{\"Regex\":\"(a|aa)+[bc]\"}", "Isolated",
                                                        "false") ",\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    char text[2000];
    struct ids ids = {0};
    memset(text, 'a', sizeof text);
    ck_assert_int_eq(tokenizer_encode(t, text, sizeof text, NULL, &ids), ERR_UNSUPPORTED);
    ck_assert_msg(strstr(err_message(), "regex"), "%s", err_message());
    ids_free(&ids);
    tokenizer_free(t);
}
END_TEST

Suite *check_tokenizer_parts(void) {
    Suite *suite = suite_create("tokenizer_parts");
    TCase *encoding = tcase_create("encoding");
    tcase_add_test(encoding, split_behaviors_differ);
    tcase_add_test(encoding, regex_classes_are_those_of_the_reference);
    tcase_add_test(encoding, repetitions_and_options_are_those_of_the_reference);
    tcase_add_test(encoding, regexes_that_would_be_read_otherwise_are_refused_by_name);
    tcase_add_test(encoding, digits_and_white_space_are_cut);
    tcase_add_test(encoding, metaspace_follows_either_convention);
    tcase_add_test(encoding, byte_level_maps_words_or_whole_texts);
    tcase_add_test(encoding, normalizers_run_in_order);
    tcase_add_test(encoding, added_tokens_obey_their_flags);
    tcase_add_test(encoding, normalized_added_tokens_are_found_after_normalising);
    tcase_add_test(encoding, an_added_token_whose_string_has_an_id_keeps_it);
    tcase_add_test(encoding, of_added_tokens_of_one_string_the_last_counts_and_special_stays);
    tcase_add_test(encoding, merges_go_by_rank_then_by_place);
    tcase_add_test(encoding, unknown_characters_become_unk_bytes_or_nothing);
    tcase_add_test(encoding, spaces_inside_tokens_forbid_cutting_at_spaces);
    tcase_add_test(encoding, post_processor_adds_before_and_after);
    suite_add_tcase(suite, encoding);

    TCase *decoding = tcase_create("decoding");
    tcase_add_test(decoding, byte_tokens_are_text_only_as_a_valid_run);
    tcase_add_test(decoding, leading_space_goes_once_even_when_streamed);
    tcase_add_test(decoding, byte_level_joins_bytes_across_tokens);
    tcase_add_test(decoding, metaspace_and_no_decoder_decode);
    tcase_add_test(decoding, text_that_follows_other_text_keeps_its_leading_space);
    tcase_add_test(decoding, special_tokens_are_kept_or_skipped);
    suite_add_tcase(suite, decoding);

    TCase *files = tcase_create("files");
    tcase_add_test(files, unknown_components_are_refused_by_name);
    tcase_add_test(files, malformed_files_are_refused_in_one_sentence);
    tcase_add_test(files, runaway_regex_ends_with_an_error);
    suite_add_tcase(suite, files);
    return suite;
}
