/* The head: logits of the wanted rows, and the two best of each. */
#ifndef NATIVE_HEAD_H
#define NATIVE_HEAD_H

#include "linear.h"
#include "plan.h"

static Top top_two(const float *logits, int64_t first, int64_t end) {
    Top top = {first, -INFINITY, -INFINITY};
    for (int64_t i = first; i < end; i++) {
        if (!(logits[i] > top.second)) continue;
        if (logits[i] > top.high) {
            top.second = top.high;
            top.high = logits[i];
            top.best = i;
        } else {
            top.second = logits[i];
        }
    }
    return top;
}

/* Parts of the vocabulary ascend, so keeping the earlier one on a tie keeps the lowest id. */
static void merge(Top *top, const Top *later) {
    if (later->high > top->high) {
        top->second = top->high > later->second ? top->high : later->second;
        top->high = later->high;
        top->best = later->best;
    } else if (later->high > top->second) {
        top->second = later->high;
    }
}

/* All parts of the vocabulary: the threads' of this rank, then the ranks'. */
static void merge_tops(const Plan *p, const Step *s, const Team *team, uint64_t number) {
    const int64_t rows = s->rows - s->first_logit;
    const Ranks *k = p->ranks;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t t = 1; t < team->size; t++) merge(p->tops + r, p->tops + t * p->max_rows + r);
    if (k) {
        memcpy(k->tops + k->rank * p->max_rows, p->tops, (size_t)rows * sizeof(Top));
        meet(k, team, number);
    }
    for (int64_t r = 0; r < rows; r++) {
        Top top = k ? k->tops[r] : p->tops[r];
        for (int64_t rank = 1; k && rank < k->world; rank++)
            merge(&top, k->tops + rank * p->max_rows + r);
        s->best[r] = top.best;
        s->margin[r] = top.high - top.second;
    }
}

static void run_head(const Plan *p, const Step *s, Team *team, const Own *own, uint64_t number) {
    const int64_t rows = s->rows - s->first_logit, offset = p->ranks ? p->ranks->head_first : 0;
    int64_t first, end;
    share(team, p->head.rows, 8, &first, &end);
    Operands io = {own->normed + s->first_logit * p->hidden, p->hidden,
                   p->logits + offset + first, p->vocab};
    linear(&p->head, first, end, rows, io);
    for (int64_t r = 0; r < rows; r++)
        p->tops[team->index * p->max_rows + r] =
            top_two(p->logits + r * p->vocab, offset + first, offset + end);
    wait_all(team);
    if (team->index == 0) merge_tops(p, s, team, number);
}

#endif
