/*
 * words.c - quoting and variables, as Dockerfiles have them
 */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "core/dockerfile/dockerfile.h"

#define DEPTH_MAX 20
#define WORD_MAX (256U * 1024)
#define WORK_MAX 5000000            /* steps of all patterns of one instruction: a build has no process of its own for them */

struct lexer {
    const struct df_shell *sh;
    const char *at;
    int depth;
    long work;                      /* that patterns may still take; below 0 = too much was asked */
    struct err *e;
};

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static size_t name_len(const char *p)
{
    size_t n = 0;

    while (is_name(p[n], n == 0))
        n++;
    return n;
}

static int expand_until(struct lexer *l, char stop, struct buf *out);

/* --- patterns of ${x#pattern} ----------------------------------------------------------------- */

/* Without recursion: of several '*' only the last one has to try again. */
static bool matches(struct lexer *l, const char *p, const char *s, size_t n)
{
    const char *star = NULL;        /* behind the last '*' */
    size_t at = 0, tried = 0;       /* what it stands for ends before s[tried] */

    while (--l->work >= 0) {
        if (*p == '*') {
            star = ++p;
            tried = at;
            continue;
        }
        if (at == n && *p == '\0')
            return true;
        const char *literal = *p == '\\' && p[1] != '\0' ? p + 1 : p;
        if (at < n && *p != '\0' && (*p == '?' || s[at] == *literal)) {
            p = literal + 1;
            at++;
            continue;
        }
        if (star == NULL || tried == n)
            return false;
        p = star;
        at = ++tried;
    }
    return false;
}

static void trim_pattern(struct lexer *l, const char *value, const char *pattern, bool front, bool greedy, struct buf *out)
{
    size_t n = strlen(value), begin = 0, len = n;
    bool found = false;

    for (size_t i = 0; i <= n && (!found || greedy) && l->work >= 0; i++) {
        if (front ? matches(l, pattern, value, i) : matches(l, pattern, value + n - i, i)) {
            found = true;
            begin = front ? i : 0;
            len = n - i;
        }
    }
    (void)buf_add(out, value + begin, found ? len : n);
}

static void replace_pattern(struct lexer *l, const char *value, const char *pattern, const char *with, bool all, struct buf *out)
{
    size_t n = strlen(value);

    for (size_t at = 0; at < n && l->work >= 0;) {
        size_t len = 0;
        for (size_t i = n - at; i > 0 && len == 0 && l->work >= 0; i--)
            if (matches(l, pattern, value + at, i))
                len = i;
        if (len == 0) {
            (void)buf_addc(out, value[at++]);
            continue;
        }
        (void)buf_adds(out, with);
        at += len;
        if (!all) {
            (void)buf_adds(out, value + at);
            return;
        }
    }
}

/* --- variables ------------------------------------------------------------------------------------------------------------- */

static const char *look_up(struct lexer *l, const char *name, size_t n)
{
    return l->sh->lookup(l->sh->ctx, name, n);
}

/* The word up to '}' (or '/'), expanded; the caller frees. */
static char *read_word(struct lexer *l, char stop)
{
    auto_buf word = {0};

    buf_init(&word, WORD_MAX);
    if (expand_until(l, stop, &word) < 0)
        return NULL;
    return mem_strdup(buf_str(&word));
}

static int apply(struct lexer *l, char op, bool colon, bool twice, const char *name, size_t n, const char *value, struct buf *out)
{
    auto_free char *word = NULL, *with = NULL;
    bool is_set = value != NULL && (!colon || *value != '\0');

    word = read_word(l, op == '/' ? '/' : '}');
    if (word == NULL)
        return -1;
    if (op == '/') {
        if (*l->at == '/')
            l->at++;
        with = read_word(l, '}');
        if (with == NULL)
            return -1;
    }
    if (*l->at != '}')
        return err_set(l->e, ERR_INVALID, "'${%.*s' does not end", n < 40 ? (int)n : 40, name);
    l->at++;
    switch (op) {
    case '-':
        (void)buf_adds(out, is_set ? value : word);
        return 0;
    case '+':
        (void)buf_adds(out, is_set ? word : "");
        return 0;
    case '?':
        if (!is_set)
            return err_set(l->e, ERR_INVALID, "%.*s: %.150s", n < 40 ? (int)n : 40, name, *word != '\0' ? word : "it is not set");
        (void)buf_adds(out, value);
        return 0;
    case '#':
    case '%':
        if (value != NULL)
            trim_pattern(l, value, word, op == '#', twice, out);
        break;
    default:
        if (value != NULL)
            replace_pattern(l, value, word, with, twice, out);
        break;
    }
    return l->work >= 0
               ? 0
               : err_set(l->e, ERR_TOO_LARGE, "the pattern of '${%.*s' takes more than %d steps",
                         n < 40 ? (int)n : 40, name, WORK_MAX);
}

static int braces(struct lexer *l, struct buf *out)
{
    const char *name = l->at;
    size_t n = name_len(name);
    bool colon = false, twice = false;

    if (n == 0)
        n = strspn(name, "0123456789");
    if (n == 0)
        return err_set(l->e, ERR_INVALID, "'${%.20s' names no variable", name);
    const char *found = look_up(l, name, n);
    auto_free char *value = found != NULL ? mem_strdup(found) : NULL;
    l->at += n;
    char op = *l->at;
    if (op == '}') {
        l->at++;
        (void)buf_adds(out, value != NULL ? value : "");
        return 0;
    }
    if (op == ':') {
        colon = true;
        op = *++l->at;
    }
    if (op == '\0')
        return err_set(l->e, ERR_INVALID, "'${%.*s' does not end", n < 40 ? (int)n : 40, name);
    if (strchr(colon ? "-+?" : "-+?#%/", op) == NULL)
        return err_set(l->e, ERR_INVALID, "'${%.*s' has a modifier that is not known: '%.2s'", n < 40 ? (int)n : 40, name, l->at);
    l->at++;
    if ((op == '#' || op == '%' || op == '/') && *l->at == op) {
        twice = true;
        l->at++;
    }
    return apply(l, op, colon, twice, name, n, value, out);
}

static int dollar(struct lexer *l, struct buf *out)
{
    l->at++;
    if (l->sh->lookup == NULL) {
        (void)buf_addc(out, '$');
        return 0;
    }
    if (*l->at == '{') {
        l->at++;
        return braces(l, out);
    }
    size_t n = name_len(l->at);
    if (n == 0) {
        (void)buf_addc(out, '$');
        return 0;
    }
    const char *value = look_up(l, l->at, n);
    if (value != NULL)
        (void)buf_adds(out, value);
    l->at += n;
    return 0;
}

/* --- quotes ----------------------------------------------------------------------------------- */

static int single_quoted(struct lexer *l, struct buf *out)
{
    for (l->at++; *l->at != '\''; l->at++) {
        if (*l->at == '\0')
            return err_set(l->e, ERR_INVALID, "a single quote is not closed");
        (void)buf_addc(out, *l->at);
    }
    l->at++;
    return 0;
}

static int double_quoted(struct lexer *l, struct buf *out)
{
    char escape = l->sh->escape;

    l->at++;
    while (*l->at != '"') {
        if (*l->at == '\0')
            return err_set(l->e, ERR_INVALID, "a double quote is not closed");
        if (*l->at == '$') {
            if (dollar(l, out) < 0)
                return -1;
            continue;
        }
        if (*l->at == escape && (l->at[1] == '"' || l->at[1] == '$' || l->at[1] == escape))
            l->at++;
        (void)buf_addc(out, *l->at++);
    }
    l->at++;
    return 0;
}

/* One character, quoted text or variable. */
static int expand_one(struct lexer *l, struct buf *out)
{
    if (l->sh->keeps_quotes && (*l->at == '\'' || *l->at == '"')) {
        (void)buf_addc(out, *l->at++);
        return 0;
    }
    switch (*l->at) {
    case '\'':
        return single_quoted(l, out);
    case '"':
        return double_quoted(l, out);
    case '$':
        return dollar(l, out);
    default:
        if (*l->at == l->sh->escape && l->at[1] != '\0')
            l->at++;
        (void)buf_addc(out, *l->at++);
        return 0;
    }
}

/* Up to `stop` (or, for '/', a '}'), which is left; or the end. */
static int expand_until(struct lexer *l, char stop, struct buf *out)
{
    int r = 0;

    if (++l->depth > DEPTH_MAX)
        r = err_set(l->e, ERR_INVALID, "variables are nested deeper than %d", DEPTH_MAX);
    while (r == 0 && *l->at != '\0' && *l->at != stop && !(stop == '/' && *l->at == '}'))
        r = expand_one(l, out);
    l->depth--;
    if (r == 0 && out->failed)
        r = err_set(l->e, ERR_TOO_LARGE, "a text becomes longer than %u bytes", WORD_MAX);
    return r;
}

char *df_expand(const struct df_shell *sh, const char *text, struct err *e)
{
    struct lexer l = {.sh = sh, .at = text, .work = WORK_MAX, .e = e};

    return read_word(&l, '\0');
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The next word; NULL with no error at the end. `stop` ends it too, 0 = none. */
static char *next_word(struct lexer *l, char stop, bool *ret_failed)
{
    auto_buf word = {0};

    *ret_failed = false;
    buf_init(&word, WORD_MAX);
    while (is_blank(*l->at))
        l->at++;
    if (*l->at == '\0')
        return NULL;
    while (*l->at != '\0' && !is_blank(*l->at) && (stop == '\0' || *l->at != stop)) {
        if (expand_one(l, &word) < 0) {
            *ret_failed = true;
            return NULL;
        }
    }
    if (word.failed) {
        *ret_failed = true;
        (void)err_set(l->e, ERR_TOO_LARGE, "a text becomes longer than %u bytes", WORD_MAX);
        return NULL;
    }
    return mem_strdup(buf_str(&word));
}

json_t *df_words(const struct df_shell *sh, const char *text, struct err *e)
{
    struct lexer l = {.sh = sh, .at = text, .work = WORK_MAX, .e = e};
    auto_json *list = json_array();
    bool failed = false;
    char *word;

    while ((word = next_word(&l, '\0', &failed)) != NULL) {
        (void)json_array_append_new(list, js_string_lossy(word));
        free(word);
    }
    return failed ? NULL : take_ptr(&list);
}

static json_t *pair(const char *name, const char *value)
{
    json_t *list = json_array();

    (void)json_array_append_new(list, js_string_lossy(name));
    (void)json_array_append_new(list, js_string_lossy(value));
    return list;
}

json_t *df_pairs(const struct df_shell *sh, const char *text, struct err *e)
{
    struct lexer l = {.sh = sh, .at = text, .work = WORK_MAX, .e = e};
    auto_json *list = json_array();
    bool failed = false;

    for (;;) {
        auto_free char *name = next_word(&l, '=', &failed);
        if (failed)
            return NULL;
        if (name == NULL)
            return take_ptr(&list);
        if (*l.at != '=') {
            while (is_blank(*l.at))
                l.at++;
            if (json_array_size(list) > 0 || *l.at == '\0') {
                (void)err_set(e, ERR_INVALID, "'%.60s' has no '='", name);
                return NULL;
            }
            /* The old form: everything else is the value. */
            auto_free char *rest = read_word(&l, '\0');
            if (rest == NULL)
                return NULL;
            (void)json_array_append_new(list, pair(name, rest));
            return take_ptr(&list);
        }
        l.at++;
        auto_free char *value = is_blank(*l.at) || *l.at == '\0' ? mem_strdup("") : next_word(&l, '\0', &failed);
        if (failed)
            return NULL;
        if (*name == '\0') {
            (void)err_set(e, ERR_INVALID, "a name before '=' is empty");
            return NULL;
        }
        (void)json_array_append_new(list, pair(name, value != NULL ? value : ""));
    }
}
