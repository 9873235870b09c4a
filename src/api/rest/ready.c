/*
 * ready.c - readiness probes: what a body says of them, and sandbox.wait_ready
 */
#include "api/rest/ready.h"

#include <math.h>
#include <regex.h>
#include <string.h>

#include "api/rest/node_ask.h"
#include "base/mem.h"
#include "core/ports.h"

#define PARAM "ready"
#define INTERVAL_S 0.1
#define TRY_S 10.0
#define WAIT_S 300.0

static int wrong(struct err *e, const char *what)
{
    return err_param(e, ERR_INVALID, PARAM, "ready: %s", what);
}

static int check_keys(const json_t *o, const char *const *keys, const char *where, struct err *e)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        size_t i = 0;
        while (keys[i] != NULL && strcmp(keys[i], key) != 0)
            i++;
        if (keys[i] == NULL)
            return err_param(e, ERR_INVALID, PARAM, "%s has no field '%.40s'", where, key);
    }
    return 0;
}

static int read_number(const json_t *o, const char *key, double otherwise, double min, double max,
                       double *ret, struct err *e)
{
    const json_t *v = json_object_get(o, key);

    *ret = v != NULL ? json_number_value(v) : otherwise;
    if ((v != NULL && !json_is_number(v)) || !(*ret >= min && *ret <= max))
        return err_param(e, ERR_INVALID, PARAM, "ready.%s must be a number from %g to %g", key, min,
                         max);
    return 0;
}

static bool has_counts(const char *pattern)
{
    for (const char *p = strchr(pattern, '{'); p != NULL; p = strchr(p + 1, '{'))
        if (p == pattern || p[-1] != '[')
            return true;
    return false;
}

static int check_pattern(const char *pattern, const char *what, struct err *e)
{
    regex_t re;

    if (strlen(pattern) > LIMIT_PROBE_PATTERN)
        return err_param(e, ERR_TOO_LARGE, PARAM, "ready.%s has %zu bytes, at most %d are accepted",
                         what, strlen(pattern), LIMIT_PROBE_PATTERN);
    /* Counted repetitions multiply: such an expression takes all memory to be read. */
    if (has_counts(pattern))
        return err_param(
            e, ERR_INVALID, PARAM,
            "ready.%s has a '{': counted repetitions are not accepted; [{] is the character", what);
    if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE) != 0)
        return err_param(e, ERR_INVALID, PARAM, "ready.%s is not an extended regular expression",
                         what);
    regfree(&re);
    return 0;
}

static bool is_port(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 65535;
}

static int read_status(const json_t *v, int64_t *ret_min, int64_t *ret_max, struct err *e)
{
    *ret_min = 200;
    *ret_max = 399;
    if (v == NULL)
        return 0;
    if (json_is_integer(v))
        *ret_min = *ret_max = json_integer_value(v);
    else if (json_array_size(v) == 2 && json_is_integer(json_array_get(v, 0)) &&
             json_is_integer(json_array_get(v, 1))) {
        *ret_min = json_integer_value(json_array_get(v, 0));
        *ret_max = json_integer_value(json_array_get(v, 1));
    } else {
        *ret_min = 0;
    }
    if (*ret_min < 100 || *ret_max > 599 || *ret_min > *ret_max)
        return wrong(e, "http.status must be a status, or two of them as a range, from 100 to 599");
    return 0;
}

/* The helper's arguments for an HTTP probe. */
static json_t *read_http(const json_t *http, struct err *e)
{
    static const char *const keys[] = {"port", "path", "status", "body", NULL};
    const json_t *path = json_object_get(http, "path"), *body = json_object_get(http, "body");
    int64_t min, max;

    if (!json_is_object(http) || !is_port(json_object_get(http, "port"))) {
        (void)wrong(e, "http must be {port, path, status, body} with a port from 1 to 65535");
        return NULL;
    }
    if (check_keys(http, keys, "ready.http", e) < 0 ||
        read_status(json_object_get(http, "status"), &min, &max, e) < 0)
        return NULL;
    const char *text = path != NULL ? json_string_value(path) : "/";
    if (text == NULL || text[0] != '/' || strlen(text) >= LIMIT_PATH ||
        strpbrk(text, " \r\n\t") != NULL) {
        (void)wrong(e, "http.path must begin with / and have no white space");
        return NULL;
    }
    if (body != NULL && !json_is_string(body)) {
        (void)wrong(e, "http.body must be a regular expression");
        return NULL;
    }
    if (body != NULL && check_pattern(json_string_value(body), "http.body", e) < 0)
        return NULL;
    json_t *o = json_pack("{s:I, s:s, s:I, s:I}", "http_port",
                          json_integer_value(json_object_get(http, "port")), "path", text,
                          "status_min", (json_int_t)min, "status_max", (json_int_t)max);
    if (body != NULL)
        (void)json_object_set_new(o, "body", json_string(json_string_value(body)));
    return o;
}

static int read_exec(const json_t *argv, json_t *out, struct err *e)
{
    const json_t *item;
    size_t i;

    if (json_array_size(argv) == 0)
        return wrong(e, "exec must be a command: an array of strings");
    json_array_foreach(
        argv, i,
        item) if (!json_is_string(item) ||
                  (i == 0 && json_string_length(item) ==
                                 0)) return wrong(e, "exec must be a command: an array of strings");
    (void)json_object_set(out, "argv", (json_t *)(uintptr_t)argv);
    return 0;
}

/* One of the five kinds, into `out`. */
static int read_kind(const json_t *ready, json_t *out, struct err *e)
{
    static const char *const kinds[] = {"tcp", "http", "exec", "log", "file"};
    const json_t *found = NULL;
    auto_json *check = NULL;
    size_t kind = 0, n = 0;

    for (size_t i = 0; i < array_len(kinds); i++) {
        const json_t *v = json_object_get(ready, kinds[i]);
        n += v != NULL;
        found = v != NULL ? v : found;
        kind = v != NULL ? i : kind;
    }
    if (n != 1)
        return wrong(e, "exactly one of tcp, http, exec, log and file is needed");
    const char *text = json_string_value(found);
    switch (kind) {
    case 0:
        if (!is_port(found))
            return wrong(e, "tcp must be a port from 1 to 65535");
        (void)json_object_set(out, "tcp_port", (json_t *)(uintptr_t)found);
        return 0;
    case 1:
        check = read_http(found, e);
        break;
    case 2:
        return read_exec(found, out, e);
    case 3:
        if (text == NULL || text[0] == '\0')
            return wrong(e, "log must be a regular expression");
        (void)json_object_set_new(out, "log", json_true());
        (void)json_object_set_new(out, "check", json_string(text));
        return check_pattern(text, "log", e);
    default:
        if (text == NULL || text[0] != '/' || strlen(text) >= LIMIT_PATH)
            return wrong(e, "file must be an absolute path");
        check = json_pack("{s:s}", "file", text);
        break;
    }
    if (check == NULL)
        return -1;
    auto_free char *packed = js_text(check, false);
    (void)json_object_set_new(out, "check", json_string(packed));
    return 0;
}

int ready_of_body(const json_t *ready, bool has_command, json_t **ret, struct err *e)
{
    static const char *const keys[] = {"tcp",     "http",       "exec",          "log",
                                       "file",    "interval_s", "try_timeout_s", "threshold",
                                       "on_fail", NULL};
    double interval_s, try_s, threshold;

    *ret = NULL;
    if (ready == NULL || json_is_null(ready))
        return 0;
    if (!json_is_object(ready))
        return wrong(e, "an object is needed");
    const json_t *fail = json_object_get(ready, "on_fail");
    const char *on_fail = fail != NULL ? json_string_value(fail) : "keep";
    auto_json *out = json_object();
    if (check_keys(ready, keys, PARAM, e) < 0 || read_kind(ready, out, e) < 0 ||
        read_number(ready, "interval_s", INTERVAL_S, 0.01, 3600, &interval_s, e) < 0 ||
        read_number(ready, "try_timeout_s", TRY_S, 0.1, 3600, &try_s, e) < 0 ||
        read_number(ready, "threshold", 1, 1, 1000, &threshold, e) < 0)
        return -1;
    if (on_fail == NULL || (strcmp(on_fail, "keep") != 0 && strcmp(on_fail, "terminate") != 0))
        return wrong(e, "on_fail must be one of keep|terminate");
    if (json_object_get(ready, "log") != NULL && !has_command)
        return wrong(e, "log needs a command, whose output is looked at");
    (void)json_object_set_new(out, "interval_ms", json_integer(llround(interval_s * 1000)));
    (void)json_object_set_new(out, "try_ms", json_integer(llround(try_s * 1000)));
    (void)json_object_set_new(out, "threshold", json_integer(llround(threshold)));
    (void)json_object_set_new(out, "terminate", json_boolean(strcmp(on_fail, "terminate") == 0));
    *ret = json_incref(out);
    return 0;
}

/* --- the wait ---------------------------------------------------------------------------------------------------- */

static void on_ready(struct call *c, void *state, const ProtobufCMessage *reply,
                     const struct err *e)
{
    const Quicksand__Node__ReadyResponse *rs = (const Quicksand__Node__ReadyResponse *)reply;

    struct err none;

    if (e != NULL && e->code == ERR_PRECONDITION) {
        (void)err_set(&none, ERR_CONFLICT, "%s", e->message);
        e = &none;
    }
    if (e != NULL)
        call_fail(c, e);
    else
        call_reply(c, 200, json_pack("{s:o}", "ready_at", js_time_ms(rs->ready_ms)));
}

static void wait_ready(struct call *c)
{
    Quicksand__Node__ReadyRequest rq = QUICKSAND__NODE__READY_REQUEST__INIT;
    auto_sandbox_row row = {0};
    struct err e;

    if (ports_sandbox(c->core, call_param(c, "id"), true, &row, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    rq.has_timeout_ms = true;
    rq.timeout_ms = (uint64_t)llround(call_number(c, "timeout_s", WAIT_S) * 1000);
    node_ask(c, "WaitReady", &rq.base, &quicksand__node__ready_response__descriptor,
             rq.timeout_ms + NODE_ASK_MS, true, on_ready, NULL);
}

static const struct field wait_body[] = {
    {"timeout_s", FIELD_NUMBER, 0, 0, LIMIT_WAIT_MAX, NULL, "default 300"},
};

const struct op rest_ready_ops[] = {
    {"sandbox.wait_ready", "POST", "/v1/sandboxes/{id}/wait-ready", "sandbox:read", 0,
     "Run the readiness probe until it succeeds; `timeout` says what the last try said", NULL, 0,
     wait_body, array_len(wait_body), 200, wait_ready},
};
const size_t rest_ready_nops = array_len(rest_ready_ops);
