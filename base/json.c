#include "base/json.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

enum { QUOTED_MAX = 60 };

const cJSON *json_get(const cJSON *object, const char *name) {
    const cJSON *found = NULL;
    if (!cJSON_IsObject(object)) return NULL;
    for (const cJSON *member = object->child; member; member = member->next)
        if (member->string && strcmp(member->string, name) == 0) found = member;
    return cJSON_IsNull(found) ? NULL : found;
}

bool json_string(const cJSON *item, struct buf *out) {
    if (!cJSON_IsString(item)) return false;
    const char *text = item->valuestring, *nul;
    while ((nul = strstr(text, "\xc0\x80"))) {
        buf_append(out, text, (size_t)(nul - text));
        buf_putc(out, '\0');
        text = nul + 2;
    }
    buf_puts(out, text);
    return true;
}

bool json_int(const cJSON *item, int64_t *out) {
    if (!cJSON_IsNumber(item) || item->valuestring) return false;
    double value = item->valuedouble;
    if (!(fabs(value) <= 0x1p53) || value != floor(value)) return false;
    *out = (int64_t)value;
    return true;
}

bool json_number(const cJSON *item, double *out) {
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) return false;
    *out = item->valuedouble;
    return true;
}

bool json_bool(const cJSON *item, bool *out) {
    if (!cJSON_IsBool(item)) return false;
    *out = cJSON_IsTrue(item);
    return true;
}

/* "member 'NAME' is VALUE, expected WHAT", long values cut. */
static int fail_member(const cJSON *item, const char *name, const char *expected) {
    struct buf value = {0};
    if (cJSON_IsObject(item))
        buf_puts(&value, "an object");
    else if (cJSON_IsArray(item))
        buf_puts(&value, "a list");
    else if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
        buf_puts(&value, "not finite");
    else
        json_print(item, &value);
    if (value.len > QUOTED_MAX) {
        value.len = utf8_valid_prefix(value.data, QUOTED_MAX);
        buf_puts(&value, "...");
    }
    int rc = err_set(ERR_FORMAT, "member '%s' is %s, expected %s", name, buf_text(&value), expected);
    buf_free(&value);
    return rc;
}

int json_get_int(const cJSON *object, const char *name, int64_t def, int64_t min, int64_t max, int64_t *out) {
    const cJSON *item = json_get(object, name);
    *out = def;
    if (!item || (json_int(item, out) && *out >= min && *out <= max)) return 0;
    struct buf expected = {0};
    buf_printf(&expected, "an integer from %lld to %lld", (long long)min, (long long)max);
    int rc = fail_member(item, name, buf_text(&expected));
    buf_free(&expected);
    return rc;
}

int json_get_number(const cJSON *object, const char *name, double def, double *out) {
    const cJSON *item = json_get(object, name);
    *out = def;
    if (!item || json_number(item, out)) return 0;
    return fail_member(item, name, "a number");
}

int json_get_bool(const cJSON *object, const char *name, bool def, bool *out) {
    const cJSON *item = json_get(object, name);
    *out = def;
    if (!item || json_bool(item, out)) return 0;
    return fail_member(item, name, "true or false");
}
