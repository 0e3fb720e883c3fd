/* One target forward of a Llama-family model in one call: no allocation, no dispatch, one team. */
#include "attention.h"
#include "linear.h"
#include "team.h"

typedef struct {
    Weight q, k, v, o, gate, up, down;
    const float *input_norm, *post_norm;
} Layer;

typedef struct { /* mirrored field by field in plan.py */
    int64_t num_layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, slots;
    int64_t threads, max_rows, num_captured;
    double eps;
    const int64_t *captured; /* layers whose inputs are features, ascending */
    const Layer *layers;
    Weight embedding, head;
    const float *final_norm, *cosines, *sines; /* [slots, head_dim / 2] */
    float *keys, *values;                      /* [num_layers, kv_heads, slots, head_dim] */
    float *query, *mixed, *delta, *gated, *lifted, *logits;
    float *scratch; /* [threads, native_scratch()] */
    int64_t *bests; /* [threads, max_rows] */
    float *tops;    /* [threads, max_rows, 2] */
} Plan;

typedef struct {
    const int64_t *tokens, *positions;
    const uint8_t *mask; /* NULL: causal */
    int64_t rows, start, first_logit;
    float *features; /* [rows, num_captured * hidden] */
    int64_t *best;
    float *margin;
} Step;

typedef struct { /* one thread's own memory */
    float *residual, *normed, *scores;
} Own;

/* Floats of scratch that each thread needs. */
int64_t native_scratch(const Plan *p) {
    int64_t floats = 2 * p->max_rows * p->hidden + MAX_QUERIES * (p->slots + 16);
    return (floats + 15) / 16 * 16;
}

static Own own_of(const Plan *p, const Team *team) {
    Own own;
    own.residual = p->scratch + team->index * native_scratch(p);
    own.normed = own.residual + p->max_rows * p->hidden;
    own.scores = own.normed + p->max_rows * p->hidden;
    return own;
}

static void norm(const Plan *p, const float *weight, const float *in, int64_t rows, float *out) {
    for (int64_t r = 0; r < rows; r++, in += p->hidden, out += p->hidden) {
        vf squares = {0};
        for (int64_t i = 0; i < p->hidden; i += VL) {
            vf x = load(in + i);
            squares = fma_(x, x, squares);
        }
        float scale = 1.0f / sqrtf(sum(squares) / (float)p->hidden + (float)p->eps);
        for (int64_t i = 0; i < p->hidden; i += VL)
            store(out + i, load(in + i) * splat(scale) * load(weight + i));
    }
}

/* Where the parts of a layer meet: `delta` is complete, and each thread adds it to its own copy of
   the residual and normalises. Ranks of a tensor-parallel group would sum `delta` here. */
static void add_and_norm(const Plan *p, const float *weight, int64_t rows, const Own *own) {
    for (int64_t i = 0; i < rows * p->hidden; i += VL)
        store(own->residual + i, load(own->residual + i) + load(p->delta + i));
    norm(p, weight, own->residual, rows, own->normed);
}

static void rotate(const Plan *p, const Step *s, float *head, int64_t stride, float scale) {
    const int64_t half = p->head_dim / 2;
    for (int64_t r = 0; r < s->rows; r++, head += stride) {
        const float *c = p->cosines + s->positions[r] * half;
        const float *n = p->sines + s->positions[r] * half;
        for (int64_t i = 0; i < half; i++) {
            float a = head[i], b = head[i + half];
            head[i] = (a * c[i] - b * n[i]) * scale;
            head[i + half] = (b * c[i] + a * n[i]) * scale;
        }
    }
}

/* Heads of q, then k, then v are dealt out alike; keys and values go straight to their slots. */
static void project_heads(const Plan *p, const Step *s, const Team *team, const Own *own,
                          int64_t l) {
    const Layer *layer = p->layers + l;
    const int64_t dim = p->head_dim, kv = p->kv_heads;
    int64_t first, end;
    share(team, p->heads + 2 * kv, 1, &first, &end);
    for (int64_t i = first; i < end; i++) {
        int64_t h = i < p->heads ? i : (i - p->heads) % kv;
        int64_t slot = ((l * kv + h) * p->slots + s->start) * dim;
        const Weight *w = i < p->heads ? &layer->q : i < p->heads + kv ? &layer->k : &layer->v;
        float *out = w == &layer->q ? p->query + h * dim
                                    : (w == &layer->k ? p->keys : p->values) + slot;
        int64_t stride = w == &layer->q ? p->heads * dim : dim;
        Operands io = {own->normed, p->hidden, out, stride};
        linear(w, h * dim, (h + 1) * dim, s->rows, io);
        if (w == &layer->q) rotate(p, s, out, stride, 1.0f / sqrtf((float)dim));
        if (w == &layer->k) rotate(p, s, out, stride, 1.0f);
    }
}

/* Queries are dealt out head by head; those that follow each other on one key-value head pass over
   its slots together. */
static void mix_heads(const Plan *p, const Step *s, const Team *team, const Own *own, int64_t l) {
    const int64_t dim = p->head_dim, per_kv = p->heads / p->kv_heads * s->rows;
    int64_t first, end, count;
    share(team, p->heads * s->rows, 1, &first, &end);
    for (int64_t i = first; i < end; i += count) {
        Query queries[MAX_QUERIES];
        const int64_t kv = i / per_kv, cache = (l * p->kv_heads + kv) * p->slots * dim;
        for (count = 0; count < MAX_QUERIES && i + count < end && (i + count) / per_kv == kv;
             count++) {
            int64_t h = (i + count) / s->rows, r = (i + count) % s->rows;
            int64_t at = (r * p->heads + h) * dim;
            Query query = {p->query + at, p->mixed + at, own->scores + count * (p->slots + 16),
                           seen_by(r, s->rows, s->start, s->mask)};
            queries[count] = query;
        }
        attend(queries, count, p->keys + cache, p->values + cache, dim);
    }
}

static void gate_and_lift(const Plan *p, const Step *s, const Team *team, const Own *own,
                          const Layer *layer) {
    const int64_t width = p->intermediate;
    int64_t first, end;
    share(team, width, 16, &first, &end);
    Operands gate = {own->normed, p->hidden, p->gated + first, width};
    Operands lift = {own->normed, p->hidden, p->lifted + first, width};
    linear(&layer->gate, first, end, s->rows, gate);
    linear(&layer->up, first, end, s->rows, lift);
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t i = r * width + first; i < r * width + end; i += VL) {
            vf x = load(p->gated + i);
            store(p->gated + i, x / (vexp(-x) + splat(1.0f)) * load(p->lifted + i));
        }
}

static void to_delta(const Plan *p, const Step *s, Team *team, const Weight *w, const float *x) {
    int64_t first, end;
    share(team, p->hidden, 8, &first, &end);
    Operands io = {x, w->cols, p->delta + first, p->hidden};
    linear(w, first, end, s->rows, io);
    wait_all(team);
}

static void keep_features(const Plan *p, const Step *s, const Own *own, int64_t l) {
    for (int64_t c = 0; c < p->num_captured; c++)
        for (int64_t r = 0; p->captured[c] == l && r < s->rows; r++)
            memcpy(s->features + (r * p->num_captured + c) * p->hidden,
                   own->residual + r * p->hidden, (size_t)p->hidden * sizeof(float));
}

static void run_layers(const Plan *p, const Step *s, Team *team, const Own *own) {
    for (int64_t l = 0; l < p->num_layers; l++) {
        const Layer *layer = p->layers + l;
        if (l == 0) norm(p, layer->input_norm, own->residual, s->rows, own->normed);
        else add_and_norm(p, layer->input_norm, s->rows, own);
        if (team->index == 0) keep_features(p, s, own, l);
        project_heads(p, s, team, own, l);
        wait_all(team);
        mix_heads(p, s, team, own, l);
        wait_all(team);
        to_delta(p, s, team, &layer->o, p->mixed);
        add_and_norm(p, layer->post_norm, s->rows, own);
        gate_and_lift(p, s, team, own, layer);
        wait_all(team);
        to_delta(p, s, team, &layer->down, p->gated);
    }
    add_and_norm(p, p->final_norm, s->rows, own);
}

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

/* Which input is out of range: 0 none, 1 tokens, 2 positions, 3 the mask's diagonal. */
static int fault_of(const Plan *p, const Step *s) {
    for (int64_t r = 0; r < s->rows; r++) {
        if (s->tokens[r] < 0 || s->tokens[r] >= p->vocab) return 1;
        if (s->positions[r] < 0 || s->positions[r] >= p->slots) return 2;
        if (s->mask && !s->mask[r * s->rows + r]) return 3;
    }
    return 0;
}

/* Run the step; returns fault_of's number, and nothing is written unless it is 0. */
int native_step(const Plan *p, const Step *s) {
    Barrier barrier = {0, 0, 0};
    int fault = fault_of(p, s);
    if (fault) return fault;
#ifdef _OPENMP
#pragma omp parallel num_threads((int)p->threads) if (p->threads > 1)
#endif
    {
#ifdef _OPENMP
        Team team = {&barrier, omp_get_thread_num(), omp_get_num_threads()};
#else
        Team team = {&barrier, 0, 1};
#endif
        Own own = own_of(p, &team);
        for (int64_t r = 0; r < s->rows; r++)
            decode_row(&p->embedding, s->tokens[r], own.residual + r * p->hidden);
        run_layers(p, s, &team, &own);
        if (s->first_logit < s->rows) run_head(p, s, &team, &own);
    }
    return 0;
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
