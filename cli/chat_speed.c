/* What speculation brought to an answer of the chat, by the rounds that it took and what rounds take as measured: a figure that says
 * the same on a busy machine. Measuring happens once, behind the first answer that drafted; where it fails there is no figure. */
#include <math.h>
#include <string.h>

#include "cli/chat.h"
#include "cli/speed.h"

/* Under a fixed K: so many answers in a row, or so many tokens of them, that ran slower than plain decoding. */
enum { LOSS_ANSWERS = 3, LOSS_TOKENS = 256 };

void chat_speed_begin(struct chat *c) {
    c->speed.before = engine_counts(c->engine);
}

double chat_speed_of_answer(struct chat *c) {
    const struct acceptance *s = engine_sequence_stats(conversation_sequence(c->conversation));
    const struct engine_counts counts = engine_counts(c->engine);
    uint64_t rounds[K_MAX + 1];
    if (s->drafted == 0 || engine_measure(c->engine) != 0) return NAN;
    for (int k = 0; k <= K_MAX; k++) rounds[k] = counts.rounds_by_k[k] - c->speed.before.rounds_by_k[k];
    return speed_up_of_rounds(c->engine, 1, s->emitted, rounds);
}

void chat_note_loss(struct chat *c, double speed_up) {
    const struct acceptance *s = engine_sequence_stats(conversation_sequence(c->conversation));
    const struct engine_info info = engine_info(c->engine);
    struct chat_speed *speed = &c->speed;
    if (!(speed_up < SPEED_LOSS) || info.k_auto) {
        speed->slow_answers = 0, speed->slow_tokens = 0;
        return;
    }
    speed->slow_answers++;
    speed->slow_tokens += s->emitted;
    if (speed->has_said || (speed->slow_answers < LOSS_ANSWERS && speed->slow_tokens < LOSS_TOKENS)) return;
    speed->has_said = true;
    chat_note(c, "K = %d makes these answers slower than plain decoding: /k auto chooses K, /k 0 drafts nothing",
              info.k);
}
