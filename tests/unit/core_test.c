/*
 * core_test.c - the life of sandboxes against a played node: creation, names, keys, ends, recovery from every state
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/audit.h"
#include "core/sandbox.h"
#include "core/token.h"
#include "core_node.h"
#include "ipc/record.h"
#include "json/json.h"

static char dir[64], db_path[96], address[96], node_address[104];
static struct loop *loop;
static struct store *store;
static struct core *core;
static struct loop_timer *ticker;

static void open_core(void)
{
    struct err e = {0};

    if (store == NULL && store_open(db_path, &store, &e) < 0)
        fail_msg("%s", e.message);
    core = core_new(loop, store, node_address, dir);
    if (core_start(core, &e) < 0)
        fail_msg("%s", e.message);
}

/* As a process that is killed: nothing is finished. */
static void close_core(void)
{
    core_free(core);
    core = NULL;
}

static void add_image(void)
{
    struct image_row r = {
        .id = "im-0000000000000000000001", .created_us = 1, .layers = (char *)(uintptr_t)"[\"aa\"]",
        .env = (char *)(uintptr_t)"{\"A\":\"image\",\"B\":\"image\"}", .user = (char *)(uintptr_t)"nobody",
    };
    struct err e = {0};

    assert_int_equal(store_image_insert(store, &r, &e), 0);
    assert_int_equal(store_image_name(store, "base", r.id, &e), 0);
}

static int set_up(void **state)
{
    struct err e = {0};

    (void)snprintf(dir, sizeof dir, "/tmp/core-test-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(db_path, sizeof db_path, "%s/state.db", dir);
    (void)snprintf(node_address, sizeof node_address, "unix:%s/node.sock", dir);
    js_init();
    memset(&node, 0, sizeof node);
    loop = loop_new();
    node_start(loop, node_address);
    if (store_open(db_path, &store, &e) < 0)
        return -1;
    add_image();
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"state.db", "state.db-wal", "state.db-shm", "token"};

    core_free(core);
    core = NULL;
    node_stop();
    loop_free(loop);
    store_close(store);
    store = NULL;
    for (size_t i = 0; i < array_len(names); i++) {
        (void)snprintf(address, sizeof address, "%s/%s", dir, names[i]);
        (void)unlink(address);
    }
    return rmdir(dir);
}

/* --- running the loop until something holds ------------------------------------------------------------------------ */

struct until {
    bool (*holds)(void *ctx);
    void *ctx;
    int64_t give_up_ms;
    bool is_met;
};

static void on_tick(void *arg)
{
    struct until *u = arg;

    u->is_met = u->holds(u->ctx);
    if (u->is_met || clock_boot_ms() > u->give_up_ms)
        loop_stop(loop);
    else
        loop_timer_set(ticker, 2);
}

static bool wait_for(bool (*holds)(void *ctx), void *ctx, int64_t ms)
{
    struct until u = {holds, ctx, clock_boot_ms() + ms, false};

    ticker = loop_timer_new(loop, on_tick, &u);
    loop_timer_set(ticker, 0);
    assert_int_equal(loop_run(loop), 0);
    loop_timer_free(ticker);
    return u.is_met;
}

static bool never(void *ctx)
{
    return false;
}

/* --- answers ------------------------------------------------------------------------------------------------------- */

struct answer {
    unsigned count;
    struct err e;                   /* code 0 = it went well */
    char id[ID_SIZE];
    uint8_t state;
    char reason[24];
    int32_t code;
    int64_t expires_ms;
    bool is_replay, is_existing;
};

static void on_answer(void *ctx, const struct sandbox *sb, const struct err *e)
{
    struct answer *a = ctx;

    a->count++;
    a->e = e != NULL ? *e : (struct err){0};
    if (sb == NULL)
        return;
    memcpy(a->id, sb->row->id, sizeof a->id);
    memcpy(a->reason, sb->row->reason, sizeof a->reason);
    a->state = sb->row->state;
    a->code = sb->row->code;
    a->expires_ms = sb->row->expires_ms;
    a->is_replay = sb->is_replay;
    a->is_existing = sb->is_existing;
}

static bool is_answered(void *ctx)
{
    return ((struct answer *)ctx)->count > 0;
}

static void settle(struct answer *a)
{
    assert_true(wait_for(is_answered, a, 20000));
    assert_int_equal(a->count, 1);
}

static const uint8_t hash_one[IDEM_HASH_SIZE] = {1}, hash_two[IDEM_HASH_SIZE] = {2};

static struct sandbox_spec plain(const char *name)
{
    return (struct sandbox_spec){
        .image = "base", .app = "default", .name = name, .timeout_ms = 60000, .grace_ms = 1000, .retain_ms = 3600000,
        .limits = {.cpu_weight = 100, .pids = 100},
    };
}

static struct answer create(const struct sandbox_spec *spec, const char *key, const uint8_t *hash)
{
    struct answer a = {0};

    sandbox_create(core, spec, "tk-1", key, hash, on_answer, &a);
    settle(&a);
    return a;
}

static struct answer make(const char *name)
{
    struct sandbox_spec spec = plain(name);
    struct answer a = create(&spec, NULL, NULL);

    assert_int_equal(a.e.code, ERR_OK);
    assert_int_equal(a.state, STORE_RUNNING);
    return a;
}

static struct answer get(const char *id, uint64_t wait_ms)
{
    struct answer a = {0};

    (void)sandbox_get(core, id, wait_ms, on_answer, &a);
    settle(&a);
    return a;
}

static unsigned state_in_store(const char *id)
{
    auto_sandbox_row row = {0};
    struct err e;

    return store_sandbox_get(store, id, &row, &e) == 0 ? row.state : 0;
}

/* --- creation ------------------------------------------------------------------------------------------------------ */

static void test_create_tells_the_node_everything(void **state)
{
    open_core();
    auto_json *env = json_pack("{s:s, s:s}", "B", "mine", "C", "x=y\n");
    auto_json *command = json_pack("[s,s]", "sh", "-c");
    struct sandbox_spec spec = plain("a_b.c-");

    spec.env = env;
    spec.command = command;
    struct answer a = create(&spec, NULL, NULL);
    assert_int_equal(a.e.code, ERR_OK);
    assert_int_equal(a.state, STORE_RUNNING);
    assert_string_equal(node.last_env, "A=image B=mine C=x=y\n ");
    assert_string_equal(node.last_argv, "sh -c ");
    assert_string_equal(node.last_hostname, "a-b-c");
    assert_string_equal(node.last_user, "nobody");
    assert_true(llabs(node_find(a.id)->deadline_ms - (clock_wall_ms() + 60000)) < 5000);
    assert_int_equal(node_find(a.id)->deadline_ms, a.expires_ms);
    assert_int_equal(sandbox_live_count(core), 1);
}

static void test_a_wrong_spec_is_refused_before_anything(void **state)
{
    open_core();
    auto_json *bad_env = json_pack("{s:s}", "A=B", "x"), *bad_tag = json_pack("{s:s}", "quicksand.x", "1"),
              *empty = json_array();
    struct sandbox_spec specs[6];
    static const char *const params[] = {"env", "tags", "command", "image", "name", "workdir"};

    for (size_t i = 0; i < array_len(specs); i++)
        specs[i] = plain(NULL);
    specs[0].env = bad_env;
    specs[1].tags = bad_tag;
    specs[2].command = empty;
    specs[3].image = "no-such";
    specs[4].name = "x\n";
    specs[5].workdir = "relative";
    for (size_t i = 0; i < array_len(specs); i++) {
        struct answer a = create(&specs[i], NULL, NULL);
        assert_int_not_equal(a.e.code, ERR_OK);
        assert_string_equal(a.e.param, params[i]);
    }
    assert_int_equal(node.creates, 0);
}

static void test_a_failed_create_leaves_nothing(void **state)
{
    open_core();
    struct sandbox_spec spec = plain("n");

    node.create_error = ERR_EXEC_NOT_FOUND;
    struct answer a = create(&spec, "key", hash_one);
    assert_int_equal(a.e.code, ERR_EXEC_NOT_FOUND);
    assert_int_equal(node.destroys, 1);
    assert_int_equal(sandbox_live_count(core), 0);
    node.create_error = ERR_OK;
    a = create(&spec, "key", hash_two);         /* name and key are free, even for another request */
    assert_int_equal(a.e.code, ERR_OK);
    assert_false(a.is_replay);
}

static bool all_answered(void *ctx)
{
    struct answer *a = ctx;

    for (int i = 0; i < 50; i++)
        if (a[i].count == 0)
            return false;
    return true;
}

static void race(enum sandbox_if_exists if_exists, struct answer a[50])
{
    struct sandbox_spec spec = plain("race");

    spec.if_exists = if_exists;
    node.create_delay_ms = 20;
    memset(a, 0, 50 * sizeof *a);
    for (int i = 0; i < 50; i++)
        sandbox_create(core, &spec, "tk-1", NULL, NULL, on_answer, &a[i]);
    assert_true(wait_for(all_answered, a, 20000));
}

static void test_one_of_many_creates_of_a_name_wins(void **state)
{
    struct answer a[50];
    unsigned won = 0, lost = 0;

    open_core();
    race(IF_EXISTS_ERROR, a);
    for (int i = 0; i < 50; i++) {
        won += a[i].e.code == ERR_OK;
        lost += a[i].e.code == ERR_EXISTS;
        assert_int_equal(a[i].count, 1);
    }
    assert_int_equal(won, 1);
    assert_int_equal(lost, 49);
    assert_int_equal(node.creates, 1);
}

static void test_if_exists_return_gives_all_the_same(void **state)
{
    struct answer a[50];

    open_core();
    race(IF_EXISTS_RETURN, a);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(a[i].e.code, ERR_OK);
        assert_string_equal(a[i].id, a[0].id);
        assert_int_equal(a[i].is_existing, i > 0);
    }
    assert_int_equal(node.creates, 1);
}

static void test_if_exists_replace_ends_the_old_one(void **state)
{
    open_core();
    struct sandbox_spec spec = plain("n");
    struct answer old = make("n");

    spec.if_exists = IF_EXISTS_REPLACE;
    struct answer a = create(&spec, NULL, NULL);
    assert_int_equal(a.e.code, ERR_OK);
    assert_string_not_equal(a.id, old.id);
    assert_null(node_find(old.id));
    assert_int_equal(get(old.id, 0).e.code, ERR_NOT_FOUND);
    assert_int_equal(sandbox_live_count(core), 1);
}

static void test_a_name_is_free_once_its_holder_has_ended(void **state)
{
    open_core();
    struct answer old = make("n");

    node_end(old.id, END_EXITED, 0);            /* nobody has noticed yet */
    struct answer a = make("n");
    assert_string_not_equal(a.id, old.id);
    assert_int_equal(state_in_store(old.id), STORE_ENDED);
}

static void test_a_key_names_one_sandbox(void **state)
{
    open_core();
    struct sandbox_spec spec = plain(NULL);
    struct answer a[2] = {0};

    node.create_delay_ms = 20;
    sandbox_create(core, &spec, "tk-1", "key", hash_one, on_answer, &a[0]);
    sandbox_create(core, &spec, "tk-1", "key", hash_one, on_answer, &a[1]);     /* while the first is under way */
    settle(&a[0]);
    settle(&a[1]);
    assert_string_equal(a[0].id, a[1].id);
    assert_false(a[0].is_replay);
    assert_true(a[1].is_replay);
    assert_int_equal(create(&spec, "key", hash_two).e.code, ERR_IDEMPOTENCY);
    assert_string_equal(create(&spec, "key", hash_one).id, a[0].id);
    assert_string_not_equal(create(&spec, "other", hash_one).id, a[0].id);
    assert_int_equal(node.creates, 2);
}

/* --- ends ---------------------------------------------------------------------------------------------------------- */

static bool is_ended(void *ctx)
{
    return state_in_store(ctx) == STORE_ENDED;
}

static void test_an_end_is_seen(void **state)
{
    open_core();
    struct answer a = make(NULL), b = make(NULL);

    node_end(a.id, END_EXITED, 7);
    struct answer got = get(a.id, 0);           /* at once */
    assert_int_equal(got.state, STORE_ENDED);
    assert_string_equal(got.reason, "exited");
    assert_int_equal(got.code, 7);
    node_end(b.id, END_TIMEOUT, -1);
    assert_true(wait_for(is_ended, b.id, 3000));    /* without being asked */
    assert_int_equal(sandbox_live_count(core), 0);
    node_drop(b.id);
    assert_string_equal(get(b.id, 0).reason, "timeout");
}

static void note(void *ctx)
{
    *(bool *)ctx = true;
}

static bool is_noted(void *ctx)
{
    return *(bool *)ctx;
}

static void test_a_list_knows_what_has_ended(void **state)
{
    open_core();
    struct answer a[3] = {make(NULL), make(NULL), make(NULL)};
    bool is_fresh = false;

    (void)wait_for(never, NULL, 700);           /* the first look is over */
    node_end(a[0].id, END_EXITED, 0);
    node_drop(a[1].id);
    sandbox_refresh(core, note, &is_fresh);
    assert_true(wait_for(is_noted, &is_fresh, 400));
    assert_int_equal(state_in_store(a[0].id), STORE_ENDED);
    assert_int_equal(state_in_store(a[1].id), STORE_ENDED);
    assert_int_equal(state_in_store(a[2].id), STORE_RUNNING);
    assert_int_equal(node.gets, 0);
}

static void test_a_wait_ends_with_the_sandbox(void **state)
{
    open_core();
    struct answer a = make(NULL), got = {0};

    struct answer still = get(a.id, 50);
    assert_int_equal(still.state, STORE_RUNNING);
    (void)sandbox_get(core, a.id, 20000, on_answer, &got);
    struct sandbox_wait *given_up = sandbox_get(core, a.id, 20000, on_answer, &(struct answer){0});
    sandbox_wait_cancel(given_up);
    assert_false(wait_for(is_answered, &got, 30));
    node_end(a.id, END_SIGNALED, -1);
    settle(&got);
    assert_int_equal(got.state, STORE_ENDED);
    assert_int_equal(got.code, -1);
}

static void test_terminate_is_idempotent_and_waits_for_creation(void **state)
{
    open_core();
    struct sandbox_spec spec = plain("n");
    struct answer made = {0}, a = {0}, b = {0};
    const struct sandbox_end_how how = {.actor = "tk-1", .grace_ms = -1, .wait_ms = -1};
    char id[ID_SIZE];

    node.create_delay_ms = 30;
    sandbox_create(core, &spec, "tk-1", NULL, NULL, on_answer, &made);
    struct err e;
    assert_int_equal(sandbox_by_name(core, "default", "n", false, id, &e), 0);
    sandbox_terminate(core, id, &how, on_answer, &a);
    settle(&made);
    settle(&a);
    assert_int_equal(made.state, STORE_RUNNING);
    assert_int_equal(a.state, STORE_ENDED);
    assert_string_equal(a.reason, "terminated");
    assert_string_equal(node.last_actor, "tk-1");
    sandbox_terminate(core, id, &how, on_answer, &b);
    settle(&b);
    assert_string_equal(b.reason, "terminated");
    assert_int_equal(node.terminates, 1);
}

static void test_a_termination_that_got_lost_is_repeated(void **state)
{
    open_core();
    struct answer a = make(NULL), t = {0};
    const struct sandbox_end_how how = {.actor = "tk-1", .grace_ms = -1, .wait_ms = 0};

    node_find(a.id)->ignores_terminate = true;
    sandbox_terminate(core, a.id, &how, on_answer, &t);
    settle(&t);
    assert_int_equal(t.state, STORE_STOPPING);
    node_find(a.id)->ignores_terminate = false;
    assert_true(wait_for(is_ended, a.id, 4000));
}

static void test_delete_removes_every_trace(void **state)
{
    open_core();
    struct answer a = make("n"), d = {0}, again = {0};

    sandbox_delete(core, a.id, on_answer, &d);
    assert_int_equal(get(a.id, 0).e.code, ERR_NOT_FOUND);   /* from the first moment */
    settle(&d);
    assert_int_equal(d.e.code, ERR_OK);
    assert_int_equal(state_in_store(a.id), 0);
    assert_null(node_find(a.id));
    sandbox_delete(core, a.id, on_answer, &again);
    assert_int_equal(again.e.code, ERR_NOT_FOUND);
}

static bool is_removed(void *ctx)
{
    return state_in_store(ctx) == 0;
}

static void test_a_record_is_removed_after_its_time(void **state)
{
    open_core();
    struct sandbox_spec spec = plain(NULL);

    spec.retain_ms = 0;
    struct answer a = create(&spec, NULL, NULL);
    node_end(a.id, END_EXITED, 0);
    assert_int_equal(get(a.id, 0).state, STORE_ENDED);
    assert_true(wait_for(is_removed, a.id, 4000));
    assert_null(node_find(a.id));
}

/* --- changes ------------------------------------------------------------------------------------------------------- */

static struct answer update(const char *id, struct sandbox_patch p)
{
    struct answer a = {0};

    sandbox_update(core, id, &p, on_answer, &a);
    settle(&a);
    return a;
}

static void test_deadlines_names_and_idle_times_change(void **state)
{
    open_core();
    struct answer a = make("n"), other = make("other");

    struct answer got = update(a.id, (struct sandbox_patch){.has_extend = true, .extend_ms = 5000});
    assert_int_equal(got.expires_ms, a.expires_ms + 5000);
    assert_int_equal(node_find(a.id)->deadline_ms, a.expires_ms + 5000);
    assert_int_equal(update(a.id, (struct sandbox_patch){.has_expires = true}).expires_ms, 0);
    assert_int_equal(node_find(a.id)->deadline_ms, 0);
    got = update(a.id, (struct sandbox_patch){.has_extend = true, .extend_ms = 5000});
    assert_int_equal(got.e.code, ERR_CONFLICT);
    got = update(a.id, (struct sandbox_patch){.has_expires = true, .expires_ms = 1000});
    assert_string_equal(got.e.param, "expires_at");
    got = update(a.id, (struct sandbox_patch){.has_expires = true, .expires_ms = INT64_MAX});
    assert_int_equal(got.e.code, ERR_INVALID);
    assert_int_equal(update(a.id, (struct sandbox_patch){.has_idle = true, .idle_ms = 7000}).e.code, ERR_OK);
    assert_int_equal(node_find(a.id)->idle_ms, 7000);
    got = update(a.id, (struct sandbox_patch){.has_name = true, .name = "other"});
    assert_int_equal(got.e.code, ERR_EXISTS);
    assert_int_equal(update(a.id, (struct sandbox_patch){.has_name = true, .name = "new"}).e.code, ERR_OK);
    node_end(other.id, END_EXITED, 0);
    assert_int_equal(get(other.id, 0).state, STORE_ENDED);
    assert_int_equal(update(other.id, (struct sandbox_patch){.has_idle = true}).e.code, ERR_GONE);
}

static void test_tags_compare_and_set(void **state)
{
    open_core();
    struct answer a = make(NULL);
    auto_json *one = json_pack("{s:s, s:s}", "a", "1", "b", "2"), *merge = json_pack("{s:n, s:s}", "a", "c", "3");
    char *text;
    int64_t revision;
    struct err e;

    assert_int_equal(sandbox_tags_set(core, a.id, one, false, 1, &text, &revision, &e), 0);
    assert_string_equal(text, "{\"a\":\"1\",\"b\":\"2\"}");
    assert_int_equal(revision, 2);
    free(text);
    assert_int_equal(sandbox_tags_set(core, a.id, one, false, 1, &text, &revision, &e), -1);
    assert_int_equal(e.code, ERR_PRECONDITION);
    assert_int_equal(sandbox_tags_set(core, a.id, merge, true, -1, &text, &revision, &e), 0);
    assert_string_equal(text, "{\"b\":\"2\",\"c\":\"3\"}");
    free(text);
    assert_int_equal(sandbox_tags_set(core, a.id, merge, false, -1, &text, &revision, &e), -1);     /* null is no value */
    assert_int_equal(e.code, ERR_INVALID);
}

/* --- a node that is away, and restarts ----------------------------------------------------------------------------- */

static void test_a_create_without_a_node_fails_and_is_cleaned_up_later(void **state)
{
    open_core();
    struct sandbox_spec spec = plain("n");
    char id[ID_SIZE] = "";
    struct answer a = {0};
    struct err e;

    node.any_error = ERR_UNAVAILABLE;
    sandbox_create(core, &spec, "tk-1", NULL, NULL, on_answer, &a);
    assert_int_equal(sandbox_by_name(core, "default", "n", false, id, &e), 0);
    settle(&a);
    assert_int_equal(a.e.code, ERR_UNAVAILABLE);
    assert_int_equal(state_in_store(id), STORE_DELETING);
    assert_non_null(node_find(id));             /* the node had made it, its answer was lost */
    node.any_error = ERR_OK;
    assert_true(wait_for(is_removed, id, 5000));
    assert_null(node_find(id));
}

static void insert_row(const char *id, enum store_state state, const char *idem_token)
{
    struct err e;
    struct sandbox_row r = {
        .app = "default", .image = "im-0000000000000000000001", .state = (uint8_t)state, .created_us = clock_wall_us(),
        .code = -1, .retain_ms = 3600000, .expires_ms = 4000000000000,
    };

    r.ended_ms = state == STORE_ENDED ? clock_wall_ms() : 0;
    (void)snprintf(r.id, sizeof r.id, "%s", id);
    (void)snprintf(r.idem_token, sizeof r.idem_token, "%s", idem_token);
    r.spec = mem_strdup("{\"env\":{},\"workdir\":\"/\",\"user\":\"root\"}");
    r.tags = mem_strdup("{}");
    assert_int_equal(store_sandbox_insert(store, &r, &e), 0);
    sandbox_row_done(&r);
}

#define SB(c) "sb-000000000000000000000" c

static bool is_recovered(void *ctx)
{
    return state_in_store(SB("1")) == 0 && state_in_store(SB("2")) == STORE_RUNNING
           && state_in_store(SB("3")) == STORE_ENDED && state_in_store(SB("4")) == STORE_ENDED
           && state_in_store(SB("5")) == STORE_RUNNING && state_in_store(SB("6")) == STORE_ENDED
           && state_in_store(SB("7")) == 0 && state_in_store(SB("8")) == STORE_ENDED && node_find(SB("9")) == NULL;
}

static const char *reason_in_store(const char *id)
{
    static struct sandbox_row row;
    struct err e;

    sandbox_row_done(&row);
    assert_int_equal(store_sandbox_get(store, id, &row, &e), 0);
    return row.reason;
}

static void test_every_state_is_driven_to_an_end_at_the_start(void **state)
{
    insert_row(SB("1"), STORE_CREATING, "");            /* its client got no id */
    node_add(SB("1"), 2);
    insert_row(SB("2"), STORE_CREATING, "tk-1");        /* its client will ask again */
    insert_row(SB("3"), STORE_RUNNING, "");             /* the node lost it */
    insert_row(SB("4"), STORE_RUNNING, "");             /* ended while nobody looked */
    node_add(SB("4"), 4)->reason = END_OOM_LIMIT;
    insert_row(SB("5"), STORE_RUNNING, "");
    node_add(SB("5"), 2)->deadline_ms = 1;              /* the change of the deadline did not arrive */
    insert_row(SB("6"), STORE_STOPPING, "");            /* the termination did not arrive */
    node_add(SB("6"), 2);
    insert_row(SB("7"), STORE_DELETING, "");
    node_add(SB("7"), 2);
    insert_row(SB("8"), STORE_ENDED, "");               /* kept */
    node_add(SB("8"), 4);
    node_add(SB("9"), 2);                               /* nobody's */
    open_core();
    if (!wait_for(is_recovered, NULL, 10000))
        fail_msg("states %u %u %u %u %u %u %u %u", state_in_store(SB("1")), state_in_store(SB("2")), state_in_store(SB("3")),
                 state_in_store(SB("4")), state_in_store(SB("5")), state_in_store(SB("6")), state_in_store(SB("7")),
                 state_in_store(SB("8")));
    assert_string_equal(reason_in_store(SB("3")), "node_lost");
    assert_string_equal(reason_in_store(SB("4")), "oom_limit");
    assert_string_equal(reason_in_store(SB("6")), "terminated");
    (void)wait_for(never, NULL, 700);
    assert_int_equal(node_find(SB("5"))->deadline_ms, 4000000000000);
    assert_null(node_find(SB("1")));
    assert_null(node_find(SB("7")));
    assert_non_null(node_find(SB("8")));
    assert_int_equal(sandbox_live_count(core), 2);
}

static void test_recovery_waits_for_the_node(void **state)
{
    node.any_error = ERR_UNAVAILABLE;
    insert_row(SB("1"), STORE_RUNNING, "");
    insert_row(SB("2"), STORE_DELETING, "");
    node_add(SB("1"), 2);
    node_add(SB("2"), 2);
    open_core();
    (void)wait_for(never, NULL, 1500);
    assert_int_equal(state_in_store(SB("1")), STORE_RUNNING);   /* not seen, so not reported lost */
    assert_int_equal(state_in_store(SB("2")), STORE_DELETING);
    node.any_error = ERR_OK;
    assert_true(wait_for(is_removed, (void *)(uintptr_t)SB("2"), 10000));
    assert_int_equal(state_in_store(SB("1")), STORE_RUNNING);
}

static void test_a_stop_answers_everybody(void **state)
{
    open_core();
    struct sandbox_spec spec = plain("n");
    struct answer a[4] = {0};
    char id[ID_SIZE];
    struct err e;

    struct answer running = make("other");
    node.create_delay_ms = 400;
    sandbox_create(core, &spec, "tk-1", NULL, NULL, on_answer, &a[0]);
    assert_int_equal(sandbox_by_name(core, "default", "n", false, id, &e), 0);
    sandbox_terminate(core, id, &(struct sandbox_end_how){.actor = "x"}, on_answer, &a[1]);
    spec.if_exists = IF_EXISTS_RETURN;
    sandbox_create(core, &spec, "tk-1", NULL, NULL, on_answer, &a[2]);
    (void)sandbox_get(core, running.id, 30000, on_answer, &a[3]);
    (void)wait_for(never, NULL, 50);
    core_stop(core);
    for (size_t i = 0; i < array_len(a); i++) {
        assert_int_equal(a[i].count, 1);
        assert_int_equal(a[i].e.code, ERR_UNAVAILABLE);
    }
    close_core();
    node.create_delay_ms = 0;
    (void)wait_for(never, NULL, 500);       /* the played node frees its call */
}

/* --- tokens and audit ---------------------------------------------------------------------------------------------- */

static int check(const char *id, const char *secret)
{
    char header[160];
    struct token t;
    struct err e;

    (void)snprintf(header, sizeof header, "Bearer %s.%s", id, secret);
    return token_check(core, header, &t, &e);
}

static void test_tokens(void **state)
{
    open_core();
    struct token t, gone;
    char secret[TOKEN_SECRET_LEN + 1], other[TOKEN_SECRET_LEN + 1];
    struct err e;

    assert_int_equal(token_create(core, "one", "sandbox:read exec:read", 0, &t, secret, &e), 0);
    assert_int_equal(strlen(secret), TOKEN_SECRET_LEN);
    assert_true(token_has_scope(&t, "exec:read"));
    assert_false(token_has_scope(&t, "exec:write"));
    assert_false(token_has_scope(&t, "exec"));
    assert_int_equal(check(t.id, secret), 0);
    secret[0] = secret[0] == 'A' ? 'B' : 'A';
    assert_int_equal(check(t.id, secret), -1);
    assert_int_equal(check("tk-0000000000000000000000", secret), -1);
    assert_int_equal(token_check(core, NULL, &gone, &e), -1);
    assert_int_equal(e.code, ERR_UNAUTHENTICATED);
    assert_int_equal(token_create(core, "late", "*", clock_wall_ms() - 1, &gone, other, &e), 0);
    assert_int_equal(check(gone.id, other), -1);
    assert_int_equal(token_create(core, "two", "*", 0, &gone, other, &e), 0);
    assert_int_equal(check(gone.id, other), 0);
    assert_int_equal(token_revoke(core, gone.id, &e), 0);
    assert_int_equal(check(gone.id, other), -1);        /* at once */
}

static void test_the_admin_token_is_written_once(void **state)
{
    open_core();
    struct err e;
    struct stat st;
    char path[128], text[128] = {0};

    (void)snprintf(path, sizeof path, "%s/admin-token", dir);
    if (token_admin_file(core, path, &e) < 0)
        fail_msg("%s", e.message);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(text, sizeof text, f));
    (void)fclose(f);
    text[25] = '\0';
    text[25 + 1 + TOKEN_SECRET_LEN] = '\0';
    assert_int_equal(check(text, text + 26), 0);
    ino_t before = st.st_ino;
    assert_int_equal(token_admin_file(core, path, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_ino, before);
    assert_int_equal(unlink(path), 0);
}

static void count_audit(void *ctx, const struct audit_row *r)
{
    (*(unsigned *)ctx)++;
}

static bool has_three_lines(void *ctx)
{
    struct err e;
    unsigned n = 0;

    assert_int_equal(store_audit_list(store, 0, 10, count_audit, &n, &e), 0);
    return n == 3;
}

static void test_audit_lines_are_written_soon(void **state)
{
    open_core();
    struct audit_row r = {.at_ms = 1, .method = "GET", .status = 200};

    for (int i = 0; i < 3; i++)
        audit_add(core, &r);
    assert_true(wait_for(has_three_lines, NULL, 1000));
}

static void test_anonymous_calls_leave_few_lines(void **state)
{
    open_core();
    struct audit_row anonymous = {.at_ms = 1000, .method = "GET"}, known = {.at_ms = 1000, .token = "tk-1", .method = "GET"};
    struct err e;
    unsigned n = 0;

    for (int i = 0; i < 300; i++)
        audit_add(core, &anonymous);
    audit_add(core, &known);
    audit_flush(core);
    assert_int_equal(store_audit_list(store, 0, 1000, count_audit, &n, &e), 0);
    assert_int_equal(n, 21);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_create_tells_the_node_everything),
        TEST(test_a_wrong_spec_is_refused_before_anything),
        TEST(test_a_failed_create_leaves_nothing),
        TEST(test_one_of_many_creates_of_a_name_wins),
        TEST(test_if_exists_return_gives_all_the_same),
        TEST(test_if_exists_replace_ends_the_old_one),
        TEST(test_a_name_is_free_once_its_holder_has_ended),
        TEST(test_a_key_names_one_sandbox),
        TEST(test_an_end_is_seen),
        TEST(test_a_list_knows_what_has_ended),
        TEST(test_a_wait_ends_with_the_sandbox),
        TEST(test_terminate_is_idempotent_and_waits_for_creation),
        TEST(test_a_termination_that_got_lost_is_repeated),
        TEST(test_delete_removes_every_trace),
        TEST(test_a_record_is_removed_after_its_time),
        TEST(test_deadlines_names_and_idle_times_change),
        TEST(test_tags_compare_and_set),
        TEST(test_a_create_without_a_node_fails_and_is_cleaned_up_later),
        TEST(test_every_state_is_driven_to_an_end_at_the_start),
        TEST(test_recovery_waits_for_the_node),
        TEST(test_a_stop_answers_everybody),
        TEST(test_tokens),
        TEST(test_the_admin_token_is_written_once),
        TEST(test_audit_lines_are_written_soon),
        TEST(test_anonymous_calls_leave_few_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
