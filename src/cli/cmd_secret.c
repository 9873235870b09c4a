/*
 * cmd_secret.c - secret set, ls, rm
 *
 * Values come from standard input, a file or our own environment: words of a command line are everybody's to see.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cmd.h"
#include "cli/table.h"

#define VALUES_MAX (1024 * 1024)

static int put(json_t *values, const char *key, const char *value, size_t n, struct err *e)
{
    json_t *text = json_stringn(value, n);

    if (text == NULL || memchr(value, '\0', n) != NULL) {
        json_decref(text);
        return err_set(e, ERR_INVALID, "the value of '%.60s' is no text in UTF-8", key);
    }
    return json_object_set_new(values, key, text) == 0 ? 0 : err_set(e, ERR_INVALID, "'%.60s' is no key", key);
}

static int read_all(FILE *f, const char *from, struct buf *out, struct err *e)
{
    char chunk[4096];
    size_t n;

    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        if (buf_add(out, chunk, n) < 0)
            return err_set(e, ERR_TOO_LARGE, "%.200s has more than %d bytes", from, VALUES_MAX);
    explicit_bzero(chunk, sizeof chunk);
    return ferror(f) ? err_sys(e, errno, "read %.200s", from) : 0;
}

/* All of standard input, or a line that a terminal does not show; without the newline at its end. */
static int read_value(const char *key, struct buf *out, struct err *e)
{
    struct termios before;
    bool is_terminal = tcgetattr(STDIN_FILENO, &before) == 0;
    int r = 0;

    if (is_terminal) {
        struct termios quiet = before;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        fprintf(stderr, "%s: ", key);
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
        char *line = NULL;
        size_t size = 0;
        ssize_t n = getline(&line, &size, stdin);
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
        fprintf(stderr, "\n");
        r = n < 0 ? err_set(e, ERR_INVALID, "no value was given") : 0;
        if (r == 0)
            (void)buf_add(out, line, (size_t)n);
        if (line != NULL)
            explicit_bzero(line, size);
        free(line);
    } else {
        r = read_all(stdin, "standard input", out, e);
    }
    if (r == 0 && out->len > 0 && ((char *)out->data)[out->len - 1] == '\n')
        out->len--;
    if (r == 0 && out->len > 0 && ((char *)out->data)[out->len - 1] == '\r')
        out->len--;
    return r;
}

/* Lines KEY=VALUE; empty ones and those that begin with # are nothing. */
static int read_lines(const char *path, json_t *values, struct err *e)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    auto_buf text = {0};
    int r = 0;

    buf_init(&text, VALUES_MAX);
    if (f == NULL)
        return err_sys(e, errno, "open %.200s", path);
    r = read_all(f, path, &text, e);
    if (f != stdin)
        (void)fclose(f);
    size_t line = 0;
    for (const char *at = buf_str(&text), *end; r == 0 && *at != '\0'; at = *end == '\0' ? end : end + 1) {
        end = at + strcspn(at, "\n");
        size_t n = (size_t)(end - at);
        line++;
        n -= n > 0 && at[n - 1] == '\r';
        if (n == 0 || at[0] == '#')
            continue;
        const char *eq = memchr(at, '=', n);
        if (eq == NULL || eq == at) {
            r = err_set(e, ERR_INVALID, "%.200s, line %zu: a line is KEY=VALUE", path, line);
            break;
        }
        auto_free char *key = mem_strndup(at, (size_t)(eq - at));
        r = put(values, key, eq + 1, n - (size_t)(eq + 1 - at), e);
    }
    explicit_bzero(text.data, text.len);
    return r;
}

static int read_values(const char *key, const char *file, const struct arg_list *env, json_t *values, struct err *e)
{
    for (size_t i = 0; i < env->n; i++) {
        const char *value = getenv(env->items[i]);
        if (value == NULL)
            return err_set(e, ERR_INVALID, "there is no variable %.100s in the environment", env->items[i]);
        if (put(values, env->items[i], value, strlen(value), e) < 0)
            return -1;
    }
    if (file != NULL && read_lines(file, values, e) < 0)
        return -1;
    if (key == NULL)
        return 0;
    auto_buf value = {0};
    buf_init(&value, VALUES_MAX);
    int r = read_value(key, &value, e);
    if (r == 0)
        r = put(values, key, value.len > 0 ? value.data : "", value.len, e);
    if (value.len > 0)
        explicit_bzero(value.data, value.len);
    return r;
}

/* Adds to the secret; without it, or with `replace`, these are all values. */
static int send_values(struct client *cl, const char *name, json_t *values, bool replace, struct err *e)
{
    auto_free char *path = client_path("/v1/secrets/%s", name);
    int r = -1;

    if (!replace) {
        json_t *body = json_pack("{s:O}", "set", values);
        r = client_json(cl, "PATCH", path, body, NULL, e);
        json_decref(body);
        if (r == 0 || e->code != ERR_NOT_FOUND)
            return r;
    }
    json_t *body = json_pack("{s:O}", "values", values);
    r = client_json(cl, "PUT", path, body, NULL, e);
    json_decref(body);
    return r;
}

static int set(int argc, char **argv)
{
    const char *file = NULL;
    bool replace = false;
    auto_arg_list struct arg_list env = {0};
    const struct arg args[] = {
        {0, "from-env", ARG_LIST, &env, "KEY", "take the value of this variable of ours; may be repeated"},
        {0, "env-file", ARG_TEXT, &file, "FILE", "take lines KEY=VALUE of a file, or of '-', standard input"},
        {0, "replace", ARG_FLAG, &replace, NULL, "forget what the secret had before"},
    };
    const struct cmd d = {
        .usage = "secret set [options] NAME [KEY]",
        .about = "Make a secret, or change values of it; the value of KEY is read from standard input.",
        .args = args, .nargs = array_len(args), .mixed = true, .min_words = 1, .max_words = 2, .usage_code = EXIT_USAGE,
    };
    auto_client struct client cl = {0};
    struct err e = {0};
    int done = cmd_parse(&d, &argc, argv);

    if (done >= 0)
        return done;
    const char *key = argc > 1 ? argv[1] : NULL;
    if (key == NULL && file == NULL && env.n == 0)
        return cmd_usage(&d);
    if (key != NULL && file != NULL && strcmp(file, "-") == 0) {
        (void)err_set(&e, ERR_INVALID, "standard input is either the value of %.60s or lines KEY=VALUE", key);
        return cmd_fail(&e, EXIT_USAGE);
    }
    if (key != NULL && strchr(key, '=') != NULL) {
        (void)err_set(&e, ERR_INVALID, "a value on the command line is everybody's to see: give the key alone, %s",
                      "and the value on standard input");
        return cmd_fail(&e, EXIT_USAGE);
    }
    json_t *values = json_object();
    int r = read_values(key, file, &env, values, &e);
    if (r == 0)
        r = client_init(&cl, &e) < 0 ? -1 : send_values(&cl, argv[0], values, replace, &e);
    json_decref(values);
    return r < 0 ? cmd_fail(&e, EXIT_FAILED) : 0;
}

static int list(int argc, char **argv)
{
    const struct cmd d = {.usage = "secret ls", .about = "List secrets with their keys; values are never shown.", .mixed = true,
                          .usage_code = EXIT_USAGE};
    json_t *page = NULL, *rows, *item;
    size_t i;
    int done = collection_get(&d, "/v1/secrets", argc, argv, &page);

    if (done >= 0)
        return done;
    rows = json_pack("[[s,s,s]]", "NAME", "AGE", "KEYS");
    json_array_foreach(json_object_get(page, "items"), i, item) {
        auto_free char *age = table_age(json_object_get(item, "created_at"));
        json_array_append_new(rows, json_pack("[s,s,o]", table_text(json_object_get(item, "name")), age,
                                              table_join(json_object_get(item, "keys"))));
    }
    table_print(rows);
    json_decref(rows);
    json_decref(page);
    return 0;
}

static int remove_secrets(int argc, char **argv)
{
    const struct cmd d = {
        .usage = "secret rm NAME...",
        .about = "Remove secrets; requests that rules would put them into are refused from then on.",
        .mixed = true, .min_words = 1, .max_words = -1, .usage_code = EXIT_USAGE,
    };

    return collection_remove(&d, "/v1/secrets", argc, argv);
}

int cmd_secret(int argc, char **argv)
{
    static const struct subcommand table[] = {
        {"set", set, "make a secret, or change values of it"},
        {"ls", list, "list secrets with their keys"},
        {"rm", remove_secrets, "remove secrets"},
    };

    return cmd_family("secret", table, array_len(table), argc, argv);
}
