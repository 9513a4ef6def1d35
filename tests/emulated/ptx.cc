#include "ptx.h"

#include <ctype.h>
#include <stdlib.h>

#include <map>

#include "block.h"

namespace emulated {

bool instruction::has(const char *part) const {
    const std::string wanted = std::string(".") + part;
    for (size_t at = name.find(wanted); at != std::string::npos; at = name.find(wanted, at + 1)) {
        const char end = at + wanted.size() < name.size() ? name[at + wanted.size()] : '.';
        if (end == '.' || end == ':') return true;
    }
    return false;
}

/* --- parser --------------------------------------------------------------------------------------------- */

struct parser {
    const char *text, *at;
    std::map<std::string, int> named;
    int used; /* registers from the end on */

    explicit parser(const char *text) : text(text), at(text), used(0) {}
    [[noreturn]] void refuse(const char *why) const { fail("asm \"%s\": %s at \"%s\"", text, why, at); }
    void skip() {
        while (isspace((unsigned char)*at)) at++;
        if (at[0] == '/' && at[1] == '/') {
            while (*at && *at != '\n') at++;
            skip();
        }
    }
    bool take(char c) {
        skip();
        if (*at != c) return false;
        at++;
        return true;
    }
    std::string word() {
        skip();
        const char *start = at;
        while (isalnum((unsigned char)*at) || *at == '_' || *at == '.' || *at == '$' || (*at == ':' && at[1] == ':') ||
               (*at == ':' && at > start && at[-1] == ':'))
            at++;
        if (at == start) refuse("a name is missing");
        return std::string(start, at);
    }
    struct argument one() {
        struct argument a;
        skip();
        if (take('!')) a.is_negated = true;
        skip();
        if (*at == '%' && isdigit((unsigned char)at[1])) {
            a.reg = (int)strtol(at + 1, (char **)&at, 10);
        } else if (*at == '%' && at[1] == '%') { /* a special register: %%laneid */
            at += 2;
            const std::string name = word();
            refuse(("special register " + name).c_str());
        } else if (*at == '0' && (at[1] == 'f' || at[1] == 'F')) {
            a.number = strtoull(at + 2, (char **)&at, 16);
        } else if (isdigit((unsigned char)*at) || *at == '-') {
            a.number = (uint64_t)strtoll(at, (char **)&at, 0);
            if (*at == 'U') at++;
        } else {
            const std::string name = word();
            if (name == "_") return a;
            if (!named.count(name)) refuse(("unknown name " + name).c_str());
            a.reg = named[name];
        }
        if (take('+')) a.number += one().number;
        return a;
    }
    void arguments(struct instruction &i) {
        for (skip(); *at && *at != ';'; skip()) {
            if (take(',') || take('{') || take('}') || take('[') || take(']')) continue;
            if (*at == '|') {
                at++;
                continue;
            }
            i.arguments.push_back(one());
        }
        if (!take(';') && *at) refuse("no end");
    }
    void declare() {
        do {
            const std::string name = word();
            int count = 1;
            const bool is_many = take('<');
            if (is_many) count = (int)strtol(at, (char **)&at, 10);
            if (is_many && !take('>')) refuse("no >");
            for (int n = 0; n < count; n++) {
                if (++used > 16) refuse("too many registers");
                named[is_many ? name + std::to_string(n) : name] = REGISTERS - used;
            }
        } while (take(','));
        if (!take(';')) refuse("no end");
    }
};

/* What a name says: its last type, f32, b16x2 and the like; and where its memory is. */
static void look_at_name(struct instruction &i) {
    i.is_shared = i.has("shared") || i.has("shared::cta") || i.has("shared::cluster");
    i.has_policy = i.has("L2::cache_hint");
    i.is_transposed = i.has("trans"), i.matrices = i.has("x4") ? 4 : i.has("x2") ? 2 : 1;
    i.type = 'b', i.bits = 32, i.count = i.has("v4") ? 4 : i.has("v2") ? 2 : 1;
    for (size_t dot = i.name.rfind('.'); dot != std::string::npos && dot > 0; dot = i.name.rfind('.', dot - 1)) {
        const char *part = i.name.c_str() + dot + 1;
        if (!strchr("usbf", part[0]) || !isdigit((unsigned char)part[1])) continue;
        i.type = part[0], i.bits = atoi(part + 1);
        return;
    }
}

program::program(const char *text) {
    struct parser p(text);
    for (p.skip(); *p.at; p.skip()) {
        if (p.take('{') || p.take('}') || p.take(';')) continue;
        struct instruction i;
        if (p.take('@')) i.guard = p.one();
        i.name = p.word();
        if (i.name == ".reg") {
            (void)p.word();
            p.declare();
            continue;
        }
        p.arguments(i);
        i.entry = find_entry(i.name);
        if (!i.entry) fail("asm \"%s\": no such instruction here yet; add it to tests/emulated/instructions.cc", text);
        look_at_name(i);
        instructions.push_back(i);
    }
}

/* --- interpreter ---------------------------------------------------------------------------------------- */

struct brought {
    const struct instruction *instruction;
    struct frame *frame;
};

static void meet_at_instruction(struct meeting &m) {
    struct frame *of[WARP] = {};
    const struct instruction *all = nullptr;
    for (uint32_t left = m.mask; left; left &= left - 1) {
        const int lane = __builtin_ctz(left);
        const struct brought *its = (const struct brought *)m.of[lane];
        if (all && all != its->instruction && all->name != its->instruction->name)
            fail("lanes of a warp meet at %s and at %s", all->name.c_str(), its->instruction->name.c_str());
        all = its->instruction, of[lane] = its->frame;
    }
    all->entry->all(*all, m.mask, of);
}

void program::run(struct frame &f) const {
    for (const struct instruction &i : instructions) {
        if (i.guard.reg >= 0 && (f.reg[i.guard.reg] != 0) == i.guard.is_negated) continue;
        if (i.entry->one) {
            i.entry->one(i, f);
        } else {
            struct brought mine = {&i, &f};
            meet(~0u, meet_at_instruction, &mine);
        }
    }
}

} /* namespace emulated */
