#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/json_number.h"

/* What may not stand in a string as it is; also DEL, for terminals. */
static void put_escape(struct buf *out, unsigned char c) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *short_form = c ? strchr(plain, c) : NULL;
    if (short_form)
        buf_printf(out, "\\%c", letters[short_form - plain]);
    else
        buf_printf(out, "\\u%04x", c);
}

/* `from_tree`: U+0000 stands there as C0 80. */
static void put_string(struct buf *out, const char *bytes, size_t n, bool from_tree) {
    size_t done = 0;
    buf_putc(out, '"');
    for (size_t at = 0; at < n;) {
        uint32_t c = 0;
        int length = utf8_decode(bytes + at, n - at, &c);
        bool is_nul = from_tree && n - at >= 2 && memcmp(bytes + at, "\xc0\x80", 2) == 0;
        size_t next = at + (is_nul ? 2 : length ? (size_t)length : 1);
        if (length == 0 || c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
            buf_append(out, bytes + done, at - done);
            if (length > 0 || is_nul)
                put_escape(out, (unsigned char)c);
            else
                buf_puts(out, "\xef\xbf\xbd");
            done = next;
        }
        at = next;
    }
    if (done < n) buf_append(out, bytes + done, n - done);
    buf_putc(out, '"');
}

void json_put_string(struct buf *out, const char *bytes, size_t n) {
    put_string(out, bytes, n, false);
}

static void print_string(const char *text, struct buf *out) {
    put_string(out, text, strlen(text), true);
}

void json_put_number(struct buf *out, double value) {
    if (!isfinite(value)) {
        buf_puts(out, "null");
    } else if (value == floor(value) && fabs(value) <= 0x1p53) {
        buf_printf(out, "%.0f", value);
    } else {
        char text[JSON_NUMBER_BYTES];
        json_number_write(value, text);
        buf_puts(out, text);
    }
}

static void put_comma(struct buf *out) {
    char last = out->len > 0 ? out->data[out->len - 1] : '{';
    if (last != '{' && last != '[') buf_puts(out, ", ");
}

void json_put_name(struct buf *out, const char *name) {
    put_comma(out);
    json_put_string(out, name, strlen(name));
    buf_puts(out, ": ");
}

void json_put_element(struct buf *out) {
    put_comma(out);
}

static void print_members(const cJSON *item, struct buf *out) {
    bool is_object = cJSON_IsObject(item);
    buf_putc(out, is_object ? '{' : '[');
    for (const cJSON *child = item->child; child; child = child->next) {
        if (child != item->child) buf_puts(out, ", ");
        if (is_object) {
            print_string(child->string, out);
            buf_puts(out, ": ");
        }
        json_print(child, out);
    }
    buf_putc(out, is_object ? '}' : ']');
}

void json_print(const cJSON *item, struct buf *out) {
    switch (item->type & 0xff) {
    case cJSON_True:
        buf_puts(out, "true");
        break;
    case cJSON_False:
        buf_puts(out, "false");
        break;
    case cJSON_Number:
        if (item->valuestring)
            buf_puts(out, item->valuestring);
        else
            json_put_number(out, item->valuedouble);
        break;
    case cJSON_String:
        print_string(item->valuestring, out);
        break;
    case cJSON_Raw:
        buf_puts(out, item->valuestring);
        break;
    case cJSON_Array:
    case cJSON_Object:
        print_members(item, out);
        break;
    default:
        buf_puts(out, "null");
    }
}
