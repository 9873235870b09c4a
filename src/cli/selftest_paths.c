/*
 * selftest_paths.c - the file API against a sandbox that swaps directories for links to a directory of the host
 *
 * The host's directory holds a canary; nothing in it may change, and no answer may carry it. In the control the same
 * operations are done by a program that trusts what it finds, with the link in its way.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/selftest.h"
#include "sys/fd.h"

#define RACE "/qse-race"
#define ROUNDS 30
#define ANSWER_MAX (16 * 1024 * 1024)

enum form { FORM_QUERY, FORM_JSON, FORM_UPLOAD, FORM_RUN };

static const struct operation {
    const char *name, *tries;
    const char *naive, *naive_path;     /* for the control */
    enum form form;
    const char *method, *path;          /* after /v1/sandboxes/ID */
    const char *body;
} operations[] = {
    {"path-put", "write a file of the host through the file API", "put", "/x/secret", FORM_UPLOAD, "PUT",
     "/files?path=" RACE "/x/secret", NULL},
    {"path-put-new", "make a file on the host", "put", "/x/new", FORM_UPLOAD, "PUT",
     "/files?parents=true&path=" RACE "/x/deep/er/new", NULL},
    {"path-get", "read a file of the host", "get", "/x/secret", FORM_QUERY, "GET", "/files?path=" RACE "/x/secret", NULL},
    {"path-hash", "hash a file of the host", "hash", "/x/secret", FORM_QUERY, "GET", "/files/hash?path=" RACE "/x/secret",
     NULL},
    {"path-stat", "look at a file of the host", "stat", "/x/canary", FORM_QUERY, "GET", "/files/stat?path=" RACE "/x/secret",
     NULL},
    {"path-list", "list a directory of the host", "list", "/x/deep", FORM_QUERY, "GET",
     "/files/list?depth=3&path=" RACE "/x/", NULL},
    {"path-delete", "delete a file of the host", "delete", "/x/secret", FORM_QUERY, "DELETE", "/files?path=" RACE "/x/secret",
     NULL},
    {"path-delete-tree", "delete a directory of the host", "delete", "/x/secret", FORM_QUERY, "DELETE",
     "/files?recursive=true&path=" RACE "/x/deep", NULL},
    {"path-mkdir", "make a directory on the host", "mkdir", "/x/made", FORM_JSON, "POST", "/files/mkdir",
     "{\"path\": \"" RACE "/x/made/it\", \"parents\": true}"},
    {"path-move", "move a file of the host", "move", "/x/secret", FORM_JSON, "POST", "/files/move",
     "{\"from\": \"" RACE "/x/secret\", \"to\": \"" RACE "/x/moved\"}"},
    {"path-chmod", "change the mode of a file of the host", "chmod", "/x/secret", FORM_JSON, "POST", "/files/chmod",
     "{\"path\": \"" RACE "/x/secret\", \"mode\": \"0777\"}"},
    {"path-chown", "change the owner of a file of the host", "chown", "/x/secret", FORM_JSON, "POST", "/files/chown",
     "{\"path\": \"" RACE "/x/secret\", \"uid\": 12345, \"gid\": 12345}"},
    {"path-symlink", "make a link on the host", "symlink", "/x/linked", FORM_JSON, "POST", "/files/symlink",
     "{\"target\": \"bad\", \"path\": \"" RACE "/x/linked\"}"},
    {"path-batch", "write a file of the host in a batch", "put", "/x/secret", FORM_JSON, "POST", "/files/batch",
     "{\"ops\": [{\"op\": \"write\", \"path\": \"" RACE "/x/secret\", \"text\": \"bad\"}, {\"op\": \"read\", \"path\": \"" RACE
     "/x/secret\"}]}"},
    {"path-archive", "read a directory of the host as an archive", "archive", "/x/secret", FORM_QUERY, "GET",
     "/files/archive?path=" RACE "/x/", NULL},
    {"path-unpack", "unpack an archive on the host", "unpack", "/x/secret", FORM_UPLOAD, "PUT",
     "/files/archive?path=" RACE "/x", NULL},
    {"path-workdir", "start a command in a directory of the host", "workdir", "/x/deep", FORM_RUN, "POST", "/run", NULL},
};

void paths_list(struct selftest *s)
{
    for (size_t i = 0; i < array_len(operations); i++)
        (void)trial_add(&s->trials, operations[i].name, operations[i].tries, "nothing", "-");
}

/* --- the host's directory ----------------------------------------------------------------------------------------------- */

static void remove_tree(const char *dir)
{
    const char *const left[] = {"secret", "canary", "new", "secret.moved", "linked"}, *const dirs[] = {"made", "deep", ""};

    for (size_t i = 0; i < array_len(left); i++) {
        auto_free char *path = mem_printf("%s/%s", dir, left[i]);
        (void)unlink(path);
    }
    for (size_t i = 0; i < array_len(dirs); i++) {
        auto_free char *path = mem_printf("%s/%s", dir, dirs[i]);
        (void)rmdir(path);
    }
}

static int make_tree(const char *dir, const char *content, struct err *e)
{
    static const char *const files[] = {"secret", "canary"};
    auto_free char *deep = mem_printf("%s/deep", dir);

    remove_tree(dir);
    if (mkdir(dir, 0777) < 0 || chmod(dir, 0777) < 0 || mkdir(deep, 0777) < 0 || chmod(deep, 0777) < 0)
        return err_sys(e, errno, "make %s", dir);
    for (size_t i = 0; i < array_len(files); i++) {
        auto_close int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        auto_close int fd = openat(at, files[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 || fd_write_all(fd, content, strlen(content)) < 0 || fchmod(fd, 0666) < 0)
            return err_sys(e, errno, "make %s/%s", dir, files[i]);
    }
    return 0;
}

/* One number for names, modes, owners, sizes, times and contents of the directory. */
static uint64_t picture(const char *dir)
{
    auto_free char *secret = mem_printf("%s/secret", dir), *deep = mem_printf("%s/deep", dir);
    const char *const looked[] = {dir, secret, deep};
    char text[128] = "";
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < array_len(looked); i++) {
        struct stat st = {0};
        (void)stat(looked[i], &st);
        const uint64_t parts[] = {st.st_mode, st.st_uid, st.st_gid, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                                  (uint64_t)st.st_mtim.tv_nsec, (uint64_t)st.st_ctim.tv_sec, (uint64_t)st.st_ctim.tv_nsec};
        for (size_t k = 0; k < array_len(parts); k++)
            h = (h ^ parts[k]) * 1099511628211u;
    }
    (void)fd_read_at(AT_FDCWD, secret, text, sizeof text);
    for (const char *p = text; *p != '\0'; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    return h;
}

/* --- both sides ----------------------------------------------------------------------------------------------------------- */

static int control(struct selftest *s, const struct operation *o, const char *dir, const char *content, struct err *e)
{
    auto_free char *root = mem_printf("%s.root", dir), *link = mem_printf("%s/x", root);
    const char *const words[] = {"naive", root, o->naive, o->naive_path, NULL};
    struct trial *t = trial_find(&s->trials, o->name);
    auto_buf out = {0};
    struct err failed = {0};

    if (make_tree(dir, content, e) < 0)
        return -1;
    (void)mkdir(root, 0700);
    if (symlink(dir, link) < 0)
        return err_sys(e, errno, "make %s", link);
    trial_set(&t->control, local_run(s, words, &out, &failed) == 0 ? "ok" : "nothing");
    (void)unlink(link);
    (void)rmdir(root);
    return 0;
}

/* A tar of one file, "secret". */
static size_t archive(char *out, size_t size)
{
    unsigned sum = 0;

    memset(out, 0, size);
    memcpy(out, "secret", 6);
    memcpy(out + 100, "0000644", 8);
    memcpy(out + 108, "0000000", 8);
    memcpy(out + 116, "0000000", 8);
    memcpy(out + 124, "00000000003", 12);
    memcpy(out + 136, "00000000000", 12);
    memset(out + 148, ' ', 8);
    out[156] = '0';
    memcpy(out + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)out[i];
    (void)snprintf(out + 148, 8, "%06o", sum);
    memcpy(out + 512, "bad", 3);
    return 2048;
}

struct upload {
    const char *at;
    size_t left;
};

static ssize_t give(void *ctx, void *p, size_t n)
{
    struct upload *u = ctx;

    n = n < u->left ? n : u->left;
    memcpy(p, u->at, n);
    u->at += n;
    u->left -= n;
    return (ssize_t)n;
}

static int take(void *ctx, const void *p, size_t n)
{
    return buf_add(ctx, p, n);
}

/* One call; 0 when it was done. Its answer, of whatever kind, is in *answer. */
static int call(struct selftest *s, const struct operation *o, struct buf *answer, struct err *e)
{
    auto_free char *url = mem_printf("/v1/sandboxes/%s%s", s->attacker, o->path);
    char tar[2048];
    json_t *body = NULL, *got = NULL;
    int r;

    if (o->form == FORM_UPLOAD) {
        struct upload u = {"bad", 3};
        if (strstr(o->path, "archive") != NULL)
            u = (struct upload){tar, archive(tar, sizeof tar)};
        struct client_body b = {.read = give, .ctx = &u, .length = (long long)u.left};
        return client_stream(&s->cl, o->method, url, &b, NULL, e);
    }
    if (o->form == FORM_QUERY && strcmp(o->method, "GET") == 0) {
        struct client_body b = {.write = take, .ctx = answer};
        return client_stream(&s->cl, o->method, url, &b, NULL, e);
    }
    if (o->form == FORM_RUN)
        body = json_pack("{s:[s,s], s:s}", "command", "/quicksand-escape", "noop", "workdir", RACE "/x");
    else if (o->body != NULL)
        body = json_loads(o->body, 0, NULL);
    r = client_json(&s->cl, o->method, url, body, &got, e);
    auto_free char *text = got != NULL ? json_dumps(got, JSON_COMPACT) : NULL;
    if (text != NULL)
        (void)buf_adds(answer, text);
    json_decref(body);
    json_decref(got);
    return r;
}

static int attack(struct selftest *s, const struct operation *o, const char *dir, const char *content, struct err *e)
{
    struct trial *t = trial_find(&s->trials, o->name);
    int done = 0;

    if (make_tree(dir, content, e) < 0)
        return -1;
    uint64_t before = picture(dir);
    for (int i = 0; i < ROUNDS || (done == 0 && i < 10 * ROUNDS); i++) {
        struct err failed = {0};
        auto_buf answer = {0};
        buf_init(&answer, ANSWER_MAX);
        if (call(s, o, &answer, &failed) == 0)
            done++;
        else if (failed.code == ERR_UNAVAILABLE && strncmp(failed.message, s->cl.url, strlen(s->cl.url)) == 0 &&
                 o->form != FORM_QUERY) {
            *e = failed;                /* an archive may break off when what it reads changes; nothing else may */
            return -1;
        }
        if (memmem(buf_str(&answer), answer.len, content, strlen(content)) != NULL) {
            trial_set(&t->inside, "ok");
            trial_set(&t->note, "the host's file was in an answer");
            return 0;
        }
    }
    if (picture(dir) != before) {
        trial_set(&t->inside, "ok");
        trial_set(&t->note, "the host's directory was changed");
        return 0;
    }
    /* With not one call done there was no race, and nothing is shown. */
    trial_set(&t->inside, done > 0 ? "nothing" : "untried");
    return 0;
}

int paths_try(struct selftest *s, struct err *e)
{
    auto_free char *dir = mem_printf("/tmp/%s.race", s->token_host);
    auto_free char *content = mem_printf("race-%s", s->token_host);
    const char *const swap[] = {"swap", RACE, dir, NULL};
    char exec[64];
    int r = 0;

    for (size_t i = 0; r == 0 && s->controls && i < array_len(operations); i++)
        r = control(s, &operations[i], dir, content, e);
    if (r == 0)
        r = sandbox_start(s, s->attacker, swap, false, exec, e);
    for (size_t i = 0; r == 0 && i < array_len(operations); i++)
        r = attack(s, &operations[i], dir, content, e);
    remove_tree(dir);
    return r;
}
