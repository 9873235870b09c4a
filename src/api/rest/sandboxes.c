/*
 * sandboxes.c - sandbox.* and app.* operations, as far as they are not about the inside
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/rest/handlers.h"
#include "api/rest/limit_fields.h"
#include "api/rest/list.h"
#include "api/rest/ports.h"
#include "api/rest/ready.h"
#include "api/rest/sandbox_json.h"
#include "base/image_ref.h"
#include "base/mem.h"
#include "core/sandbox.h"
#include "json/json.h"

#define MS(s) ((int64_t)llround((s)*1000.0))

static void set(json_t *o, const char *key, json_t *value)
{
    (void)json_object_set_new(o, key, value);
}

static void answer(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct call *c = ctx;

    if (e != NULL)
        call_fail(c, e);
    else
        call_reply(c, 200, sandbox_json(sb));
}

/* --- create ---------------------------------------------------------------------------------- */

static void on_created(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct call *c = ctx;

    if (e != NULL) {
        call_fail(c, e);
        return;
    }
    call_set_target(c, sb->row->id);
    if (sb->is_replay)
        call_add_header(c, "idempotency-replayed", "true");
    call_reply(c, sb->is_existing ? 200 : 201, sandbox_json(sb));
}

static const json_t *member(const struct call *c, const char *name)
{
    const json_t *v = json_object_get(c->body, name);

    return v != NULL && !json_is_null(v) ? v : NULL;
}

/* A duration field in milliseconds: `absent` when it is not there, 0 (none) when it is null. */
static int64_t duration(const struct call *c, const char *name, int64_t absent)
{
    const json_t *v = json_object_get(c->body, name);

    if (v == NULL)
        return absent;
    if (json_is_null(v))
        return 0;
    int64_t ms = MS(json_number_value(v));
    return ms > 0 ? ms : 1; /* a positive value below half a millisecond is not "none" */
}

static void read_tty(const struct call *c, struct sandbox_spec *spec)
{
    const json_t *tty = member(c, "tty");

    spec->tty = json_is_object(tty) || json_is_true(tty);
    spec->rows = 24;
    spec->cols = 80;
    if (json_is_object(tty)) {
        spec->rows = (uint32_t)json_integer_value(json_object_get(tty, "rows"));
        spec->cols = (uint32_t)json_integer_value(json_object_get(tty, "cols"));
    }
}

static enum sandbox_if_exists read_if_exists(const struct call *c)
{
    const char *text = call_string(c, "if_exists", "error");

    return strcmp(text, "return") == 0    ? IF_EXISTS_RETURN
           : strcmp(text, "replace") == 0 ? IF_EXISTS_REPLACE
                                          : IF_EXISTS_ERROR;
}

static void create(struct call *c)
{
    struct err e;
    const char *key;
    uint8_t hash[IDEM_HASH_SIZE];
    const json_t *command = member(c, "command");

    if (call_idem_key(c, &key, hash, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct sandbox_spec spec = {
        .image = call_string(c, "image", "base"),
        .app = call_string(c, "app", "default"),
        .name = call_string(c, "name", NULL),
        .if_exists = read_if_exists(c),
        .command = command,
        .env = member(c, "env"),
        .tags = member(c, "tags"),
        .network = member(c, "network"),
        .workdir = call_string(c, "workdir", NULL),
        .user = call_string(c, "user", NULL),
        .timeout_ms = duration(c, "timeout_s", LIMIT_LIFETIME_DEFAULT * 1000LL),
        .idle_ms = (uint64_t)duration(c, "idle_timeout_s",
                                      command == NULL ? LIMIT_IDLE_DEFAULT * 1000LL : 0),
        .grace_ms = (uint32_t)MS(call_number(c, "grace_s", LIMIT_GRACE_DEFAULT)),
        .retain_ms = (uint64_t)MS(call_number(c, "retain_s", LIMIT_RETAIN_DEFAULT)),
        .no_new_privileges = call_bool(c, "no_new_privileges", false),
        .user_namespaces = call_bool(c, "user_namespaces", false),
        .stdin_open = call_bool(c, "stdin", false),
        .inbound_allow = member(c, "inbound_allow"),
    };
    limits_read(c, &spec.limits);
    auto_json *ports = ports_of_body(c->body, &e);
    if (ports == NULL) {
        call_fail(c, &e);
        return;
    }
    spec.ports = ports;
    auto_json *probe = NULL;
    if (ready_of_body(json_object_get(c->body, "ready"), command != NULL, &probe, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    spec.probe = probe;
    read_tty(c, &spec);
    if (command == NULL && (spec.stdin_open || spec.tty)) {
        err_param(&e, ERR_INVALID, spec.tty ? "tty" : "stdin", "%s needs a command",
                  spec.tty ? "tty" : "stdin");
        call_fail(c, &e);
        return;
    }
    sandbox_create(c->core, &spec, c->token->id, key, hash, on_created, c);
}

/* --- read ------------------------------------------------------------------------------------ */

/* A read that waits is given up when its client leaves. */
static void on_reader_gone(struct call *c)
{
    sandbox_wait_cancel(c->user);
    call_done(c, CALL_CLIENT_GONE);
}

static void read_one(struct call *c, const char *id, sandbox_fn fn)
{
    double timeout_s = call_query(c, "wait") != NULL ? call_query_number(c, "timeout_s", 30) : 0;
    struct sandbox_wait *w = sandbox_get(c->core, id, (uint64_t)MS(timeout_s), fn, c);

    if (w == NULL)
        return;
    c->user = w;
    c->on_gone = on_reader_gone;
}

static void get(struct call *c)
{
    read_one(c, call_param(c, "id"), answer);
}

/* The name of a live one was asked for, and its holder turns out to have ended. */
static void answer_live(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct call *c = ctx;
    struct err gone;

    if (e == NULL && sb->row->state == STORE_ENDED) {
        err_set(&gone, ERR_NOT_FOUND, "no live sandbox '%s'", call_param(c, "name"));
        e = &gone;
    }
    answer(ctx, sb, e);
}

static void by_name(struct call *c)
{
    struct err e;
    char id[ID_SIZE];
    const char *state = call_query(c, "state");
    bool any = state != NULL && strcmp(state, "any") == 0;

    if (sandbox_by_name(c->core, call_param(c, "app"), call_param(c, "name"), any, id, &e) < 0)
        call_fail(c, &e);
    else
        read_one(c, id, any || call_query(c, "wait") != NULL ? answer : answer_live);
}

static unsigned states_of(const char *text)
{
    static const struct {
        const char *name;
        unsigned states;
    } known[] = {
        {"creating", 1u << STORE_CREATING}, {"running", 1u << STORE_RUNNING},
        {"stopping", 1u << STORE_STOPPING}, {"ended", 1u << STORE_ENDED},
        {"live", STORE_LIVE_STATES},        {"any", STORE_LIVE_STATES | 1u << STORE_ENDED},
    };

    for (size_t i = 0; text != NULL && i < array_len(known); i++)
        if (strcmp(known[i].name, text) == 0)
            return known[i].states;
    return STORE_LIVE_STATES;
}

struct tag_filter {
    struct store_tag tags[LIMIT_TAGS];
    char *text[LIMIT_TAGS]; /* owned */
    size_t n;
};

static void tag_filter_done(struct tag_filter *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->text[i]);
}

/* "key:value"; a key has no colon, so the first one separates. */
static int read_tags(struct call *c, struct tag_filter *t, struct err *e)
{
    const char *item;

    for (size_t i = 0; (item = call_query_nth(c, "tag", i)) != NULL; i++) {
        if (i == LIMIT_TAGS)
            return err_param(e, ERR_TOO_LARGE, "tag", "more than %d tags in one query", LIMIT_TAGS);
        if (strchr(item, ':') == NULL)
            return err_param(e, ERR_INVALID, "tag", "tag number %zu is not of the form key:value",
                             i + 1);
        char *copy = mem_strdup(item);
        char *colon = strchr(copy, ':');
        *colon = '\0';
        t->text[i] = copy;
        t->tags[i] = (struct store_tag){copy, colon + 1};
        t->n = i + 1;
    }
    return 0;
}

static void add_sandbox(void *ctx, const struct sandbox *sb)
{
    page_add(ctx, sandbox_json(sb), sb->row->created_us, sb->row->id);
}

static int list_page(struct call *c, struct page *p, struct tag_filter *tags, struct err *e)
{
    auto_image_row image = {0};
    const char *order = call_query(c, "order") != NULL ? call_query(c, "order") : "newest";
    struct sandbox_filter f = {
        .app = call_query(c, "app"),
        .name = call_query(c, "name"),
        .image = call_query(c, "image"),
        .states = states_of(call_query(c, "state")),
        .created_after_us = (int64_t)(call_query_number(c, "created_after", 0) * 1e6),
        .created_before_us = (int64_t)(call_query_number(c, "created_before", 0) * 1e6),
        .cursor_us = p->cursor,
        .cursor_id = p->cursor_id,
        .limit = page_limit(p),
        .oldest_first = strcmp(order, "oldest") == 0,
    };

    if (read_tags(c, tags, e) < 0)
        return -1;
    f.tags = tags->tags;
    f.ntags = tags->n;
    if (f.image != NULL && !id_is(f.image, "im-")) {
        if (store_image_get(core_store(c->core), f.image, &image, e) < 0)
            return -1;
        f.image = image.id;
    }
    if (call_query_bool(c, "count", false) && store_sandbox_count(core_store(c->core), &f, &p->total, e) < 0)
        return -1;
    return sandbox_list(c->core, &f, add_sandbox, p, e);
}

static void list_now(void *ctx)
{
    struct call *c = ctx;
    struct page p;
    struct err e;
    struct tag_filter tags = {0};

    if (page_init(&p, c, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    int r = list_page(c, &p, &tags, &e);
    tag_filter_done(&tags);
    if (r < 0)
        page_fail(&p, c, &e);
    else
        page_reply(&p, c);
}

static void list(struct call *c)
{
    sandbox_refresh(c->core, list_now, c);
}

static void add_app(void *ctx, const struct app_row *r)
{
    json_t *o = json_object();

    set(o, "id", json_string(r->id));
    set(o, "name", json_string(r->name));
    set(o, "created_at", js_time_us(r->created_us));
    set(o, "sandboxes", json_integer(r->live));
    page_add(ctx, o, r->created_us, r->id);
}

static void apps(struct call *c)
{
    struct page p;
    struct err e;

    if (page_init(&p, c, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    if (store_app_list(core_store(c->core), p.cursor, p.cursor_id, page_limit(&p), add_app, &p,
                       &e) < 0)
        page_fail(&p, c, &e);
    else
        page_reply(&p, c);
}

/* --- change ---------------------------------------------------------------------------------- */

static void patch(struct call *c)
{
    struct err e;
    const json_t *expires = json_object_get(c->body, "expires_at");
    struct sandbox_patch p = {
        .has_extend = member(c, "extend_s") != NULL,
        .extend_ms = duration(c, "extend_s", 0),
        .has_expires = expires != NULL,
        .has_idle = json_object_get(c->body, "idle_timeout_s") != NULL,
        .idle_ms = (uint64_t)duration(c, "idle_timeout_s", 0),
        .has_name = json_object_get(c->body, "name") != NULL,
        .name = call_string(c, "name", NULL),
    };

    limits_read_patch(c, &p);
    if (json_is_number(expires))
        p.expires_ms = MS(json_number_value(expires));
    if (p.has_extend && p.has_expires) {
        err_param(&e, ERR_INVALID, "extend_s", "extend_s and expires_at exclude each other");
        call_fail(c, &e);
        return;
    }
    sandbox_update(c->core, call_param(c, "id"), &p, answer, c);
}

static int read_signal(const struct call *c, int32_t *ret, struct err *e)
{
    const json_t *v = member(c, "signal");

    *ret = 0;
    if (v == NULL)
        return 0;
    if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) < NSIG) {
        *ret = (int32_t)json_integer_value(v);
        return 0;
    }
    const char *name = json_string_value(v);
    if (name != NULL && strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (int i = 1; name != NULL && i < NSIG; i++) {
        const char *abbrev = sigabbrev_np(i);
        if (abbrev != NULL && strcmp(abbrev, name) == 0) {
            *ret = i;
            return 0;
        }
    }
    return err_param(e, ERR_INVALID, "signal",
                     "signal must be a number from 1 to %d or a name such as SIGTERM", NSIG - 1);
}

static void terminate(struct call *c)
{
    struct err e;
    struct sandbox_end_how how = {
        .actor = c->token->id,
        .grace_ms = member(c, "grace_s") != NULL ? MS(call_number(c, "grace_s", 0)) : -1,
        .wait_ms = member(c, "wait_s") != NULL ? MS(call_number(c, "wait_s", 0)) : -1,
    };

    if (read_signal(c, &how.signal, &e) < 0)
        call_fail(c, &e);
    else
        sandbox_terminate(c->core, call_param(c, "id"), &how, answer, c);
}

static void on_deleted(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct call *c = ctx;

    if (e != NULL)
        call_fail(c, e);
    else
        call_reply_empty(c, 204);
}

static void delete (struct call *c)
{
    sandbox_delete(c->core, call_param(c, "id"), on_deleted, c);
}

/* --- tags ------------------------------------------------------------------------------------ */

static void reply_tags(struct call *c, char *text, int64_t revision)
{
    json_t *o = json_object(), *tags = json_loads(text, 0, NULL);

    free(text);
    set(o, "tags", tags != NULL ? tags : json_object());
    set(o, "tags_revision", json_integer(revision));
    call_reply(c, 200, o);
}

static void tags_get(struct call *c)
{
    struct err e;
    char *text;
    int64_t revision;

    if (sandbox_tags_get(c->core, call_param(c, "id"), &text, &revision, &e) < 0)
        call_fail(c, &e);
    else
        reply_tags(c, text, revision);
}

/* If-Match: 3 or "3"; absent or * = whatever it is. */
static int read_if_match(const struct call *c, int64_t *ret, struct err *e)
{
    const char *text = call_header(c, "if-match");
    char *end;

    *ret = -1;
    if (text == NULL || strcmp(text, "*") == 0)
        return 0;
    if (*text == '"')
        text++;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (end == text || *ret < 0 || errno != 0 || (strcmp(end, "") != 0 && strcmp(end, "\"") != 0))
        return err_param(e, ERR_INVALID, "If-Match",
                         "If-Match must be a revision of the tags, a number");
    return 0;
}

static void change_tags(struct call *c, bool merge)
{
    struct err e;
    char *text;
    int64_t revision, expected;

    if (read_if_match(c, &expected, &e) < 0 ||
        sandbox_tags_set(c->core, call_param(c, "id"), c->body, merge, expected, &text, &revision,
                         &e) < 0)
        call_fail(c, &e);
    else
        reply_tags(c, text, revision);
}

static void tags_put(struct call *c)
{
    change_tags(c, false);
}

static void tags_patch(struct call *c)
{
    change_tags(c, true);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct field create_body[] = {
    {"image", FIELD_STRING, 0, 1, IMAGE_REF_SIZE - 1, NULL, "image id or name; default base"},
    {"app", FIELD_STRING, FIELD_NAME, 0, 0, NULL, "group; made when missing; default 'default'"},
    {"name", FIELD_STRING, FIELD_NAME | FIELD_NULLABLE, 0, 0, NULL,
     "unique among the app's live sandboxes"},
    {"if_exists", FIELD_ENUM, 0, 0, 0, "error|return|replace", "what a taken name does"},
    {"command", FIELD_STRINGS, FIELD_NULLABLE, 0, 0, NULL,
     "entry point; its end is the sandbox's end; null: it idles"},
    {"env", FIELD_STRING_MAP, 0, 0, 0, NULL, "for the entry point and all execs"},
    {"workdir", FIELD_STRING, FIELD_ABS_PATH | FIELD_NULLABLE, 1, LIMIT_PATH - 1, NULL,
     "made when missing; default the image's, else /"},
    {"user", FIELD_STRING, FIELD_NULLABLE, 1, 128, NULL,
     "name or id, with optional :group; default the image's, else root"},
    {"timeout_s", FIELD_NUMBER, FIELD_NULLABLE | FIELD_OPEN_MIN, 0, LIMIT_LIFETIME_MAX, NULL,
     "lifetime; null = no cap; default 3600"},
    {"idle_timeout_s", FIELD_NUMBER, FIELD_NULLABLE | FIELD_OPEN_MIN, 0, LIMIT_LIFETIME_MAX, NULL,
     "ends after this time without activity; null = never; default 600 without a command, else null"},
    {"grace_s", FIELD_NUMBER, 0, 0, LIMIT_GRACE_MAX, NULL,
     "between SIGTERM and SIGKILL at the end; default 5"},
    {"retain_s", FIELD_NUMBER, 0, 0, LIMIT_LIFETIME_MAX, NULL,
     "how long record and output stay after the end; default 86400"},
    LIMIT_FIELDS,
    {"network", FIELD_JSON, FIELD_NULLABLE, 0, 0, NULL,
     "\"block\" (for good), \"open\" (public addresses), or a policy; default block"},
    {"tags", FIELD_STRING_MAP, 0, 0, 0, NULL, "at most 64"},
    {"no_new_privileges", FIELD_BOOL, 0, 0, 0, NULL, "setuid programs inside gain nothing"},
    {"user_namespaces", FIELD_BOOL, 0, 0, 0, NULL,
     "user namespaces may be made inside, and mounts in them"},
    {"stdin", FIELD_BOOL, 0, 0, 0, NULL, "keep the entry point's stdin open"},
    {"tty", FIELD_TTY, 0, 0, 0, NULL, "give the entry point a terminal"},
    {"ports", FIELD_JSON, 0, 0, 0, NULL,
     "ports to open to the outside: numbers, or {port, kind: tls|h2|raw, host}"},
    {"inbound_allow", FIELD_STRINGS, FIELD_NULLABLE, 0, LIMIT_PORT_ALLOW, NULL,
     "prefixes whose addresses alone may connect to them; null = all"},
    {"ready", FIELD_JSON, FIELD_NULLABLE, 0, 0, NULL,
     "readiness probe: one of {tcp, http, exec, log, file}, and how it is tried"},
};
static const struct field wait_query[] = {
    {"wait", FIELD_ENUM, 0, 0, 0, "exit", "answer when it has ended"},
    {"timeout_s", FIELD_NUMBER, 0, 0, LIMIT_WAIT_MAX, NULL, "of the wait; default 30"},
};
static const struct field name_query[] = {
    {"state", FIELD_ENUM, 0, 0, 0, "live|any", "any: the latest run"},
    {"wait", FIELD_ENUM, 0, 0, 0, "exit", "answer when it has ended"},
    {"timeout_s", FIELD_NUMBER, 0, 0, LIMIT_WAIT_MAX, NULL, "of the wait; default 30"},
};
static const struct field list_query[] = {
    {"app", FIELD_STRING, 0, 1, LIMIT_NAME, NULL, NULL},
    {"state", FIELD_ENUM, 0, 0, 0, "creating|running|stopping|ended|live|any", "default live"},
    {"image", FIELD_STRING, 0, 1, IMAGE_REF_SIZE - 1, NULL, "id or name"},
    {"tag", FIELD_STRING, FIELD_REPEATED, 1, LIMIT_TAG_KEY + LIMIT_TAG_VALUE + 1, NULL,
     "key:value; all must match"},
    {"name", FIELD_STRING, 0, 1, LIMIT_NAME, NULL, NULL},
    {"created_after", FIELD_NUMBER, 0, 0, 1e11, NULL, "seconds since the epoch, exclusive"},
    {"created_before", FIELD_NUMBER, 0, 0, 1e11, NULL, "seconds since the epoch, exclusive"},
    {"order", FIELD_ENUM, 0, 0, 0, "newest|oldest", "by creation; default newest first"},
    {"count", FIELD_BOOL, 0, 0, 0, NULL, "answer the number of all that match as `total`"},
    LIST_FIELDS,
};
static const struct field apps_query[] = {LIST_FIELDS};
static const struct field patch_body[] = {
    {"extend_s", FIELD_NUMBER, FIELD_OPEN_MIN, 0, LIMIT_LIFETIME_MAX, NULL,
     "moves the deadline by this much"},
    {"expires_at", FIELD_NUMBER, FIELD_NULLABLE, 0, 1e11, NULL,
     "the deadline, seconds since the epoch; null = none"},
    {"idle_timeout_s", FIELD_NUMBER, FIELD_NULLABLE | FIELD_OPEN_MIN, 0, LIMIT_LIFETIME_MAX, NULL,
     "null = never"},
    {"name", FIELD_STRING, FIELD_NAME | FIELD_NULLABLE, 0, 0, NULL, "null = no name"},
    CHANGEABLE_LIMIT_FIELDS,
};
static const struct field terminate_body[] = {
    {"signal", FIELD_JSON, 0, 0, 0, NULL, "number or name; default SIGTERM"},
    {"grace_s", FIELD_NUMBER, FIELD_NULLABLE, 0, LIMIT_GRACE_MAX, NULL,
     "before SIGKILL; default the sandbox's"},
    {"wait_s", FIELD_NUMBER, FIELD_NULLABLE, 0, LIMIT_WAIT_MAX, NULL,
     "for the end; default grace and 10"},
};

#define BODY(f) NULL, 0, f, array_len(f)
#define QUERY(f) f, array_len(f), NULL, 0
#define NONE NULL, 0, NULL, 0

const struct op rest_sandbox_ops[] = {
    {"sandbox.create", "POST", "/v1/sandboxes", "sandbox:create", 0,
     "Create a sandbox; answers once it runs", BODY(create_body), 201, create},
    {"sandbox.list", "GET", "/v1/sandboxes", "sandbox:read", 0, "List sandboxes, by creation",
     QUERY(list_query), 200, list},
    {"sandbox.get", "GET", "/v1/sandboxes/{id}", "sandbox:read", 0,
     "A sandbox; with wait=exit once it has ended", QUERY(wait_query), 200, get},
    {"sandbox.update", "PATCH", "/v1/sandboxes/{id}", "sandbox:write", 0,
     "Change deadline, idle timeout, name or limits", BODY(patch_body), 200, patch},
    {"sandbox.terminate", "POST", "/v1/sandboxes/{id}/terminate", "sandbox:write", 0,
     "SIGTERM, grace, SIGKILL of everything; answers when it has ended", BODY(terminate_body), 200,
     terminate},
    {"sandbox.delete", "DELETE", "/v1/sandboxes/{id}", "sandbox:write", 0,
     "End it at once, remove record and output", NONE, 204, delete},
    {"sandbox.events", "GET", "/v1/sandboxes/{id}/events", "sandbox:read", OP_STREAM,
     "What happens to it as server-sent events: sandbox, expiring, network, exit", NONE, 200, sandbox_events},
    {"sandbox.tags", "GET", "/v1/sandboxes/{id}/tags", "sandbox:read", 0, "Tags and their revision",
     NONE, 200, tags_get},
    {"sandbox.set_tags", "PUT", "/v1/sandboxes/{id}/tags", "sandbox:write", OP_OPEN_BODY,
     "Replace all tags by those of the body; If-Match: <revision> compares first", NONE, 200,
     tags_put},
    {"sandbox.merge_tags", "PATCH", "/v1/sandboxes/{id}/tags", "sandbox:write", OP_OPEN_BODY,
     "Set the tags of the body, null removes; If-Match: <revision> compares first", NONE, 200,
     tags_patch},
    {"app.list", "GET", "/v1/apps", "sandbox:read", 0, "List apps, newest first", QUERY(apps_query),
     200, apps},
    {"app.sandbox", "GET", "/v1/apps/{app}/sandboxes/{name}", "sandbox:read", 0,
     "The sandbox of a name", QUERY(name_query), 200, by_name},
};
const size_t rest_sandbox_nops = array_len(rest_sandbox_ops);
