/*
 * suite.c - the benchmark suite: Quicksand through its public REST API beside peers, in one run
 *
 * bench/run prepares the daemon, the bundle and the peers and starts this program. Rules: rounds are interleaved (one
 * sample of each contender a round), every reply is checked byte for byte, a single failure fails the
 * benchmark, and what is compared is the median of per-round ratios.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/mem.h"
#include "client.h"
#include "peers.h"
#include "sdk.h"
#include "stats.h"

/* What our sandboxes set too: a program loads its locale on both sides, or the comparison is of locales. */
#define ENVIRONMENT "LANG=C.UTF-8"

struct setup {
    const char *host;
    int port;
    const char *token;
    const char *bundle;         /* OCI bundle for crun, its root/ for bwrap */
    int rounds;
    int idle;                   /* sandboxes of `density` */
    const char *sdk;            /* program with Modal's JavaScript client, NULL = not to be had here */
};

static struct setup setup;
static json_t *results;
static bool all_ok = true;
static struct samples control_u;    /* posix_spawn of true, over the whole run */

static double u_median(void)
{
    return samples_quantile(&control_u, 0.5);
}

static void sample_control(void)
{
    const char *const argv[] = {"/bin/true", NULL};
    double t = peer_time(argv);

    if (t >= 0)
        samples_add(&control_u, t);
}

/* --- reporting ---------------------------------------------------------------------------------------------------- */

struct row {
    const char *name;
    int runs, failures;
    json_t *value, *ratio, *gate;
    bool gate_met;
};

static struct row row_new(const char *name)
{
    return (struct row){name, 0, 0, json_object(), json_object(), json_object(), true};
}

static void row_value(struct row *r, const char *key, double v)
{
    (void)json_object_set_new(r->value, key, isnan(v) ? json_null() : json_real(v));
}

static void row_samples(struct row *r, const struct samples *s)
{
    row_value(r, "min_ms", samples_min(s));
    row_value(r, "p50_ms", samples_quantile(s, 0.5));
    row_value(r, "p95_ms", samples_quantile(s, 0.95));
    row_value(r, "p99_ms", samples_quantile(s, 0.99));
}

/* peer / ours: how many times faster we are. `least` is the gate, 0 = none. */
static void row_peer(struct row *r, const char *peer, const struct samples *theirs, const struct samples *ours,
                     double least)
{
    struct ratio q = samples_ratio(theirs, ours);
    char key[80];

    (void)json_object_set_new(r->ratio, peer, isnan(q.median) ? json_null() : json_real(q.median));
    printf("  %-12s p50 %8.3f ms   %6.2f times ours [%.2f, %.2f]\n", peer, samples_quantile(theirs, 0.5),
           q.median, q.low, q.high);
    if (least > 0) {
        (void)snprintf(key, sizeof key, "%s_min", peer);
        (void)json_object_set_new(r->gate, key, json_real(least));
        if (!(q.median >= least))
            r->gate_met = false;
    }
}

static void row_end(struct row *r)
{
    double p50 = json_number_value(json_object_get(r->value, "p50_ms"));
    bool ok = r->failures == 0 && r->runs > 0;

    if (!ok || !r->gate_met)
        all_ok = false;
    (void)json_array_append_new(
        results, json_pack("{s:s, s:b, s:i, s:i, s:o, s:o, s:o, s:o, s:b}", "name", r->name, "ok", ok, "runs",
                           r->runs, "failures", r->failures, "value", r->value, "unit_u",
                           p50 > 0 && u_median() > 0 ? json_real(p50 / u_median()) : json_null(), "ratio", r->ratio,
                           "gate", r->gate, "gate_met", r->gate_met && ok));
    printf("%-12s %s, %d runs, %d failures%s\n\n", r->name, ok ? "ok" : "FAILED", r->runs, r->failures,
           r->gate_met ? "" : ", GATE NOT MET");
    (void)fflush(stdout);
}

/* --- our side ----------------------------------------------------------------------------------------------------- */

static int sandbox_create(struct client *c, char id[ID_SIZE])
{
    struct reply r;
    int rc = -1;

    if (client_call(c, "POST", "/v1/sandboxes", "{\"timeout_s\": 1800, \"idle_timeout_s\": null}", &r) < 0)
        return -1;
    if (r.status == 201 && reply_text(&r, "id", id, ID_SIZE))
        rc = 0;
    else
        fprintf(stderr, "create: %d %.300s\n", r.status, r.body);
    reply_done(&r);
    return rc;
}

static int sandbox_echo(struct client *c, const char *id, const char *nonce)
{
    char *path = mem_printf("/v1/sandboxes/%s/run", id);
    char *json = mem_printf("{\"command\": [\"/bin/echo\", \"-n\", \"%s\"]}", nonce);
    char got[128];
    struct reply r;
    int rc = -1;

    if (client_call(c, "POST", path, json, &r) == 0) {
        if (r.status == 200 && reply_text(&r, "stdout", got, sizeof got) && strcmp(got, nonce) == 0)
            rc = 0;
        else
            fprintf(stderr, "run: %d %.300s\n", r.status, r.body);
        reply_done(&r);
    }
    free(path);
    free(json);
    return rc;
}

/* `true`, whose success is its exit code. */
static int sandbox_true(struct client *c, const char *id)
{
    auto_free char *path = mem_printf("/v1/sandboxes/%s/run", id);
    struct reply r;
    int rc = -1;

    if (client_call(c, "POST", path, "{\"command\": [\"/bin/true\"]}", &r) == 0) {
        if (r.status == 200 && strstr(r.body, "\"reason\":\"exited\",\"code\":0,") != NULL)
            rc = 0;
        else
            fprintf(stderr, "run: %d %.300s\n", r.status, r.body);
        reply_done(&r);
    }
    return rc;
}

static int sandbox_delete(struct client *c, const char *id)
{
    char *path = mem_printf("/v1/sandboxes/%s", id);
    struct reply r;
    int rc = -1;

    if (client_call(c, "DELETE", path, NULL, &r) == 0) {
        rc = r.status == 204 ? 0 : -1;
        reply_done(&r);
    }
    free(path);
    return rc;
}

/* --- exec: a command in a live sandbox ---------------------------------------------------------------------------- */

static void bench_exec(struct client *c)
{
    struct row row = row_new("exec");
    struct samples ours = {0}, crun = {0}, floor = {0};
    char id[ID_SIZE], bundle[ID_SIZE];
    auto_free char *config = mem_printf("%s/idle.json", setup.bundle);
    const char *const start[] = {"crun", "--cgroup-manager=disabled", "run", "--detach", "-b", setup.bundle,
                                 "--config", config, bundle, NULL};
    const char *const exec[] = {"crun", "--cgroup-manager=disabled", "exec", "--env", ENVIRONMENT, bundle,
                                "/bin/true", NULL};
    const char *const stop[] = {"crun", "--cgroup-manager=disabled", "delete", "-f", bundle, NULL};

    id_make(bundle, "b-");
    if (sandbox_create(c, id) < 0) {
        row.failures++;
        row_end(&row);
        return;
    }
    bool have_crun = peer_run(start) == 0;
    if (!have_crun)
        fprintf(stderr, "exec: crun could not start its container\n");
    for (int i = 0; i < setup.rounds * 5; i++) {
        sample_control();
        double t0 = now_ms();
        row.runs++;
        if (sandbox_true(c, id) < 0)
            row.failures++;
        samples_add(&ours, now_ms() - t0);
        double t = have_crun ? peer_time(exec) : -1;
        if (t < 0)
            have_crun = false;
        else
            samples_add(&crun, t);
        t = peer_vfork_exec("/bin/true");
        if (t >= 0)
            samples_add(&floor, t);
    }
    (void)peer_run(stop);
    (void)sandbox_delete(c, id);
    row_samples(&row, &ours);
    printf("exec         p50 %8.3f ms   p99 %8.3f ms (true in a live sandbox, REST, authenticated)\n",
           samples_quantile(&ours, 0.5), samples_quantile(&ours, 0.99));
    row_peer(&row, "crun_exec", &crun, &ours, 4.0);
    struct ratio f = samples_ratio(&ours, &floor);
    (void)json_object_set_new(row.ratio, "vfork_exec", json_real(f.median));
    printf("  %-12s p50 %8.3f ms   ours is %.2f times it\n", "vfork_exec", samples_quantile(&floor, 0.5), f.median);
    row_end(&row);
    samples_done(&ours);
    samples_done(&crun);
    samples_done(&floor);
}

/* --- tti-warm: create, first output, destroy ---------------------------------------------------------------------- */

static void bench_life(struct client *c)
{
    struct row row = row_new("tti-warm");
    struct samples whole = {0}, first = {0}, crun = {0}, bwrap = {0};
    auto_free char *root = mem_printf("%s/rootfs", setup.bundle);
    auto_free char *config = mem_printf("%s/echo.json", setup.bundle);
    char name[ID_SIZE];
    const char *const crun_run[] = {"crun", "--cgroup-manager=disabled", "run", "-b", setup.bundle, "--config",
                                    config, name, NULL};
    const char *const bwrap_run[] = {"bwrap", "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
                                     "/tmp", "--unshare-all", "--die-with-parent", "--setenv", "LANG", "C.UTF-8", "/bin/echo",
                                     "-n", "x", NULL};

    for (int i = 0; i < setup.rounds; i++) {
        char id[ID_SIZE];
        sample_control();
        double t0 = now_ms();
        row.runs++;
        if (sandbox_create(c, id) < 0 || sandbox_echo(c, id, "x") < 0) {
            row.failures++;
            continue;
        }
        double t1 = now_ms();
        if (sandbox_delete(c, id) < 0)
            row.failures++;
        samples_add(&first, t1 - t0);
        samples_add(&whole, now_ms() - t0);
        id_make(name, "b-");
        double t = peer_time_output(crun_run, "x");
        samples_add(&crun, t >= 0 ? t : NAN);
        t = peer_time_output(bwrap_run, "x");
        samples_add(&bwrap, t >= 0 ? t : NAN);
        (void)usleep(20000);            /* the pool refills; its rate is `churn`'s matter */
    }
    row_samples(&row, &first);
    row_value(&row, "with_destroy_p50_ms", samples_quantile(&whole, 0.5));
    printf("tti-warm     p50 %8.3f ms   p99 %8.3f ms to first output; with destroy p50 %.3f ms\n",
           samples_quantile(&first, 0.5), samples_quantile(&first, 0.99), samples_quantile(&whole, 0.5));
    row_peer(&row, "crun_run", &crun, &whole, 1.0);
    row_peer(&row, "bwrap", &bwrap, &whole, 0);
    row_end(&row);
    samples_done(&whole);
    samples_done(&first);
    samples_done(&crun);
    samples_done(&bwrap);
}

/* --- sdk: the same two through Modal's JavaScript client, a REST sample beside each ------------------------------- */

static double rest_exec(struct client *c, const char *id)
{
    double t0 = now_ms();

    return sandbox_true(c, id) == 0 ? now_ms() - t0 : -1;
}

static double rest_life(struct client *c, const char *nonce)
{
    char id[ID_SIZE];
    double t0 = now_ms(), t = -1;

    if (sandbox_create(c, id) < 0)
        return -1;
    if (sandbox_echo(c, id, nonce) == 0)
        t = now_ms() - t0;
    (void)sandbox_delete(c, id);
    return t;
}

static void row_sdk(struct row *r, const char *what, struct samples *sdk, struct samples *rest)
{
    struct ratio q = samples_ratio(sdk, rest);

    row_samples(r, sdk);
    row_value(r, "rest_p50_ms", samples_quantile(rest, 0.5));
    row_value(r, "rest_p99_ms", samples_quantile(rest, 0.99));
    (void)json_object_set_new(r->ratio, "rest", isnan(q.median) ? json_null() : json_real(q.median));
    printf("%-12s p50 %8.3f ms   p99 %8.3f ms (%s, JavaScript, one connection)\n", r->name,
           samples_quantile(sdk, 0.5), samples_quantile(sdk, 0.99), what);
    printf("  %-12s p50 %8.3f ms   the client's is %.2f times it [%.2f, %.2f]\n", "rest",
           samples_quantile(rest, 0.5), q.median, q.low, q.high);
    row_end(r);
    samples_done(sdk);
    samples_done(rest);
}

/* A failed sample counts as a failure and keeps its place as NaN, so that rounds stay paired. */
static void sample(struct row *r, struct samples *s, double t)
{
    r->runs++;
    if (t < 0)
        r->failures++;
    samples_add(s, t >= 0 ? t : NAN);
}

static void bench_sdk(struct client *c)
{
    struct row exec = row_new("sdk-exec"), life = row_new("sdk-tti");
    struct samples exec_sdk = {0}, exec_rest = {0}, life_sdk = {0}, life_rest = {0};
    char id[ID_SIZE], nonce[ID_SIZE], command[ID_SIZE + 8];
    struct sdk sdk;

    bool started = sdk_start(&sdk, setup.sdk) == 0;
    if (!started)
        exec.failures = life.failures = 1;
    bool live = started && sandbox_create(c, id) == 0;
    for (int i = 0; live && i < setup.rounds * 2; i++) {
        sample_control();
        sample(&exec, &exec_rest, rest_exec(c, id));
        sample(&exec, &exec_sdk, sdk_time(&sdk, "exec"));
        if (i % 2 != 0)
            continue;
        id_make(nonce, "n-");
        (void)snprintf(command, sizeof command, "life %s", nonce);
        sample(&life, &life_rest, rest_life(c, nonce));
        sample(&life, &life_sdk, sdk_time(&sdk, command));
        (void)usleep(20000);            /* the pool refills, as in tti-warm */
    }
    if (live)
        (void)sandbox_delete(c, id);
    sdk_stop(&sdk);
    row_sdk(&exec, "exec round trip", &exec_sdk, &exec_rest);
    row_sdk(&life, "create to first output", &life_sdk, &life_rest);
}

/* --- tti-burst: many creates at one instant ----------------------------------------------------------------------- */

struct burst {
    pthread_barrier_t *start;
    char id[ID_SIZE];
    double ready_ms;
    bool ok;
};

static void *burst_one(void *arg)
{
    struct burst *b = arg;
    struct client c;
    struct reply r;

    client_init(&c, setup.host, setup.port, setup.token);
    if (client_call(&c, "GET", "/v1/health", NULL, &r) == 0)    /* connect before the start */
        reply_done(&r);
    (void)pthread_barrier_wait(b->start);
    b->ok = sandbox_create(&c, b->id) == 0 && sandbox_echo(&c, b->id, b->id) == 0;
    b->ready_ms = now_ms();
    client_done(&c);
    return NULL;
}

static void bench_burst(struct client *c, size_t n)
{
    struct row row = row_new("tti-burst");
    struct burst *all = mem_array(n, sizeof *all);
    pthread_t *threads = mem_array(n, sizeof *threads);
    struct samples ready = {0};
    pthread_barrier_t start;
    pthread_attr_t attr;
    double last = 0;

    (void)pthread_barrier_init(&start, NULL, (unsigned)n + 1);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, 256 * 1024);
    for (size_t i = 0; i < n; i++) {
        all[i].start = &start;
        if (pthread_create(&threads[i], &attr, burst_one, &all[i]) != 0) {
            fprintf(stderr, "tti-burst: cannot start threads\n");
            exit(2);
        }
    }
    (void)usleep(200000);
    (void)pthread_barrier_wait(&start);
    double t0 = now_ms();
    for (size_t i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
        row.runs++;
        if (!all[i].ok)
            row.failures++;
        samples_add(&ready, all[i].ready_ms - t0);
        if (all[i].ready_ms - t0 > last)
            last = all[i].ready_ms - t0;
    }
    for (size_t i = 0; i < n; i++)
        if (all[i].id[0] != '\0')
            (void)sandbox_delete(c, all[i].id);
    row_samples(&row, &ready);
    row_value(&row, "last_ms", last);
    row_value(&row, "count", (double)n);
    printf("tti-burst    %zu at once: last ready after %.1f ms, median %.1f ms\n", n, last,
           samples_quantile(&ready, 0.5));
    row_end(&row);
    samples_done(&ready);
    (void)pthread_barrier_destroy(&start);
    (void)pthread_attr_destroy(&attr);
    free(all);
    free(threads);
}

/* --- density: many idle sandboxes, each proven alive -------------------------------------------------------------- */

static double memory_available_kib(void)
{
    char line[256];
    double kib = NAN;
    FILE *f = fopen("/proc/meminfo", "re");

    if (f == NULL)
        return NAN;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtod(line + 13, NULL);
    (void)fclose(f);
    return kib;
}

static void bench_density(struct client *c)
{
    struct row row = row_new("density");
    size_t n = (size_t)setup.idle;
    char(*ids)[ID_SIZE] = mem_array(n, sizeof *ids);
    struct samples answer = {0};
    double before = memory_available_kib();
    double t0 = now_ms();

    for (size_t i = 0; i < n; i++)
        if (sandbox_create(c, ids[i]) < 0) {
            row.failures++;
            ids[i][0] = '\0';
        }
    double filled = now_ms() - t0;
    (void)sleep(2);
    double after = memory_available_kib();
    for (size_t i = 0; i < n; i++) {
        char nonce[ID_SIZE];
        row.runs++;
        id_make(nonce, "n-");
        double t1 = now_ms();
        if (ids[i][0] == '\0' || sandbox_echo(c, ids[i], nonce) < 0)
            row.failures++;
        else
            samples_add(&answer, now_ms() - t1);
    }
    for (size_t i = 0; i < n; i++)
        if (ids[i][0] != '\0')
            (void)sandbox_delete(c, ids[i]);
    row_samples(&row, &answer);
    row_value(&row, "count", (double)n);
    row_value(&row, "fill_ms", filled);
    row_value(&row, "kib_each", (before - after) / (double)n);
    printf("density      %zu idle in %.0f ms, %.0f KiB each; exec while full p50 %.3f ms\n", n, filled,
           (before - after) / (double)n, samples_quantile(&answer, 0.5));
    row_end(&row);
    samples_done(&answer);
    free(ids);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static bool wanted(int argc, char **argv, const char *name)
{
    if (argc <= 7)
        return true;
    for (int i = 7; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

static int write_results(const char *path)
{
    struct utsname uts;
    double lo = samples_quantile(&control_u, 0.25), hi = samples_quantile(&control_u, 0.75);
    const char *commit = getenv("BENCH_COMMIT");
    double u = u_median();

    (void)uname(&uts);
    json_t *all = json_pack("{s:{s:i, s:s, s:b}, s:s, s:s, s:f, s:O}", "machine", "cpus",
                            (int)sysconf(_SC_NPROCESSORS_ONLN), "kernel", uts.release, "noisy",
                            !(hi / lo < 1.25), "commit", commit != NULL ? commit : "", "profile", "default", "u_ms",
                            isnan(u) ? 0.0 : u, "benchmarks", results);    /* no row of ours was asked for: JSON has no NaN */
    int r = json_dump_file(all, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(all);
    return r;
}

int main(int argc, char **argv)
{
    struct client c;

    if (argc < 7) {
        fprintf(stderr, "usage: suite HOST PORT TOKEN BUNDLE ROUNDS RESULTS.json [BENCHMARK ...]\n");
        return 2;
    }
    setup = (struct setup){argv[1], (int)strtol(argv[2], NULL, 10), argv[3], argv[4],
                           (int)strtol(argv[5], NULL, 10), 1000};
    setup.sdk = getenv("BENCH_SDK");
    if (getenv("BENCH_IDLE") != NULL)
        setup.idle = (int)strtol(getenv("BENCH_IDLE"), NULL, 10);
    results = json_array();
    client_init(&c, setup.host, setup.port, setup.token);
    if (wanted(argc, argv, "exec"))
        bench_exec(&c);
    if (wanted(argc, argv, "tti-warm"))
        bench_life(&c);
    if (setup.sdk != NULL && wanted(argc, argv, "sdk"))
        bench_sdk(&c);
    if (wanted(argc, argv, "tti-burst"))
        bench_burst(&c, 100);
    if (wanted(argc, argv, "density"))
        bench_density(&c);
    printf("U (posix_spawn of /bin/true): %.3f ms\n", u_median());
    if (write_results(argv[6]) < 0) {
        fprintf(stderr, "cannot write %s\n", argv[6]);
        return 2;
    }
    json_decref(results);
    samples_done(&control_u);
    client_done(&c);
    return all_ok ? 0 : 1;
}
