/* What becomes of the value that four bits stand for. Included by vec_*.h alone, behind the vectors' arithmetic. */
enum map {
    MAP_TIMES,   /* value times */
    MAP_CENTRED, /* (value - other) times */
    MAP_LINEAR,  /* value times + other */
};
VEC vec vec_mapped(const enum map map, vec value, vec times, vec other) {
    if (map == MAP_CENTRED) value = vec_sub(value, other);
    value = vec_mul(value, times);
    return map == MAP_LINEAR ? vec_add(value, other) : value;
}
