/*
 * cmd_spec.c - what the commands share: parsing, failing, and options that become a request body
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cmd.h"

int cmd_usage(const struct cmd *d)
{
    size_t n = strspn(d->usage, "abcdefghijklmnopqrstuvwxyz ");     /* the name: up to the first option or WORD */

    while (n > 0 && d->usage[n - 1] == ' ')
        n--;
    fprintf(stderr, "usage: quicksand %s ('quicksand %.*s --help' tells more)\n", d->usage, (int)n, d->usage);
    return d->usage_code;
}

int cmd_parse(const struct cmd *d, int *argc, char **argv)
{
    bool help = false;
    struct err e = {0};
    struct arg *all = mem_array(d->nargs + 1, sizeof *all);
    int result = -1;

    if (d->nargs > 0)
        memcpy(all, d->args, d->nargs * sizeof *all);
    all[d->nargs] = (struct arg){'h', "help", ARG_FLAG, &help, NULL, "this text"};
    int r = args_parse(all, d->nargs + 1, d->mixed, argc, argv, &e);
    if (help) {
        printf("usage: quicksand %s\n\n%s\n", d->usage, d->about);
        args_help(all, d->nargs + 1);
        result = 0;
    } else if (r < 0) {
        result = cmd_fail(&e, d->usage_code);
    } else if (*argc < d->min_words || (d->max_words >= 0 && *argc > d->max_words)) {
        result = cmd_usage(d);
    }
    free(all);
    return result;
}

int cmd_family(const char *family, const struct subcommand *table, size_t n, int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool help = strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0 || strcmp(what, "help") == 0;

    for (size_t i = 0; i < n; i++)
        if (strcmp(what, table[i].name) == 0)
            return table[i].fn(argc - 1, argv + 1);
    if (*what != '\0' && !help) {
        fprintf(stderr, "quicksand: unknown command '%s %s' ('quicksand %s --help' lists them)\n", family, what, family);
        return EXIT_USAGE;
    }
    FILE *out = help ? stdout : stderr;
    fprintf(out, "usage: quicksand %s COMMAND ...\n\n", family);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "  %-9s %s\n", table[i].name, table[i].about);
    fprintf(out, "\n'quicksand %s COMMAND --help' tells more.\n", family);
    return help ? 0 : EXIT_USAGE;
}

int cmd_fail(const struct err *e, int code)
{
    const char *hint = e->hint[0] != '\0' ? e->hint : "";

    (void)fflush(stdout);
    fprintf(stderr, "quicksand: %s%s%s%s\n", e->message, *hint != '\0' ? " (" : "", hint, *hint != '\0' ? ")" : "");
    return code;
}

static void put_text(json_t *body, const char *key, const char *value)
{
    if (value != NULL)
        json_object_set_new(body, key, json_string(value));
}

static int put_number(json_t *body, const char *key, const char *option, const char *value, bool whole, struct err *e)
{
    long long i;
    double d;

    if (value == NULL)
        return 0;
    if (strcmp(value, "none") == 0) {
        json_object_set_new(body, key, json_null());
    } else if (whole) {
        if (args_int(option, value, &i, e) < 0)
            return -1;
        json_object_set_new(body, key, json_integer(i));
    } else {
        if (args_number(option, value, &d, e) < 0)
            return -1;
        json_object_set_new(body, key, json_real(d));
    }
    return 0;
}

static int put_pairs(json_t *body, const char *key, const char *option, const struct arg_list *list, bool from_ours,
                     struct err *e)
{
    json_t *o = json_object();

    for (size_t i = 0; i < list->n; i++) {
        const char *item = list->items[i], *eq = strchr(item, '='), *ours;
        auto_free char *name = eq != NULL ? mem_strndup(item, (size_t)(eq - item)) : mem_strdup(item);
        if (eq == NULL && from_ours) {
            ours = getenv(name);
            if (ours == NULL)
                continue;
        } else if (eq == NULL) {
            json_decref(o);
            return err_set(e, ERR_INVALID, "option %s needs KEY=VALUE, not '%.60s'", option, item);
        } else {
            ours = eq + 1;
        }
        json_t *value = json_string(ours);
        if (value == NULL || json_object_set_new(o, name, value) < 0) {
            json_decref(o);
            return err_set(e, ERR_INVALID, "option %s: the value of '%.60s' is not UTF-8 text", option, name);
        }
    }
    json_object_set_new(body, key, o);
    return 0;
}

static int env_body(const struct arg_list *list, json_t *body, struct err *e)
{
    return list->n > 0 ? put_pairs(body, "env", "--env", list, true, e) : 0;
}

int cmd_network(json_t *body, const char *network, const struct arg_list *names_only, struct err *e)
{
    json_t *policy;
    json_error_t why;

    if (network != NULL && names_only->n > 0)
        return err_set(e, ERR_INVALID, "options --network and --allow-domain exclude each other");
    if (names_only->n > 0) {
        json_t *names = json_array();
        for (size_t i = 0; i < names_only->n; i++)
            json_array_append_new(names, json_string(names_only->items[i]));
        json_object_set_new(body, "network", json_pack("{s:o}", "allow_domains", names));
    } else if (network != NULL && *network == '{') {
        policy = json_loads(network, 0, &why);
        if (policy == NULL)
            return err_set(e, ERR_INVALID, "option --network is no JSON: %.100s at character %d", why.text, why.position);
        json_object_set_new(body, "network", policy);
    } else {
        put_text(body, "network", network);
    }
    return 0;
}

json_t *sandbox_body(const struct sandbox_args *s, struct err *e)
{
    json_t *body = json_object();

    put_text(body, "image", s->image);
    put_text(body, "app", s->app);
    put_text(body, "name", s->name);
    put_text(body, "oom", s->oom);
    if (s->user_namespaces)
        json_object_set_new(body, "user_namespaces", json_true());
    if (s->no_new_privileges)
        json_object_set_new(body, "no_new_privileges", json_true());
    if (put_number(body, "cpu", "--cpu", s->cpu, false, e) < 0 ||
        put_number(body, "memory_mb", "--memory", s->memory, true, e) < 0 ||
        put_number(body, "pids", "--pids", s->pids, true, e) < 0 ||
        put_number(body, "nofile", "--nofile", s->nofile, true, e) < 0 ||
        put_number(body, "disk_mb", "--disk", s->disk, true, e) < 0 ||
        put_number(body, "timeout_s", "--timeout", s->timeout, false, e) < 0 ||
        put_number(body, "idle_timeout_s", "--idle-timeout", s->idle, false, e) < 0 ||
        cmd_network(body, s->network, &s->domains, e) < 0 ||
        (s->tags.n > 0 && put_pairs(body, "tags", "--tag", &s->tags, false, e) < 0)) {
        json_decref(body);
        return NULL;
    }
    return body;
}

json_t *command_body(const struct command_args *c, int argc, char **argv, struct err *e)
{
    json_t *body = json_object(), *command = json_array();

    json_object_set_new(body, "command", command);
    for (int i = 0; i < argc; i++) {
        json_t *word = json_string(argv[i]);
        if (word == NULL) {
            json_decref(body);
            (void)err_set(e, ERR_INVALID, "argument %d is not UTF-8 text", i);
            return NULL;
        }
        json_array_append_new(command, word);
    }
    put_text(body, "workdir", c->workdir);
    put_text(body, "user", c->user);
    if (env_body(&c->env, body, e) < 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}
