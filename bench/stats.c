/*
 * stats.c - order statistics
 */
#include "stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

#define BOOTSTRAP_ROUNDS 1000

void samples_add(struct samples *s, double v)
{
    if (s->n == s->size) {
        s->size = s->size ? s->size * 2 : 64;
        s->v = mem_realloc(s->v, s->size * sizeof *s->v);
    }
    s->v[s->n++] = v;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile_sorted(const double *v, size_t n, double q)
{
    if (n == 0)
        return NAN;
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n)
        return v[n - 1];
    return v[i] + (at - (double)i) * (v[i + 1] - v[i]);
}

double samples_quantile(const struct samples *s, double q)
{
    if (s->n == 0)
        return NAN;
    double *copy = mem_dup(s->v, s->n * sizeof *copy);
    qsort(copy, s->n, sizeof *copy, compare);
    double r = quantile_sorted(copy, s->n, q);
    free(copy);
    return r;
}

double samples_min(const struct samples *s)
{
    return samples_quantile(s, 0);
}

void samples_done(struct samples *s)
{
    free(s->v);
    *s = (struct samples){0};
}

/* xorshift64*: the bootstrap needs speed and repeatability, not secrecy. */
static uint64_t next_random(uint64_t *x)
{
    *x ^= *x >> 12;
    *x ^= *x << 25;
    *x ^= *x >> 27;
    return *x * 0x2545F4914F6CDD1DULL;
}

struct ratio samples_ratio(const struct samples *a, const struct samples *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    struct ratio r = {NAN, NAN, NAN};

    if (n == 0)
        return r;
    double *all = mem_array(n, sizeof *all);
    double *draw = mem_array(n, sizeof *draw);
    double *medians = mem_array(BOOTSTRAP_ROUNDS, sizeof *medians);
    uint64_t seed = 88172645463325252ULL;

    for (size_t i = 0; i < n; i++)
        all[i] = a->v[i] / b->v[i];
    for (size_t k = 0; k < BOOTSTRAP_ROUNDS; k++) {
        for (size_t i = 0; i < n; i++)
            draw[i] = all[next_random(&seed) % n];
        qsort(draw, n, sizeof *draw, compare);
        medians[k] = quantile_sorted(draw, n, 0.5);
    }
    qsort(medians, BOOTSTRAP_ROUNDS, sizeof *medians, compare);
    qsort(all, n, sizeof *all, compare);
    r.median = quantile_sorted(all, n, 0.5);
    r.low = quantile_sorted(medians, BOOTSTRAP_ROUNDS, 0.025);
    r.high = quantile_sorted(medians, BOOTSTRAP_ROUNDS, 0.975);
    free(all);
    free(draw);
    free(medians);
    return r;
}

double now_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}
