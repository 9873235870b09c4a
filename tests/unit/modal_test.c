/*
 * modal_test.c - the pure parts of the Modal dialect: ids, definitions of images, texts, router URLs, tokens, sealing
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/modal/image_def.h"
#include "api/modal/network_def.h"
#include "api/modal/sandbox_def.h"
#include "api/modal/sandbox_view.h"
#include "api/modal/utf8.h"
#include "base/mem.h"
#include "base/modal_ids.h"
#include "http/proto_nul.h"
#include "ipc/record.h"
#include "net/pubkey.h"
#include "net/seal.h"
#include "net/signer.h"

/* --- ids ----------------------------------------------------------------------------------------------------------- */

static void ids_go_there_and_back(void **state)
{
    char id[ID_SIZE], out[ID_SIZE], back[ID_SIZE];
    enum modal_generation g;

    for (int i = 0; i < 1000; i++) {
        id_make(id, "sb-");
        assert_true(id_is(id, "sb-"));
        modal_sandbox_id(id, MODAL_V1, out);
        assert_string_equal(out, id);
        assert_true(modal_sandbox_parse(out, back, &g));
        assert_int_equal(g, MODAL_V1);
        assert_string_equal(back, id);

        modal_sandbox_id(id, MODAL_V2, out);
        assert_int_equal(strlen(out), 3 + 26);
        assert_true(out[3] >= '0' && out[3] <= '7');
        assert_int_equal(strspn(out + 3, "0123456789ABCDEFGHJKMNPQRSTVWXYZ"), 26);
        assert_true(modal_sandbox_parse(out, back, &g));
        assert_int_equal(g, MODAL_V2);
        assert_string_equal(back, id);

        for (g = MODAL_V1; g <= MODAL_V2; g++) {
            enum modal_generation seen;
            modal_task_id(id, g, out);
            assert_int_equal(out[strlen(out) - 1], g == MODAL_V1 ? 'S' : 'V');
            assert_true(modal_task_parse(out, back, &seen));
            assert_int_equal(seen, g);
            assert_string_equal(back, id);
        }
    }
}

static void known_ids(void **state)
{
    char out[ID_SIZE];

    modal_sandbox_id("sb-0000000000000000000000", MODAL_V2, out);
    assert_string_equal(out, "sb-00000000000000000000000000");
    modal_sandbox_id("sb-000000000000000000000z", MODAL_V2, out);
    assert_string_equal(out, "sb-0000000000000000000000001X");
    /* over 128 bits: it has no ULID */
    modal_sandbox_id("sb-zzzzzzzzzzzzzzzzzzzzzz", MODAL_V2, out);
    assert_string_equal(out, "sb-zzzzzzzzzzzzzzzzzzzzzz");
}

static void bad_ids(void **state)
{
    static const char *const bad[] = {
        "", "sb-", "sb-000000000000000000000", "sb-00000000000000000000000", "ta-0000000000000000000000",
        "sb-0000000000000000000000000U", "sb-0000000000000000000000000a", "sb-80000000000000000000000000",
        "sb-000000000000000000000000000", "sb-00000000000000000000000000 ", "xx-00000000000000000000000000",
    };
    static const char *const bad_tasks[] = {
        "", "ta-", "ta-0000000000000000000000", "ta-0000000000000000000000000X", "ta-000000000000000000000000S",
        "sb-0000000000000000000000000S", "ta-00000000000000000000-0000S",
    };
    char out[ID_SIZE];

    for (size_t i = 0; i < array_len(bad); i++)
        assert_false(modal_sandbox_parse(bad[i], out, NULL));
    for (size_t i = 0; i < array_len(bad_tasks); i++)
        assert_false(modal_task_parse(bad_tasks[i], out, NULL));
}

/* --- images -------------------------------------------------------------------------------------------------------- */

static void definitions(void **state)
{
    static const struct {
        const char *lines[6];
        enum image_def_kind kind;
        const char *ref;
    } cases[] = {
        {{"FROM alpine:3.21"}, IMAGE_DEF_REF, "alpine:3.21"},
        {{"from  --platform=linux/amd64 ghcr.io/a/b@sha256:00 AS x"}, IMAGE_DEF_REF, "ghcr.io/a/b@sha256:00"},
        {{"", "# a comment", "FROM base"}, IMAGE_DEF_BASE, "base"},
        {{"FROM base", "CMD [\"sh\"]", "LABEL a=b", "EXPOSE 80"}, IMAGE_DEF_BUILD, "base"},
        {{"FROM base", "RUN true"}, IMAGE_DEF_BUILD, "base"},
        {{"FROM base", "ENV A=b"}, IMAGE_DEF_BUILD, "base"},
        {{"FROM base", "FROM other"}, IMAGE_DEF_BUILD, "base"},
        {{"FROM python:3.13-slim", "RUN apt-get update"}, IMAGE_DEF_REF, "python:3.13-slim"},
        {{"FROM python:3.13-slim", "RUN apt-get update", "CMD [\"sleep\", \"1\"]"}, IMAGE_DEF_BUILD, "python:3.13-slim"},
        {{"FROM alpine", "RUN apt-get update"}, IMAGE_DEF_BUILD, "alpine"},
        {{"RUN true"}, IMAGE_DEF_BUILD, ""},
        {{""}, IMAGE_DEF_EMPTY, ""},
    };

    for (size_t i = 0; i < array_len(cases); i++) {
        struct image_def d;
        size_t n = 0;
        while (n < 6 && cases[i].lines[n] != NULL)
            n++;
        image_def_read((char *const *)(uintptr_t)cases[i].lines, n, &d);
        assert_int_equal(d.kind, cases[i].kind);
        assert_string_equal(d.ref, cases[i].ref);
    }
}

static void references(void **state)
{
    assert_true(image_def_is_tuning("RUN apt-get update"));
    assert_false(image_def_is_tuning("RUN apt-get install -y git"));
    assert_true(image_ref_is_debian("debian:bookworm-slim"));
    assert_true(image_ref_is_debian("docker.io/library/python:3.11-slim"));
    assert_false(image_ref_is_debian("python:3.11-alpine"));
    assert_false(image_ref_is_debian("debianish"));
    assert_false(image_ref_is_debian("me/debian"));
}

static void image_names(void **state)
{
    char out[IMAGE_REF_MAX];

    assert_true(image_tag_name("tool:latest", "", out));
    assert_string_equal(out, "tool");
    assert_true(image_tag_name("ws/dev/tool:v1", "dev", out));
    assert_string_equal(out, "dev/tool:v1");
    assert_false(image_tag_name("tool:", "", out));
    assert_false(image_tag_name("to ol:1", "", out));
    assert_false(image_tag_name(":1", "", out));
}

/* --- texts --------------------------------------------------------------------------------------------------------- */

static void cut_texts(void **state)
{
    static const char whole[] = "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80z";
    auto_buf out = {0};

    /* wherever it is cut, the parts join to the same */
    for (size_t cut = 0; cut < sizeof whole; cut++) {
        buf_init(&out, 100);
        size_t used = utf8_take(whole, cut, false, &out);
        assert_true(used <= cut && cut - used <= 3);
        assert_true(out.len == 0 || utf8_is_valid(buf_str(&out)));
        used += utf8_take(whole + used, sizeof whole - 1 - used, true, &out);
        assert_int_equal(used, sizeof whole - 1);
        assert_string_equal(buf_str(&out), whole);
        buf_done(&out);
    }
}

static void broken_texts(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\xff", "\xef\xbf\xbd"},
        {"a\xc3", "a\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80x", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };

    for (size_t i = 0; i < array_len(cases); i++) {
        auto_buf out = {0};
        buf_init(&out, 100);
        assert_int_equal(utf8_take(cases[i].in, strlen(cases[i].in), true, &out), strlen(cases[i].in));
        assert_string_equal(buf_str(&out), cases[i].out);
        assert_false(utf8_is_valid(cases[i].in));
    }
}

static const ProtobufCMessageDescriptor *request_of(const char *rpc)
{
    for (size_t i = 0; i < nrpcs; i++)
        if (strcmp(rpcs[i].name, rpc) == 0)
            return rpcs[i].request;
    fail_msg("no row %s", rpc);
    return NULL;
}

#define NUL_FIELD(rpc, bytes) proto_nul_field(request_of(rpc), bytes, sizeof(bytes) - 1)

static void texts_with_a_nul(void **state)
{
    assert_null(NUL_FIELD("AppGetOrCreate", ""));
    assert_null(NUL_FIELD("AppGetOrCreate", "\x0a\x02" "ab" "\x18\x00"));
    assert_string_equal(NUL_FIELD("AppGetOrCreate", "\x0a\x02" "a\x00" "\x18\x01"), "app_name");
    assert_string_equal(NUL_FIELD("AppGetOrCreate", "\x18\x01\x0a\x01\x00"), "app_name");
    /* In a message of a message; but not in bytes, nor in a field that nobody knows. */
    assert_string_equal(NUL_FIELD("SandboxCreateV2", "\x12\x04\x0a\x02" "a\x00"), "entrypoint_args");
    assert_null(NUL_FIELD("SandboxCreateV2", "\x12\x04\x0a\x02" "ab"));
    assert_null(NUL_FIELD("QueuePut", "\x22\x02\x00\x00"));
    assert_null(NUL_FIELD("AppGetOrCreate", "\xfa\x3f\x01\x00"));
    /* Fixed numbers are passed over. */
    assert_string_equal(NUL_FIELD("AppGetOrCreate", "\xf9\x3f" "12345678" "\xfd\x3f" "1234" "\x0a\x01\x00"), "app_name");
    /* Malformed ones end. */
    assert_null(NUL_FIELD("AppGetOrCreate", "\x0a"));
    assert_null(NUL_FIELD("AppGetOrCreate", "\x0a\x7f\x00"));
    assert_null(NUL_FIELD("AppGetOrCreate", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
    assert_null(NUL_FIELD("AppGetOrCreate", "\x0b\x0a\x01\x00"));
}

static void cidrs(void **state)
{
    static const char *const good[] = {"10.0.0.0/8", "0.0.0.0/0", "192.168.1.1", "2001:db8::/32", "::1"};
    static const char *const bad[] = {"", "/8", "10.0.0/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "::/129", "name/8"};

    for (size_t i = 0; i < array_len(good); i++)
        assert_true(cidr_is_valid(good[i]));
    for (size_t i = 0; i < array_len(bad); i++)
        assert_false(cidr_is_valid(bad[i]));
}

static void router_urls(void **state)
{
    static const struct {
        const char *authority, *host, *url;
    } cases[] = {
        {"localhost:7070", "", "https://localhost:7071"}, {"example.org", "", "https://example.org:7071"},
        {"[::1]:7070", "", "https://[::1]:7071"},         {"", "", "https://127.0.0.1:7071"},
        {"10.0.0.1:1", "router.example.org", "https://router.example.org:7071"},
    };

    for (size_t i = 0; i < array_len(cases); i++) {
        auto_free char *url = view_router_url(cases[i].authority, cases[i].host, 7071);
        assert_string_equal(url, cases[i].url);
    }
}

/* --- results ------------------------------------------------------------------------------------------------------- */

static void results(void **state)
{
    static const struct {
        enum end_reason reason;
        int code, signal, status, exitcode;
    } cases[] = {
        {END_EXITED, 0, 0, 1, 0},         {END_EXITED, 7, 0, 2, 7},         {END_SIGNALED, -1, 9, 2, 137},
        {END_OOM_LIMIT, -1, 9, 2, 137},   {END_TERMINATED, 0, 0, 3, 137},   {END_TIMEOUT, -1, 9, 4, 124},
        {END_START_FAILED, -1, 0, 5, 1},  {END_NODE_LOST, -1, 0, 6, 1},     {END_IDLE_TIMEOUT, -1, 15, 7, 0},
        {END_EVICTED, -1, 9, 8, 137},
    };

    for (size_t i = 0; i < array_len(cases); i++) {
        struct sandbox_row row = {.code = cases[i].code, .signal = cases[i].signal};
        M(GenericResult) result;
        (void)snprintf(row.reason, sizeof row.reason, "%s", end_reason_name((uint8_t)cases[i].reason));
        view_result(&row, &result);
        assert_int_equal(result.status, cases[i].status);
        assert_int_equal(result.exitcode, cases[i].exitcode);
    }
}

static void rows_of_the_table(void **state)
{
    for (size_t i = 0; i < nrpcs; i++) {
        assert_true((rpcs[i].support == SUPPORT_NONE) == (rpcs[i].fn == NULL));
        assert_true((rpcs[i].support == SUPPORT_FULL) == (rpcs[i].note[0] == '\0'));
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(rpcs[i].name, rpcs[k].name);
    }
}

/* --- tokens and sealing -------------------------------------------------------------------------------------------- */

static size_t decode64(const char *text, size_t n, unsigned char *out)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned v = 0, bits = 0;
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        const char *at = strchr(alphabet, text[i]);
        assert_non_null(at);
        v = v << 6 | (unsigned)(at - alphabet);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[len++] = (unsigned char)(v >> bits);
        }
    }
    return len;
}

static void tokens_are_signed(void **state)
{
    static const char claims[] = "{\"exp\":1,\"task_id\":\"ta-1\"}";
    char path[] = "/tmp/quicksand-signer-XXXXXX";
    unsigned char bytes[512];
    struct err e;

    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    (void)unlink(path);
    struct net_signer *s = net_signer_open(path, &e), *again = net_signer_open(path, &e);
    assert_non_null(s);
    assert_non_null(again);
    assert_string_equal(net_signer_kid(s), net_signer_kid(again));
    struct net_pubkey *key = net_pubkey_load(net_signer_public_pem(again), &e);
    assert_non_null(key);
    for (int i = 0; i < 50; i++) {
        auto_free char *jwt = net_signer_jwt(s, claims, &e);
        assert_non_null(jwt);
        char *dot = strchr(jwt, '.'), *dot2 = strrchr(jwt, '.');
        assert_true(dot != NULL && dot2 != dot);
        size_t n = decode64(dot + 1, (size_t)(dot2 - dot - 1), bytes);
        assert_int_equal(n, strlen(claims));
        assert_memory_equal(bytes, claims, n);
        assert_int_equal(decode64(dot2 + 1, strlen(dot2 + 1), bytes), NET_SIGNATURE_SIZE);
        assert_true(net_pubkey_verify(key, jwt, (size_t)(dot2 - jwt), bytes));
        jwt[5] ^= 1;
        assert_false(net_pubkey_verify(key, jwt, (size_t)(dot2 - jwt), bytes));
    }
    net_pubkey_free(key);
    net_signer_free(s);
    net_signer_free(again);
    assert_int_equal(unlink(path), 0);
}

static void sealing(void **state)
{
    static const char text[] = "{\"PASSWORD\":\"hunter2\"}";
    unsigned char key[NET_SEAL_KEY_SIZE] = {1}, sealed[sizeof text + NET_SEAL_EXTRA], open[sizeof sealed];
    size_t n = 0;
    struct err e;

    assert_int_equal(net_seal(key, "st-1", text, sizeof text, sealed, &e), 0);
    assert_null(memmem(sealed, sizeof sealed, "hunter2", 7));
    assert_int_equal(net_unseal(key, "st-1", sealed, sizeof sealed, open, &n, &e), 0);
    assert_int_equal(n, sizeof text);
    assert_memory_equal(open, text, n);
    assert_int_equal(net_unseal(key, "st-2", sealed, sizeof sealed, open, &n, &e), -1);
    for (size_t i = 0; i < sizeof sealed; i++) {
        sealed[i] ^= 0x40;
        assert_int_equal(net_unseal(key, "st-1", sealed, sizeof sealed, open, &n, &e), -1);
        sealed[i] ^= 0x40;
    }
    assert_int_equal(net_unseal(key, "st-1", sealed, NET_SEAL_EXTRA - 1, open, &n, &e), -1);
    key[0] = 2;
    assert_int_equal(net_unseal(key, "st-1", sealed, sizeof sealed, open, &n, &e), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_go_there_and_back), cmocka_unit_test(known_ids),    cmocka_unit_test(bad_ids),
        cmocka_unit_test(definitions),           cmocka_unit_test(references),   cmocka_unit_test(image_names),
        cmocka_unit_test(cut_texts),             cmocka_unit_test(broken_texts), cmocka_unit_test(cidrs),
        cmocka_unit_test(router_urls),           cmocka_unit_test(results),      cmocka_unit_test(rows_of_the_table),
        cmocka_unit_test(tokens_are_signed),     cmocka_unit_test(sealing),      cmocka_unit_test(texts_with_a_nul),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
