/* Of cooperative groups: the block and its cluster. */
#ifndef DUET_EMULATED_COOPERATIVE_GROUPS_H
#define DUET_EMULATED_COOPERATIVE_GROUPS_H

#include <emulated.h>

namespace cooperative_groups {

struct cluster_group {
    static void sync() {
        emulated::cluster_arrive();
        emulated::cluster_wait();
    }
    static unsigned block_rank() { return (unsigned)emulated::self->block->rank; }
    static unsigned num_blocks() { return (unsigned)emulated::self->block->launch->cluster; }
    template <typename T> static T *map_shared_rank(T *at, int rank) {
        using namespace emulated;
        return (T *)shared_at(address_of_rank(emulated::shared_address((const void *)at), (uint32_t)rank), 1);
    }
};
inline cluster_group this_cluster() {
    return {};
}

struct thread_block {
    static void sync() { __syncthreads(); }
};
inline thread_block this_thread_block() {
    return {};
}

} /* namespace cooperative_groups */

#endif
