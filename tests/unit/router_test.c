/*
 * router_test.c - tokens, keys and secrets of the command router
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "json/json.h"
#include "net/signer.h"
#include "node/modal/keys.h"
#include "node/modal/secrets.h"
#include "sys/fd.h"

#define SB "sb-0123456789abcdefABCDEF"
#define TASK "ta-0123456789abcdefABCDEF000V"

struct rig {
    char dir[64];
    int fd;
    struct net_signer *signer;
    struct router_keys *keys;
};

static int setup(void **state)
{
    struct rig *r = mem_zalloc(sizeof *r);
    char path[128];
    struct err e;

    js_init();
    (void)snprintf(r->dir, sizeof r->dir, "/tmp/router_test.XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    r->fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(path, sizeof path, "%s/private", r->dir);
    r->signer = net_signer_open(path, &e);
    assert_non_null(r->signer);
    r->keys = router_keys_new(r->fd);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    router_keys_free(r->keys);
    net_signer_free(r->signer);
    (void)unlinkat(r->fd, "private", 0);
    (void)unlinkat(r->fd, ".router-keys", 0);
    fd_close(&r->fd);
    assert_int_equal(rmdir(r->dir), 0);
    free(r);
    return 0;
}

static void teach(struct rig *r, const char *kid, int64_t not_after_ms)
{
    Quicksand__Node__SetKeysRequest rq = QUICKSAND__NODE__SET_KEYS_REQUEST__INIT;
    Quicksand__Node__Key key = QUICKSAND__NODE__KEY__INIT, *keys[] = {&key};
    struct err e;

    key.kid = (char *)(uintptr_t)kid;
    key.pem = (char *)(uintptr_t)net_signer_public_pem(r->signer);
    key.has_not_after_ms = 1;
    key.not_after_ms = not_after_ms;
    rq.n_keys = 1;
    rq.keys = keys;
    assert_int_equal(router_keys_set(r->keys, &rq, &e), 0);
}

/* The error's code, or ERR_OK with the sandbox checked. */
static enum err_code check(struct rig *r, const char *claims)
{
    char sandbox[ID_SIZE];
    struct err e;
    auto_free char *jwt = net_signer_jwt(r->signer, claims, &e);

    assert_non_null(jwt);
    auto_free char *header = mem_printf("Bearer %s", jwt);
    if (router_keys_check(r->keys, header, sandbox, &e) < 0)
        return e.code;
    assert_string_equal(sandbox, SB);
    return ERR_OK;
}

static void test_tokens(void **state)
{
    struct rig *r = *state;
    const char *good = "{\"task_id\":\"" TASK "\",\"exp\":99999999999}";
    char sandbox[ID_SIZE];
    struct err e;

    assert_int_equal(check(r, good), ERR_UNAUTHENTICATED);      /* no keys yet */
    teach(r, net_signer_kid(r->signer), 0);
    assert_int_equal(check(r, good), ERR_OK);
    assert_int_equal(check(r, "{\"sandbox_id\":\"" SB "\",\"exp\":99999999999,\"nbf\":1}"), ERR_OK);
    assert_int_equal(check(r, "{\"task_id\":\"" TASK "\",\"sandbox_id\":\"" SB "\",\"exp\":99999999999}"), ERR_OK);
    assert_int_equal(check(r, "{\"task_id\":\"" TASK "\",\"sandbox_id\":\"sb-AAAAAAAAAAAAAAAAAAAAAA\",\"exp\":99999999999}"),
                     ERR_UNAUTHENTICATED);
    assert_int_equal(check(r, "{\"sub\":\"tk-1\",\"exp\":99999999999}"), ERR_UNAUTHENTICATED);
    assert_int_equal(check(r, "{\"task_id\":\"" TASK "\"}"), ERR_UNAUTHENTICATED);
    assert_int_equal(check(r, "{\"task_id\":\"" TASK "\",\"exp\":1}"), ERR_UNAUTHENTICATED);
    assert_int_equal(check(r, "{\"task_id\":\"" TASK "\",\"exp\":99999999999,\"nbf\":99999999998}"),
                     ERR_UNAUTHENTICATED);
    assert_int_equal(check(r, "{\"task_id\":7,\"exp\":99999999999}"), ERR_UNAUTHENTICATED);
    static const char *const others[] = {"", "Bearer", "Bearer ", "Basic abc", "Bearer a.b.c", NULL};
    for (size_t i = 0; i < array_len(others); i++)
        assert_int_equal(router_keys_check(r->keys, others[i], sandbox, &e), -1);
}

static void test_keys(void **state)
{
    struct rig *r = *state;
    const char *good = "{\"task_id\":\"" TASK "\",\"exp\":99999999999}";

    teach(r, net_signer_kid(r->signer), 0);
    assert_int_equal(check(r, good), ERR_OK);
    /* The next node has them from disk. */
    router_keys_free(r->keys);
    r->keys = router_keys_new(r->fd);
    assert_int_equal(check(r, good), ERR_OK);
    /* A key that is replaced, or over, takes its tokens with it, also those that passed before. */
    teach(r, "another", 0);
    assert_int_equal(check(r, good), ERR_UNAUTHENTICATED);
    teach(r, net_signer_kid(r->signer), clock_wall_ms() - 1);
    assert_int_equal(check(r, good), ERR_UNAUTHENTICATED);
    teach(r, net_signer_kid(r->signer), clock_wall_ms() + 60000);
    assert_int_equal(check(r, good), ERR_OK);
}

static void test_keys_that_are_none(void **state)
{
    struct rig *r = *state;
    Quicksand__Node__SetKeysRequest rq = QUICKSAND__NODE__SET_KEYS_REQUEST__INIT;
    Quicksand__Node__Key key = QUICKSAND__NODE__KEY__INIT, *keys[17];
    struct err e;

    teach(r, net_signer_kid(r->signer), 0);
    for (size_t i = 0; i < array_len(keys); i++)
        keys[i] = &key;
    rq.keys = keys;
    rq.n_keys = 1;
    assert_int_equal(router_keys_set(r->keys, &rq, &e), -1);
    key.kid = (char *)(uintptr_t)"k";
    assert_int_equal(router_keys_set(r->keys, &rq, &e), -1);
    key.pem = (char *)(uintptr_t)"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert_int_equal(router_keys_set(r->keys, &rq, &e), -1);
    key.pem = (char *)(uintptr_t)net_signer_public_pem(r->signer);
    rq.n_keys = array_len(keys);
    assert_int_equal(router_keys_set(r->keys, &rq, &e), -1);
    assert_int_equal(check(r, "{\"task_id\":\"" TASK "\",\"exp\":99999999999}"), ERR_OK);   /* those from before stand */
    /* A file that is no such file is as none. */
    assert_int_equal(fd_replace_file(r->fd, ".router-keys", "QSK1\xff\xff", 6, 0600, false), 0);
    router_keys_free(r->keys);
    r->keys = router_keys_new(r->fd);
    assert_int_equal(check(r, "{\"task_id\":\"" TASK "\",\"exp\":99999999999}"), ERR_UNAUTHENTICATED);
}

static void put(struct router_secrets *s, const char *id, uint64_t version, const char *env, bool replace_all)
{
    Quicksand__Node__Secret secret = QUICKSAND__NODE__SECRET__INIT;
    Quicksand__Node__PutSecretsRequest rq = QUICKSAND__NODE__PUT_SECRETS_REQUEST__INIT;
    ProtobufCBinaryData value = {0};
    Quicksand__Node__Secret *secrets[] = {&secret};
    uint8_t space[256];

    secret.secret_id = (char *)(uintptr_t)id;
    secret.has_version = 1;
    secret.version = version;
    secret.has_deleted = secret.deleted = env == NULL;
    if (env != NULL) {
        value = (ProtobufCBinaryData){strlen(env), (uint8_t *)(uintptr_t)env};
        secret.env = &value;
        secret.n_env = 1;
    }
    rq.secrets = secrets;
    rq.n_secrets = 1;
    rq.has_replace_all = 1;
    rq.replace_all = replace_all;
    size_t n = quicksand__node__put_secrets_request__pack(&rq, space);
    Quicksand__Node__PutSecretsRequest *copy = quicksand__node__put_secrets_request__unpack(NULL, n, space);
    router_secrets_put(s, copy);
    quicksand__node__put_secrets_request__free_unpacked(copy, NULL);
}

static void expect(const struct router_secrets *s, const char *id, const char *env)
{
    const Quicksand__Node__Secret *secret = router_secrets_get(s, id);

    if (env == NULL) {
        assert_null(secret);
        return;
    }
    assert_non_null(secret);
    assert_int_equal(secret->env[0].len, strlen(env));
    assert_memory_equal(secret->env[0].data, env, strlen(env));
}

static void test_secrets(void **state)
{
    struct router_secrets *s = router_secrets_new();

    (void)state;
    put(s, "st-1", 2, "A=2", false);
    put(s, "st-2", 1, "B=1", false);
    put(s, "st-1", 1, "A=1", false);            /* late */
    expect(s, "st-1", "A=2");
    put(s, "st-1", 3, "A=3", false);
    expect(s, "st-1", "A=3");
    put(s, "st-1", 4, NULL, false);
    expect(s, "st-1", NULL);
    put(s, "st-1", 3, "A=3", false);            /* late again: it stays deleted */
    expect(s, "st-1", NULL);
    put(s, "st-3", 1, "C=1", true);
    expect(s, "st-2", NULL);
    expect(s, "st-3", "C=1");
    router_secrets_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys_that_are_none, setup, teardown),
        cmocka_unit_test(test_secrets),
    };

    return cmocka_run_group_tests_name("router", tests, NULL, NULL);
}
