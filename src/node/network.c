/*
 * network.c - the policies of the sandboxes here, on disk and in egress
 */
#include "node/network.h"
#include "node/network_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/policy_wire.h"
#include "node/trust.h"
#include "sys/fd.h"

#define DIRECTORY ".network"
#define EGRESS_MS 10000

void network_keep_note(struct network *w, const char *sandbox, struct network_note *note)
{
    network_note_free(map_put(&w->notes, sandbox, note));
}

struct network_note *network_note_of(const Quicksand__Node__Network *m)
{
    struct policy p;

    if (policy_decode(&p, m->policy.data, m->policy.len) < 0)
        return NULL;
    struct network_note *note = network_note_new(&p);
    policy_done(&p);
    return note;
}

const struct network_note *network_note(struct network *w, const char *sandbox)
{
    struct network_note *note = map_get(&w->notes, sandbox);
    struct egress_policy m;
    struct policy p;
    struct err e;

    if (note != NULL || faccessat(w->fd, sandbox, F_OK, 0) < 0)
        return note;
    auto_free uint8_t *bytes = mem_alloc(NETWORK_FILE_MAX);
    if (network_load(w, sandbox, bytes, &m, &e) < 0 || policy_decode(&p, m.policy, m.policy_len) < 0)
        return NULL;
    note = network_note_new(&p);
    policy_done(&p);
    network_keep_note(w, sandbox, note);
    return note;
}

void network_trust(struct network *w, const char *sandbox, void (*done)(void *arg, const struct err *e), void *arg)
{
    const struct network_note *note = network_note(w, sandbox);

    if (note != NULL && note->opens_tls)
        trust_place(w->node, w->fd, sandbox, done, arg);
    else
        done(arg, NULL);
}

/* egress knows nothing yet: it is told of all that live. */
static void on_up(void *arg)
{
    struct network *w = arg;
    int fd = openat(w->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *de;

    if (dir == NULL) {
        fd_close(&fd);
        log_error("network-directory", "error=%s", strerror(errno));
        return;
    }
    while ((de = readdir(dir)) != NULL)
        if (id_is(de->d_name, "sb-"))
            network_attach(w, de->d_name);
    (void)closedir(dir);
}

static const char *dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

static void on_decision(struct network *w, const char *sandbox, struct egress_decision *line)
{
    const struct egress_denial *d = &line->about;
    char address[ADDRESS_TEXT], path[EGRESS_PATH_MAX + 1];

    network_log_add(w->log, sandbox, line);
    if (line->verdict == POLICY_DENY || d->reason == EGRESS_INJECTED)
        log_info(
            line->verdict == POLICY_DENY ? "denied" : "injected",
            "sandbox=%s reason=%s protocol=%s name=%s address=%s port=%u rule=%s method=%s path=%s secrets=%s count=%u",
            sandbox, egress_reason_name(d->reason), egress_protocol_name(d->protocol),
            dash(d->name), address_text(&d->to, address), d->port, dash(d->rule),
            dash(line->method), log_escape(dash(line->path), path, sizeof path),
            dash(line->secrets), line->count);
}

/* What is told of a sandbox that has been removed meanwhile is told to nobody. */
static void on_event(void *arg, const struct chan_msg *m)
{
    struct network *w = arg;
    char sandbox[ID_SIZE];
    struct egress_decision d;
    struct egress_totals t;

    if (m->type == EGRESS_DECISION && egress_decision_decode(sandbox, &d, m->data, m->len) == 0 && network_is_known(w, sandbox))
        on_decision(w, sandbox, &d);
    else if (m->type == EGRESS_TOTALS && egress_totals_decode(sandbox, &t, m->data, m->len) == 0 && network_is_known(w, sandbox))
        network_log_totals(w->log, sandbox, &t);
}

struct network *network_new(struct node *n, struct err *e)
{
    struct network *w = mem_zalloc(sizeof *w);
    char path[256];

    w->node = n;
    if (mkdirat(n->state_fd, DIRECTORY, 0700) < 0 && errno != EEXIST) {
        err_sys(e, errno, "make directory node/" DIRECTORY);
        free(w);
        return NULL;
    }
    w->fd = openat(n->state_fd, DIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->fd < 0) {
        err_sys(e, errno, "open directory node/" DIRECTORY);
        free(w);
        return NULL;
    }
    map_init(&w->notes);
    map_init(&w->problems);
    w->log = network_log_new(w->fd);
    (void)snprintf(path, sizeof path, "%s/egress.sock", n->conf.run_dir);
    w->link = egress_link_new(n->loop, path, on_up, on_event, w);
    return w;
}

void network_note_problem(struct network *w, const char *sandbox, const char *text)
{
    free(text != NULL ? map_put(&w->problems, sandbox, mem_strdup(text)) : map_del(&w->problems, sandbox));
}

void network_free(struct network *w)
{
    if (w == NULL)
        return;
    struct map_iter it = MAP_ITER;
    void *note;
    while (map_next(&w->notes, &it, NULL, &note))
        network_note_free(note);
    map_done(&w->notes);
    struct map_iter all = MAP_ITER;
    while (map_next(&w->problems, &all, NULL, &note))
        free(note);
    map_done(&w->problems);
    egress_link_free(w->link);
    network_log_free(w->log);
    fd_close(&w->fd);
    free(w);
}

void network_remove(struct network *w, const char *sandbox)
{
    uint8_t out[64];
    int r = unlinkat(w->fd, sandbox, 0);

    network_log_remove(w->log, sandbox);
    network_note_free(map_del(&w->notes, sandbox));
    network_note_problem(w, sandbox, NULL);
    trust_remove(w->fd, sandbox);
    if (r < 0) {
        if (errno != ENOENT)
            log_warn("policy-not-removed", "sandbox=%s error=%s", sandbox, strerror(errno));
        return;
    }
    egress_call(w->link, EGRESS_DETACH, out, egress_ref_encode(sandbox, out, sizeof out), NULL, 0, EGRESS_MS, NULL, NULL);
}
