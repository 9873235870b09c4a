/*
 * keeper_validate_test.c - every field of the keeper's messages, each with values that must be refused
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "keeper/validate.h"

#define LAYER_A "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LAYER_B "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID "0123456789ABCDEFabcdef"

#define PUT(field, text) (void)snprintf(field, sizeof(field), "%s", text)

static struct keeper_create good(void)
{
    struct keeper_create m = {
        .sandbox = "sb-" ID, .hostname = "box", .nlayers = 2, .layers = {LAYER_A, LAYER_B},
        .r = {.cpu_milli = 500, .cpu_weight = 100, .memory_bytes = 256 << 20, .memory_request_bytes = 64 << 20, .pids = 100,
              .io_weight = 200},
        .disk_bytes = 1 << 30, .deadline_ms = 1800000000000, .idle_ms = 1000, .grace_ms = 5000,
        .log_bytes = 1 << 20,
    };

    return m;
}

static void refused(const struct keeper_create *m, const char *param)
{
    struct err e = {0};

    assert_int_equal(validate_create(m, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_string_equal(e.param, param);
    assert_true(e.message[0] != '\0');
}

static void accepted(const struct keeper_create *m)
{
    struct err e = {0};

    assert_int_equal(validate_create(m, &e), 0);
}

static void test_good(void **state)
{
    struct keeper_create m = good();

    accepted(&m);
    PUT(m.delta, "im-" ID);
    accepted(&m);
    /* zero means none or the default */
    m.r = (struct keeper_resources){.cpu_weight = 100};
    m.grace_ms = 0;
    m.disk_bytes = m.idle_ms = m.log_bytes = 0;
    m.deadline_ms = 0;
    accepted(&m);
}

static void test_sandbox(void **state)
{
    static const char *const bad[] = {
        "", "sb-", "sb-" ID "x", "sb-0123456789ABCDEFabcde", "im-" ID, "sb-0123456789ABCDEFabcd/f",
        "sb-0123456789ABCDEFabcde\n", "../../../../etc/passwdxx", "sb_" ID,
    };

    for (size_t i = 0; i < array_len(bad); i++) {
        struct keeper_create m = good();
        struct keeper_destroy d = {0};
        struct keeper_limits l = {.r = {.cpu_weight = 100}};
        struct err e = {0};
        PUT(m.sandbox, bad[i]);
        refused(&m, "sandbox");
        PUT(d.sandbox, bad[i]);
        assert_int_equal(validate_destroy(&d, &e), -1);
        struct keeper_tree t = {0};
        PUT(t.sandbox, bad[i]);
        assert_int_equal(validate_tree(&t, &e), -1);
        PUT(l.sandbox, bad[i]);
        assert_int_equal(validate_limits(&l, &e), -1);
    }
}

static void test_hostname(void **state)
{
    static const char *const bad[] = {
        "", "-a", "a-", "a_b", "a b", "a\n", ".", ".a", "a.", "a..b", "a.-b", "a-.b", "caf\xc3\xa9",
        "0123456789012345678901234567890123456789012345678901234567890123",
    };
    static const char *const fine[] = {
        "a", "9", "a-b", "A.b-c.D", "012345678901234567890123456789012345678901234567890123456789012",
    };

    /* 64 characters do not fit into the field with their NUL, so that one is asked for by itself */
    for (size_t i = 0; i < array_len(bad) - 1; i++) {
        struct keeper_create m = good();
        PUT(m.hostname, bad[i]);
        refused(&m, "hostname");
    }
    assert_false(validate_is_hostname(bad[array_len(bad) - 1]));
    for (size_t i = 0; i < array_len(fine); i++) {
        struct keeper_create m = good();
        PUT(m.hostname, fine[i]);
        accepted(&m);
    }
}

static void test_layers(void **state)
{
    static const char *const bad[] = {
        "", "..", LAYER_A "0", "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
        "g123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde/",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n",
    };

    for (size_t i = 0; i < array_len(bad); i++) {
        struct keeper_create m = good();
        struct keeper_layer l = {0};
        struct err e = {0};
        PUT(m.layers[1], bad[i]);
        refused(&m, "layers");
        PUT(l.layer, bad[i]);
        assert_int_equal(validate_layer(&l, &e), -1);
    }
    struct keeper_create m = good();
    PUT(m.layers[1], LAYER_A);
    refused(&m, "layers");              /* twice */
    m = good();
    m.nlayers = 0;
    refused(&m, "nlayers");
    m.nlayers = LIMIT_LAYERS + 1;
    refused(&m, "nlayers");
    struct keeper_layer l = {.layer = LAYER_A};
    struct err e = {0};
    assert_int_equal(validate_layer(&l, &e), 0);
}

static void test_delta(void **state)
{
    static const char *const bad[] = {"im-", "sb-" ID, "im-" ID "x", "im-../../../../../../../"};

    for (size_t i = 0; i < array_len(bad); i++) {
        struct keeper_create m = good();
        PUT(m.delta, bad[i]);
        refused(&m, "delta");
    }
}

static void test_numbers(void **state)
{
    struct keeper_create m;
    const uint64_t mib = 1024 * 1024;

#define REFUSED(field, value)    \
    do {                         \
        m = good();              \
        m.field = (value);       \
        refused(&m, #field);     \
    } while (0)
#define ACCEPTED(field, value)   \
    do {                         \
        m = good();              \
        m.field = (value);       \
        accepted(&m);            \
    } while (0)
#define REFUSED_R(field, value)  \
    do {                         \
        m = good();              \
        m.r.field = (value);     \
        refused(&m, #field);     \
    } while (0)
#define ACCEPTED_R(field, value) \
    do {                         \
        m = good();              \
        m.r.field = (value);     \
        accepted(&m);            \
    } while (0)
    REFUSED_R(cpu_milli, LIMIT_CPU_MILLI_MIN - 1);
    REFUSED_R(cpu_milli, LIMIT_CPU_MILLI_MAX + 1);
    ACCEPTED_R(cpu_milli, LIMIT_CPU_MILLI_MIN);
    ACCEPTED_R(cpu_milli, LIMIT_CPU_MILLI_MAX);
    REFUSED_R(cpu_weight, 0);
    REFUSED_R(cpu_weight, 10001);
    ACCEPTED_R(cpu_weight, 1);
    ACCEPTED_R(cpu_weight, 10000);
    REFUSED_R(memory_bytes, LIMIT_MEMORY_MB_MIN * mib - 1);
    REFUSED_R(memory_bytes, LIMIT_MEMORY_MB_MAX * mib + 1);
    REFUSED_R(memory_bytes, UINT64_MAX);
    m = good();
    m.r.memory_bytes = m.r.memory_request_bytes = LIMIT_MEMORY_MB_MIN * mib;
    accepted(&m);
    REFUSED_R(pids, LIMIT_PIDS_MIN - 1);
    REFUSED_R(pids, LIMIT_PIDS_MAX + 1);
    REFUSED_R(memory_request_bytes, (256 << 20) + 1);     /* over the limit of this one */
    ACCEPTED_R(memory_request_bytes, 256 << 20);
    m = good();
    m.r.memory_bytes = 0;
    m.r.memory_request_bytes = LIMIT_MEMORY_MB_MAX * mib;
    accepted(&m);
    m.r.memory_request_bytes++;
    refused(&m, "memory_request_bytes");
    ACCEPTED_R(io_weight, 1);
    ACCEPTED_R(io_weight, LIMIT_WEIGHT_MAX);
    REFUSED_R(io_weight, LIMIT_WEIGHT_MAX + 1);
    REFUSED(oom, OOM_POLICIES);
    REFUSED(oom, 255);
    ACCEPTED(oom, OOM_PROCESS);
    REFUSED(spool_bytes, SPOOL_BYTES_MIN - 1);
    REFUSED(spool_bytes, LOG_BYTES_MAX + 1);
    ACCEPTED(spool_bytes, SPOOL_BYTES_MIN);
    REFUSED(disk_bytes, DISK_BYTES_MIN - 1);
    REFUSED(disk_bytes, DISK_BYTES_MAX + 1);
    REFUSED(deadline_ms, -1);
    REFUSED(deadline_ms, INT64_MIN);
    REFUSED(deadline_ms, WALL_MS_MAX + 1);
    ACCEPTED(deadline_ms, 1);           /* in the past: it ends at once */
    REFUSED(idle_ms, LIMIT_LIFETIME_MAX * 1000 + 1);
    REFUSED(grace_ms, LIMIT_GRACE_MAX * 1000 + 1);
    ACCEPTED(grace_ms, LIMIT_GRACE_MAX * 1000);
    REFUSED(log_bytes, LOG_BYTES_MAX + 1);
    REFUSED(options, KEEPER_OPTIONS + 1);
    REFUSED(options, 1U << 31);
}

static void test_limits(void **state)
{
    const struct keeper_limits fine = {.sandbox = "sb-" ID, .r = {.cpu_weight = 100}};
    struct keeper_limits l = fine;
    struct err e = {0};

    assert_int_equal(validate_limits(&l, &e), 0);
    l.r.cpu_weight = 0;
    assert_int_equal(validate_limits(&l, &e), -1);
    l = fine;
    l.r.cpu_milli = LIMIT_CPU_MILLI_MAX + 1;
    assert_int_equal(validate_limits(&l, &e), -1);
    l = fine;
    l.r.memory_bytes = 1;
    assert_int_equal(validate_limits(&l, &e), -1);
    l = fine;
    l.r.pids = 1;
    assert_int_equal(validate_limits(&l, &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),    cmocka_unit_test(test_sandbox), cmocka_unit_test(test_hostname),
        cmocka_unit_test(test_layers),  cmocka_unit_test(test_delta),   cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
