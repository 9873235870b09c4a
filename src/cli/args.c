/*
 * args.c - parsing of options
 */
#include "cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void arg_list_done(struct arg_list *list)
{
    free(list->items);
    *list = (struct arg_list){0};
}

static const struct arg *find_name(const struct arg *table, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].name != NULL && strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}

static const struct arg *find_letter(const struct arg *table, size_t n, char letter)
{
    for (size_t i = 0; i < n; i++)
        if (table[i].letter == letter)
            return &table[i];
    return NULL;
}

static void set(const struct arg *a, const char *value)
{
    struct arg_list *list = a->to;

    switch (a->kind) {
    case ARG_FLAG:
        *(bool *)a->to = true;
        break;
    case ARG_TEXT:
        *(const char **)a->to = value;
        break;
    case ARG_LIST:
        list->items = mem_realloc(list->items, (list->n + 1) * sizeof list->items[0]);
        list->items[list->n++] = value;
        break;
    }
}

/* One "--word"; *at moves on when the value is the next word. */
static int take_long(const struct arg *table, size_t n, const char *word, int argc, char **argv, int *at, struct err *e)
{
    const char *eq = strchr(word, '=');
    size_t len = eq != NULL ? (size_t)(eq - word) : strlen(word);
    const struct arg *a = find_name(table, n, word, len);

    if (a == NULL)
        return err_set(e, ERR_INVALID, "unknown option --%.*s", (int)len, word);
    if (a->kind == ARG_FLAG) {
        if (eq != NULL)
            return err_set(e, ERR_INVALID, "option --%s takes no value", a->name);
        set(a, NULL);
    } else if (eq != NULL) {
        set(a, eq + 1);
    } else if (*at + 1 < argc) {
        set(a, argv[++*at]);
    } else {
        return err_set(e, ERR_INVALID, "option --%s needs a value", a->name);
    }
    return 0;
}

/* One "-abc" or "-evalue". */
static int take_short(const struct arg *table, size_t n, const char *word, int argc, char **argv, int *at, struct err *e)
{
    for (const char *p = word; *p != '\0'; p++) {
        const struct arg *a = find_letter(table, n, *p);
        if (a == NULL)
            return err_set(e, ERR_INVALID, "unknown option -%c", *p);
        if (a->kind == ARG_FLAG) {
            set(a, NULL);
            continue;
        }
        if (p[1] != '\0')
            set(a, p + 1);
        else if (*at + 1 < argc)
            set(a, argv[++*at]);
        else
            return err_set(e, ERR_INVALID, "option -%c needs a value", *p);
        return 0;
    }
    return 0;
}

int args_parse(const struct arg *table, size_t n, bool mixed, int *argc, char **argv, struct err *e)
{
    int words = 0, at = 1;

    for (; at < *argc; at++) {
        char *word = argv[at];
        if (strcmp(word, "--") == 0) {
            at++;
            break;
        }
        if (word[0] != '-' || word[1] == '\0') {
            if (!mixed)
                break;
            argv[words++] = word;
            continue;
        }
        int r = word[1] == '-' ? take_long(table, n, word + 2, *argc, argv, &at, e)
                               : take_short(table, n, word + 1, *argc, argv, &at, e);
        if (r < 0)
            return -1;
    }
    for (; at < *argc; at++)
        argv[words++] = argv[at];
    *argc = words;
    return 0;
}

int args_int(const char *option, const char *text, long long *ret, struct err *e)
{
    char *end;

    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return err_set(e, ERR_INVALID, "option %s needs a whole number, not '%.60s'", option, text);
    *ret = v;
    return 0;
}

int args_number(const char *option, const char *text, double *ret, struct err *e)
{
    char *end;

    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(v))
        return err_set(e, ERR_INVALID, "option %s needs a number, not '%.60s'", option, text);
    *ret = v;
    return 0;
}

void args_help(const struct arg *table, size_t n)
{
    char left[64];

    if (n > 0)
        printf("\noptions:\n");
    for (size_t i = 0; i < n; i++) {
        const struct arg *a = &table[i];
        int at = a->letter != 0 ? snprintf(left, sizeof left, "-%c, ", a->letter) : snprintf(left, sizeof left, "    ");
        (void)snprintf(left + at, sizeof left - (size_t)at, "--%s%s%s", a->name, a->value != NULL ? " " : "",
                       a->value != NULL ? a->value : "");
        printf("  %-26s %s\n", left, a->help);
    }
}
