/* The head: logits of the wanted rows, and the two best of each. */
#ifndef NATIVE_HEAD_H
#define NATIVE_HEAD_H

#include "linear.h"
#include "plan.h"

static void top_two(const float *logits, int64_t first, int64_t end, int64_t *best, float *tops) {
    tops[0] = tops[1] = -INFINITY;
    *best = first;
    for (int64_t i = first; i < end; i++) {
        if (!(logits[i] > tops[1])) continue;
        if (logits[i] > tops[0]) {
            tops[1] = tops[0];
            tops[0] = logits[i];
            *best = i;
        } else {
            tops[1] = logits[i];
        }
    }
}

/* Thread shares ascend, so keeping the earlier one on a tie keeps the lowest id. */
static void merge_tops(const Plan *p, const Step *s, const Team *team) {
    for (int64_t r = 0; r < s->rows - s->first_logit; r++) {
        float high = p->tops[2 * r], second = p->tops[2 * r + 1];
        s->best[r] = p->bests[r];
        for (int64_t t = 1; t < team->size; t++) {
            const float *tops = p->tops + 2 * (t * p->max_rows + r);
            if (tops[0] > high) {
                second = high > tops[1] ? high : tops[1];
                high = tops[0];
                s->best[r] = p->bests[t * p->max_rows + r];
            } else if (tops[0] > second) {
                second = tops[0];
            }
        }
        s->margin[r] = high - second;
    }
}

static void run_head(const Plan *p, const Step *s, Team *team, const Own *own) {
    const int64_t rows = s->rows - s->first_logit;
    int64_t first, end;
    share(team, p->vocab, 8, &first, &end);
    Operands io = {own->normed + s->first_logit * p->hidden, p->hidden, p->logits + first,
                   p->vocab};
    linear(&p->head, first, end, rows, io);
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = team->index * p->max_rows + r;
        top_two(p->logits + r * p->vocab, first, end, p->bests + i, p->tops + 2 * i);
    }
    wait_all(team);
    if (team->index == 0) merge_tops(p, s, team);
}

#endif
