/*
 * sdk.h - the program with Modal's JavaScript client that the suite measures beside REST
 */
#ifndef BENCH_SDK_H
#define BENCH_SDK_H

#include <stdio.h>
#include <sys/types.h>

struct sdk {
    pid_t pid;                  /* 0 = not started */
    FILE *to, *from;
};

/* Runs `node program` and waits until it is ready. 0 or -1; what it needs it finds in the environment (sdk.mjs). */
int sdk_start(struct sdk *s, const char *program);
/* One command line; the milliseconds that it took, or a negative number after a failure that has been told on stderr. */
double sdk_time(struct sdk *s, const char *command);
/* Its sandboxes are gone after that. Accepts one that was never started. */
void sdk_stop(struct sdk *s);

#endif
