/* One EAGLE-3 draft in one call: read the new rows, then follow the best slot, without leaving C. */
#include "attention.h"
#include "gated.h"
#include "linear.h"
#include "team.h"

typedef struct { /* mirrored field by field in native.py */
    int64_t hidden, intermediate, heads, kv_heads, head_dim, draft_vocab, slots, threads, max_rows;
    double eps;
    Weight embedding, fc, q, k, v, o, gate, up, down, head;
    const float *input_norm, *hidden_norm, *post_norm, *final_norm;
    const float *cosines, *sines; /* [slots, head_dim / 2] */
    const int64_t *ids;           /* [draft_vocab] token of each slot */
    float *keys, *values;         /* [kv_heads, slots, head_dim] */
    float *fused, *query, *mixed, *delta, *gated, *lifted, *logits;
    float *scratch; /* [threads, draft_scratch()] */
    int64_t *bests; /* [threads] */
    float *tops;    /* [threads] */
} Head;

typedef struct {
    const int64_t *tokens;
    const float *features; /* [rows, fc.cols]: rows with the target's states; NULL: `hidden` */
    const float *hidden;   /* [rows, hidden]: the states that rows without features start from */
    const uint8_t *mask;   /* [rows, span]; NULL: causal */
    int64_t rows, start, span; /* rows stand in the last of `span` slots from `start` on */
    int64_t outputs;           /* last rows whose state and logits are wanted */
    int64_t length;            /* slots to follow; 0: none */
    float *states;             /* [outputs, hidden] */
    int64_t *chain;            /* [length] slots */
} Draft;

typedef struct { /* one thread's own memory */
    float *state, *normed, *scores;
} Own;

/* Floats of scratch that each thread needs. */
int64_t draft_scratch(const Head *h) {
    int64_t floats = 3 * h->max_rows * h->hidden + h->slots + 32;
    return (floats + 15) / 16 * 16;
}

static Own own_of(const Head *h, const Team *team) {
    Own own;
    own.state = h->scratch + team->index * draft_scratch(h);
    own.normed = own.state + h->max_rows * h->hidden;
    own.scores = own.normed + 2 * h->max_rows * h->hidden;
    return own;
}

static void norm(const Head *h, const float *weight, const float *in, float *out) {
    vf squares = {0};
    for (int64_t i = 0; i < h->hidden; i += VL) squares = fma_(load(in + i), load(in + i), squares);
    float scale = 1.0f / sqrtf(sum(squares) / (float)h->hidden + (float)h->eps);
    for (int64_t i = 0; i < h->hidden; i += VL)
        store(out + i, load(in + i) * splat(scale) * load(weight + i));
}

static Seen row_sees(const Draft *d, int64_t row) {
    int64_t slot = d->start + d->span - d->rows + row;
    if (!d->mask) return (Seen){slot, slot + 1, NULL};
    return seen_by(row, d->span, d->start, d->mask);
}

static void rotate(const Head *h, float *head, int64_t position, float scale) {
    const int64_t half = h->head_dim / 2;
    const float *c = h->cosines + position * half, *n = h->sines + position * half;
    for (int64_t i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = (a * c[i] - b * n[i]) * scale;
        head[i + half] = (b * c[i] + a * n[i]) * scale;
    }
}

/* The head's state of each row: from the target's states, or as given. */
static void begin_rows(const Head *h, const Draft *d, Team *team, const Own *own) {
    const float *states = d->hidden;
    if (d->features) {
        int64_t first, end;
        share(team, h->hidden, 8, &first, &end);
        Operands io = {d->features, h->fc.cols, h->fused + first, h->hidden};
        linear(&h->fc, first, end, d->rows, io);
        wait_all(team);
        states = h->fused;
    }
    memcpy(own->state, states, (size_t)(d->rows * h->hidden) * sizeof(float));
}

/* [norm of the embedding, norm of the state] of each row; the embedding passes through its place. */
static void norm_inputs(const Head *h, const Draft *d, const Own *own) {
    for (int64_t r = 0; r < d->rows; r++) {
        float *embedded = own->normed + 2 * r * h->hidden;
        decode_row(&h->embedding, d->tokens[r], embedded);
        norm(h, h->input_norm, embedded, embedded);
        norm(h, h->hidden_norm, own->state + r * h->hidden, embedded + h->hidden);
    }
}

/* Keys and values of every row; queries of the rows whose output is wanted. */
static void project_heads(const Head *h, const Draft *d, const Team *team, const Own *own) {
    const int64_t dim = h->head_dim, kv = h->kv_heads, skipped = d->rows - d->outputs;
    const int64_t slot = d->start + d->span - d->rows;
    int64_t first, end;
    share(team, h->heads + 2 * kv, 1, &first, &end);
    for (int64_t i = first; i < end; i++) {
        const int is_query = i < h->heads, is_key = !is_query && i < h->heads + kv;
        int64_t head = is_query ? i : (i - h->heads) % kv, from = is_query ? skipped : 0;
        float *cache = (is_key ? h->keys : h->values) + (head * h->slots + slot) * dim;
        float *out = is_query ? h->query + head * dim : cache;
        int64_t stride = is_query ? h->heads * dim : dim;
        Operands io = {own->normed + 2 * from * h->hidden, 2 * h->hidden, out, stride};
        linear(is_query ? &h->q : is_key ? &h->k : &h->v, head * dim, (head + 1) * dim,
               d->rows - from, io);
        for (int64_t r = from; r < d->rows && (is_query || is_key); r++) {
            float scale = is_query ? 1.0f / sqrtf((float)dim) : 1.0f;
            rotate(h, out + (r - from) * stride, row_sees(d, r).count - 1, scale);
        }
    }
}

static void mix_heads(const Head *h, const Draft *d, const Team *team, const Own *own) {
    const int64_t dim = h->head_dim, per_kv = h->heads / h->kv_heads;
    int64_t first, end;
    share(team, h->heads * d->outputs, 1, &first, &end);
    for (int64_t i = first; i < end; i++) {
        int64_t head = i / d->outputs, r = i % d->outputs, at = (r * h->heads + head) * dim;
        int64_t cache = head / per_kv * h->slots * dim;
        Query query = {h->query + at, h->mixed + at, own->scores,
                       row_sees(d, d->rows - d->outputs + r)};
        attend(&query, 1, h->keys + cache, h->values + cache, dim);
    }
}

/* Adds a block's output to this thread's states and norms them, [outputs, hidden]. */
static void add_block(const Head *h, const Draft *d, Team *team, const Own *own, const Weight *w,
                      const float *x, const float *norm_weight) {
    int64_t first, end;
    share(team, h->hidden, 8, &first, &end);
    Operands io = {x, w->cols, h->delta + first, h->hidden};
    linear(w, first, end, d->outputs, io);
    wait_all(team);
    for (int64_t r = 0; r < d->outputs; r++) {
        float *state = own->state + r * h->hidden;
        const float *delta = h->delta + r * h->hidden;
        for (int64_t i = 0; i < h->hidden; i += VL)
            store(state + i, load(state + i) + load(delta + i));
        norm(h, norm_weight, state, own->normed + r * h->hidden);
    }
}

/* The best slot of the last row; every thread returns the same one, the lowest on a tie. */
static int64_t best_slot(const Head *h, const Draft *d, Team *team, int64_t first, int64_t end) {
    const float *logits = h->logits + (d->outputs - 1) * h->draft_vocab;
    int64_t best = first;
    for (int64_t i = first; i < end; i++) best = logits[i] > logits[best] ? i : best;
    h->bests[team->index] = best;
    h->tops[team->index] = first < end ? logits[best] : -INFINITY;
    wait_all(team);
    int from = 0;
    for (int t = 1; t < team->size; t++) from = h->tops[t] > h->tops[from] ? t : from;
    return h->bests[from];
}

/* Runs the rows; returns the best slot of the last one. */
static int64_t run_rows(const Head *h, const Draft *d, Team *team, const Own *own) {
    norm_inputs(h, d, own);
    project_heads(h, d, team, own);
    wait_all(team);
    memmove(own->state, own->state + (d->rows - d->outputs) * h->hidden,
            (size_t)(d->outputs * h->hidden) * sizeof(float));
    mix_heads(h, d, team, own);
    wait_all(team);
    add_block(h, d, team, own, &h->o, h->mixed, h->post_norm);
    Gated feed = {&h->gate, &h->up, h->gated, h->lifted, h->intermediate};
    gate_and_lift(&feed, own->normed, h->hidden, d->outputs, team);
    wait_all(team);
    add_block(h, d, team, own, &h->down, h->gated, h->final_norm);
    int64_t first, end;
    share(team, h->draft_vocab, 8, &first, &end);
    Operands io = {own->normed, h->hidden, h->logits + first, h->draft_vocab};
    linear(&h->head, first, end, d->outputs, io);
    return best_slot(h, d, team, first, end);
}

/* Each further row starts from the state that the row before left in this thread's own memory. */
static void follow(const Head *h, const Draft *d, Team *team, const Own *own, int64_t best) {
    for (int64_t place = 0; place < d->length; place++) {
        if (team->index == 0) d->chain[place] = best;
        if (place + 1 == d->length) return;
        int64_t token = h->ids[best], slot = d->start + d->span + place;
        Draft next = {&token, NULL, NULL, NULL, 1, slot, 1, 1, 0, NULL, NULL};
        wait_all(team); /* nobody reads the last row's tops any more */
        best = run_rows(h, &next, team, own);
    }
}

/* Read rows that have features and need no output, in whole chunks, before `draft_run`. */
static void run_keys(const Head *h, const Draft *d, Team *team, const Own *own) {
    norm_inputs(h, d, own);
    project_heads(h, d, team, own);
    wait_all(team);
}

/* Run one draft. `rows` may be any number where `outputs` is at most `max_rows`. */
void draft_run(const Head *h, const Draft *whole) {
    Barrier barrier = {0, 0, 0};
#ifdef _OPENMP
#pragma omp parallel num_threads((int)h->threads) if (h->threads > 1)
#endif
    {
        Team team = member(&barrier);
        Own own = own_of(h, &team);
        Draft d = *whole;
        while (d.rows > h->max_rows) { /* only rows with features come in such numbers */
            Draft part = d;
            part.rows = part.span = h->max_rows;
            part.outputs = 0;
            begin_rows(h, &part, &team, &own);
            run_keys(h, &part, &team, &own);
            d.tokens += part.rows;
            d.features += part.rows * h->fc.cols;
            d.start += part.rows;
            d.rows = d.span = d.rows - part.rows;
        }
        begin_rows(h, &d, &team, &own);
        int64_t best = run_rows(h, &d, &team, &own);
        if (team.index == 0 && d.states)
            memcpy(d.states, own.state, (size_t)(d.outputs * h->hidden) * sizeof(float));
        follow(h, &d, &team, &own, best);
    }
}
