/* One target forward of a Llama-family model in one call: no allocation, no dispatch, one team. */
#include "head.h"
#include "layers.h"

#define LOST 4 /* after the faults of the input */

/* Which input is out of range: 0 none, 1 tokens, 2 positions, 3 the mask's diagonal. */
static int fault_of(const Plan *p, const Step *s) {
    for (int64_t r = 0; r < s->rows; r++) {
        if (s->tokens[r] < 0 || s->tokens[r] >= p->vocab) return 1;
        if (s->positions[r] < 0 || s->positions[r] >= p->slots) return 2;
        if (s->mask && !s->mask[r * s->rows + r]) return 3;
    }
    return 0;
}

/* Whether a rank was waited for in vain, now or ever: numbers of meetings no longer agree then. */
static int lost(const Plan *p) { return p->ranks && atomic_load(p->ranks->lost) ? LOST : 0; }

/* Floats of scratch that each thread needs. */
int64_t native_scratch(const Plan *p) { return scratch_floats(p); }

/* Run the step; returns fault_of's number, and nothing is written unless it is 0, or LOST. */
int native_step(const Plan *p, const Step *s) {
    Barrier barrier = {0, 0, 0};
    const uint64_t number = p->ranks ? p->ranks->number : 0;
    int fault = fault_of(p, s);
    if (!fault) fault = lost(p);
    if (fault) return fault;
#ifdef _OPENMP
#pragma omp parallel num_threads((int)p->threads) if (p->threads > 1)
#endif
    {
        Team team = member(&barrier);
        Own own = own_of(p, &team);
        for (int64_t r = 0; r < s->rows; r++)
            decode_row(&p->embedding, s->tokens[r], own.residual + r * p->hidden);
        run_layers(p, s, &team, &own, number);
        if (s->first_logit < s->rows)
            run_head(p, s, &team, &own, number + 2 * (uint64_t)p->num_layers + 1);
    }
    if (p->ranks) p->ranks->number += 2 * (uint64_t)p->num_layers + (s->first_logit < s->rows);
    return lost(p);
}

/* The end of a block alone, `times` over, on one thread; normed is the last one's, and the residual
   takes every one. Before each, delta is put where a block's product would have put it. */
int native_join(const Plan *p, const Step *s, const float *delta, const float *weight,
                float *residual, float *normed, int64_t times) {
    Team team = {0, 0, 1};
    Own own = {residual, normed, 0};
    if (lost(p)) return LOST;
    for (int64_t i = 0; i < times; i++) {
        Join join = {weight, p->ranks ? ++p->ranks->number : 0};
        memcpy(part_of(p, s, join.number), delta,
               (size_t)(s->rows * p->hidden) * sizeof(float));
        end_block(p, s, &team, &own, join);
    }
    return lost(p);
}

/* The matrix product alone, for an engine that dispatches each operator by itself. */
void native_linear(const Weight *w, const float *x, int64_t rows, float *out, int64_t threads) {
#ifdef _OPENMP
#pragma omp parallel num_threads((int)threads) if (threads > 1)
#endif
    {
#ifdef _OPENMP
        Team team = {0, omp_get_thread_num(), omp_get_num_threads()};
#else
        Team team = {0, 0, 1};
#endif
        int64_t first, end;
        share(&team, w->rows, 8, &first, &end);
        Operands io = {x, w->cols, out + first, w->rows};
        linear(w, first, end, rows, io);
    }
}
