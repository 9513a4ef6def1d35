/* Members of a config.json that are written of keys. Private to model/files/gguf_config.c and gguf_own.c. */
#ifndef DUET_MODEL_FILES_GGUF_MEMBERS_H
#define DUET_MODEL_FILES_GGUF_MEMBERS_H

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "model/files/gguf_model.h"

struct writer {
    const struct gguf *g;
    const struct gguf_architecture *a;
    struct buf json;
    char key[96];
};

static inline const char *key_of(struct writer *w, const char *name) {
    snprintf(w->key, sizeof w->key, "%s.%s", w->a->name, name);
    return w->key;
}

static inline bool has(struct writer *w, const char *name) {
    return gguf_value(w->g, key_of(w, name)) != NULL;
}

static inline int need(struct writer *w, const char *name) {
    return has(w, name) ? 0 : err_set(ERR_FORMAT, "%s: key '%s' is missing", gguf_path(w->g), w->key);
}

static inline void put_number(struct writer *w, const char *member, double value) {
    json_put_name(&w->json, member);
    json_put_number(&w->json, value);
}

static inline void put_bool(struct writer *w, const char *member, bool value) {
    json_put_name(&w->json, member);
    buf_puts(&w->json, value ? "true" : "false");
}

static inline void put_text(struct writer *w, const char *member, const char *text) {
    json_put_name(&w->json, member);
    json_put_string(&w->json, text, strlen(text));
}

static inline int get_int(struct writer *w, const char *name, int64_t def, int64_t *out) {
    return gguf_get_int(w->g, key_of(w, name), def, 0, INT32_MAX, out);
}

/* An integer of each layer, which must be the same; many files have one for all. */
static inline int copy_int(struct writer *w, const char *member, const char *name) {
    const struct gguf_value *v = gguf_value(w->g, key_of(w, name));
    int64_t value;
    if (!v) return 0;
    if (v->is_array && v->count > 0 && v->type != GGUF_STRING && v->type != GGUF_ARRAY) {
        value = gguf_int_at(v, 0);
        for (uint64_t i = 1; i < v->count; i++)
            if (gguf_int_at(v, i) != value)
                return err_set(ERR_UNSUPPORTED, "%s: key '%s' differs from layer to layer, which is not supported",
                               gguf_path(w->g), w->key);
    } else {
        TRY(get_int(w, name, 0, &value));
    }
    put_number(w, member, (double)value);
    return 0;
}

static inline int need_int(struct writer *w, const char *member, const char *name) {
    int64_t value;
    TRY(need(w, name));
    if (!gguf_value(w->g, w->key)->is_array) TRY(gguf_get_int(w->g, w->key, 0, 1, INT32_MAX, &value));
    return copy_int(w, member, name);
}

/* Where it is there. */
static inline int copy_number(struct writer *w, const char *member, const char *name) {
    double value;
    TRY(gguf_get_number(w->g, key_of(w, name), 0, &value));
    if (has(w, name)) put_number(w, member, value);
    return 0;
}

/* A number of each layer, or one for all. */
static inline int64_t int_of_layer(const struct gguf_value *v, int64_t layer) {
    if (!v || v->type == GGUF_STRING || v->type == GGUF_ARRAY || v->count == 0) return 0;
    const uint64_t at = v->is_array ? (uint64_t)layer : 0;
    if (at >= v->count) return 0;
    return v->type == GGUF_BOOL ? v->data[at] != 0 : gguf_int_at(v, at);
}

/* Of the first layer that has some; 0: none has. */
static inline int64_t int_of_some_layer(struct writer *w, const char *name) {
    const struct gguf_value *v = gguf_value(w->g, key_of(w, name));
    int64_t value = 0;
    for (int64_t l = 0; l < LAYERS_MAX && value == 0; l++) value = int_of_layer(v, l);
    return value;
}

/* gguf_own.c: what a family has of its own; head_dim: of the largest heads. */
int gguf_put_own(struct writer *, int64_t head_dim);

#endif
