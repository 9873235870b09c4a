/*
 * fs_ask.c - small questions to the file helper
 */
#include "api/rest/fs_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/rest/fs_helper.h"
#include "api/rest/text.h"
#include "base/buf.h"
#include "base/mem.h"

#define ANSWER_MAX (64 * 1024 * 1024)

struct ask {
    struct call *call;
    struct fs_helper *helper;
    struct buf out;
    fs_answer_fn fn;
};

static struct call *close_ask(struct ask *a)
{
    struct call *c = a->call;

    fs_helper_free(a->helper);
    buf_done(&a->out);
    free(a);
    c->user = NULL;
    c->on_gone = NULL;
    return c;
}

static void on_data(void *ctx, const void *p, size_t n)
{
    struct ask *a = ctx;

    (void)buf_add(&a->out, p, n);
    fs_helper_consumed(a->helper, n);
}

static void on_end(void *ctx, const struct err *e)
{
    struct ask *a = ctx;
    json_t *out = NULL;
    struct err bad;
    fs_answer_fn fn = a->fn;

    if (e != NULL) {
        call_fail(close_ask(a), e);
        return;
    }
    if (a->out.failed) {
        (void)err_set(&bad, ERR_TOO_LARGE, "the answer has more than %d bytes", ANSWER_MAX);
        err_hint(&bad, "ask for less with limit and depth");
        call_fail(close_ask(a), &bad);
        return;
    }
    if (a->out.len > 0)
        out = json_loadb(a->out.data, a->out.len, 0, NULL);
    if (a->out.len > 0 && out == NULL) {
        (void)err_set(&bad, ERR_FS_IO, "the file helper's answer could not be read");
        call_fail(close_ask(a), &bad);
        return;
    }
    fn(close_ask(a), out);
    json_decref(out);
}

static void on_gone(struct call *c)
{
    call_done(close_ask(c->user), CALL_CLIENT_GONE);
}

void fs_ask(struct call *c, const char *op, json_t *args, const char *path, const char *input, fs_answer_fn fn)
{
    static const struct fs_helper_ops ops = {.on_data = on_data, .on_end = on_end};
    struct ask *a = mem_zalloc(sizeof *a);

    a->call = c;
    a->fn = fn;
    buf_init(&a->out, ANSWER_MAX);
    c->user = a;
    c->on_gone = on_gone;
    a->helper = fs_helper_new(c->core, call_param(c, "id"), op, args, path,
                              input != NULL ? FS_STDIN_BYTES : FS_STDIN_NONE, &ops, a);
    if (input != NULL)
        fs_helper_input(a->helper, input, strlen(input));
}

json_t *fs_query_path(const struct call *c)
{
    const char *path = call_query(c, "path");
    json_t *args = json_object();

    fs_put_path(args, "path", path, strlen(path));
    return args;
}

int fs_object_path(const json_t *from, const char *name, json_t *args, const char *key, struct err *e)
{
    char b64_name[32];
    size_t n = 0;

    (void)snprintf(b64_name, sizeof b64_name, "%s_b64", name);
    const json_t *text = json_object_get(from, name), *b64 = json_object_get(from, b64_name);
    auto_free char *path = NULL;
    if (json_is_string(text)) {
        n = json_string_length(text);
        path = mem_dup(json_string_value(text), n + 1);
    } else if (json_is_string(b64)) {
        path = (char *)text_unbase64(json_string_value(b64), json_string_length(b64), &n);
        if (path == NULL)
            return err_param(e, ERR_INVALID, b64_name, "%s is not base64", b64_name);
    } else {
        return err_param(e, ERR_INVALID, name, "%s is missing", name);
    }
    if (n == 0 || n >= LIMIT_PATH || path[0] != '/' || strlen(path) != n)
        return err_param(e, ERR_INVALID, name, "%s must be an absolute path of at most %d bytes", name, LIMIT_PATH - 1);
    fs_put_path(args, key, path, n);
    return 0;
}

int fs_body_path(const struct call *c, const char *name, json_t *args, const char *key, struct err *e)
{
    return fs_object_path(c->body, name, args, key, e);
}

int fs_put_mode(const char *text, json_t *args, struct err *e)
{
    if (text == NULL)
        return 0;
    size_t n = strlen(text);
    if (n == 0 || n > 5 || strspn(text, "01234567") != n || strtoul(text, NULL, 8) > 07777)
        return err_param(e, ERR_INVALID, "mode", "'%.8s' is not an octal mode from 0000 to 7777", text);
    json_object_set_new(args, "mode", json_string(text));
    return 0;
}

/* Members that have the same name and form on both sides. */
static void copy(json_t *to, const json_t *from, const char *key)
{
    json_t *v = json_object_get(from, key);

    if (v != NULL)
        json_object_set(to, key, v);
}

/* The helper's own word for it knows three types; its mode tells all. */
static const char *type_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "device";
    }
}

json_t *fs_entry(const json_t *in)
{
    static const char *const same[] = {"name", "name_b64", "path",  "path_b64", "size",           "uid",
                                       "gid",  "owner",    "group", "symlink_target", "symlink_target_b64"};
    json_t *o = json_object(), *modified = json_object_get(in, "modified_time");

    for (size_t i = 0; i < array_len(same); i++)
        copy(o, in, same[i]);
    json_object_set_new(o, "type", json_string(type_name((mode_t)json_integer_value(json_object_get(in, "mode")))));
    json_object_set(o, "mode", json_object_get(in, "permissions"));
    json_object_set(o, "modified_at", modified);
    if (json_object_get(o, "symlink_target") == NULL)
        json_object_set_new(o, "symlink_target", json_null());
    return o;
}

json_t *fs_entries(const json_t *list, size_t limit)
{
    static const char *const path_keys[][2] = {{"path", "next"}, {"path_b64", "next_b64"}};
    json_t *o = json_object(), *items = json_array();
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n && i < limit; i++)
        json_array_append_new(items, fs_entry(json_array_get(list, i)));
    json_object_set_new(o, "items", items);
    json_object_set_new(o, "next", json_null());
    for (size_t i = 0; n > limit && i < array_len(path_keys); i++) {
        json_t *path = json_object_get(json_array_get(list, limit - 1), path_keys[i][0]);
        if (path != NULL)
            json_object_set(o, path_keys[i][1], path);
    }
    return o;
}
