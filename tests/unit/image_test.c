/*
 * image_test.c - the pure parts of the image role: references, manifests, challenges, addresses
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/image_ref.h"
#include "base/mem.h"
#include "image/address.h"
#include "image/ecr.h"
#include "image/fetch.h"
#include "image/manifest.h"
#include "image/registry_auth.h"

#define DIGEST_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void test_references(void **state)
{
    static const struct {
        const char *text, *registry, *repository, *tag, *digest;
    } good[] = {
        {"python", "docker.io", "library/python", "latest", ""},
        {"python:3.12-slim", "docker.io", "library/python", "3.12-slim", ""},
        {"user/app:1", "docker.io", "user/app", "1", ""},
        {"docker.io/python:3", "docker.io", "library/python", "3", ""},
        {"index.docker.io/library/python", "docker.io", "library/python", "latest", ""},
        {"localhost/x", "localhost", "x", "latest", ""},
        {"localhost:5000/a/b/c:v1", "localhost:5000", "a/b/c", "v1", ""},
        {"ghcr.io/o/i@" DIGEST_A, "ghcr.io", "o/i", "", DIGEST_A},
        {"ghcr.io/o/i:tag@" DIGEST_A, "ghcr.io", "o/i", "tag", DIGEST_A},
        {"[::1]:5000/a", "[::1]:5000", "a", "latest", ""},
    };
    static const char *const bad[] = {"",
                                      ":tag",
                                      "a//b",
                                      "/a",
                                      "a/",
                                      "A/b",
                                      "a b",
                                      "a:",
                                      "a:t:u",
                                      "a@sha256:12",
                                      ("a@md5:" DIGEST_A),
                                      "-a",
                                      "host:99999999/a",
                                      "host:/a",
                                      "[::1/a",
                                      "a/../b",
                                      "a\x01",
                                      "x.y:80"};
    struct image_ref r;
    struct err e;

    for (size_t i = 0; i < array_len(good); i++) {
        if (image_ref_parse(good[i].text, &r, &e) < 0)
            fail_msg("%s: %s", good[i].text, e.message);
        assert_string_equal(r.registry, good[i].registry);
        assert_string_equal(r.repository, good[i].repository);
        assert_string_equal(r.tag, good[i].tag);
        assert_string_equal(r.digest, good[i].digest);
    }
    for (size_t i = 0; i < array_len(bad); i++)
        if (strcmp(bad[i], "x.y:80") != 0 && image_ref_parse(bad[i], &r, &e) == 0)
            fail_msg("'%s' was taken", bad[i]);
}

static void test_names(void **state)
{
    static const struct {
        const char *text, *name;        /* NULL = refused */
    } cases[] = {
        {"base", "base"},
        {"base:latest", "base"},
        {"docker.io/library/base:latest", "base"},
        {"a/b:1", "a/b:1"},
        {"localhost:5000/x:latest", "localhost:5000/x"},
        {"Mixed.Case_1-2", "Mixed.Case_1-2"},
        {"x@" DIGEST_A, "x@" DIGEST_A},
        {"", NULL},
        {"a b", NULL},
        {"im-x", NULL},
        {"..", NULL},
        {"a/", NULL},
        {"a:b:c", NULL},
        {"library/", NULL},
        {"a/..", NULL},
    };
    char name[IMAGE_REF_SIZE];
    struct err e;

    for (size_t i = 0; i < array_len(cases); i++) {
        int r = image_name_normalize(cases[i].text, name, &e);
        if ((r == 0) != (cases[i].name != NULL))
            fail_msg("'%s': %d", cases[i].text, r);
        if (r == 0)
            assert_string_equal(name, cases[i].name);
    }
}

static int read_manifest(const char *text, struct manifest *m, struct err *e)
{
    return manifest_read(text, strlen(text), "amd64", m, e);
}

#define LAYER(d) "{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"" d "\",\"size\":5}"
#define CONFIG "\"config\":{\"digest\":\"" DIGEST_B "\",\"size\":7}"

static void test_manifests(void **state)
{
    struct manifest *m = mem_zalloc(sizeof *m);
    struct err e;

    assert_int_equal(read_manifest("{\"schemaVersion\":2," CONFIG ",\"layers\":[" LAYER(DIGEST_A) "]}", m, &e), 0);
    assert_int_equal(m->nlayers, 1);
    assert_string_equal(m->layers[0].digest, DIGEST_A);
    assert_int_equal(m->layers[0].size, 5);
    assert_string_equal(m->config.digest, DIGEST_B);
    assert_int_equal(
        read_manifest(
            "{\"schemaVersion\":2,\"manifests\":[{\"platform\":{\"os\":\"linux\",\"architecture\":\"arm64\"},"
            "\"digest\":\"" DIGEST_A
            "\",\"size\":1},{\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"},"
            "\"digest\":\"" DIGEST_B "\",\"size\":2}]}",
            m, &e),
        0);
    assert_true(m->is_index);
    assert_string_equal(m->chosen.digest, DIGEST_B);
    static const struct {
        const char *text;
        enum err_code code;
    } bad[] = {
        {"", ERR_MALFORMED},
        {"[]", ERR_INVALID},
        {"{\"schemaVersion\":1}", ERR_UNSUPPORTED},
        {"{\"schemaVersion\":2}", ERR_INVALID},
        {"{\"schemaVersion\":2," CONFIG "}", ERR_INVALID},
        {"{\"schemaVersion\":2," CONFIG ",\"layers\":[{\"mediaType\":\"application/wasm\"}]}", ERR_UNSUPPORTED},
        {"{\"schemaVersion\":2," CONFIG ",\"layers\":[" LAYER("sha256:12") "]}", ERR_INVALID},
        {"{\"schemaVersion\":2,\"config\":{\"digest\":\"" DIGEST_B "\",\"size\":-1},\"layers\":[]}", ERR_INVALID},
        {"{\"schemaVersion\":2,\"manifests\":[]}", ERR_NOT_FOUND},
    };
    for (size_t i = 0; i < array_len(bad); i++) {
        assert_int_equal(read_manifest(bad[i].text, m, &e), -1);
        if (e.code != bad[i].code)
            fail_msg("%s: %s", bad[i].text, e.message);
    }
    free(m);
}

static void test_configurations(void **state)
{
    static const char good[] =
        "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{\"User\":\"u\"},\"rootfs\":{\"diff_ids\":[\"" DIGEST_A
        "\"]},\"secret\":1}";
    struct manifest_config c;
    struct err e;

    assert_int_equal(manifest_config_read(good, strlen(good), "amd64", 1, &c, &e), 0);
    assert_string_equal(c.diff_ids[0], DIGEST_A);
    assert_null(strstr(c.text, "secret"));
    assert_non_null(strstr(c.text, "\"User\":\"u\""));
    manifest_config_done(&c);
    assert_int_equal(manifest_config_read(good, strlen(good), "arm64", 1, &c, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(manifest_config_read(good, strlen(good), "amd64", 2, &c, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
}

static void test_challenges(void **state)
{
    struct registry_challenge c;

    assert_true(registry_challenge_read(
        "Bearer realm=\"https://a/t?x=\\\"1\\\"\",service=\"s, x\",scope=\"repository:a:pull\"",
        &c));
    assert_true(c.is_bearer);
    assert_string_equal(c.realm, "https://a/t?x=\"1\"");
    assert_string_equal(c.service, "s, x");
    assert_string_equal(c.scope, "repository:a:pull");
    assert_true(registry_challenge_read("basic realm=x", &c));
    assert_true(c.is_basic);
    assert_true(registry_challenge_read("Basic", &c));
    assert_false(registry_challenge_read("", &c));
    assert_false(registry_challenge_read("Negotiate", &c));
    assert_false(registry_challenge_read("Bearer service=x", &c));
    assert_false(registry_challenge_read("Bearer realm=\"x", &c));
}

static void test_registries_of_amazon(void **state)
{
    static const struct {
        const char *host, *region, *url;
    } good[] = {
        {"012345678901.dkr.ecr.us-east-1.amazonaws.com", "us-east-1",
         "https://api.ecr.us-east-1.amazonaws.com/"},
        {"012345678901.dkr.ecr.cn-north-1.amazonaws.com.cn", "cn-north-1",
         "https://api.ecr.cn-north-1.amazonaws.com.cn/"},
        {"012345678901.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1",
         "https://ecr-fips.us-gov-west-1.amazonaws.com/"},
        {"012345678901.dkr-ecr.eu-west-1.on.aws", "eu-west-1", "https://ecr.eu-west-1.api.aws/"},
    };
    static const char *const bad[] = {
        "", "docker.io", "dkr.ecr.us-east-1.amazonaws.com", ".dkr.ecr.us-east-1.amazonaws.com", "1.dkr.ecr..amazonaws.com",
        "1.dkr.ecr.us-east-1.amazonaws.com.example", "1.dkr.ecr.us-east-1.amazonaws.com:80", "1.dkr.ecr.us.east.amazonaws.com",
        "1.dkr.ecr.US.amazonaws.com", "a.dkr.ecr.us-east-1.amazonaws.com", "1.dkr.ecr.us-east-1", "public.ecr.aws",
        "1.dkr.ecr.u@x.amazonaws.com",
        "1.dkr.ecr.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.amazonaws.com",
    };
    struct ecr_place place;

    for (size_t i = 0; i < array_len(good); i++) {
        assert_true(ecr_place_read(good[i].host, &place));
        assert_string_equal(place.region, good[i].region);
        assert_string_equal(place.url, good[i].url);
    }
    for (size_t i = 0; i < array_len(bad); i++)
        assert_false(ecr_place_read(bad[i], &place));
}

static void test_answers_of_amazon(void **state)
{
    static const char *const bad[] = {
        "", "null", "{\"authorizationData\": {}}", "{\"authorizationData\": [null]}",
        "{\"authorizationData\": [{\"authorizationToken\": \"\"}]}",
        "{\"authorizationData\": [{\"authorizationToken\": \"QVdTOg==\"}]}",              /* "AWS:" */
        "{\"authorizationData\": [{\"authorizationToken\": \"QVdTOmEAYg==\"}]}",          /* with a NUL */
        "{\"authorizationData\": [{\"authorizationToken\": \"QVdTOmE6Yg==\", \"expiresAt\": 99.5}]}",
    };
    const char *text = "{\"authorizationData\": [{\"authorizationToken\": \"QVdTOmE6Yg==\", \"expiresAt\": 1.0E2}]}";
    char *password = NULL;
    struct err e;

    assert_int_equal(ecr_answer_read(text, strlen(text), 99.5, &password, &e), 0);
    assert_string_equal(password, "a:b");
    free(password);
    for (size_t i = 0; i < array_len(bad); i++)
        assert_int_equal(ecr_answer_read(bad[i], strlen(bad[i]), 99.5, &password, &e), -1);
}

static void test_pull_messages(void **state)
{
    struct image_pull m = {.ref = "a/b:1",
                           .auth = IMAGE_AUTH_AWS,
                           .user = "AKIA",
                           .password = "p",
                           .session = "s",
                           .region = "eu-west-1",
                           .max_bytes = 7};
    struct image_pull got;
    uint8_t out[1024];
    size_t n = image_pull_encode(&m, out, sizeof out);

    assert_true(n > 0);
    assert_int_equal(image_pull_decode(&got, out, n), 0);
    assert_memory_equal(&got, &m, sizeof m);
    assert_true(image_pull_decode(&got, out, n - 1) < 0);
    m.auth = IMAGE_AUTH_MAX_;
    n = image_pull_encode(&m, out, sizeof out);
    assert_true(image_pull_decode(&got, out, n) < 0);
}

static int fetch_decoded(const struct image_fetch *m)
{
    struct image_fetch got;
    uint8_t out[4096];
    size_t n = image_fetch_encode(m, out, sizeof out);

    assert_true(n > 0);
    if (image_fetch_decode(&got, out, n) < 0)
        return -1;
    assert_string_equal(got.url, m->url);
    assert_string_equal(got.name, m->name);
    assert_string_equal(got.checksum, m->checksum);
    assert_string_equal(got.known, m->known);
    assert_int_equal(got.max_bytes, m->max_bytes);
    assert_int_equal(got.timeout_s, m->timeout_s);
    assert_int_equal(got.policy_len, m->policy_len);
    assert_memory_equal(got.policy, m->policy, m->policy_len);
    return 0;
}

static void test_fetch_messages(void **state)
{
    static const char *const bad[] = {"", ".", "..", "a/b", "/"};
    struct image_fetch m = {.url = "https://example.com/x",
                            .name = "x",
                            .max_bytes = 1,
                            .timeout_s = 1,
                            .policy = "p",
                            .policy_len = 1};

    assert_int_equal(fetch_decoded(&m), 0);
    memset(m.checksum, 'a', 64);
    memset(m.known, '1', 64);
    assert_int_equal(fetch_decoded(&m), 0);
    m.known[63] = '/';
    assert_int_equal(fetch_decoded(&m), -1);
    m.known[0] = '\0';
    m.checksum[0] = 'A';
    assert_int_equal(fetch_decoded(&m), -1);
    m.checksum[0] = '\0';
    for (size_t i = 0; i < array_len(bad); i++) {
        (void)snprintf(m.name, sizeof m.name, "%s", bad[i]);
        assert_int_equal(fetch_decoded(&m), -1);
    }
    (void)snprintf(m.name, sizeof m.name, "...");
    assert_int_equal(fetch_decoded(&m), 0);
    m.max_bytes = 0;
    assert_int_equal(fetch_decoded(&m), -1);
    m.max_bytes = 1;
    m.timeout_s = 0;
    assert_int_equal(fetch_decoded(&m), -1);
}

static bool is_private(const char *text)
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    struct sockaddr_in in = {.sin_family = AF_INET};

    if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
        return address_is_private((struct sockaddr *)&in);
    assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
    return address_is_private((struct sockaddr *)&in6);
}

static void test_addresses(void **state)
{
    static const char *const private[] = {"0.0.0.0",
                                          "10.1.2.3",
                                          "100.64.0.1",
                                          "100.127.255.255",
                                          "127.0.0.1",
                                          "169.254.169.254",
                                          "172.16.0.1",
                                          "172.31.255.255",
                                          "192.168.1.1",
                                          "198.18.0.1",
                                          "224.0.0.1",
                                          "255.255.255.255",
                                          "::",
                                          "::1",
                                          "fe80::1",
                                          "fd00::1",
                                          "ff02::1",
                                          "::ffff:127.0.0.1",
                                          "::ffff:10.0.0.1",
                                          "64:ff9b::7f00:1",
                                          "2002:7f00:1::",
                                          "::127.0.0.1"};
    static const char *const public[] = {"1.1.1.1",        "100.63.255.255",  "100.128.0.0",
                                         "172.15.0.1",     "172.32.0.1",      "192.169.0.1",
                                         "198.20.0.1",     "223.255.255.255", "2606:4700::1111",
                                         "::ffff:8.8.8.8", "64:ff9b::808:808"};

    for (size_t i = 0; i < array_len(private); i++)
        if (!is_private(private[i]))
            fail_msg("%s", private[i]);
    for (size_t i = 0; i < array_len(public); i++)
        if (is_private(public[i]))
            fail_msg("%s", public[i]);
}

static void test_plan(void **state)
{
    struct fetch_plan *plan = mem_zalloc(sizeof *plan), *got = mem_zalloc(sizeof *got);
    uint8_t out[4096];

    memcpy(plan->digest, DIGEST_A, IMAGE_DIGEST_SIZE);
    memcpy(plan->source, DIGEST_B, IMAGE_DIGEST_SIZE);
    plan->nlayers = 2;
    for (int i = 0; i < 2; i++) {
        memcpy(plan->layers[i].blob.digest, DIGEST_A, IMAGE_DIGEST_SIZE);
        memcpy(plan->layers[i].diff_id, DIGEST_B, IMAGE_DIGEST_SIZE);
        plan->layers[i].blob.size = 7;
    }
    size_t n = fetch_plan_encode(plan, out, sizeof out);
    assert_int_equal(fetch_plan_decode(got, out, n), 0);
    assert_memory_equal(got, plan, sizeof *got);
    for (size_t cut = 0; cut < n; cut++)
        assert_int_not_equal(fetch_plan_decode(got, out, cut), 0);
    out[4 + 3] = 'X';                   /* in a digest */
    assert_int_not_equal(fetch_plan_decode(got, out, n), 0);
    free(plan);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_manifests),
        cmocka_unit_test(test_configurations),
        cmocka_unit_test(test_challenges),
        cmocka_unit_test(test_registries_of_amazon),
        cmocka_unit_test(test_answers_of_amazon),
        cmocka_unit_test(test_pull_messages),
        cmocka_unit_test(test_fetch_messages),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
