/*
 * netload.c - the two ends of connections whose throughput and latency are measured
 *
 * Usage: netload serve ADDRESS PORT [-c CERTIFICATE -k KEY] [-w WANTED]    until killed; says "ready"
 *        netload get|put ADDRESS PORT BYTES     seconds from the connect to the last byte
 *        netload ping ADDRESS PORT COUNT        a small request and its answer on one open connection, again and again
 *        netload setup ADDRESS PORT COUNT       from the connect to the answer to a first request, again and again
 * The last two print the median and the 99th percentile in microseconds. Options of the last four: -g FILE, bytes that are
 * sent before all else and that the server throws away: the greeting of TLS, by whose name a proxy decides; -t NAME, TLS with
 * that name asked for; -H LINE, a line more in requests; -a N, stays on that processor and goes before all else there. -w:
 * requests without that line are refused, which ends the client.
 * Started by net.py, on the host and in the networks of sandboxes.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "netload.h"

#define SAMPLES_MAX 100000
#define SMALL 100 /* bytes of a small answer */

static struct ssl_ctx_st *tls;
static const char *host, *port, *name = "", *line, *greeting;
static bool is_first; /* nothing was said on the connection */

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* With the first request in one piece, as a client's first words are. */
static size_t read_greeting(char *out, size_t size)
{
    FILE *f = fopen(greeting, "rb");

    if (f == NULL)
        die(greeting);
    size_t n = fread(out, 1, size, f);
    (void)fclose(f);
    return n;
}

static void dial(struct wire *w)
{
    wire_dial(w, host, port, tls, name);
    is_first = true;
}

static void ask(struct wire *w, uint64_t gets, uint64_t puts)
{
    static char greeted[HEAD_MAX];
    static size_t ngreeted;
    char out[2 * HEAD_MAX];
    size_t before = 0;

    if (is_first && greeting != NULL) {
        if (ngreeted == 0)
            ngreeted = read_greeting(greeted, sizeof greeted);
        memcpy(out, greeted, ngreeted);
        before = ngreeted;
    }
    is_first = false;
    int n = snprintf(out + before, sizeof out - before, "%s /%llu HTTP/1.1\r\nhost: %s:%s\r\n%s%scontent-length: %llu\r\n\r\n",
                     puts > 0 ? "PUT" : "GET", (unsigned long long)gets, name[0] != '\0' ? name : host, port,
                     line != NULL ? line : "", line != NULL ? "\r\n" : "", (unsigned long long)puts);

    wire_write(w, out, before + (size_t)n);
    wire_fill(w, puts);
    size_t head = wire_head(w);
    if (head == 0 || strncmp(w->held, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "netload: %s\n", head == 0 ? "the connection ended" : w->held);
        exit(1);
    }
    wire_drop(w, head);
    wire_drop(w, gets);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print_samples(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    printf("%.3f %.3f\n", v[n / 2] * 1e6, v[n * 99 / 100] * 1e6);
}

static void bulk(uint64_t gets, uint64_t puts)
{
    struct wire w;
    double t = now_s();

    dial(&w);
    ask(&w, gets, puts);
    printf("%.6f\n", now_s() - t);
}

static void sample(bool is_setup, size_t n)
{
    static double v[SAMPLES_MAX];
    struct wire w;

    if (!is_setup)
        dial(&w);
    for (size_t i = 0; i < n; i++) {
        double t = now_s();
        if (is_setup)
            dial(&w);
        ask(&w, SMALL, 0);
        v[i] = now_s() - t;
        if (is_setup)
            wire_close(&w);
    }
    print_samples(v, n);
}

static void stay_on(const char *processor)
{
    const struct sched_param first = {.sched_priority = 1};
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(strtoul(processor, NULL, 10), &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0 || sched_setscheduler(0, SCHED_FIFO, &first) < 0)
        die("stay on a processor");
}

static int usage(void)
{
    fprintf(stderr, "usage: netload serve ADDRESS PORT [-c CERTIFICATE -k KEY] [-w LINE]\n"
                    "       netload get|put|ping|setup ADDRESS PORT NUMBER [-g FILE] [-t NAME] [-H LINE] [-a N]\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *cert = NULL, *key = NULL, *wanted = NULL;
    int option;

    (void)signal(SIGPIPE, SIG_IGN);
    while ((option = getopt(argc, argv, "a:c:k:w:g:t:H:")) != -1) {
        switch (option) {
        case 'a':
            stay_on(optarg);
            break;
        case 'c':
            cert = optarg;
            break;
        case 'k':
            key = optarg;
            break;
        case 'w':
            wanted = optarg;
            break;
        case 'g':
            greeting = optarg;
            break;
        case 't':
            name = optarg;
            tls = wire_client_tls();
            break;
        case 'H':
            line = optarg;
            break;
        default:
            return usage();
        }
    }
    argv += optind;
    argc -= optind;
    const char *what = argc > 2 ? argv[0] : "";
    if (argc == 3 && strcmp(what, "serve") == 0)
        serve(argv[1], argv[2], cert, key, wanted);
    uint64_t n = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    bool is_setup = strcmp(what, "setup") == 0, is_ping = strcmp(what, "ping") == 0;
    host = argv[1];
    port = argv[2];
    if (n == 0 || ((is_setup || is_ping) && n > SAMPLES_MAX))
        return usage();
    if (is_setup || is_ping)
        sample(is_setup, (size_t)n);
    else if (strcmp(what, "get") == 0)
        bulk(n, 0);
    else if (strcmp(what, "put") == 0)
        bulk(0, n);
    else
        return usage();
    return 0;
}
