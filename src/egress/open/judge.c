/*
 * judge.c - whether a request of an opened connection may go on, and what is put into it
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/open/open.h"

/* Of methods that servers take out of fields; a list of them is read by each in its own way. */
#define METHOD_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

void asked_init(struct asked *a)
{
    *a = (struct asked){.rule = -1};
    redact_init(&a->words);
}

void asked_done(struct asked *a)
{
    free(a->path);
    a->path = NULL;
    redact_done(&a->words);
}

static void refuse(struct judged *j, int status, enum egress_reason reason, const char *text)
{
    j->status = status;
    j->reason = reason;
    j->text = text;
}

static bool ask(struct flow *f, struct asked *a, struct policy_verdict *v, enum egress_reason *ret_reason)
{
    const struct policy_flow pf = {.to = &f->dialled, .name = f->name[0] != '\0' ? f->name : NULL, .port = f->port,
                                   .protocol = (enum policy_protocol)f->protocol, .method = a->method, .path = a->path};

    policy_ask(&f->box->policy, &pf, v);
    a->rule = v->rule;
    *ret_reason = EGRESS_BY_RULE;
    if (v->action != POLICY_ALLOW)
        return false;
    *ret_reason = EGRESS_ADDRESS;
    return policy_permits_address(&f->box->policy, v->rule, &f->dialled, dial_is_local(&f->dialled));
}

static bool has_lower_case(const char *method)
{
    for (const char *c = method; *c != '\0'; c++)
        if (*c >= 'a' && *c <= 'z')
            return true;
    return false;
}

/*
 * Servers are asked in the form that all of them know, with the path that was judged. Several slashes at its begin would be
 * one in front of a host for some of them.
 */
static void set_origin_form(struct request *r)
{
    const char *scheme = r->target[0] == '/' ? NULL : strstr(r->target, "://");

    if (r->target[0] != '/' && scheme == NULL)
        return;
    const char *rest = scheme == NULL ? r->target : scheme + 3 + strcspn(scheme + 3, "/?#");
    while (rest[0] == '/' && rest[1] == '/')
        rest++;
    if (rest == r->target)
        return;
    auto_free char *target = mem_printf("%s%s", *rest == '/' ? "" : "/", rest);
    request_set_target(r, target);
}

/*
 * "/./" is "/" (RFC 3986, 5.2.4), as in the names of package lists. It is taken out, so that a server that does not know that is
 * asked for what was judged.
 */
static void take_out_dots(struct request *r)
{
    const char *at = r->target, *end = at + strcspn(at, "?#");
    auto_free char *target = mem_alloc(strlen(at) + 1);
    char *out = target;

    while (at < end) {
        bool is_dot = at[0] == '/' && end - at >= 2 && at[1] == '.';
        if (is_dot && end - at > 2 && at[2] == '/') {
            at += 2;
        } else if (is_dot && end - at == 2) {
            *out++ = '/';
            at = end;
        } else {
            *out++ = *at++;
        }
    }
    if (end - r->target == out - target)
        return;
    memcpy(out, end, strlen(end) + 1);
    request_set_target(r, target);
    set_origin_form(r);         /* there may be several slashes at the begin now */
}

static bool is_override(const char *name)
{
    static const char *const fields[] = {"x-http-method-override", "x-http-method", "x-method-override"};

    for (size_t i = 0; i < array_len(fields); i++) {
        size_t n = 0;
        /* To many servers an underscore is the same. */
        while (name[n] != '\0' && (name[n] == '_' ? '-' : tolower((unsigned char)name[n])) == fields[i][n])
            n++;
        if (name[n] == '\0' && fields[i][n] == '\0')
            return true;
    }
    return false;
}

/* A server may take the method out of a field: that one has to be allowed as well. */
static bool may_override(struct flow *f, const struct request *r, const struct asked *a, struct judged *ret)
{
    struct asked other = {.path = a->path};
    struct policy_verdict v;
    enum egress_reason reason;

    for (size_t i = 0; i < r->nfields; i++) {
        const char *value = r->fields[i].value;
        if (!is_override(r->fields[i].name))
            continue;
        if (strlen(value) >= sizeof other.method || value[strspn(value, METHOD_CHARS)] != '\0') {
            refuse(ret, 400, EGRESS_MALFORMED, "a field of the request names a method that is none");
            return false;
        }
        for (size_t k = 0; k <= strlen(value); k++)
            other.method[k] = (char)toupper((unsigned char)value[k]);
        if (!ask(f, &other, &v, &reason)) {
            ret->rule = v.rule;
            refuse(
                ret, 403, reason,
                "the network policy of this sandbox does not allow the method that a field of the request names");
            return false;
        }
    }
    return true;
}

void judge_request(struct flow *f, struct request *r, struct asked *a, struct judged *ret)
{
    struct policy_verdict v;
    enum egress_reason reason;

    *ret = (struct judged){.rule = -1};
    set_origin_form(r);
    take_out_dots(r);
    const char *path = request_path(r);
    a->path = mem_alloc(POLICY_PATH_MAX + 1);
    if (!policy_path(path, strlen(path), a->path)) {
        a->path[0] = '\0';
        refuse(ret, 400, EGRESS_MALFORMED, "servers read such a path in more than one way");
        return;
    }
    a->path = mem_realloc(a->path, strlen(a->path) + 1);
    if (strlen(r->method) >= sizeof a->method || has_lower_case(r->method)) {
        refuse(ret, 400, EGRESS_MALFORMED, "servers read such a method in more than one way");
        return;
    }
    (void)snprintf(a->method, sizeof a->method, "%s", r->method);
    bool may = ask(f, a, &v, &reason);
    ret->rule = v.rule;
    if (!may)
        refuse(ret, 403, reason, "the network policy of this sandbox does not allow the request");
    else if (may_override(f, r, a, ret) && v.logged >= 0)
        box_note_request(f, v.logged, &(struct request_about){.method = a->method, .path = a->path});
}

bool judge_still(struct flow *f, struct asked *a)
{
    struct policy_verdict v;
    enum egress_reason reason;

    return ask(f, a, &v, &reason);
}

bool judge_needs_body(const struct flow *f, const struct request *r, const struct asked *a)
{
    return inject_needs_body(r, &f->box->policy.rules[a->rule]);
}

/* Which secrets were used for what; never their values, and of the target what was there before. */
static void note_use(struct flow *f, const struct policy_rule *rule, const struct asked *a, uint32_t used)
{
    char names[EGRESS_SECRETS_MAX + 1] = "";
    size_t n = 0;

    for (uint32_t i = 0; i < rule->ninjects; i++) {
        const char *secret = rule->injects[i].secret;
        bool is_told = (used & 1u << i) == 0 || secret[0] == '\0';
        for (uint32_t k = 0; k < i && !is_told; k++)
            is_told = (used & 1u << k) != 0 && strcmp(rule->injects[k].secret, secret) == 0;
        if (!is_told && n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? "," : "", secret);
    }
    if (used != 0)
        box_injected(f, a->rule, &(struct request_about){.method = a->method, .path = a->path, .secrets = names});
}

void judge_inject(struct flow *f, struct request *r, const char *body, bool is_http2, struct asked *a, struct judged *ret)
{
    const struct policy_rule *rule = &f->box->policy.rules[a->rule];
    const char *host = is_http2 ? f->name : request_get(r, "Host");
    const struct injection in = {.secrets = &f->box->secrets, .host = host != NULL ? host : f->name, .body = body,
                                 .now_s = clock_wall_ms() / 1000, .is_http2 = is_http2};
    uint32_t used;

    if (rule->action != POLICY_INJECT)
        return;
    const char *wrong = inject_apply(r, rule, &in, &used, &a->words);
    if (wrong != NULL) {
        refuse(ret, 502, EGRESS_SECRET, wrong);
        return;
    }
    a->redacts = rule->redact;
    note_use(f, rule, a, used);
}

void judge_refused(struct flow *f, const struct judged *j, const struct asked *a, char *out, size_t size)
{
    box_deny_request(f, j->reason, j->rule, &(struct request_about){.method = a->method, .path = a->path});
    const struct egress_status *s = &f->box->status;
    const char *by = s->denials[s->ndenials - 1].rule;

    (void)snprintf(out, size, "quicksand: %s: %s port %u (%s%s%s)\n", j->text, f->name, f->port, egress_reason_name(j->reason),
                   by[0] != '\0' ? " " : "", by);
}

const char *judge_status(int status)
{
    return status == 400   ? "400 Bad Request"
           : status == 413 ? "413 Content Too Large"
           : status == 421 ? "421 Misdirected Request"
           : status == 502 ? "502 Bad Gateway"
           : status == 503 ? "503 Service Unavailable"
                           : "403 Forbidden";
}
