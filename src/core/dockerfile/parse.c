/*
 * parse.c - lines of a Dockerfile: directives, continuations, comments, here-documents, flags
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/mem.h"
#include "core/dockerfile/dockerfile.h"

static const struct {
    const char *name;
    enum df_kind kind;
    bool has_heredocs, has_json;
} keywords[] = {
    {"ADD", DF_ADD, true, true},           {"ARG", DF_ARG, false, false},
    {"CMD", DF_CMD, false, true},          {"COPY", DF_COPY, true, true},
    {"ENTRYPOINT", DF_ENTRYPOINT, false, true}, {"ENV", DF_ENV, false, false},
    {"EXPOSE", DF_EXPOSE, false, false},   {"FROM", DF_FROM, false, false},
    {"HEALTHCHECK", DF_HEALTHCHECK, false, false}, {"LABEL", DF_LABEL, false, false},
    {"MAINTAINER", DF_MAINTAINER, false, false}, {"ONBUILD", DF_ONBUILD, false, false},
    {"RUN", DF_RUN, true, true},           {"SHELL", DF_SHELL, false, true},
    {"STOPSIGNAL", DF_STOPSIGNAL, false, false}, {"USER", DF_USER, false, false},
    {"VOLUME", DF_VOLUME, false, true},    {"WORKDIR", DF_WORKDIR, false, false},
};

struct reader {
    const char *text;
    size_t n, at;
    int line;                   /* of the line that comes next */
    char escape;
};

const char *df_name(enum df_kind kind)
{
    return keywords[kind].name;
}

int df_fail(const struct df_instruction *in, struct err *e, const char *fmt, ...)
{
    char message[256];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return err_set(e, ERR_INVALID, "line %d: %s: %s", in->line, df_name(in->kind), message);
}

static int fail_at(struct err *e, int line, size_t column, const char *what)
{
    return err_set(e, ERR_INVALID, "line %d, column %zu: %s", line, column + 1, what);
}

/* The next line without its end; false at the end of the text. */
static bool next_line(struct reader *r, const char **ret, size_t *ret_n)
{
    if (r->at >= r->n)
        return false;
    const char *line = r->text + r->at;
    const char *nl = memchr(line, '\n', r->n - r->at);
    size_t n = nl != NULL ? (size_t)(nl - line) : r->n - r->at;
    r->at += n + 1;
    r->line++;
    if (n > 0 && line[n - 1] == '\r')
        n--;
    *ret = line;
    *ret_n = n;
    return true;
}

static size_t blanks(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && (p[i] == ' ' || p[i] == '\t'))
        i++;
    return i;
}

/* --- directives --------------------------------------------------------------------------------------------------------- */

/* "# escape=`" and the like, at the very top only. False for any other line. */
static bool directive(const char *line, size_t n, char *escape, bool *ret_bad)
{
    size_t at = blanks(line, n);

    if (at == n || line[at++] != '#')
        return false;
    at += blanks(line + at, n - at);
    size_t name = at;
    while (at < n && ((line[at] | 32) >= 'a' && (line[at] | 32) <= 'z'))
        at++;
    size_t len = at - name;
    at += blanks(line + at, n - at);
    if (len == 0 || at == n || line[at] != '=')
        return false;
    at++;
    at += blanks(line + at, n - at);
    if (len == 6 && strncasecmp(line + name, "escape", 6) == 0) {
        *ret_bad = at + 1 + blanks(line + at + 1, n > at ? n - at - 1 : 0) != n || (line[at] != '\\' && line[at] != '`');
        if (!*ret_bad)
            *escape = line[at];
        return true;
    }
    return (len == 6 && strncasecmp(line + name, "syntax", 6) == 0) || (len == 5 && strncasecmp(line + name, "check", 5) == 0);
}

static int read_directives(struct reader *r, struct err *e)
{
    const char *line;
    bool bad = false;
    size_t n;

    for (;;) {
        struct reader before = *r;
        if (!next_line(r, &line, &n))
            return 0;
        if (!directive(line, n, &r->escape, &bad)) {
            char escape = r->escape;
            *r = before;
            r->escape = escape;
            return 0;
        }
        if (bad)
            return fail_at(e, r->line, 0, "the directive escape is followed by neither \\ nor `");
    }
}

/* --- here-documents ------------------------------------------------------------------------------------------------------ */

/* "<<" at `p`, outside of quotes: the mark that follows. Returns behind it, NULL if it is none. */
static const char *read_mark(const char *p, struct df_heredoc *ret, bool *ret_strip)
{
    const char *at = p + 2;
    char quote = '\0';

    *ret_strip = *at == '-';
    at += *ret_strip;
    if (*at == '"' || *at == '\'')
        quote = *at++;
    size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
    if (n == 0 || n > 100 || (quote != '\0' && at[n] != quote))
        return NULL;
    ret->name = mem_strndup(at, n);
    ret->expand = quote == '\0';
    return at + n + (quote != '\0');
}

static int read_heredoc(struct reader *r, struct df_heredoc *h, bool strip, int begun, struct err *e)
{
    struct buf text;
    const char *line;
    size_t n;

    buf_init(&text, DF_TEXT_MAX);
    while (next_line(r, &line, &n)) {
        if (strip)
            for (; n > 0 && *line == '\t'; n--)
                line++;
        if (n == strlen(h->name) && memcmp(line, h->name, n) == 0) {
            (void)buf_str(&text);
            h->text = text.len > 0 ? buf_take(&text, NULL) : mem_strdup("");
            buf_done(&text);
            return 0;
        }
        (void)buf_add(&text, line, n);
        (void)buf_addc(&text, '\n');
    }
    buf_done(&text);
    return err_set(e, ERR_INVALID, "line %d: the here-document '%.60s' does not end", begun, h->name);
}

static int read_heredocs(struct reader *r, struct df_instruction *in, struct err *e)
{
    char quote = '\0';

    for (const char *p = in->text; *p != '\0'; p++) {
        bool strip = false;
        if (quote != '\0') {
            if (*p == r->escape && quote == '"' && p[1] != '\0')
                p++;
            else if (*p == quote)
                quote = '\0';
            continue;
        }
        if (*p == '"' || *p == '\'')
            quote = *p;
        else if (*p == r->escape && p[1] != '\0')
            p++;
        if (p[0] != '<' || p[1] != '<' || p[2] == '<' || (p > in->text && p[-1] == '<'))
            continue;
        if (in->nheredocs == DF_HEREDOCS_MAX)
            return df_fail(in, e, "more than %d here-documents", DF_HEREDOCS_MAX);
        struct df_heredoc *h = &in->heredocs[in->nheredocs];
        const char *end = read_mark(p, h, &strip);
        if (end == NULL)
            continue;
        in->nheredocs++;
        if (read_heredoc(r, h, strip, in->line, e) < 0)
            return -1;
        p = end - 1;
    }
    return 0;
}

/* --- instructions --------------------------------------------------------------------------------------------------------- */

/* One logical line into `out`; false at the end of the text. *ret_line is where it begins. */
static bool logical_line(struct reader *r, struct buf *out, int *ret_line)
{
    const char *line;
    bool continued = false;
    size_t n;

    buf_clear(out);
    while (next_line(r, &line, &n)) {
        size_t first = blanks(line, n);
        if (first == n || line[first] == '#')
            continue;           /* also between continued lines */
        if (!continued) {
            *ret_line = r->line;
            line += first;
            n -= first;
        }
        size_t end = n;
        while (end > 0 && (line[end - 1] == ' ' || line[end - 1] == '\t'))
            end--;
        /* An escaped escape at the end is one of the command's. */
        continued = end > 0 && line[end - 1] == r->escape && !(end > 1 && line[end - 2] == r->escape);
        (void)buf_add(out, line, continued ? end - 1 : end);
        if (!continued)
            return true;
    }
    return out->len > 0;
}

static int read_flags(struct df_instruction *in, const char *at, size_t column, const char **ret_rest, struct err *e)
{
    for (;;) {
        at += strspn(at, " \t");
        if (strncmp(at, "--", 2) != 0)
            break;
        size_t n = 0, name;
        char quote = '\0';
        for (const char *p = at; *p != '\0' && (quote != '\0' || (*p != ' ' && *p != '\t')); p++, n++) {
            if (quote != '\0' ? *p == quote : *p == '"' || *p == '\'')
                quote = quote != '\0' ? '\0' : *p;
        }
        if (n == 2)
            return err_set(e, ERR_INVALID, "line %d, column %zu: a flag has no name", in->line, column + 1);
        if (in->nflags == DF_FLAGS_MAX)
            return df_fail(in, e, "more than %d flags", DF_FLAGS_MAX);
        struct df_flag *f = &in->flags[in->nflags++];
        name = strcspn(at + 2, "= \t");
        f->name = mem_strndup(at + 2, name);
        f->value = 2 + name < n ? mem_strndup(at + 3 + name, n - 3 - name) : mem_strdup("");
        at += n;
    }
    *ret_rest = at;
    return 0;
}

/* The exec form if it is one; an array of anything but strings is none, as for Docker. */
static json_t *read_json(const char *text)
{
    struct err ignored;

    if (*text != '[')
        return NULL;
    json_t *list = js_parse(text, strlen(text), DF_TEXT_MAX, &ignored);
    json_t *item;
    size_t i;
    if (list == NULL)
        return NULL;
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* What an ONBUILD keeps is read again when it is done, in another build: what cannot be an instruction then is told now. */
static int check_trigger(const struct df_instruction *in, size_t column, struct err *e)
{
    size_t n = strcspn(in->text, " \t"), k = 0;

    while (k < array_len(keywords) && (strlen(keywords[k].name) != n || strncasecmp(in->text, keywords[k].name, n) != 0))
        k++;
    if (k == array_len(keywords))
        return err_set(e, ERR_INVALID, "line %d, column %zu: there is no instruction '%.*s'",
                       in->line, column + 1, n < 40 ? (int)n : 40, in->text);
    if (keywords[k].kind == DF_ONBUILD || keywords[k].kind == DF_FROM || keywords[k].kind == DF_MAINTAINER)
        return err_set(e, ERR_INVALID, "line %d, column %zu: %s cannot follow ONBUILD", in->line, column + 1, keywords[k].name);
    return 0;
}

static int read_instruction(struct reader *r, const char *line, int number, struct df_instruction *in, struct err *e)
{
    size_t n = strcspn(line, " \t");
    const char *rest = "";
    size_t k = 0;

    in->line = number;
    while (k < array_len(keywords) && (strlen(keywords[k].name) != n || strncasecmp(line, keywords[k].name, n) != 0))
        k++;
    if (k == array_len(keywords))
        return err_set(e, ERR_INVALID, "line %d, column 1: there is no instruction '%.*s'", number, n < 40 ? (int)n : 40, line);
    in->kind = keywords[k].kind;
    in->source = mem_strdup(line);
    if (read_flags(in, line + n, n, &rest, e) < 0)
        return -1;
    in->text = mem_strdup(rest);
    if (*rest == '\0' && !(in->kind == DF_CMD || in->kind == DF_ENTRYPOINT))
        return err_set(e, ERR_INVALID, "line %d, column %zu: %s needs something behind it", number,
                       strlen(line) + 1, df_name(in->kind));
    if (in->kind == DF_ONBUILD && check_trigger(in, (size_t)(rest - line), e) < 0)
        return -1;
    if (keywords[k].has_json)
        in->json = read_json(rest);
    return keywords[k].has_heredocs && in->json == NULL ? read_heredocs(r, in, e) : 0;
}

static int read_all(struct reader *r, struct df_file *f, struct err *e)
{
    auto_buf line = {0};
    int number = 0;

    buf_init(&line, DF_TEXT_MAX + 1);
    while (logical_line(r, &line, &number)) {
        if (f->n == DF_INSTRUCTIONS_MAX)
            return err_set(e, ERR_TOO_LARGE, "line %d: more than %d instructions", number, DF_INSTRUCTIONS_MAX);
        f->list = mem_realloc(f->list, (f->n + 1) * sizeof *f->list);
        struct df_instruction *in = &f->list[f->n++];
        memset(in, 0, sizeof *in);
        auto_free char *copy = mem_strdup(buf_str(&line));
        if (read_instruction(r, copy, number, in, e) < 0)
            return -1;
    }
    return 0;
}

int df_parse(const char *text, size_t n, struct df_file *ret, struct err *e)
{
    struct reader r = {.text = text, .n = n, .escape = '\\'};

    *ret = (struct df_file){.escape = '\\'};
    if (n > DF_TEXT_MAX)
        return err_set(e, ERR_TOO_LARGE, "the Dockerfile has %zu bytes, at most %u are read", n, DF_TEXT_MAX);
    if (n > 0 && memchr(text, '\0', n) != NULL)
        return err_set(e, ERR_INVALID, "there is a NUL in the Dockerfile");
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        r.at = 3;
    if (read_directives(&r, e) < 0)
        return -1;
    ret->escape = r.escape;
    if (read_all(&r, ret, e) < 0) {
        df_done(ret);
        return -1;
    }
    return 0;
}

int df_parse_one(const char *text, char escape, struct df_file *ret, struct err *e)
{
    struct reader r = {.text = text, .n = strlen(text), .escape = escape};

    *ret = (struct df_file){.escape = escape};
    if (read_all(&r, ret, e) < 0) {
        df_done(ret);
        return -1;
    }
    return 0;
}

void df_done(struct df_file *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct df_instruction *in = &f->list[i];
        free(in->text);
        free(in->source);
        json_decref(in->json);
        for (size_t k = 0; k < in->nflags; k++) {
            free(in->flags[k].name);
            free(in->flags[k].value);
        }
        for (size_t k = 0; k < in->nheredocs; k++) {
            free(in->heredocs[k].name);
            free(in->heredocs[k].text);
        }
    }
    free(f->list);
    f->list = NULL;
    f->n = 0;
}

const char *df_flag(const struct df_instruction *in, const char *name)
{
    for (size_t i = 0; i < in->nflags; i++)
        if (strcmp(in->flags[i].name, name) == 0)
            return in->flags[i].value;
    return NULL;
}

int df_check_flags(const struct df_instruction *in, const char *const *names, size_t n, struct err *e)
{
    for (size_t i = 0; i < in->nflags; i++) {
        size_t k = 0;
        while (k < n && strcmp(in->flags[i].name, names[k]) != 0)
            k++;
        if (k == n)
            return df_fail(in, e, "there is no flag --%.40s", in->flags[i].name);
    }
    return 0;
}
