/*
 * network_note_test.c - what of a policy is for commands, and which values of secrets go to egress
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/ids.h"
#include "base/mem.h"
#include "ipc/egress_proto.h"
#include "ipc/exec_spec.h"
#include "node/exec_env.h"
#include "node/network_note.h"

static char one[ID_SIZE], two[ID_SIZE];

static struct policy_rule *add_rule(struct policy *p)
{
    struct policy_rule *r = policy_add(p, POLICY_INJECT, POLICY_TLS);

    policy_rule_domain(r, "api.test");
    return r;
}

static void add_inject(struct policy_rule *r, enum policy_inject_kind kind, const char *secret,
                       const char *name, const char *value, const char *with)
{
    struct policy_inject *j = policy_rule_inject(r, kind, name, value, with);

    (void)snprintf(j->secret_id, sizeof j->secret_id, "%s", secret);
}

/* As control sends them: memory of the message, which the store takes over. */
static void put(struct router_secrets *s, const char *id, uint64_t version, const char *const *env, size_t n)
{
    Quicksand__Node__PutSecretsRequest rq = QUICKSAND__NODE__PUT_SECRETS_REQUEST__INIT;
    Quicksand__Node__Secret *secret = mem_zalloc(sizeof *secret), *list[] = {secret};

    quicksand__node__secret__init(secret);
    secret->secret_id = mem_strdup(id);
    secret->has_version = secret->has_deleted = 1;
    secret->version = version;
    secret->deleted = env == NULL;
    secret->n_env = n;
    secret->env = n > 0 ? mem_array(n, sizeof *secret->env) : NULL;
    for (size_t i = 0; i < n; i++)
        secret->env[i] = (ProtobufCBinaryData){strlen(env[i]), (uint8_t *)mem_strdup(env[i])};
    rq.secrets = list;
    rq.n_secrets = 1;
    router_secrets_put(s, &rq);
}

/* "KEY=value" of the secret, each once, in the order that they came, with commas. */
static void told(const struct policy *p, const struct router_secrets *s, char *out, size_t size)
{
    auto_buf values = {0};
    struct egress_secret v;
    struct err e;

    buf_init(&values, EGRESS_SECRETS_BYTES + 4096);
    assert_int_equal(network_secrets(p, s, &values, &e), 0);
    const uint8_t *at = (const uint8_t *)values.data;
    size_t n = values.len, len = 0;
    out[0] = '\0';
    while (egress_secret_next(&at, &n, &v) == 1)
        len += (size_t)snprintf(out + len, size - len, "%s%d.%s=%.*s", len > 0 ? "," : "", strcmp(v.id, one) == 0 ? 1 : 2, v.key,
                                (int)v.value_len, v.value);
    assert_int_equal(n, 0);
}

static void only_what_rules_name_goes_to_egress(void **state)
{
    static const char *const mine[] = {"TOKEN=a=b", "TOKENS=no", "UNUSED=no", "USER=me"};
    static const char *const aws[] = {"AWS_SECRET_ACCESS_KEY=s", "AWS_ACCESS_KEY_ID=i", "AWS_SESSION_TOKEN=t", "X=no"};
    struct router_secrets *s = router_secrets_new();
    struct policy p;
    char text[256];

    policy_init(&p);
    struct policy_rule *r = add_rule(&p);
    add_inject(r, POLICY_HEADER, one, "authorization", "Bearer $TOKEN costs $$5", "");
    add_inject(r, POLICY_QUERY, one, "key", "${TOKEN}", "");
    add_inject(r, POLICY_BASIC, one, "$USER", "$MISSING", "");
    add_inject(add_rule(&p), POLICY_SIGV4, two, "", "", "");
    told(&p, s, text, sizeof text);
    assert_string_equal(text, "");              /* control has not sent them yet */
    put(s, one, 1, mine, array_len(mine));
    told(&p, s, text, sizeof text);
    assert_string_equal(text, "1.TOKEN=a=b,1.USER=me");
    put(s, two, 1, aws, array_len(aws));
    told(&p, s, text, sizeof text);
    assert_string_equal(text, "1.TOKEN=a=b,1.USER=me,2.AWS_ACCESS_KEY_ID=i,2.AWS_SECRET_ACCESS_KEY=s,2.AWS_SESSION_TOKEN=t");
    put(s, one, 2, NULL, 0);
    told(&p, s, text, sizeof text);
    assert_string_equal(text, "2.AWS_ACCESS_KEY_ID=i,2.AWS_SECRET_ACCESS_KEY=s,2.AWS_SESSION_TOKEN=t");
    policy_done(&p);
    router_secrets_free(s);
}

static void what_is_not_told_yet_is_not_missing(void **state)
{
    Quicksand__Node__PutSecretsRequest rq = QUICKSAND__NODE__PUT_SECRETS_REQUEST__INIT;
    static const char *const mine[] = {"TOKEN=a"};
    struct router_secrets *s = router_secrets_new();

    put(s, one, 1, mine, array_len(mine));
    assert_false(router_secrets_are_told(s));       /* one that changed meanwhile */
    rq.has_replace_all = rq.replace_all = true;
    router_secrets_put(s, &rq);
    assert_true(router_secrets_are_told(s));
    assert_null(router_secrets_get(s, one));
    put(s, one, 2, mine, array_len(mine));
    assert_true(router_secrets_are_told(s));
    router_secrets_free(s);
}

static void too_many_values_are_refused(void **state)
{
    struct router_secrets *s = router_secrets_new();
    struct policy p;
    struct err e;

    for (size_t more = 0; more < 2; more++) {
        size_t n = EGRESS_SECRETS_BYTES - strlen(one) - strlen("BIG") - 3 * 4 + more;
        auto_free char *text = mem_zalloc(n + sizeof "BIG=");
        memset(text, 'x', n + 4);
        memcpy(text, "BIG=", 4);
        const char *env[] = {text};
        auto_buf values = {0};
        put(s, one, 1 + more, env, 1);
        policy_init(&p);
        add_inject(add_rule(&p), POLICY_HEADER, one, "x-key", "$BIG", "");
        buf_init(&values, EGRESS_SECRETS_BYTES + 4096);
        assert_int_equal(network_secrets(&p, s, &values, &e), more == 0 ? 0 : -1);
        if (more > 0)
            assert_int_equal(e.code, ERR_TOO_LARGE);
        else
            assert_int_equal(values.len, EGRESS_SECRETS_BYTES);
        policy_done(&p);
    }
    router_secrets_free(s);
}

static void what_commands_find(void **state)
{
    Quicksand__Node__Defaults d = QUICKSAND__NODE__DEFAULTS__INIT;
    Quicksand__Node__Command c = QUICKSAND__NODE__COMMAND__INIT;
    ProtobufCBinaryData argv[] = {{4, (uint8_t *)(uintptr_t) "true"}};
    char *env[] = {(char *)(uintptr_t) "PIP_CERT=/mine"};
    struct policy p;
    struct err e;

    policy_init(&p);
    policy_rule_domain(policy_add(&p, POLICY_ALLOW, POLICY_ANY), "api.test");
    struct network_note *plain = network_note_new(&p);
    assert_true(!plain->opens_tls && plain->nenv == 0 && plain->secrets.count == 0);
    add_inject(add_rule(&p), POLICY_PLACEHOLDER, one, "API_KEY", "sk-0123456789abcdef", "$TOKEN");
    struct network_note *note = network_note_new(&p);
    assert_true(note->opens_tls && note->nenv == 1 && map_get(&note->secrets, one) != NULL &&
                map_get(&note->secrets, two) == NULL);
    assert_string_equal(note->env[0], "API_KEY=sk-0123456789abcdef");
    policy_done(&p);

    c.argv = argv;
    c.n_argv = 1;
    d.env = env;
    d.n_env = 1;
    for (int i = 0; i < 3; i++) {
        struct exec_env_input in = {.defaults = &d, .command = &c, .network = i == 0 ? plain : note, .helper = i == 2};
        auto_buf spec = {0};
        buf_init(&spec, LIMIT_CHANNEL_MESSAGE);
        assert_int_equal(exec_env_build(&in, &spec, &e), 0);
        bool trusts = memmem(spec.data, spec.len, "SSL_CERT_FILE=/etc/quicksand/authorities.pem", 44) != NULL;
        bool has_key = memmem(spec.data, spec.len, "API_KEY=sk-0123456789abcdef", 27) != NULL;
        assert_true(trusts == (i == 1) && has_key == (i == 1));
        assert_non_null(memmem(spec.data, spec.len, "PIP_CERT=/mine", 14));
        assert_null(memmem(spec.data, spec.len, "PIP_CERT=/etc", 13));
    }
    network_note_free(plain);
    network_note_free(note);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_rules_name_goes_to_egress),
        cmocka_unit_test(what_is_not_told_yet_is_not_missing),
        cmocka_unit_test(too_many_values_are_refused),
        cmocka_unit_test(what_commands_find),
    };

    id_make(one, "st-");
    id_make(two, "st-");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
