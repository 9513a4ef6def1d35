#include "tests/support/chain_ops.h"

static int run_deal(const void *args) {
    chain_deal_run(args);
    return 0;
}

static int run_gather(const void *args) {
    const struct chain_gather *op = args;
    for (int at = 0; at < op->count * op->vocab; at++) chain_gather_run(op, at);
    return 0;
}

static int run_spoil(const void *args) {
    chain_spoil_run(args);
    return 0;
}

static int deal(struct stream *stream, const struct chain_deal *op) {
    return stream_run_host(stream, run_deal, op, sizeof *op);
}

static int gather(struct stream *stream, const struct chain_gather *op) {
    return stream_run_host(stream, run_gather, op, sizeof *op);
}

static int spoil(struct stream *stream, const struct chain_spoil *op) {
    return stream_run_host(stream, run_spoil, op, sizeof *op);
}

const struct chain_ops *chain_host(void) {
    static const struct chain_ops ops = {deal, gather, spoil};
    return &ops;
}
