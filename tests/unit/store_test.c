/*
 * store_test.c - rows in the SQLite back end
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "json/json.h"
#include "store/store.h"

static char dir[64];
static char path[96];

static int make_dir(void **state)
{
    (void)snprintf(dir, sizeof dir, "/tmp/store-test-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/state.db", dir);
    js_init();
    return 0;
}

static int remove_dir(void **state)
{
    static const char *const suffix[] = {"", "-wal", "-shm"};
    char name[128];

    for (size_t i = 0; i < array_len(suffix); i++) {
        (void)snprintf(name, sizeof name, "%s%s", path, suffix[i]);
        (void)unlink(name);
    }
    return rmdir(dir);
}

static struct store *open_store(void)
{
    struct store *s = NULL;
    struct err e = {0};

    if (store_open(path, &s, &e) < 0)
        fail_msg("%s", e.message);
    return s;
}

static struct sandbox_row row_of(const char *id, const char *name, int64_t created_us)
{
    struct sandbox_row r = {
        .app = "default", .state = STORE_CREATING, .created_us = created_us, .code = -1, .grace_ms = 5000,
        .tags_revision = 1, .expires_ms = 77, .idle_ms = 88, .retain_ms = 1000,
    };

    (void)snprintf(r.id, sizeof r.id, "%s", id);
    (void)snprintf(r.name, sizeof r.name, "%s", name);
    (void)snprintf(r.image, sizeof r.image, "im-0000000000000000000001");
    r.spec = mem_strdup("{\"command\":[\"true\"]}");
    r.tags = mem_strdup("{\"a\":\"1\",\"we.ird/key\":\"x:y\"}");
    return r;
}

static int insert(struct store *s, const char *id, const char *name, int64_t created_us, struct err *e)
{
    auto_sandbox_row r = row_of(id, name, created_us);

    return store_sandbox_insert(s, &r, e);
}

static void test_rows_come_back_whole(void **state)
{
    struct store *s = open_store();
    auto_sandbox_row r = row_of("sb-1", "n", 1000), got = {0};
    struct err e = {0};

    assert_int_equal(store_sandbox_insert(s, &r, &e), 0);
    assert_int_equal(store_sandbox_get(s, "sb-1", &got, &e), 0);
    assert_string_equal(got.name, "n");
    assert_string_equal(got.spec, r.spec);
    assert_string_equal(got.tags, r.tags);
    assert_int_equal(got.expires_ms, 77);
    assert_int_equal(got.code, -1);

    assert_int_equal(store_sandbox_set_state(s, "sb-1", STORE_RUNNING, 5, &e), 0);
    got.ended_ms = 9;
    got.code = 3;
    got.started_ms = 5;
    got.last_activity_ms = 8;
    (void)snprintf(got.reason, sizeof got.reason, "exited");
    (void)snprintf(got.last_activity, sizeof got.last_activity, "exec");
    assert_int_equal(store_sandbox_end(s, &got, &e), 0);
    sandbox_row_done(&got);
    assert_int_equal(store_sandbox_get(s, "sb-1", &got, &e), 0);
    assert_int_equal(got.state, STORE_ENDED);
    assert_int_equal(got.code, 3);
    assert_string_equal(got.reason, "exited");
    assert_string_equal(got.last_activity, "exec");

    assert_int_equal(store_sandbox_remove(s, "sb-1", &e), 0);
    sandbox_row_done(&got);
    assert_int_equal(store_sandbox_get(s, "sb-1", &got, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    store_close(s);
}

static void test_a_name_is_unique_among_live_ones_of_an_app(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    auto_sandbox_row other = row_of("sb-3", "n", 3), got = {0};

    assert_int_equal(insert(s, "sb-1", "n", 1, &e), 0);
    assert_int_equal(insert(s, "sb-2", "n", 2, &e), -1);
    assert_int_equal(e.code, ERR_EXISTS);
    (void)snprintf(other.app, sizeof other.app, "other");
    assert_int_equal(store_sandbox_insert(s, &other, &e), 0);
    assert_int_equal(insert(s, "sb-4", "", 4, &e), 0);
    assert_int_equal(insert(s, "sb-5", "", 5, &e), 0);
    assert_int_equal(store_sandbox_set_name(s, "sb-4", "n", &e), -1);
    assert_int_equal(e.code, ERR_EXISTS);

    assert_int_equal(store_sandbox_set_state(s, "sb-1", STORE_DELETING, 0, &e), 0);
    assert_int_equal(insert(s, "sb-2", "n", 2, &e), 0);
    assert_int_equal(store_sandbox_by_name(s, "default", "n", false, &got, &e), 0);
    assert_string_equal(got.id, "sb-2");
    sandbox_row_done(&got);
    assert_int_equal(store_sandbox_set_state(s, "sb-2", STORE_ENDED, 0, &e), 0);
    assert_int_equal(store_sandbox_by_name(s, "default", "n", false, &got, &e), -1);
    assert_int_equal(store_sandbox_by_name(s, "default", "n", true, &got, &e), 0);
    assert_string_equal(got.id, "sb-2");
    assert_int_equal(store_sandbox_by_name(s, "default", "", true, &got, &e), -1);
    store_close(s);
}

static void test_a_rollback_leaves_nothing(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    auto_sandbox_row got = {0};

    assert_int_equal(store_begin(s, STORE_FAST, &e), 0);
    assert_int_equal(insert(s, "sb-1", "n", 1, &e), 0);
    store_rollback(s);
    store_rollback(s);
    assert_int_equal(store_sandbox_get(s, "sb-1", &got, &e), -1);
    assert_int_equal(store_begin(s, STORE_DURABLE, &e), 0);
    assert_int_equal(insert(s, "sb-1", "n", 1, &e), 0);
    assert_int_equal(store_commit(s, &e), 0);
    assert_int_equal(store_sandbox_get(s, "sb-1", &got, &e), 0);
    store_close(s);
}

static void test_a_killed_process_loses_no_commit(void **state)
{
    struct err e = {0};
    auto_sandbox_row got = {0};
    int status;

    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct store *s = open_store();
        (void)insert(s, "sb-1", "", 1, &e);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    struct store *s = open_store();
    assert_int_equal(store_sandbox_get(s, "sb-1", &got, &e), 0);
    store_close(s);
}

static void test_the_file_is_private_and_a_newer_one_is_refused(void **state)
{
    struct store *s = open_store();
    struct stat st;
    struct err e = {0};
    char command[256];

    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(s);
    s = open_store();                       /* again: no migration runs twice */
    store_close(s);

    /* user_version stands at byte 60 of the file, big-endian */
    (void)snprintf(command, sizeof command, "%s", path);
    int fd = open(command, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "\0\0\0\x63", 4, 60), 4);
    close(fd);
    assert_int_equal(store_open(path, &s, &e), -1);
    assert_non_null(strstr(e.message, "99"));
}

struct seen {
    char ids[300][ID_SIZE];
    int64_t last_us;
    size_t n;
};

static void see(void *ctx, const struct sandbox_row *r)
{
    struct seen *s = ctx;

    memcpy(s->ids[s->n++], r->id, ID_SIZE);
    s->last_us = r->created_us;
}

static void test_pages_of_equal_times_lose_and_repeat_nothing(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    static struct seen all;
    char id[ID_SIZE];

    assert_int_equal(store_begin(s, STORE_FAST, &e), 0);
    for (int i = 0; i < 250; i++) {
        id_make(id, "sb-");
        assert_int_equal(insert(s, id, "", 1000 + i / 100, &e), 0);     /* three moments */
    }
    assert_int_equal(store_commit(s, &e), 0);
    memset(&all, 0, sizeof all);
    struct sandbox_filter f = {.states = STORE_LIVE_STATES, .limit = 7};
    for (;;) {
        size_t before = all.n;
        assert_int_equal(store_sandbox_list(s, &f, see, &all, &e), 0);
        if (all.n == before)
            break;
        f.cursor_us = all.last_us;
        f.cursor_id = all.ids[all.n - 1];
    }
    assert_int_equal(all.n, 250);
    for (size_t i = 0; i < all.n; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(all.ids[i], all.ids[k]);
    store_close(s);
}

static size_t count(struct store *s, const struct sandbox_filter *f)
{
    static struct seen seen;
    struct err e = {0};

    seen.n = 0;
    assert_int_equal(store_sandbox_list(s, f, see, &seen, &e), 0);
    return seen.n;
}

static void test_filters(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    const struct store_tag a1 = {"a", "1"}, a2 = {"a", "2"}, both[] = {{"a", "1"}, {"we.ird/key", "x:y"}};
    int64_t revision;

    assert_int_equal(insert(s, "sb-1", "n", 100, &e), 0);
    assert_int_equal(insert(s, "sb-2", "", 200, &e), 0);
    assert_int_equal(store_sandbox_set_state(s, "sb-2", STORE_RUNNING, 0, &e), 0);
    struct sandbox_filter f = {.states = STORE_LIVE_STATES, .limit = 10};
    assert_int_equal(count(s, &f), 2);
    f.states = 1u << STORE_RUNNING;
    assert_int_equal(count(s, &f), 1);
    f = (struct sandbox_filter){.states = STORE_LIVE_STATES, .limit = 10, .name = "n"};
    assert_int_equal(count(s, &f), 1);
    f = (struct sandbox_filter){.states = STORE_LIVE_STATES, .limit = 10, .app = "other"};
    assert_int_equal(count(s, &f), 0);
    f = (struct sandbox_filter){.states = STORE_LIVE_STATES, .limit = 10, .created_after_us = 100};
    assert_int_equal(count(s, &f), 1);
    f = (struct sandbox_filter){.states = STORE_LIVE_STATES, .limit = 10, .created_before_us = 100};
    assert_int_equal(count(s, &f), 0);
    f = (struct sandbox_filter){.states = STORE_LIVE_STATES, .limit = 10, .tags = &a1, .ntags = 1};
    assert_int_equal(count(s, &f), 2);
    f.tags = &a2;
    assert_int_equal(count(s, &f), 0);
    f.tags = both;
    f.ntags = 2;
    assert_int_equal(count(s, &f), 2);
    assert_int_equal(store_sandbox_set_tags(s, "sb-1", "{}", 1, &revision, &e), 0);
    assert_int_equal(revision, 2);
    assert_int_equal(count(s, &f), 1);
    assert_int_equal(store_sandbox_set_tags(s, "sb-1", "{}", 1, &revision, &e), -1);
    assert_int_equal(e.code, ERR_PRECONDITION);
    store_close(s);
}

static void test_records_expire(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    static struct seen seen;
    auto_sandbox_row r = row_of("sb-1", "", 1);

    assert_int_equal(store_sandbox_insert(s, &r, &e), 0);
    r.ended_ms = 5000;
    assert_int_equal(store_sandbox_end(s, &r, &e), 0);
    memset(&seen, 0, sizeof seen);
    assert_int_equal(store_sandbox_expired(s, 5999, 10, see, &seen, &e), 0);
    assert_int_equal(seen.n, 0);
    assert_int_equal(store_sandbox_expired(s, 6000, 10, see, &seen, &e), 0);
    assert_int_equal(seen.n, 1);
    seen.n = 0;
    assert_int_equal(store_sandbox_unfinished(s, see, &seen, &e), 0);
    assert_int_equal(seen.n, 0);
    store_close(s);
}

static void add_image(struct store *s, const char *id, const char *layer)
{
    char layers[64];
    struct image_row r = {.created_us = 1, .size_bytes = 2, .files = 3, .layers = layers, .env = (char *)(uintptr_t)"{}"};
    struct err e = {0};

    (void)snprintf(r.id, sizeof r.id, "%s", id);
    (void)snprintf(layers, sizeof layers, "[\"%s\"]", layer);
    if (store_image_insert(s, &r, &e) < 0)
        fail_msg("%s", e.message);
}

static void test_images_and_their_garbage(void **state)
{
    static const char one[] = "im-0000000000000000000001", two[] = "im-0000000000000000000002";
    struct store *s = open_store();
    struct err e = {0};
    auto_image_row got = {0};
    char layer[64];
    bool is_used = true;

    add_image(s, one, "sha256-a");
    add_image(s, two, "sha256-a");
    assert_int_equal(store_image_name(s, "base", one, &e), 0);
    assert_int_equal(store_image_name(s, "base", two, &e), 0);
    assert_int_equal(store_image_get(s, "base", &got, &e), 0);
    assert_string_equal(got.id, two);
    assert_string_equal(got.names, "[\"base\"]");
    assert_string_equal(got.layers, "[\"sha256-a\"]");
    assert_null(got.workdir);

    assert_int_equal(store_image_is_used(s, one, &is_used, &e), 0);
    assert_false(is_used);
    assert_int_equal(insert(s, "sb-1", "", 1, &e), 0);
    assert_int_equal(store_image_is_used(s, one, &is_used, &e), 0);
    assert_true(is_used);

    assert_int_equal(store_image_remove(s, one, &e), 0);
    assert_int_equal(store_garbage_next(s, layer, sizeof layer, &e), 0);
    assert_string_equal(layer, "");             /* the other image names it */
    assert_int_equal(store_image_remove(s, two, &e), 0);
    assert_int_equal(store_garbage_next(s, layer, sizeof layer, &e), 0);
    assert_string_equal(layer, "sha256-a");
    image_row_done(&got);
    assert_int_equal(store_image_get(s, "base", &got, &e), -1);
    add_image(s, one, "sha256-a");              /* wanted again */
    assert_int_equal(store_garbage_next(s, layer, sizeof layer, &e), 0);
    assert_string_equal(layer, "");
    store_close(s);
}

static void count_step(void *ctx, const char *rest, int64_t bytes, int64_t used_us)
{
    (void)rest;
    *(int64_t *)ctx += 1000 * bytes + used_us;
}

static void test_steps_and_what_they_keep(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    char layer[72] = "";
    int64_t n = -1, bytes = -1, seen = 0;
    bool found = false;

    for (int i = 0; i < 3; i++) {
        static const char *const layers[] = {"L-a", "L-b", "L-c"};
        assert_int_equal(store_layer_put(s, layers[i], 1 + i, 1, 1, &e), 0);
    }
    assert_int_equal(store_step_put(s, "step", "L-a", 50, &e), 0);
    assert_int_equal(store_step_put(s, "context:L-b:2", "L-b", 20, &e), 0);
    assert_int_equal(store_step_put(s, "context:L-b:1", "L-b", 90, &e), 0);
    assert_int_equal(store_step_put(s, "context:L-c:3", "L-c", 10, &e), 0);
    assert_int_equal(store_step_list(s, "context:", count_step, &seen, &e), 0);
    assert_int_equal(seen, 7000 + 120);

    /* One upload of two is taken, the older one; the layer stays for the other. */
    assert_int_equal(store_step_take(s, "context:L-b:", &found, &e), 0);
    assert_true(found);
    assert_int_equal(store_step_get(s, "context:L-b:2", 20, &found, layer, &e), 0);
    assert_false(found);
    assert_int_equal(store_layer_release(s, "L-b", &e), 0);
    assert_int_equal(store_garbage_bytes(s, &bytes, &e), 0);
    assert_int_equal(bytes, 0);

    /* What a transaction that is taken back forgot is there again. */
    assert_int_equal(store_begin(s, STORE_FAST, &e), 0);
    assert_int_equal(store_step_expire(s, "", 95, &n, &e), 0);
    assert_int_equal(n, 3);
    assert_int_equal(store_garbage_bytes(s, &bytes, &e), 0);
    assert_int_equal(bytes, 6);
    store_rollback(s);
    assert_int_equal(store_garbage_bytes(s, &bytes, &e), 0);
    assert_int_equal(bytes, 0);

    /* Contexts alone: a step of the same age, and a layer that a step has too, stay. */
    assert_int_equal(store_step_put(s, "another", "L-c", 5, &e), 0);
    assert_int_equal(store_step_expire(s, "context:", 95, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_int_equal(store_garbage_bytes(s, &bytes, &e), 0);
    assert_int_equal(bytes, 2);
    assert_int_equal(store_step_get(s, "step", 60, &found, layer, &e), 0);
    assert_true(found);
    assert_int_equal(store_step_take(s, "context:L-b:", &found, &e), 0);
    assert_false(found);
    assert_int_equal(store_garbage_remove(s, "L-b", &e), 0);
    assert_int_equal(store_garbage_bytes(s, &bytes, &e), 0);
    assert_int_equal(bytes, 0);
    store_close(s);
}

static void test_idempotency_keys_and_tokens(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    struct idem_row k = {.object = "sb-1", .created_ms = 10}, got;
    struct token_row t = {.id = "tk-1", .name = "n", .scopes = "a b", .hash = {1, 2, 3}, .created_ms = 4}, tgot;

    assert_int_equal(store_idem_insert(s, "tk-1", "key", &k, &e), 0);
    assert_int_equal(store_idem_insert(s, "tk-1", "key", &k, &e), -1);
    assert_int_equal(store_idem_insert(s, "tk-2", "key", &k, &e), 0);
    assert_int_equal(store_idem_get(s, "tk-1", "key", &got, &e), 0);
    assert_string_equal(got.object, "sb-1");
    assert_int_equal(store_idem_expire(s, 10, &e), 0);
    assert_int_equal(store_idem_get(s, "tk-1", "key", &got, &e), 0);
    assert_int_equal(store_idem_remove_object(s, "sb-1", &e), 0);
    assert_int_equal(store_idem_get(s, "tk-1", "key", &got, &e), -1);

    assert_int_equal(store_token_insert(s, &t, &e), 0);
    assert_int_equal(store_token_get(s, "tk-1", &tgot, &e), 0);
    assert_memory_equal(tgot.hash, t.hash, sizeof t.hash);
    assert_int_equal(store_token_remove(s, "tk-1", &e), 0);
    assert_int_equal(store_token_remove(s, "tk-1", &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    store_close(s);
}

static void see_line(void *ctx, const struct audit_row *r)
{
    int64_t *seen = ctx;

    seen[0]++;
    if (seen[1] == 0)
        seen[1] = r->at_ms;
}

static void test_audit_lines_expire_by_age_and_number(void **state)
{
    struct store *s = open_store();
    struct err e = {0};
    bool is_more;

    for (int64_t i = 1; i <= 10; i++) {
        struct audit_row r = {.at_ms = i, .method = "GET"};
        assert_int_equal(store_audit_insert(s, &r, &e), 0);
    }
    assert_int_equal(store_audit_expire(s, 4, 100, 2, &is_more, &e), 0);    /* 3 are too old, 2 go now */
    assert_true(is_more);
    assert_int_equal(store_audit_expire(s, 4, 100, 2, &is_more, &e), 0);
    assert_false(is_more);
    assert_int_equal(store_audit_expire(s, 0, 5, 100, &is_more, &e), 0);
    int64_t seen[2] = {0};
    assert_int_equal(store_audit_list(s, 0, 100, see_line, seen, &e), 0);
    assert_int_equal(seen[0], 5);
    assert_int_equal(seen[1], 10);
    store_close(s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_rows_come_back_whole),
        TEST(test_a_name_is_unique_among_live_ones_of_an_app),
        TEST(test_a_rollback_leaves_nothing),
        TEST(test_a_killed_process_loses_no_commit),
        TEST(test_the_file_is_private_and_a_newer_one_is_refused),
        TEST(test_pages_of_equal_times_lose_and_repeat_nothing),
        TEST(test_filters),
        TEST(test_records_expire),
        TEST(test_images_and_their_garbage),
        TEST(test_steps_and_what_they_keep),
        TEST(test_idempotency_keys_and_tokens),
        TEST(test_audit_lines_expire_by_age_and_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
