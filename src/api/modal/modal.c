/*
 * modal.c - making and ending the dialect; what it does by itself
 */
#include "api/modal/modal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/modal/apps.h"
#include "api/modal/images.h"
#include "api/modal/stdin.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define SWEEP_MS 30000
#define OBJECT_SILENCE_MS (15 * 60 * 1000LL)    /* clients send a sign every 300 s */
#define DEFAULT_ENVIRONMENT "main"

static int ensure_environment(struct modal *m, struct err *e)
{
    struct environment_row r = {.name = DEFAULT_ENVIRONMENT, .is_default = true};
    struct err local = {0};

    if (store_environment_get(core_store(m->core), "", &r, &local) == 0)
        return 0;
    if (local.code != ERR_NOT_FOUND) {
        *e = local;
        return -1;
    }
    id_make(r.id, "en-");
    r.created_us = clock_wall_us();
    return store_environment_insert(core_store(m->core), &r, e);
}

static void on_sweep(void *arg)
{
    struct modal *m = arg;
    int64_t now_ms = clock_wall_ms();
    struct err e;

    apps_sweep(m);
    stdins_sweep(m);
    secrets_expire(m->vault);
    blobs_sweep(m->blobs);
    mounts_sweep(m);
    mounted_sweep(m);
    files_sweep(m->files);
    if (store_object_expire(core_store(m->core), now_ms - OBJECT_SILENCE_MS, now_ms, &e) < 0)
        log_warn("objects.expire", "cause=\"%s\"", e.message);
    loop_timer_set(m->sweep, SWEEP_MS);
}

struct modal *modal_new(struct core *c, struct vault *v, const struct modal_config *conf, struct err *e)
{
    struct modal *m = mem_zalloc(sizeof *m);
    const char *colon = strrchr(conf->router_listen, ':');

    m->core = c;
    m->vault = v;
    (void)snprintf(m->router_host, sizeof m->router_host, "%s", conf->router_host);
    m->router_port = colon != NULL ? (int)strtol(colon + 1, NULL, 10) : 0;
    map_init(&m->waiting);
    map_init(&m->stdins);
    auto_free char *key = mem_printf("%s/control/blobs.key", core_data_dir(c));
    m->files = files_open(c, e);
    if (m->files == NULL || net_seal_key(key, m->blob_key, e) < 0 || ensure_environment(m, e) < 0) {
        modal_free(m);
        return NULL;
    }
    m->blobs = blobs_open(c, m->files);
    m->sweep = loop_timer_new(core_loop(c), on_sweep, m);
    loop_timer_set(m->sweep, SWEEP_MS);
    return m;
}

void modal_free(struct modal *m)
{
    if (m == NULL)
        return;
    loop_timer_free(m->sweep);
    map_done(&m->waiting);
    stdins_free(m);
    map_done(&m->stdins);
    blobs_free(m->blobs);
    files_free(m->files);
    free(m);
}
