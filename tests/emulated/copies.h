/* cp.async of a thread: copies are made when it waits for them, and not before; EMULATED_COPIES=early: at once. */
#ifndef DUET_EMULATED_COPIES_H
#define DUET_EMULATED_COPIES_H

#include <string.h>

#include <deque>
#include <vector>

#include "block.h"

namespace emulated {

struct copy {
    void *to;
    const void *from;
    int bytes, filled; /* read; written, with zeros behind what was read */
    void make() const {
        memcpy(to, from, (size_t)bytes);
        memset((char *)to + bytes, 0, (size_t)(filled - bytes));
    }
};

struct copies {
    std::vector<struct copy> open; /* of no group yet */
    std::deque<std::vector<struct copy>> groups;
    void clear() {
        if (!open.empty()) open.clear();
        if (!groups.empty()) groups.clear();
    }
    void add(const struct copy &c) {
        static const bool is_early = getenv("EMULATED_COPIES") && !strcmp(getenv("EMULATED_COPIES"), "early");
        if (is_early)
            c.make();
        else
            open.push_back(c);
    }
    void commit() {
        groups.push_back(std::move(open));
        open.clear();
    }
    void wait(size_t pending) {
        for (; groups.size() > pending; groups.pop_front())
            for (const struct copy &c : groups.front()) c.make();
    }
    void wait_all() {
        commit();
        wait(0);
    }
};

} /* namespace emulated */

#endif
