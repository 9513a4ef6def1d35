#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static void print_string(const char *text, struct buf *out) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    buf_putc(out, '"');
    while (*text) {
        unsigned char c = (unsigned char)*text;
        const char *short_form = strchr(plain, c);
        size_t run = strcspn(text, "\"\\\x7f\xc0"
                                   "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
                                   "\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f");
        if (run > 0) {
            buf_append(out, text, run);
        } else if (memcmp(text, "\xc0\x80", 2) == 0) {
            buf_puts(out, "\\u0000");
            run = 2;
        } else {
            run = 1;
            if (short_form)
                buf_printf(out, "\\%c", letters[short_form - plain]);
            else
                buf_printf(out, "\\u%04x", c);
        }
        text += run;
    }
    buf_putc(out, '"');
}

/* The shortest decimal that reads back as the same double. JSON has no infinities and no NaN: null. */
static void print_number(const cJSON *item, struct buf *out) {
    double value = item->valuedouble;
    if (item->valuestring) {
        buf_puts(out, item->valuestring);
    } else if (!isfinite(value)) {
        buf_puts(out, "null");
    } else if (value == floor(value) && fabs(value) <= 0x1p53) {
        buf_printf(out, "%.0f", value);
    } else {
        char text[40];
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value) break;
        }
        buf_puts(out, text);
    }
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
        print_number(item, out);
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
