/*
 * stats.h - samples, quantiles and the bootstrap interval of a median
 */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>

struct samples {
    double *v;
    size_t n, size;
};

void samples_add(struct samples *s, double v);
double samples_quantile(const struct samples *s, double q);     /* q in [0, 1]; NaN when empty */
double samples_min(const struct samples *s);
void samples_done(struct samples *s);

struct ratio {
    double median, low, high;   /* 95 % bootstrap interval of the median */
};

/* Median of the per-round ratios a[i] / b[i], over the rounds that both have. */
struct ratio samples_ratio(const struct samples *a, const struct samples *b);

double now_ms(void);

#endif
