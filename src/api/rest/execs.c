/*
 * execs.c - commands: the table of operations, and those that ask the node one question at a time
 *
 * Starting is idempotent on the exec id in the sandbox's monitor, so a start may be repeated whatever restarts between.
 */
#include <stdio.h>
#include <string.h>

#include "api/rest/exec_model.h"
#include "api/rest/handlers.h"
#include "api/rest/node_ask.h"
#include "api/rest/op.h"
#include "api/shared/signals.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/idempotency.h"
#include "ipc/init_proto.h"
#include "ipc/monitor_proto.h"

#define WAIT_PIECE_MS 30000     /* a long poll is made of these, so that a node may restart in it */
#define KILL_WAIT_MS 10000

/* Checks {exec_id}; answers the call and returns false when it cannot be one. */
static bool exec_id_ok(struct call *c)
{
    const char *id = call_param(c, "exec_id");
    struct err e;

    if (exec_id_is_valid(id))
        return true;
    (void)err_param(&e, ERR_INVALID, "exec_id", "'%.70s' is not an exec id ([A-Za-z0-9][A-Za-z0-9._-]{0,62})", id);
    call_fail(c, &e);
    return false;
}

/* The same for operations that may not touch the entry point, whose end is the sandbox's. */
static bool own_exec_ok(struct call *c)
{
    struct err e;

    if (!exec_id_ok(c))
        return false;
    if (strcmp(call_param(c, "exec_id"), ENTRY_EXEC_ID) != 0)
        return true;
    (void)err_param(&e, ERR_CONFLICT, "exec_id", "'%s' is the sandbox's entry point", ENTRY_EXEC_ID);
    call_fail(c, &e);
    return false;
}

static void path_ref(const struct call *c, Quicksand__Node__ExecRef *ret)
{
    quicksand__node__exec_ref__init(ret);
    ret->sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    ret->exec_id = (char *)(uintptr_t)call_param(c, "exec_id");
}

/* --- starting ------------------------------------------------------------------------------------------------------ */

static void started(struct call *c, const ProtobufCMessage *reply, const struct err *e, bool created)
{
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;
    struct err failed;

    if (reply == NULL)
        call_fail(c, e);
    else if (exec_start_error(x, &failed) < 0)
        call_fail(c, &failed);
    else
        call_reply(c, created ? 201 : 200, exec_json(x, call_param(c, "id")));
}

static void post_started(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    started(c, reply, e, true);
}

/* Whether this request started it, only its monitor can say: of parallel ones, exactly one did. */
static void put_started(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;

    started(c, reply, e, x != NULL && (x->flags & MON_EXEC_CREATED) != 0);
}

static void start(struct call *c, const char *exec_id, node_answer_fn fn)
{
    struct exec_request rq;
    struct err e;

    if (exec_request_init(&rq, call_param(c, "id"), exec_id, c->body, &e) < 0)
        call_fail(c, &e);
    else
        node_ask(c, "ExecStart", &rq.start.base, &quicksand__node__exec__descriptor, NODE_ASK_MS, true, fn, NULL);
    exec_request_done(&rq);
}

static void exec_create(struct call *c)
{
    char id[ID_SIZE], object[IDEM_OBJECT_SIZE];
    uint8_t hash[IDEM_HASH_SIZE];
    enum idem_result result = IDEM_NEW;
    const char *key;
    struct err e;

    id_make(id, "ex-");
    (void)snprintf(object, sizeof object, "%s", id);
    if (call_idem_key(c, &key, hash, &e) < 0 ||
        (key != NULL && idem_begin(c->core, c->token->id, key, hash, id, &result, object, &e) < 0)) {
        call_fail(c, &e);
        return;
    }
    if (result == IDEM_REPLAY)
        call_add_header(c, "idempotency-replayed", "true");
    /* Also a replay starts: the first request may have died between the claim and the start. */
    start(c, object, post_started);
}

static void exec_put(struct call *c)
{
    if (own_exec_ok(c))
        start(c, call_param(c, "exec_id"), put_started);
}

/* --- reading ------------------------------------------------------------------------------------------------------- */

static void list_answer(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__ExecListResponse *m = (const Quicksand__Node__ExecListResponse *)reply;
    const char *want = call_query(c, "state");
    bool live = want != NULL && strcmp(want, "live") == 0;

    if (reply == NULL) {
        call_fail(c, e);
        return;
    }
    json_t *items = json_array(), *o = json_object();
    for (size_t i = m->n_execs; i-- > 0;) {
        const Quicksand__Node__Exec *x = m->execs[i];
        if ((x->flags & (MON_EXEC_HIDDEN | MON_EXEC_ENTRY)) == 0 && !(live && exec_has_ended(x)))
            json_array_append_new(items, exec_json(x, call_param(c, "id")));
    }
    json_object_set_new(o, "items", items);
    json_object_set_new(o, "next", json_null());
    call_reply(c, 200, o);
}

static void exec_list(struct call *c)
{
    Quicksand__Node__ExecListRequest rq = QUICKSAND__NODE__EXEC_LIST_REQUEST__INIT;

    rq.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    node_ask(c, "ExecList", &rq.base, &quicksand__node__exec_list_response__descriptor, NODE_ASK_MS, true,
             list_answer, NULL);
}

static void get_answer(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__Exec *x = (const Quicksand__Node__Exec *)reply;
    int64_t *until = state;
    int64_t left = *until - clock_boot_ms();

    if (reply != NULL && !exec_has_ended(x) && left > 0) {
        node_ask_exec(c, call_param(c, "exec_id"), (uint32_t)(left < WAIT_PIECE_MS ? left : WAIT_PIECE_MS),
                      get_answer, state);
        return;
    }
    free(state);
    if (reply == NULL)
        call_fail(c, e);
    else
        call_reply(c, 200, exec_json(x, call_param(c, "id")));
}

static void exec_get(struct call *c)
{
    if (!exec_id_ok(c))
        return;
    int64_t *until = mem_zalloc(sizeof *until);
    if (call_query(c, "wait") != NULL)
        *until = clock_boot_ms() + (int64_t)(call_query_number(c, "timeout_s", 30) * 1000);
    node_ask_exec(c, call_param(c, "exec_id"), 0, get_answer, until);
}

/* --- signals, size ------------------------------------------------------------------------------------------------- */

static int take_signal(const struct call *c, int *ret, struct err *e)
{
    const json_t *v = json_object_get(c->body, "signal");
    json_int_t n = json_integer_value(v);

    *ret = json_is_string(v) ? signal_parse(json_string_value(v)) : n >= 1 && n <= SIGNAL_MAX ? (int)n : 0;
    if (*ret == 0)
        return err_param(e, ERR_INVALID, "signal", "signal must be a number from 1 to %d or a name such as TERM",
                         SIGNAL_MAX);
    return 0;
}

static void send_signal(struct call *c, Quicksand__Node__ExecRef *ref, int number, uint32_t scope)
{
    Quicksand__Node__ExecSignalRequest rq = QUICKSAND__NODE__EXEC_SIGNAL_REQUEST__INIT;

    rq.ref = ref;
    rq.has_signal = rq.has_scope = true;
    rq.signal = number;
    rq.scope = scope;
    node_ask(c, "ExecSignal", &rq.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, false, node_answer_empty,
             NULL);
}

static void kill_tree(struct call *c, Quicksand__Node__ExecRef *ref, node_answer_fn fn)
{
    Quicksand__Node__ExecKillRequest rq = QUICKSAND__NODE__EXEC_KILL_REQUEST__INIT;

    rq.ref = ref;
    rq.has_reason = true;
    rq.reason = END_KILLED;
    node_ask(c, "ExecKill", &rq.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, true, fn, NULL);
}

static void exec_signal(struct call *c)
{
    const char *scope = call_string(c, "scope", "group");
    Quicksand__Node__ExecRef ref;
    struct err e;
    int number;

    if (!exec_id_ok(c))
        return;
    if (take_signal(c, &number, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    path_ref(c, &ref);
    if (strcmp(scope, "tree") != 0)
        send_signal(c, &ref, number, strcmp(scope, "group") == 0 ? INIT_SIG_GROUP : INIT_SIG_PROCESS);
    else if (number == 9)
        kill_tree(c, &ref, node_answer_empty);
    else
        send_signal(c, &ref, number, INIT_SIG_ALL);
}

static void sandbox_signal(struct call *c)
{
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    struct err e;
    int number;

    if (take_signal(c, &number, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    ref.sandbox_id = (char *)(uintptr_t)call_param(c, "id");
    ref.exec_id = (char *)(uintptr_t)"";
    send_signal(c, &ref, number, INIT_SIG_ALL);
}

static void exec_resize(struct call *c)
{
    Quicksand__Node__ExecResizeRequest rq = QUICKSAND__NODE__EXEC_RESIZE_REQUEST__INIT;
    Quicksand__Node__ExecRef ref;

    if (!exec_id_ok(c))
        return;
    path_ref(c, &ref);
    rq.ref = &ref;
    rq.has_rows = rq.has_cols = true;
    rq.rows = (uint32_t)call_int(c, "rows", 0);
    rq.cols = (uint32_t)call_int(c, "cols", 0);
    node_ask(c, "ExecResize", &rq.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, true, node_answer_empty,
             NULL);
}

/* --- removing: look, kill if it runs, wait for the end, forget ------------------------------------------------------ */

static void forget(struct call *c)
{
    Quicksand__Node__ExecRef ref;

    path_ref(c, &ref);
    node_ask(c, "ExecForget", &ref.base, &quicksand__node__empty__descriptor, NODE_ASK_MS, true, node_answer_empty,
             NULL);
}

static void delete_waited(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    struct err late;

    if (reply == NULL) {
        call_fail(c, e);
    } else if (!exec_has_ended((const Quicksand__Node__Exec *)reply)) {
        (void)err_set(&late, ERR_TIMEOUT, "%s was killed but has not ended", call_param(c, "exec_id"));
        call_fail(c, &late);
    } else {
        forget(c);
    }
}

static void delete_killed(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    if (reply == NULL && e->code != ERR_CONFLICT)
        call_fail(c, e);
    else
        node_ask_exec(c, call_param(c, "exec_id"), KILL_WAIT_MS, delete_waited, NULL);
}

static void delete_looked(struct call *c, void *state, const ProtobufCMessage *reply, const struct err *e)
{
    Quicksand__Node__ExecRef ref;

    if (reply == NULL) {
        call_fail(c, e);
    } else if (exec_has_ended((const Quicksand__Node__Exec *)reply)) {
        forget(c);
    } else {
        path_ref(c, &ref);
        kill_tree(c, &ref, delete_killed);
    }
}

static void exec_delete(struct call *c)
{
    if (own_exec_ok(c))
        node_ask_exec(c, call_param(c, "exec_id"), 0, delete_looked, NULL);
}

/* --- the table ----------------------------------------------------------------------------------------------------- */

static const struct field start_body[] = {
    EXEC_FIELDS,
    {"stdin", FIELD_BOOL, 0, 0, 0, NULL, "keep stdin open for POST .../stdin; default false: it is empty"},
};

static const struct field run_body[] = {
    EXEC_FIELDS,
    {"stdin", FIELD_STRING, FIELD_NULLABLE, 0, 0, NULL, "text for stdin; default empty"},
    {"stdin_b64", FIELD_STRING, FIELD_NULLABLE, 0, 0, NULL, "the same as base64, for bytes that are not text"},
    {"stdout_max_bytes", FIELD_INT, 0, 0, RUN_OUTPUT_MAX, NULL, "of the answer; default 1048576"},
    {"stderr_max_bytes", FIELD_INT, 0, 0, RUN_OUTPUT_MAX, NULL, "of the answer; default 1048576"},
};

static const struct field list_query[] = {
    {"state", FIELD_ENUM, 0, 0, 0, "live|any", "default any"},
};

static const struct field get_query[] = {
    {"wait", FIELD_ENUM, 0, 0, 0, "exit", "answer once it has ended, at the latest after timeout_s"},
    {"timeout_s", FIELD_NUMBER, 0, 0, LIMIT_WAIT_MAX, NULL, "default 30"},
};

static const struct field read_query[] = {
    {"offset", FIELD_INT, 0, 0, 9007199254740991.0, NULL, "first byte; default 0"},
    {"follow", FIELD_BOOL, 0, 0, 0, NULL, "true (default): until the end of the stream; false: what is there"},
};

static const struct field logs_query[] = {
    {"stream", FIELD_ENUM, 0, 0, 0, "stdout|stderr", "default stdout"},
    {"offset", FIELD_INT, 0, 0, 9007199254740991.0, NULL, "first byte; default 0"},
    {"follow", FIELD_BOOL, 0, 0, 0, NULL, "true (default): until the end of the stream; false: what is there"},
};

static const struct field events_query[] = {
    {"stdout_offset", FIELD_INT, 0, 0, 9007199254740991.0, NULL, "first byte; default 0"},
    {"stderr_offset", FIELD_INT, 0, 0, 9007199254740991.0, NULL, "first byte; default 0"},
};

static const struct field stdin_query[] = {
    {"offset", FIELD_INT, 0, 0, 9007199254740991.0, NULL, "of the first byte of the body; default: append"},
    {"eof", FIELD_BOOL, 0, 0, 0, NULL, "close stdin after the body; default false"},
};

static const struct field signal_body[] = {
    {"signal", FIELD_JSON, FIELD_REQUIRED, 0, 0, NULL, "number or name"},
    {"scope", FIELD_ENUM, 0, 0, 0, "process|group|tree", "default group"},
};

static const struct field sandbox_signal_body[] = {
    {"signal", FIELD_JSON, FIELD_REQUIRED, 0, 0, NULL, "number or name"},
};

static const struct field resize_body[] = {
    {"rows", FIELD_INT, FIELD_REQUIRED, 1, 65535, NULL, "lines"},
    {"cols", FIELD_INT, FIELD_REQUIRED, 1, 65535, NULL, "columns"},
};

#define FIELDS(f) (f), array_len(f)
#define NO_FIELDS NULL, 0
#define EXECS "/v1/sandboxes/{id}/execs"
#define EXEC EXECS "/{exec_id}"

const struct op rest_exec_ops[] = {
    {"exec.run", "POST", "/v1/sandboxes/{id}/run", "exec:write", 0, "Run a command and answer its whole output",
     NO_FIELDS, FIELDS(run_body), 200, exec_run},
    {"exec.create", "POST", EXECS, "exec:write", 0, "Start a command", NO_FIELDS, FIELDS(start_body), 201,
     exec_create},
    {"exec.list", "GET", EXECS, "exec:read", 0, "List commands, newest first", FIELDS(list_query), NO_FIELDS, 200,
     exec_list},
    {"exec.put", "PUT", EXEC, "exec:write", 0, "Start a command under a chosen id", NO_FIELDS, FIELDS(start_body),
     201, exec_put},
    {"exec.get", "GET", EXEC, "exec:read", 0, "Read a command, or wait for its end", FIELDS(get_query), NO_FIELDS,
     200, exec_get},
    {"exec.delete", "DELETE", EXEC, "exec:write", 0, "Kill a command if it runs, and forget it", NO_FIELDS,
     NO_FIELDS, 204, exec_delete},
    {"exec.stdout", "GET", EXEC "/stdout", "exec:read", OP_STREAM, "Read or follow stdout as raw bytes",
     FIELDS(read_query), NO_FIELDS, 200, exec_stdout},
    {"exec.stderr", "GET", EXEC "/stderr", "exec:read", OP_STREAM, "Read or follow stderr as raw bytes",
     FIELDS(read_query), NO_FIELDS, 200, exec_stderr},
    {"exec.events", "GET", EXEC "/events", "exec:read", OP_STREAM, "Follow output and exit as server-sent events",
     FIELDS(events_query), NO_FIELDS, 200, exec_events},
    {"exec.ws", "GET", EXEC "/ws", "exec:write", OP_STREAM | OP_UPGRADE, "Talk to a command over a WebSocket",
     FIELDS(events_query), NO_FIELDS, 101, exec_ws},
    {"exec.stdin", "POST", EXEC "/stdin", "exec:write", OP_RAW_BODY, "Write to stdin", FIELDS(stdin_query),
     NO_FIELDS, 200, exec_stdin},
    {"exec.stdin_status", "GET", EXEC "/stdin", "exec:read", 0, "How much of stdin was taken", NO_FIELDS, NO_FIELDS,
     200, exec_stdin_status},
    {"exec.signal", "POST", EXEC "/signal", "exec:write", 0, "Send a signal to a command", NO_FIELDS,
     FIELDS(signal_body), 204, exec_signal},
    {"exec.resize", "POST", EXEC "/resize", "exec:write", 0, "Change the size of a command's terminal", NO_FIELDS,
     FIELDS(resize_body), 204, exec_resize},
    {"sandbox.signal", "POST", "/v1/sandboxes/{id}/signal", "exec:write", 0,
     "Send a signal to every process of the sandbox", NO_FIELDS, FIELDS(sandbox_signal_body), 204, sandbox_signal},
    {"sandbox.logs", "GET", "/v1/sandboxes/{id}/logs", "exec:read", OP_STREAM,
     "Read or follow the entry point's output", FIELDS(logs_query), NO_FIELDS, 200, sandbox_logs},
    {"sandbox.stdin", "POST", "/v1/sandboxes/{id}/stdin", "exec:write", OP_RAW_BODY,
     "Write to the entry point's stdin", FIELDS(stdin_query), NO_FIELDS, 200, sandbox_stdin},
};

const size_t rest_exec_nops = array_len(rest_exec_ops);
