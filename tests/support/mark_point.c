/* Every assertion that passes tells Check where it stands, so that it can say after which point a test crashed. Check writes that to a
 * file and reads it back by pieces, which takes longer than most of what is asserted in loops. So it is told of a place once (linked with
 * --wrap=_mark_point); after a crash in a loop "after this point" is the last place that was new. */
#include <stdatomic.h>
#include <stdint.h>

void __wrap__mark_point(const char *file, int line);
void __real__mark_point(const char *file, int line);

/* Of places that share an entry each is told again after the other. */
enum { PLACES = 4096 };
static _Atomic(uint64_t) told[PLACES];

void __wrap__mark_point(const char *file, int line) {
    const uint64_t place = ((uint64_t)(uintptr_t)file << 16 ^ (uint64_t)line) * 0x9e3779b97f4a7c15u | 1;
    if (atomic_exchange_explicit(&told[place >> 52], place, memory_order_relaxed) == place) return;
    __real__mark_point(file, line);
}
