/*
 * policy_http.c - rules over requests: methods, paths, what is put in
 */
#include "base/policy_http.h"

#include <string.h>

#include "base/mem.h"

void policy_http_done(struct policy_rule *r)
{
    for (uint32_t i = 0; i < r->nmethods; i++)
        free(r->methods[i]);
    for (uint32_t i = 0; i < r->npaths; i++)
        free(r->paths[i]);
    for (uint32_t i = 0; i < r->ninjects; i++) {
        free(r->injects[i].name);
        free(r->injects[i].value);
        free(r->injects[i].with);
    }
    free(r->methods);
    free(r->paths);
    free(r->injects);
}

void policy_rule_method(struct policy_rule *r, const char *method)
{
    r->methods = mem_realloc(r->methods, (r->nmethods + 1) * sizeof *r->methods);
    r->methods[r->nmethods++] = mem_strdup(method);
}

void policy_rule_path(struct policy_rule *r, const char *path)
{
    r->paths = mem_realloc(r->paths, (r->npaths + 1) * sizeof *r->paths);
    r->paths[r->npaths++] = mem_strdup(path);
}

struct policy_inject *policy_rule_inject(struct policy_rule *r, enum policy_inject_kind kind, const char *name, const char *value,
                                         const char *with)
{
    r->injects = mem_realloc(r->injects, (r->ninjects + 1) * sizeof *r->injects);
    struct policy_inject *j = &r->injects[r->ninjects++];
    *j = (struct policy_inject){
        .kind = (uint8_t)kind, .name = mem_strdup(name), .value = mem_strdup(value), .with = mem_strdup(with)};
    return j;
}

bool policy_opens_tls(const struct policy *p)
{
    for (uint32_t i = 0; i < p->nrules; i++)
        if (policy_is_of_requests(&p->rules[i]) && p->rules[i].protocol != POLICY_HTTP)
            return true;
    return false;
}

/* --- texts ----------------------------------------------------------------------------------- */

static bool is_token(const char *text)
{
    size_t n = strlen(text);

    return n > 0 && n <= LIMIT_INJECT_TEXT &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == n;
}

/* Fields that say how the request is framed, or to whom it goes. */
static bool is_framing(const char *name)
{
    static const char *const fields[] = {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer",
                                         "keep-alive", "proxy-connection", "expect", "http2-settings"};

    for (size_t i = 0; i < array_len(fields); i++)
        if (strcasecmp(name, fields[i]) == 0)
            return true;
    return false;
}

static bool is_text(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 127)
            return false;
    return strlen(text) <= LIMIT_INJECT_TEXT;
}

static bool is_key_char(char c, bool first)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (!first && c >= '0' && c <= '9');
}

size_t policy_template_next(const char *at, const char **ret_key, size_t *ret_len)
{
    bool brace = at[1] == '{';
    const char *key = at + (brace ? 2 : 1);
    size_t n = 0;

    while (is_key_char(key[n], n == 0))
        n++;
    *ret_key = key;
    *ret_len = n;
    if (at[1] == '$')
        return 2;
    if (n == 0 || (brace && key[n] != '}'))
        return 0;
    return n + (brace ? 3 : 1);
}

bool policy_template_is_valid(const char *text)
{
    const char *key;
    size_t n;

    for (const char *c = text; (c = strchr(c, '$')) != NULL;) {
        size_t used = policy_template_next(c, &key, &n);
        if (used == 0)
            return false;
        c += used;
    }
    return is_text(text);
}

static void template_keys(const char *text, policy_key_fn fn, void *ctx)
{
    const char *key;
    size_t n;

    for (const char *c = text; (c = strchr(c, '$')) != NULL;) {
        size_t used = policy_template_next(c, &key, &n);
        if (n > 0)
            fn(ctx, key, n);
        c += used > 0 ? used : 1;
    }
}

void policy_inject_keys(const struct policy_inject *j, policy_key_fn fn, void *ctx)
{
    static const char *const of_signature[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"};

    switch ((enum policy_inject_kind)j->kind) {
    case POLICY_HEADER:
    case POLICY_QUERY:
        template_keys(j->value, fn, ctx);
        break;
    case POLICY_BASIC:
        template_keys(j->name, fn, ctx);
        template_keys(j->value, fn, ctx);
        break;
    case POLICY_SIGV4:
        for (size_t i = 0; i < array_len(of_signature); i++)
            fn(ctx, of_signature[i], strlen(of_signature[i]));
        break;
    case POLICY_PLACEHOLDER:
        template_keys(j->with, fn, ctx);
        break;
    case POLICY_INJECT_KINDS_:
        break;
    }
}

static const char *inject_wrong(const struct policy_inject *j)
{
    static const char url[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

    switch ((enum policy_inject_kind)j->kind) {
    case POLICY_HEADER:
        if (!is_token(j->name))
            return "the header has no name that a field may have";
        if (is_framing(j->name))
            return "the header says how the request is framed or where it goes, and cannot be set";
        return policy_template_is_valid(j->value) ? NULL : "the value is no template: write $KEY, and $$ for a dollar sign";
    case POLICY_QUERY:
        if (j->name[0] == '\0' || strspn(j->name, url) != strlen(j->name) || strlen(j->name) > LIMIT_INJECT_TEXT)
            return "the query parameter has letters, digits and -._~ alone";
        return policy_template_is_valid(j->value) ? NULL : "the value is no template: write $KEY, and $$ for a dollar sign";
    case POLICY_BASIC:
        return policy_template_is_valid(j->name) && policy_template_is_valid(j->value) && strchr(j->name, ':') == NULL
                   ? NULL : "user and password are templates ($KEY, $$ for a dollar sign), the user without a colon";
    case POLICY_SIGV4:
        return strspn(j->name, url) == strlen(j->name) && strspn(j->value, url) == strlen(j->value) && j->secret[0] != '\0' &&
                       strlen(j->name) <= LIMIT_NAME && strlen(j->value) <= LIMIT_NAME
                   ? NULL : "a signature needs a secret, and service and region are words";
    case POLICY_PLACEHOLDER:
        for (const char *c = j->name; *c != '\0'; c++)
            if (!is_key_char(*c, c == j->name))
                return "the placeholder is no name of a variable";
        if (j->name[0] == '\0' || strlen(j->name) > LIMIT_NAME)
            return "the placeholder is no name of a variable";
        if (strlen(j->value) < POLICY_PLACEHOLDER_MIN || strlen(j->value) > LIMIT_INJECT_TEXT ||
            strspn(j->value, url) != strlen(j->value))
            return "the text of a placeholder has at least 16 characters, which are letters, digits and -._~";
        return policy_template_is_valid(j->with) && j->with[0] != '\0' ? NULL : "what stands for the placeholder is no template";
    case POLICY_INJECT_KINDS_:
        break;
    }
    return "it is of no kind that is known";
}

const char *policy_rule_wrong(const struct policy_rule *r)
{
    if (r->redact && r->action != POLICY_INJECT)
        return "redact needs the action inject";
    if ((r->ninjects > 0) != (r->action == POLICY_INJECT))
        return r->ninjects > 0 ? "inject needs the action inject" : "the action inject needs a list inject";
    if (!policy_is_of_requests(r))
        return NULL;
    if (r->ndomains == 0)
        return "methods, paths and inject need domains: only named connections are opened";
    if (r->protocol != POLICY_ANY && r->protocol != POLICY_TLS && r->protocol != POLICY_HTTP)
        return "methods, paths and inject need protocol any, tls or http";
    for (uint32_t i = 0; i < r->nmethods; i++)
        if (!is_token(r->methods[i]) || strlen(r->methods[i]) > 20)
            return "a method is a word of at most 20 characters";
    for (uint32_t i = 0; i < r->npaths; i++)
        if (!is_text(r->paths[i]) || (r->paths[i][0] != '/' && r->paths[i][0] != '*') ||
            strpbrk(r->paths[i], "?#\\ ") != NULL)
            return "a path begins with / or *, without query or spaces";
    for (uint32_t i = 0; i < r->ninjects; i++) {
        const char *wrong = inject_wrong(&r->injects[i]);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

/* --- paths ----------------------------------------------------------------------------------- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_unreserved(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
           c == '~';
}

/* Some servers forget what comes behind a semicolon, and go up after that. */
static bool is_dots(const char *p, size_t n)
{
    size_t dots = 0;

    while (dots < n && p[dots] == '.')
        dots++;
    return (dots == 1 || dots == 2) && (dots == n || p[dots] == ';' || (n - dots >= 3 && memcmp(p + dots, "%3B", 3) == 0));
}

bool policy_path(const char *target, size_t n, char out[POLICY_PATH_MAX + 1])
{
    size_t len = 0, part = 0;

    for (size_t i = 0; i < n && target[i] != '?'; i++) {
        char c = target[i];
        if (len + 3 > POLICY_PATH_MAX || (unsigned char)c <= ' ' || c == 127 || c == '\\' || c == '#')
            return false;
        if (c == '%') {
            int value = i + 2 < n && hex(target[i + 1]) >= 0 ? hex(target[i + 1]) * 16 + hex(target[i + 2]) : -1;
            if (i + 2 >= n || hex(target[i + 2]) < 0 || value < ' ' || value == 127 || value == '\\')
                return false;
            i += 2;
            /* Some read it as a slash, and go up then. */
            if (value == '/' && is_dots(out + part, len - part))
                return false;
            if (!is_unreserved(value)) {
                part = value == '/' ? len + 3 : part;
                out[len++] = '%';
                out[len++] = "0123456789ABCDEF"[value >> 4];
                out[len++] = "0123456789ABCDEF"[value & 15];
                continue;
            }
            c = (char)value;
        } else if (c == '/') {
            if (len > 0 && is_dots(out + part, len - part))
                return false;
            if (len > 0 && out[len - 1] == '/')
                continue;
            part = len + 1;
        }
        out[len++] = c;
    }
    out[len] = '\0';
    return len > 0 && !(part <= len && is_dots(out + part, len - part));
}

void policy_path_slashes(const char *path, char out[POLICY_PATH_MAX + 1])
{
    size_t len = 0;

    while (*path != '\0') {
        bool escaped = strncmp(path, "%2F", 3) == 0;
        char c = escaped ? '/' : *path;
        path += escaped ? 3 : 1;
        if (c != '/' || len == 0 || out[len - 1] != '/')
            out[len++] = c;
    }
    out[len] = '\0';
}

bool policy_path_matches(const char *pattern, const char *path)
{
    const char *star = NULL, *retry = NULL;

    while (*path != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            retry = path;
        } else if (*pattern == *path) {
            pattern++;
            path++;
        } else if (star != NULL) {
            pattern = star;
            path = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
