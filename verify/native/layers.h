/* The decoder layers: five meetings of the team in each, after qkv, attention, o, gate/up, down. */
#ifndef NATIVE_LAYERS_H
#define NATIVE_LAYERS_H

#include "gated.h"
#include "join.h"
#include "linear.h"

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

/* A block's last product, and its end. */
static void finish_block(const Plan *p, const Step *s, Team *team, const Own *own,
                         const Weight *w, const float *x, Join join) {
    int64_t first, end;
    share(team, p->hidden, 8, &first, &end);
    Operands io = {x, w->cols, part_of(p, s, join.number) + first, p->hidden};
    linear(w, first, end, s->rows, io);
    wait_all(team);
    end_block(p, s, team, own, join);
}

static void keep_features(const Plan *p, const Step *s, const Own *own, int64_t l) {
    for (int64_t c = 0; c < p->num_captured; c++)
        for (int64_t r = 0; p->captured[c] == l && r < s->rows; r++)
            memcpy(s->features + (r * p->num_captured + c) * p->hidden,
                   own->residual + r * p->hidden, (size_t)p->hidden * sizeof(float));
}

/* Blocks are numbered from `number` + 1 on: ranks meet at the end of each. */
static void run_layers(const Plan *p, const Step *s, Team *team, const Own *own,
                       uint64_t number) {
    norm(p, p->layers->input_norm, own->residual, s->rows, own->normed);
    for (int64_t l = 0; l < p->num_layers; l++) {
        const Layer *layer = p->layers + l;
        const Join attended = {layer->post_norm, ++number};
        const Join fed = {l + 1 < p->num_layers ? layer[1].input_norm : p->final_norm, ++number};
        if (team->index == 0) keep_features(p, s, own, l);
        project_heads(p, s, team, own, l);
        wait_all(team);
        mix_heads(p, s, team, own, l);
        wait_all(team);
        finish_block(p, s, team, own, &layer->o, p->mixed, attended);
        Gated feed = {&layer->gate, &layer->up, p->gated, p->lifted, p->intermediate};
        gate_and_lift(&feed, own->normed, p->hidden, s->rows, team);
        wait_all(team);
        finish_block(p, s, team, own, &layer->down, p->gated, fed);
    }
}

#endif
