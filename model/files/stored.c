#include "model/files/stored.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"

enum { NAME_MAX_BYTES = 192 };
static const char any_float[] = "F32, BF16 or F16";

/* --- a matrix and its tensors ---------------------------------------------------------------------------------- */

struct finder {
    const struct safetensors *files;
    const struct quantisation *q;
    const char *name;
    int module; /* bytes of the name before ".weight" */
    struct stored *out;
};

/* The module's tensor of this name ("qweight"), and one whose name goes on where the matrix's ends (".absmax"). */
static const char *sibling(const struct finder *f, const char *member, char *name) {
    snprintf(name, NAME_MAX_BYTES, "%.*s.%s", f->module, f->name, member);
    return name;
}

static const char *extended(const struct finder *f, const char *end, char *name) {
    snprintf(name, NAME_MAX_BYTES, "%s%s", f->name, end);
    return name;
}

static bool has_sibling(const struct finder *f, const char *member) {
    char name[NAME_MAX_BYTES];
    return safetensors_find(f->files, sibling(f, member, name)) != NULL;
}

static int need_sibling(const struct finder *f, const char *member, const char *types, int64_t rows, int64_t cols,
                        const struct tensor **out) {
    char name[NAME_MAX_BYTES];
    return safetensors_expect_type(f->files, sibling(f, member, name), types, (const int64_t[]){rows, cols}, 2, out);
}

static int need_extended(const struct finder *f, const char *end, const char *types, int64_t count,
                         const struct tensor **out) {
    char name[NAME_MAX_BYTES];
    return safetensors_expect_type(f->files, extended(f, end, name), types, &count, 1, out);
}

static enum dtype scale_type(const struct tensor *t) {
    static const struct {
        const char *name;
        enum dtype type;
    } types[] = {{"F32", DTYPE_F32},     {"BF16", DTYPE_BF16},    {"F16", DTYPE_F16},
                 {"F8_E4M3", DTYPE_FP8}, {"F8_E8M0", DTYPE_E8M0}, {"U8", DTYPE_E8M0}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, t->dtype) == 0) return types[i].type;
    return DTYPE_F32;
}

/* Numbers under another name than the matrix's: not under both. */
static int refuse_twice(const struct finder *f, const char *other) {
    const struct tensor *t = safetensors_find(f->files, f->name);
    char name[NAME_MAX_BYTES];
    return t ? err_set(ERR_FORMAT, "%s: tensors '%s' and '%s' are the same matrix in two formats", t->file, f->name,
                       sibling(f, other, name))
             : 0;
}

static int set_cells(struct stored *s, int32_t scale_rows, int64_t group) {
    s->scale_rows = scale_rows;
    s->group = (int32_t)(group ? group : s->cols);
    s->groups = (s->cols + s->group - 1) / s->group;
    s->scale_type = s->file_scale_type = scale_type(s->scales);
    return 0;
}

/* The columns of a group lie in whole blocks of a format, and rows in whole words. */
static int check_columns(const struct finder *f, int64_t of) {
    if (f->out->cols % of == 0) return 0;
    return err_set(ERR_UNSUPPORTED, "%s: matrix '%s' has %lld columns, no multiple of %lld",
                   safetensors_source(f->files), f->name, (long long)f->out->cols, (long long)of);
}

/* One number, [] or [1]. */
static int read_factor(const struct finder *f, const char *member, bool divides) {
    char name[NAME_MAX_BYTES];
    const struct tensor *t = safetensors_find(f->files, sibling(f, member, name));
    TRY(safetensors_expect_type(f->files, name, "F32", (const int64_t[]){1}, t && t->dims == 0 ? 0 : 1, &t));
    float factor;
    memcpy(&factor, t->data, sizeof factor);
    if (divides) factor = 1 / factor;
    if (!isfinite(factor) || factor == 0)
        return err_set(ERR_FORMAT, "%s: tensor '%s' is no scale: it is %g", t->file, t->name,
                       divides ? 1 / (double)factor : (double)factor);
    f->out->factor = t, f->out->scale_factor = factor;
    return 0;
}

/* --- FP8 --------------------------------------------------------------------------------------------------------- */

static bool is_shape(const struct tensor *t, int64_t rows, int64_t cols) {
    return t->dims == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

/* One for all, one for a row, or one for a block. */
static int find_fp8_scales(const struct finder *f) {
    struct stored *s = f->out;
    const bool is_inv = has_sibling(f, "weight_scale_inv");
    const int64_t block_rows = f->q->block_rows, block_cols = f->q->block_cols;
    const int64_t rows = (s->rows + block_rows - 1) / block_rows, cols = (s->cols + block_cols - 1) / block_cols;
    char name[NAME_MAX_BYTES], other[NAME_MAX_BYTES];
    const struct tensor *t = safetensors_find(f->files, sibling(f, is_inv ? "weight_scale_inv" : "weight_scale", name));
    if (is_inv && has_sibling(f, "weight_scale"))
        return err_set(ERR_FORMAT, "%s: tensors '%s' and '%s' are scales of the same matrix", t->file, name,
                       sibling(f, "weight_scale", other));
    const bool is_vector = t && t->dims == 1, is_row = t && (is_shape(t, s->rows, 1) || (is_vector && s->rows > 1));
    if (t && t->dims < 2 && t->bytes == (size_t)dtype_bytes(scale_type(t))) {
        TRY(safetensors_expect_type(f->files, name, any_float, t->shape, t->dims, &s->scales));
        TRY(set_cells(s, INT32_MAX, 0));
        s->groups = 0;
        return 0;
    }
    if (is_row && !is_inv) {
        TRY(safetensors_expect_type(f->files, name, any_float, (const int64_t[]){s->rows, 1}, t->dims, &s->scales));
        return set_cells(s, 1, 0);
    }
    TRY(safetensors_expect_type(f->files, name, any_float, (const int64_t[]){rows, cols}, 2, &s->scales));
    return set_cells(s, (int32_t)block_rows, block_cols);
}

static int find_fp8(const struct finder *f) {
    struct stored *s = f->out;
    const struct tensor *t = safetensors_find(f->files, f->name);
    if (!t || strcmp(t->dtype, "F8_E4M3") != 0) return 0;
    s->form = STORED_FP8, s->format = DTYPE_FP8;
    TRY(safetensors_expect_type(f->files, f->name, "F8_E4M3", (const int64_t[]){s->rows, s->cols}, 2, &s->numbers));
    return find_fp8_scales(f);
}

/* --- int4 -------------------------------------------------------------------------------------------------------- */

/* Which group a column has, where it is not column / group. */
static int find_group_of(const struct finder *f, const char *member) {
    struct stored *s = f->out;
    const struct tensor *t;
    char name[NAME_MAX_BYTES];
    if (!has_sibling(f, member)) return 0;
    TRY(safetensors_expect_type(f->files, sibling(f, member, name), "I32", &s->cols, 1, &t));
    const int32_t *group_of = t->data;
    for (int64_t c = 0; c < s->cols; c++) {
        if (group_of[c] < 0 || group_of[c] >= s->groups)
            return err_set(ERR_FORMAT, "%s: tensor '%s' names group %d, there are %lld", t->file, name, group_of[c],
                           (long long)s->groups);
        if (group_of[c] != c / s->group) s->group_of = t;
    }
    if (s->group_of) s->scale_type = DTYPE_F32; /* each column looks its own up */
    return 0;
}

static int find_transposed(const struct finder *f, enum stored_form form) {
    struct stored *s = f->out;
    const int64_t in = s->cols, out = s->rows;
    if (!has_sibling(f, "qweight")) return 0;
    TRY(refuse_twice(f, "qweight"));
    s->form = form, s->format = DTYPE_INT4;
    s->zero_is_one_less = f->q->zero_is_one_less;
    if (out % 8 != 0 || in % 8 != 0)
        return err_set(ERR_UNSUPPORTED, "%s: matrix '%s' is [%lld, %lld], whose sides are no multiples of 8",
                       safetensors_source(f->files), f->name, (long long)out, (long long)in);
    const int64_t group = f->q->int4_group ? f->q->int4_group : in, groups = (in + group - 1) / group;
    if (form == STORED_GPTQ)
        TRY(need_sibling(f, "qweight", "I32", in / 8, out, &s->numbers));
    else
        TRY(need_sibling(f, "qweight", "I32", in, out / 8, &s->numbers));
    TRY(need_sibling(f, "qzeros", "I32", groups, out / 8, &s->zeros));
    TRY(need_sibling(f, "scales", any_float, groups, out, &s->scales));
    TRY(set_cells(s, 1, group));
    return form == STORED_GPTQ ? find_group_of(f, "g_idx") : 0;
}

/* The shape that the tool wrote down must be the one that the model has. */
static int check_written_shape(const struct finder *f) {
    const struct tensor *t;
    char name[NAME_MAX_BYTES];
    const int64_t two = 2, shape[2] = {f->out->rows, f->out->cols};
    if (!has_sibling(f, "weight_shape")) return 0;
    TRY(safetensors_expect_type(f->files, sibling(f, "weight_shape", name), "I64", &two, 1, &t));
    if (memcmp(t->data, shape, sizeof shape) == 0) return 0;
    return err_set(ERR_FORMAT, "%s: tensor '%s' does not say [%lld, %lld]", t->file, name, (long long)shape[0],
                   (long long)shape[1]);
}

static int find_packed(const struct finder *f) {
    struct stored *s = f->out;
    s->form = STORED_PACKED, s->format = DTYPE_INT4;
    if (f->q->int4_group < 0)
        return err_set(ERR_FORMAT, "%s: matrix '%s' is stored in int4, which its configuration does not name",
                       safetensors_source(f->files), f->name);
    const int64_t group = f->q->int4_group ? f->q->int4_group : s->cols, groups = (s->cols + group - 1) / group;
    TRY(check_columns(f, 8));
    TRY(need_sibling(f, "weight_packed", "I32", s->rows, s->cols / 8, &s->numbers));
    TRY(need_sibling(f, "weight_scale", any_float, s->rows, groups, &s->scales));
    TRY(set_cells(s, 1, group));
    if (has_sibling(f, "weight_zero_point"))
        TRY(need_sibling(f, "weight_zero_point", "I32", (s->rows + 7) / 8, groups, &s->zeros));
    TRY(check_written_shape(f));
    return find_group_of(f, "weight_g_idx");
}

/* --- FP4 --------------------------------------------------------------------------------------------------------- */

/* `numbers` "weight_packed": compressed-tensors; "weight": modelopt. E4M3 scales have a factor, E8M0 ones have none. */
static int find_fp4(const struct finder *f, const char *numbers) {
    struct stored *s = f->out;
    char name[NAME_MAX_BYTES];
    const int64_t group = f->q->fp4_group;
    s->form = STORED_FP4, s->format = DTYPE_FP4;
    if (group < 2 || group % 2 != 0)
        return err_set(ERR_FORMAT, "%s: matrix '%s' is stored in FP4, in groups that its configuration does not name",
                       safetensors_source(f->files), f->name);
    TRY(check_columns(f, group));
    TRY(need_sibling(f, numbers, "U8", s->rows, s->cols / 2, &s->numbers));
    TRY(need_sibling(f, "weight_scale", "F8_E4M3, F8_E8M0 or U8", s->rows, s->cols / group, &s->scales));
    TRY(set_cells(s, 1, group));
    if (s->scale_type == DTYPE_E8M0) return 0;
    const bool is_modelopt = safetensors_find(f->files, sibling(f, "weight_scale_2", name)) != NULL;
    return is_modelopt ? read_factor(f, "weight_scale_2", false) : read_factor(f, "weight_global_scale", true);
}

/* gpt-oss: blocks [E, rows, cols/32, 16] and scales [E, rows, cols/32]. */
static int find_blocks(const struct finder *f, int64_t stack) {
    struct stored *s = f->out;
    char name[NAME_MAX_BYTES];
    if (stack == 0 || !safetensors_find(f->files, extended(f, "_blocks", name))) return 0;
    s->form = STORED_FP4, s->format = DTYPE_FP4, s->is_stacked = true;
    TRY(check_columns(f, 32));
    const int64_t shape[4] = {stack, s->rows, s->cols / 32, 16};
    TRY(safetensors_expect_type(f->files, name, "U8", shape, 4, &s->numbers));
    TRY(safetensors_expect_type(f->files, extended(f, "_scales", name), "U8", shape, 3, &s->scales));
    return set_cells(s, 1, 32);
}

/* --- NF4 --------------------------------------------------------------------------------------------------------- */

static int read_state(const struct finder *f, const cJSON *root, int64_t *block) {
    struct stored *s = f->out;
    const cJSON *shape = json_get(root, "shape"), *type = json_get(root, "quant_type");
    int64_t rows, cols, nested;
    double offset;
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "nf4") != 0)
        return err_set(ERR_UNSUPPORTED, "quant_type is not nf4");
    if (cJSON_GetArraySize(shape) != 2 || !json_int(shape->child, &rows) || !json_int(shape->child->next, &cols) ||
        rows != s->rows || cols != s->cols)
        return err_set(ERR_FORMAT, "shape is not [%lld, %lld]", (long long)s->rows, (long long)s->cols);
    TRY(json_get_int(root, "blocksize", 64, 2, 1 << 20, block));
    TRY(json_get_int(root, "nested_blocksize", 256, 1, 1 << 20, &nested));
    TRY(json_get_number(root, "nested_offset", 0, &offset));
    s->nested_group = (int32_t)nested, s->nested_offset = (float)offset;
    return 0;
}

static int find_state(const struct finder *f, int64_t *block) {
    char name[NAME_MAX_BYTES];
    const struct tensor *t = safetensors_find(f->files, extended(f, ".quant_state.bitsandbytes__nf4", name));
    if (!t) return err_set(ERR_FORMAT, "%s: tensor '%s' is missing", safetensors_source(f->files), name);
    f->out->state = t;
    cJSON *root;
    int rc = json_parse(&root, t->data, t->bytes);
    if (rc == 0) {
        rc = read_state(f, root, block);
        cJSON_Delete(root);
    }
    return rc == 0 ? 0 : err_prefix(rc, "%s: tensor '%s'", t->file, name);
}

/* Its scales run over the matrix from end to end: here each row has whole ones. */
static int find_nf4(const struct finder *f) {
    struct stored *s = f->out;
    char name[NAME_MAX_BYTES];
    const struct tensor *t = safetensors_find(f->files, f->name);
    int64_t block;
    if (!t || strcmp(t->dtype, "U8") != 0) return 0;
    s->form = STORED_NF4, s->format = DTYPE_NF4;
    TRY(find_state(f, &block));
    TRY(check_columns(f, block));
    const int64_t shape[2] = {s->rows * s->cols / 2, 1}, scales = s->rows * (s->cols / block);
    TRY(safetensors_expect_type(f->files, f->name, "U8", shape, 2, &s->numbers));
    TRY(need_extended(f, ".quant_map", "F32", 16, &s->values));
    const bool is_nested = safetensors_find(f->files, extended(f, ".nested_absmax", name)) != NULL;
    TRY(need_extended(f, ".absmax", is_nested ? "U8" : "F32", scales, &s->scales));
    TRY(set_cells(s, 1, block));
    s->scale_type = DTYPE_F32;
    if (!is_nested) return 0;
    TRY(need_extended(f, ".nested_absmax", "F32", (scales + s->nested_group - 1) / s->nested_group, &s->nested_scales));
    return need_extended(f, ".nested_quant_map", "F32", 256, &s->nested_values);
}

/* --- any --------------------------------------------------------------------------------------------------------- */

static int find_compressed(const struct finder *f) {
    char name[NAME_MAX_BYTES];
    const struct tensor *packed = safetensors_find(f->files, sibling(f, "weight_packed", name));
    if (!packed) return find_fp8(f);
    TRY(refuse_twice(f, "weight_packed"));
    return strcmp(packed->dtype, "U8") == 0 ? find_fp4(f, "weight_packed") : find_packed(f);
}

static int find_modelopt(const struct finder *f) {
    const struct tensor *t = safetensors_find(f->files, f->name);
    return t && strcmp(t->dtype, "U8") == 0 ? find_fp4(f, "weight") : find_fp8(f);
}

int stored_find(struct stored *out, const struct safetensors *files, const struct quantisation *q, const char *name,
                int64_t rows, int64_t cols, int64_t stack) {
    static const char end[] = ".weight";
    const size_t n = strlen(name);
    const bool is_module = n >= sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0;
    struct finder f = {files, q, name, (int)(n - (is_module ? sizeof end - 1 : 0)), out};
    *out = (struct stored){.rows = rows, .cols = cols, .scale_factor = 1};
    if (q->method == QUANTISATION_MXFP4) return find_blocks(&f, stack);
    if (!is_module || stack > 0) return 0;
    switch (q->method) {
    case QUANTISATION_FP8:
        return find_fp8(&f);
    case QUANTISATION_COMPRESSED_TENSORS:
        return find_compressed(&f);
    case QUANTISATION_MODELOPT:
        return find_modelopt(&f);
    case QUANTISATION_GPTQ:
        return find_transposed(&f, STORED_GPTQ);
    case QUANTISATION_AWQ:
        return find_transposed(&f, STORED_AWQ);
    case QUANTISATION_BITSANDBYTES:
        return find_nf4(&f);
    default:
        return 0;
    }
}

/* --- whose a tensor is --------------------------------------------------------------------------------------------- */

/* Members of a module, and ends of a matrix's own name. Some say what only engines that quantise activations need. */
static const struct end {
    const char *text;
    bool is_member, is_unused;
} ends[] = {
    {".weight_scale_inv", true, false},
    {".weight_scale", true, false},
    {".weight_scale_2", true, false},
    {".weight_global_scale", true, false},
    {".weight_packed", true, false},
    {".weight_zero_point", true, false},
    {".weight_shape", true, true},
    {".weight_g_idx", true, true},
    {".input_scale", true, true},
    {".activation_scale", true, true},
    {".input_global_scale", true, true},
    {".output_scale", true, true},
    {".qweight", true, false},
    {".qzeros", true, false},
    {".scales", true, false},
    {".g_idx", true, true},
    {".bias", true, false},
    {"_blocks", false, false},
    {"_scales", false, false},
    {".absmax", false, false},
    {".quant_map", false, false},
    {".nested_absmax", false, false},
    {".nested_quant_map", false, false},
    {".quant_state.bitsandbytes__nf4", false, false},
};

static const struct end *find_end(const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i].text);
        if (n > m && strcmp(name + n - m, ends[i].text) == 0) return &ends[i];
    }
    return NULL;
}

bool stored_owner(const char *name, char *owner, size_t room) {
    const struct end *end = find_end(name);
    if (!end) return false;
    snprintf(owner, room, "%.*s%s", (int)(strlen(name) - strlen(end->text)), name, end->is_member ? ".weight" : "");
    return true;
}

static bool is_zero(const struct tensor *t) {
    const uint16_t *halves = t->data;
    if (strcmp(t->dtype, "F16") != 0 && strcmp(t->dtype, "BF16") != 0) return false;
    for (size_t i = 0; i < t->bytes / 2; i++)
        if (halves[i] & 0x7FFF) return false;
    return true;
}

bool stored_owns(const struct stored *s, const struct tensor *t) {
    const struct tensor *const parts[] = {s->numbers, s->scales,        s->zeros,         s->group_of, s->factor,
                                          s->values,  s->nested_values, s->nested_scales, s->state};
    const struct end *end = find_end(t->name);
    if (s->form == STORED_PLAIN || !end) return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i] == t) return true;
    if (strcmp(end->text, ".bias") == 0) /* old GPTQ files have one beside every layer */
        return (s->form == STORED_GPTQ || s->form == STORED_AWQ) && is_zero(t);
    return end->is_unused;
}
