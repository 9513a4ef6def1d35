#include "model/kernels/host/isa.h"

#include <stdatomic.h>
#include <stddef.h>

static const struct host_isa *const built[] = {
#if defined(__x86_64__)
    &host_isa_avx512,
    &host_isa_avx2,
#elif defined(__aarch64__)
    &host_isa_neon,
#endif
    &host_isa_portable,
};

static _Atomic(const struct host_isa *) chosen;

const struct host_isa *host_isa_at(int index) {
    return index >= 0 && index < (int)(sizeof built / sizeof *built) ? built[index] : NULL;
}

void host_isa_force(const struct host_isa *isa) {
    atomic_store_explicit(&chosen, isa, memory_order_relaxed);
}

const struct host_isa *host_isa(void) {
    const struct host_isa *isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    for (int i = 0; !isa; i++)
        if (built[i]->is_supported()) {
            isa = built[i];
            atomic_store_explicit(&chosen, isa, memory_order_relaxed);
        }
    return isa;
}
