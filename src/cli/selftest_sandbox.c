/*
 * selftest_sandbox.c - two sandboxes: one that attacks, and its neighbour with a victim in it
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/selftest.h"
#include "sys/fd.h"

#define INSIDE "/quicksand-escape"
#define OUTPUT_MAX (256 * 1024 * 1024)
#define LIFE_S 900

static ssize_t from_fd(void *ctx, void *p, size_t n)
{
    ssize_t r;

    do {
        r = read(*(int *)ctx, p, n);
    } while (r < 0 && errno == EINTR);
    return r;
}

static int to_buf(void *ctx, const void *p, size_t n)
{
    return buf_add(ctx, p, n);
}

static int sandbox_make(struct selftest *s, char *out, struct err *e)
{
    auto_close int fd = open(s->program, O_RDONLY | O_CLOEXEC);
    struct stat st;
    json_t *body = json_pack("{s:s, s:i, s:n, s:{s:s}}", "image", s->image, "timeout_s", LIFE_S, "idle_timeout_s", "tags",
                             "purpose", "selftest");
    json_t *sb = NULL;

    if (fd < 0 || fstat(fd, &st) < 0) {
        json_decref(body);
        return err_sys(e, errno, "open %s", s->program);
    }
    int r = client_json(&s->cl, "POST", "/v1/sandboxes", body, &sb, e);
    json_decref(body);
    if (r < 0)
        return -1;
    const char *id = json_string_value(json_object_get(sb, "id"));
    (void)snprintf(out, 64, "%s", id != NULL ? id : "");
    json_decref(sb);
    auto_free char *path = client_path("/v1/sandboxes/%s/files?path=%s&mode=0755", out, INSIDE);
    struct client_body file = {.read = from_fd, .ctx = &fd, .length = (long long)st.st_size};
    return client_stream(&s->cl, "PUT", path, &file, NULL, e);
}

int sandboxes_make(struct selftest *s, struct err *e)
{
    return sandbox_make(s, s->attacker, e) < 0 ? -1 : sandbox_make(s, s->neighbour, e);
}

void sandboxes_remove(struct selftest *s)
{
    const char *const ids[] = {s->attacker, s->neighbour};

    for (size_t i = 0; i < array_len(ids); i++) {
        struct err e = {0};
        auto_free char *path = client_path("/v1/sandboxes/%s", ids[i]);
        if (*ids[i] != '\0' && client_json(&s->cl, "DELETE", path, NULL, NULL, &e) < 0 && e.code != ERR_NOT_FOUND)
            (void)cmd_fail(&e, 0);
    }
}

int sandbox_start(struct selftest *s, const char *sandbox, const char *const *words, bool use_stdin, char *out,
                  struct err *e)
{
    json_t *command = json_pack("[s]", INSIDE), *exec = NULL;

    for (; *words != NULL; words++)
        json_array_append_new(command, json_string(*words));
    json_t *body = json_pack("{s:o, s:s, s:b, s:s}", "command", command, "user", "root", "stdin", use_stdin, "stderr", "merge");
    auto_free char *path = client_path("/v1/sandboxes/%s/execs", sandbox);
    int r = client_json(&s->cl, "POST", path, body, &exec, e);
    json_decref(body);
    if (r < 0)
        return -1;
    const char *id = json_string_value(json_object_get(exec, "id"));
    (void)snprintf(out, 64, "%s", id != NULL ? id : "");
    json_decref(exec);
    return 0;
}

int sandbox_run(struct selftest *s, const char *const *words, struct buf *out, struct err *e)
{
    char exec[64];

    buf_init(out, OUTPUT_MAX);
    if (sandbox_start(s, s->attacker, words, false, exec, e) < 0)
        return -1;
    auto_free char *path = client_path("/v1/sandboxes/%s/execs/%s/stdout", s->attacker, exec);
    struct client_body body = {.write = to_buf, .ctx = out};
    return client_stream(&s->cl, "GET", path, &body, NULL, e);
}

/* The next line that the neighbour's victim writes. */
static char *neighbour_line(struct selftest *s, struct err *e)
{
    for (int i = 0; i < 200; i++) {
        auto_buf out = {0};
        auto_free char *offset = mem_printf("%ld", s->victim_neighbour_offset);
        auto_free char *path =
            client_path("/v1/sandboxes/%s/execs/victim/stdout?follow=false&offset=%s", s->neighbour, offset);
        struct client_body body = {.write = to_buf, .ctx = &out};
        buf_init(&out, 1024 * 1024);
        if (client_stream(&s->cl, "GET", path, &body, NULL, e) < 0)
            return NULL;
        const char *end = memchr(buf_str(&out), '\n', out.len);
        if (end != NULL) {
            size_t n = (size_t)(end - buf_str(&out));
            s->victim_neighbour_offset += (long)n + 1;
            return mem_strndup(buf_str(&out), n);
        }
        (void)poll(NULL, 0, 50);
    }
    (void)err_set(e, ERR_UNAVAILABLE, "the victim in the neighbour sandbox does not answer");
    return NULL;
}

int neighbour_victim_start(struct selftest *s, struct err *e)
{
    json_t *body = json_pack("{s:[s,s,s], s:s, s:b}", "command", INSIDE, "victim", s->token_neighbour, "user", "root",
                             "stdin", 1);
    auto_free char *path = client_path("/v1/sandboxes/%s/execs/victim", s->neighbour);
    int r = client_json(&s->cl, "PUT", path, body, NULL, e);

    json_decref(body);
    if (r < 0)
        return -1;
    auto_free char *line = neighbour_line(s, e);
    if (line != NULL && strncmp(line, "ready", 5) != 0)
        return err_set(e, ERR_INTERNAL, "the victim in the neighbour sandbox says: %.80s", line);
    return line != NULL ? 0 : -1;
}

struct text {
    const char *at;
    size_t left;
};

static ssize_t from_text(void *ctx, void *p, size_t n)
{
    struct text *t = ctx;

    if (n > t->left)
        n = t->left;
    memcpy(p, t->at, n);
    t->at += n;
    t->left -= n;
    return (ssize_t)n;
}

char *neighbour_victim_ask(struct selftest *s, struct err *e)
{
    struct text t = {"?\n", 2};
    struct client_body body = {.read = from_text, .ctx = &t, .length = 2};
    auto_free char *path = client_path("/v1/sandboxes/%s/execs/victim/stdin", s->neighbour);

    return client_stream(&s->cl, "POST", path, &body, NULL, e) < 0 ? NULL : neighbour_line(s, e);
}

static int discard(void *ctx, const void *p, size_t n)
{
    (void)ctx;
    (void)p;
    (void)n;
    return 0;
}

int helper_keep(struct selftest *s, struct err *e)
{
    (void)fflush(NULL);
    pid_t pid = fork();

    if (pid < 0)
        return err_sys(e, errno, "start a process");
    if (pid == 0) {
        struct client cl = {0};
        auto_free char *path = client_path("/v1/sandboxes/%s/files/watch?path=/tmp&timeout_s=300", s->attacker);
        struct client_body body = {.write = discard};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (client_init(&cl, NULL) == 0)
            /* The sandbox kills helpers as part of what it tries; the next comes at once. */
            while (client_stream(&cl, "GET", path, &body, NULL, NULL) == 0)
                ;
        _exit(0);
    }
    s->helper = pid;
    return 0;
}
