/*
 * policy_json_http.c - what a rule of a network policy says about requests, as JSON
 */
#include "core/policy_json_http.h"

#include <stdio.h>
#include <string.h>

#include "base/ids.h"
#include "base/mem.h"

#define PARAM "network"
#define PLACEHOLDER_RANDOM 40

/* --- reading --------------------------------------------------------------------------------- */

static int add_texts(const json_t *list, const char *key, size_t rule, struct policy_rule *r,
                     void (*add)(struct policy_rule *, const char *), struct err *e)
{
    size_t i;
    const json_t *v;

    if (list == NULL)
        return 0;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > LIMIT_RULE_INJECTS)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: %s must be an array of 1 to %d strings; leave it out to match all",
                         rule + 1, key, LIMIT_RULE_INJECTS);
    json_array_foreach(list, i, v) {
        const char *text = json_string_value(v);
        if (text == NULL || strlen(text) != json_string_length(v) || strlen(text) > LIMIT_INJECT_TEXT)
            return err_param(e, ERR_INVALID, PARAM, "rule %zu: %s must be strings of at most %d characters", rule + 1, key,
                             LIMIT_INJECT_TEXT);
        add(r, text);
    }
    return 0;
}

/* *ret stays `absent` when the member is not there. */
static int text_of(const json_t *j, const char *key, const char *absent, size_t rule, const char **ret, struct err *e)
{
    const json_t *v = json_object_get(j, key);
    const char *text = json_string_value(v);

    *ret = v == NULL ? absent : text;
    if (*ret == NULL)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: inject needs a string '%s'", rule + 1, key);
    if (v != NULL && (strlen(text) != json_string_length(v) || strlen(text) > LIMIT_INJECT_TEXT))
        return err_param(e, ERR_TOO_LARGE, PARAM, "rule %zu: '%s' has more than %d characters, or a NUL", rule + 1, key,
                         LIMIT_INJECT_TEXT);
    return 0;
}

static int read_value(const json_t *j, size_t rule, struct policy_rule *r, enum policy_inject_kind kind, struct err *e)
{
    static const char *const keys[2][4] = {{"header", "value", "secret", "mode"}, {"query", "value", "secret", "mode"}};
    const char *name, *value, *mode;

    if (policy_json_keys(j, keys[kind == POLICY_QUERY], 4, "an inject of a rule", e) < 0 ||
        text_of(j, kind == POLICY_QUERY ? "query" : "header", NULL, rule, &name, e) < 0 ||
        text_of(j, "value", NULL, rule, &value, e) < 0 || text_of(j, "mode", "set", rule, &mode, e) < 0)
        return -1;
    if (strcmp(mode, "set") != 0 && strcmp(mode, "replace") != 0)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: mode must be set or replace", rule + 1);
    policy_rule_inject(r, kind, name, value, "")->replace = mode[0] == 'r';
    return 0;
}

static int read_basic(const json_t *j, size_t rule, struct policy_rule *r, struct err *e)
{
    static const char *const keys[] = {"basic", "secret"}, *const parts[] = {"user", "password"};
    const json_t *basic = json_object_get(j, "basic");
    const char *user, *password;

    if (policy_json_keys(j, keys, array_len(keys), "an inject of a rule", e) < 0)
        return -1;
    if (!json_is_object(basic))
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: basic must be an object of user and password", rule + 1);
    if (policy_json_keys(basic, parts, array_len(parts), "basic", e) < 0 ||
        text_of(basic, "user", NULL, rule, &user, e) < 0 || text_of(basic, "password", NULL, rule, &password, e) < 0)
        return -1;
    (void)policy_rule_inject(r, POLICY_BASIC, user, password, "");
    return 0;
}

static int read_sigv4(const json_t *j, size_t rule, struct policy_rule *r, struct err *e)
{
    static const char *const keys[] = {"aws_sigv4", "secret"}, *const parts[] = {"service", "region"};
    const json_t *sign = json_object_get(j, "aws_sigv4");
    const char *service, *region;

    if (policy_json_keys(j, keys, array_len(keys), "an inject of a rule", e) < 0)
        return -1;
    if (!json_is_object(sign))
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: aws_sigv4 must be an object of service and region", rule + 1);
    if (policy_json_keys(sign, parts, array_len(parts), "aws_sigv4", e) < 0 ||
        text_of(sign, "service", "", rule, &service, e) < 0 || text_of(sign, "region", "", rule, &region, e) < 0)
        return -1;
    (void)policy_rule_inject(r, POLICY_SIGV4, service, region, "");
    return 0;
}

/* A text that looks like a key: what a client checks of a key, it finds. */
static void make_placeholder(const char *prefix, char *out, size_t size)
{
    static const char chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    uint8_t bytes[PLACEHOLDER_RANDOM];
    char text[PLACEHOLDER_RANDOM + 1];

    random_bytes(bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        text[i] = chars[bytes[i] % (sizeof chars - 1)];
    text[PLACEHOLDER_RANDOM] = '\0';
    (void)snprintf(out, size, "%s%s", prefix, text);
}

static int read_placeholder(const json_t *j, size_t rule, struct policy_rule *r, struct err *e)
{
    static const char *const keys[] = {"placeholder", "secret", "value", "prefix", "text"};
    const char *name, *value, *prefix, *text;
    char made[LIMIT_NAME + PLACEHOLDER_RANDOM + 1], own[LIMIT_NAME + 2];

    if (policy_json_keys(j, keys, array_len(keys), "an inject of a rule", e) < 0 ||
        text_of(j, "placeholder", NULL, rule, &name, e) < 0 || text_of(j, "prefix", "", rule, &prefix, e) < 0)
        return -1;
    if (strlen(name) > LIMIT_NAME || strlen(prefix) > LIMIT_NAME)
        return err_param(e, ERR_TOO_LARGE, PARAM, "rule %zu: a placeholder's name and prefix have at most %d characters",
                         rule + 1, LIMIT_NAME);
    make_placeholder(prefix, made, sizeof made);
    (void)snprintf(own, sizeof own, "$%s", name);
    if (text_of(j, "value", own, rule, &value, e) < 0 || text_of(j, "text", made, rule, &text, e) < 0)
        return -1;
    (void)policy_rule_inject(r, POLICY_PLACEHOLDER, name, text, value);
    return 0;
}

static int read_inject(const json_t *j, size_t rule, struct policy_rule *r, struct err *e)
{
    const char *secret;
    int done;

    if (json_object_get(j, "header") != NULL)
        done = read_value(j, rule, r, POLICY_HEADER, e);
    else if (json_object_get(j, "query") != NULL)
        done = read_value(j, rule, r, POLICY_QUERY, e);
    else if (json_object_get(j, "basic") != NULL)
        done = read_basic(j, rule, r, e);
    else if (json_object_get(j, "aws_sigv4") != NULL)
        done = read_sigv4(j, rule, r, e);
    else if (json_object_get(j, "placeholder") != NULL)
        done = read_placeholder(j, rule, r, e);
    else
        return err_param(e, ERR_INVALID, PARAM,
                         "rule %zu: each inject is an object with header, query, basic, aws_sigv4 or placeholder", rule + 1);
    if (done < 0 || text_of(j, "secret", "", rule, &secret, e) < 0)
        return -1;
    if (secret[0] != '\0' && !name_is_valid(secret, strlen(secret)))
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: '%.80s' is not the name of a secret", rule + 1, secret);
    struct policy_inject *made = &r->injects[r->ninjects - 1];
    (void)snprintf(made->secret, sizeof made->secret, "%s", secret);
    return 0;
}

int policy_json_requests(const json_t *j, size_t i, struct policy_rule *r, struct err *e)
{
    const json_t *injects = json_object_get(j, "inject"), *redact = json_object_get(j, "redact"), *v;
    size_t k;

    if (add_texts(json_object_get(j, "methods"), "methods", i, r, policy_rule_method, e) < 0 ||
        add_texts(json_object_get(j, "paths"), "paths", i, r, policy_rule_path, e) < 0)
        return -1;
    if (redact != NULL && !json_is_boolean(redact))
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: redact must be true or false", i + 1);
    r->redact = json_is_true(redact);
    if (injects == NULL)
        return 0;
    if (!json_is_array(injects) || json_array_size(injects) == 0 || json_array_size(injects) > LIMIT_RULE_INJECTS)
        return err_param(e, ERR_INVALID, PARAM, "rule %zu: inject must be an array of 1 to %d objects", i + 1,
                         LIMIT_RULE_INJECTS);
    json_array_foreach(injects, k, v)
        if (read_inject(v, i, r, e) < 0)
            return -1;
    return 0;
}

/* --- writing --------------------------------------------------------------------------------- */

static void set(json_t *o, const char *key, const char *value)
{
    (void)json_object_set_new(o, key, json_string(value));
}

static json_t *inject_json(const struct policy_inject *j)
{
    json_t *o = json_object(), *part;

    switch ((enum policy_inject_kind)j->kind) {
    case POLICY_HEADER:
    case POLICY_QUERY:
        set(o, j->kind == POLICY_HEADER ? "header" : "query", j->name);
        set(o, "value", j->value);
        set(o, "mode", j->replace ? "replace" : "set");
        break;
    case POLICY_BASIC:
        part = json_object();
        set(part, "user", j->name);
        set(part, "password", j->value);
        (void)json_object_set_new(o, "basic", part);
        break;
    case POLICY_SIGV4:
        part = json_object();
        set(part, "service", j->name);
        set(part, "region", j->value);
        (void)json_object_set_new(o, "aws_sigv4", part);
        break;
    case POLICY_PLACEHOLDER:
        set(o, "placeholder", j->name);
        set(o, "text", j->value);
        set(o, "value", j->with);
        break;
    case POLICY_INJECT_KINDS_:
        break;
    }
    if (j->secret[0] != '\0')
        set(o, "secret", j->secret);
    return o;
}

static void put_texts(json_t *o, const char *key, char *const *texts, uint32_t n)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < n; i++)
        (void)json_array_append_new(list, json_string(texts[i]));
    (void)json_object_set_new(o, key, list);
}

void policy_json_put_requests(const struct policy_rule *r, json_t *o)
{
    json_t *list = json_array();

    if (r->nmethods > 0)
        put_texts(o, "methods", r->methods, r->nmethods);
    if (r->npaths > 0)
        put_texts(o, "paths", r->paths, r->npaths);
    for (uint32_t i = 0; i < r->ninjects; i++)
        (void)json_array_append_new(list, inject_json(&r->injects[i]));
    if (r->ninjects > 0) {
        (void)json_object_set(o, "inject", list);
        (void)json_object_set_new(o, "redact", json_boolean(r->redact));
    }
    json_decref(list);
}
