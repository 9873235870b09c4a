/*
 * certs.c - see certs.h
 */
#include "node/tunnel/certs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "node/certificate.h"

#define LOOK_MS 1000 /* how often files are asked whether they changed */
#define PATH_BYTES 512

/* What tells a file from its successor. */
struct stamp {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct cert {
    char cert[PATH_BYTES], key[PATH_BYTES];
    struct net_tls *tls;    /* NULL: never could be read */
    struct stamp stamps[2]; /* of the last attempt */
    int64_t looked_ms;
};

struct certs {
    const struct conf *conf;
    struct cert own;
    struct map by_host; /* cert, owned */
};

static void stamp_of(const char *path, struct stamp *ret)
{
    struct stat st;

    *ret = (struct stamp){0};
    if (stat(path, &st) == 0)
        *ret = (struct stamp){
            .dev = st.st_dev, .ino = st.st_ino, .size = st.st_size, .mtime = st.st_mtim};
}

static bool is_same(const struct stamp *a, const struct stamp *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/* Reads the files if they are others than at the last attempt. -1 if they were read in vain. */
static int look(struct cert *c, struct err *e)
{
    struct stamp now[2];
    int64_t ms = clock_boot_ms();

    if (c->looked_ms != 0 && ms - c->looked_ms < LOOK_MS)
        return 0;
    c->looked_ms = ms;
    stamp_of(c->cert, &now[0]);
    stamp_of(c->key, &now[1]);
    if (is_same(&now[0], &c->stamps[0]) && is_same(&now[1], &c->stamps[1]))
        return 0;
    memcpy(c->stamps, now, sizeof now);
    struct net_tls *tls = net_tls_server(c->cert, c->key, e);
    if (tls == NULL)
        return -1;
    net_tls_free(c->tls);
    c->tls = tls;
    return 0;
}

static void look_again(struct cert *c)
{
    struct err e;

    if (look(c, &e) < 0)
        log_warn("tunnel.certificate", "file=%s cause=\"%s\"%s", c->cert, e.message,
                 c->tls != NULL ? " the last one stays in use" : "");
}

struct certs *certs_new(struct node *n, struct err *e)
{
    struct certs *c = mem_zalloc(sizeof *c);

    c->conf = &n->conf;
    map_init(&c->by_host);
    if (certificate_files(n, c->own.cert, c->own.key, PATH_BYTES, e) == 0 && look(&c->own, e) == 0)
        return c;
    certs_free(c);
    return NULL;
}

void certs_free(struct certs *c)
{
    struct map_iter it = MAP_ITER;
    const char *host;
    void *v;

    if (c == NULL)
        return;
    while (map_next(&c->by_host, &it, &host, &v)) {
        net_tls_free(((struct cert *)v)->tls);
        free(v);
    }
    map_done(&c->by_host);
    net_tls_free(c->own.tls);
    free(c);
}

static struct cert *entry(struct certs *c, const char *host)
{
    struct cert *cert = map_get(&c->by_host, host);

    if (cert != NULL)
        return cert;
    cert = mem_zalloc(sizeof *cert);
    (void)snprintf(cert->cert, PATH_BYTES, "%s/%s.crt", c->conf->tunnel_certs, host);
    (void)snprintf(cert->key, PATH_BYTES, "%s/%s.key", c->conf->tunnel_certs, host);
    (void)map_put(&c->by_host, host, cert);
    return cert;
}

/* Directly below tunnel_domain, as its certificate is for. */
static bool is_below(const struct certs *c, const char *host)
{
    const char *dot = strchr(host, '.');

    return dot != NULL && c->conf->tunnel_domain[0] != '\0' &&
           strcmp(dot + 1, c->conf->tunnel_domain) == 0;
}

struct net_tls *certs_get(struct certs *c, const char *host)
{
    if (c->conf->tunnel_certs[0] != '\0' && host[0] != '\0') {
        struct cert *cert = entry(c, is_below(c, host) ? c->conf->tunnel_domain : host);
        look_again(cert);
        if (cert->tls != NULL)
            return cert->tls;
    }
    look_again(&c->own);
    return c->own.tls;
}

int certs_check(struct certs *c, const char *host, struct err *e)
{
    if (c->conf->tunnel_certs[0] == '\0')
        return err_param(e, ERR_INVALID, "host",
                         "no host can be given: the server has no directory tunnel_certs");
    struct cert *cert = entry(c, host);
    cert->looked_ms = 0;
    cert->stamps[0] = (struct stamp){0}; /* what was wrong is said again */
    struct err why;
    if (look(cert, &why) < 0)
        return err_param(e, ERR_INVALID, "host",
                         "tunnel_certs has no certificate for '%s' that can be used: %s", host,
                         why.message);
    if (cert->tls == NULL)
        return err_param(e, ERR_INVALID, "host", "tunnel_certs has no certificate for '%s'", host);
    return 0;
}
