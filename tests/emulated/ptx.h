/* Inline assembly: an asm statement is parsed once into instructions over registers, its operands first, and interpreted. */
#ifndef DUET_EMULATED_PTX_H
#define DUET_EMULATED_PTX_H

#include <stdint.h>
#include <string.h>

#include <string>
#include <vector>

namespace emulated {

enum { REGISTERS = 64 };
struct frame {
    uint64_t reg[REGISTERS];
};

/* A register plus a number, or a number alone. */
struct argument {
    int reg = -1; /* none */
    uint64_t number = 0;
    bool is_negated = false; /* a predicate */
};

struct instruction {
    std::string name;                       /* with all that follows its first dot */
    std::vector<struct argument> arguments; /* vectors one by one */
    struct argument guard;
    const struct entry *entry;
    int bits, count; /* of the last type in the name; 2 for v2, 4 for v4 */
    char type;       /* u, s, b, f */
    bool is_shared, is_transposed, has_policy;
    int matrices;                     /* of ldmatrix */
    bool has(const char *part) const; /* ".part" is in the name */
    uint64_t get(const struct frame &f, int i) const {
        const struct argument &a = arguments[(size_t)i];
        return (a.reg < 0 ? 0 : f.reg[a.reg]) + a.number;
    }
    void set(struct frame &f, int i, uint64_t x) const {
        if (arguments[(size_t)i].reg >= 0) f.reg[arguments[(size_t)i].reg] = x;
    }
    template <typename T> T as(const struct frame &f, int i) const {
        T x;
        uint64_t bits_of = get(f, i);
        memcpy(&x, &bits_of, sizeof x);
        return x;
    }
    template <typename T> void put(struct frame &f, int i, T x) const {
        uint64_t bits_of = 0;
        memcpy(&bits_of, &x, sizeof x);
        set(f, i, bits_of);
    }
};

/* An instruction of one thread, or of the lanes that meet; the longest entry that the name starts with, up to a dot or its end. */
typedef void (*alone)(const struct instruction &, struct frame &);
typedef void (*together)(const struct instruction &, uint32_t lanes, struct frame *const *of);
struct entry {
    const char *name;
    alone one;
    together all;
};
const struct entry *find_entry(const std::string &name);

class program {
    std::vector<struct instruction> instructions;

  public:
    explicit program(const char *text);
    void run(struct frame &) const;
};

template <typename T> uint64_t bits_of(const T &x) {
    uint64_t bits = 0;
    static_assert(sizeof x <= 8, "an operand fits a register");
    memcpy(&bits, &x, sizeof x);
    return bits;
}
template <typename T> struct written {
    T &at;
    bool is_read;
    void load(uint64_t &reg) const { reg = is_read ? bits_of(at) : 0; }
    void store(uint64_t reg) const { memcpy(&at, &reg, sizeof at); }
};
template <typename T> struct read {
    T x;
    void load(uint64_t &reg) const { reg = bits_of(x); }
    void store(uint64_t) const {}
};
template <typename T> written<T> out(T &x) {
    return {x, false};
}
template <typename T> written<T> inout(T &x) {
    return {x, true};
}
template <typename T> read<T> in(T x) {
    return {x};
}

template <typename... Operands> inline void run_asm(const program &p, Operands... operands) {
    struct frame f;
    static_assert(sizeof...(operands) <= REGISTERS - 16, "room for named registers");
    int i = 0;
    (operands.load(f.reg[i++]), ...);
    p.run(f);
    i = 0;
    (operands.store(f.reg[i++]), ...);
}

} /* namespace emulated */

#endif
