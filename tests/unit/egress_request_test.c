/*
 * egress_request_test.c - what changes a request on its way and follows the response: heads, signatures, blackened words
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "egress/open/inject.h"
#include "egress/open/redact.h"
#include "egress/open/request.h"
#include "egress/open/response.h"
#include "egress/open/sigv4.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void take(struct request *r, const char *text)
{
    assert_true(request_from_head(r, (const uint8_t *)text, strlen(text)));
}

static void requests(void **state)
{
    struct request r;
    auto_buf out = {0};

    (void)state;
    buf_init(&out, 4096);
    take(&r, "GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nX-Key:  old \r\nx-key: older\r\nB:\r\n\r\n");
    assert_string_equal(request_path(&r), "/x?y");
    assert_string_equal(request_get(&r, "X-KEY"), "old");
    assert_true(request_set(&r, "x-Key", "new"));
    assert_true(request_set(&r, "C", "d"));
    request_remove(&r, "b");
    request_set_target(&r, "/z");
    request_write(&r, &out);
    assert_string_equal(buf_str(&out), "GET /z HTTP/1.1\r\nHost: a.test\r\nX-Key: new\r\nC: d\r\n\r\n");
    request_done(&r);
}

static void too_many_fields(void **state)
{
    struct request r;

    (void)state;
    take(&r, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    for (size_t i = 1; i < REQUEST_FIELDS_MAX; i++)
        assert_true(request_add(&r, "A", "b"));
    assert_false(request_add(&r, "A", "b"));
    request_done(&r);
}

/* Vectors that AWS publishes for implementers: 20150830T123600Z, us-east-1, "service". */
static void signatures(void **state)
{
    static const struct {
        const char *method, *target, *signature;
    } rows[] = {
        {"GET", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"GET", "/example/..", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"GET", "//", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"GET", "/./", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {"GET", "/?Param2=value2&Param1=value1", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
        {"GET", "/\xe1\x88\xb4", "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
        {"POST", "/", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    };
    const struct sigv4 s = {.key_id = "AKIDEXAMPLE", .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                            .service = "service", .region = "us-east-1", .host = "example.amazonaws.com",
                            .payload = EMPTY, .now_s = 1440938160};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request r;
        auto_free char *head = mem_printf("%s %s HTTP/1.1\r\nHost: example.amazonaws.com\r\n\r\n", rows[i].method,
                                          rows[i].target);
        auto_free char *want = mem_printf("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
                                          "SignedHeaders=host;x-amz-date, Signature=%s", rows[i].signature);
        take(&r, head);
        assert_null(sigv4_sign(&r, &s));
        assert_string_equal(request_get(&r, "Authorization"), want);
        assert_string_equal(request_get(&r, "X-Amz-Date"), "20150830T123600Z");
        request_done(&r);
    }
}

/* The published example of S3; region, service and covered fields are those of the signature of a key that is none. */
static void signature_replaced(void **state)
{
    struct request r;
    struct sigv4 s = {.key_id = "AKIAIOSFODNN7EXAMPLE", .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                      .service = "", .region = "", .host = "examplebucket.s3.amazonaws.com", .now_s = 1369353600};

    (void)state;
    take(&r, "GET /test.txt HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\nRange: bytes=0-9\r\n"
             "X-Amz-Content-Sha256: " EMPTY "\r\nX-Amz-Security-Token: of-the-placeholder\r\nUser-Agent: any\r\n"
             "Authorization: AWS4-HMAC-SHA256 Credential=NONE/20130101/us-east-1/s3/aws4_request, "
             "SignedHeaders=host;range;x-amz-date, Signature=00\r\n\r\n");
    assert_false(sigv4_needs_body(&r, ""));
    assert_null(sigv4_sign(&r, &s));
    assert_string_equal(request_get(&r, "Authorization"),
                        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
                        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
                        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    assert_null(request_get(&r, "X-Amz-Security-Token"));
    request_remove(&r, "Authorization");
    assert_string_equal(sigv4_sign(&r, &s), "the request has no signature that names a region, and the rule none either");
    request_done(&r);
}

/* Cut at every place: the same comes out. */
static void words_are_blackened(void **state)
{
    static const char text[] = "a secret-word, secret-w, secret-secret-word-long and word-long-tail secret-";
    static const char want[] = "a ***********, secret-w, secret-**************** and ************** secret-";
    size_t n = sizeof text - 1;

    (void)state;
    for (size_t cut = 0; cut <= n; cut++) {
        struct redact r;
        auto_buf out = {0};
        buf_init(&out, 4096);
        redact_init(&r);
        redact_word(&r, "secret-word");
        redact_word(&r, "secret-word-long");
        redact_word(&r, "word-long-tail");
        redact_word(&r, "a");               /* too short to be one */
        redact_feed(&r, text, cut, &out);
        redact_feed(&r, text + cut, n - cut, &out);
        redact_end(&r, &out);
        assert_string_equal(buf_str(&out), want);
        redact_done(&r);
    }
}

/* Fed byte by byte or at once, to its end; the bytes used. */
/* What comes in pieces with pauses is shown up to the first half, and the rest of it blackened. */
static void pauses(void **state)
{
    static const char text[] = "x 0123456789abcdefghij y 0123456789a";
    size_t n = sizeof text - 1;

    (void)state;
    for (size_t cut = 0; cut <= n; cut++) {
        struct redact r;
        auto_buf out = {0};
        buf_init(&out, 4096);
        redact_init(&r);
        redact_word(&r, "0123456789abcdefghij");
        redact_word(&r, "hij y");
        redact_feed(&r, text, cut, &out);
        redact_pause(&r, &out);
        size_t begun = cut > 2 && cut < 22 ? cut - 2 : cut > 25 ? cut - 25 : 0;
        assert_int_equal(out.len, begun >= 10 ? cut - begun : cut);
        redact_feed(&r, text + cut, n - cut, &out);
        redact_pause(&r, &out);
        redact_end(&r, &out);
        char want[] = "x ******************** y 0123456789a";
        if (begun < 10 && cut < 22)
            memcpy(want + 2, text + 2, begun);
        assert_string_equal(buf_str(&out), want);
        redact_done(&r);
    }
}

static ssize_t answer(const char *text, size_t step, struct redact *words, bool is_head, struct buf *out)
{
    struct response r;
    size_t n = strlen(text), at = 0;
    ssize_t used = 0;

    response_init(&r);
    response_begin(&r, is_head, false, words);
    while (at < n && r.state != RESPONSE_DONE) {
        used = response_feed(&r, (const uint8_t *)text + at, n - at < step ? n - at : step, out);
        if (used < 0)
            break;
        at += (size_t)used;
    }
    if (used >= 0 && r.state != RESPONSE_DONE && !response_eof(&r, out))
        used = -1;
    response_done(&r);
    return used < 0 ? -1 : (ssize_t)at;
}

static void responses(void **state)
{
    static const struct {
        const char *text;
        ssize_t used;               /* -1: refused */
        bool is_head;
    } rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200", 40, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 38, true},
        {"HTTP/1.1 204 No\r\n\r\nx", 19, false},
        {"HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 38, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 59, false},
        {"HTTP/1.0 200 OK\r\n\r\nto the end", 29, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", -1, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi", -1, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", -1, false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhix\r\n0\r\n\r\n", -1, false},
        {"HTTP/1.1 101 Switch\r\n\r\n", -1, false},
        {"HTTP/2 200 OK\r\n\r\n", -1, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t step = 1; step < 1000; step += 998) {
            auto_buf out = {0};
            buf_init(&out, 4096);
            ssize_t want = rows[i].used;
            assert_int_equal(answer(rows[i].text, step, NULL, rows[i].is_head, &out), want);
            if (want >= 0) {
                assert_int_equal(out.len, want);
                assert_memory_equal(out.data, rows[i].text, (size_t)want);
            }
        }
    }
}

/* Where a response has begun its status is not that of the one before. */
static void response_is_its_own(void **state)
{
    static const char first[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", second[] = "HTTP/1.1 101 Switching\r\n\r\n";
    struct response r;
    auto_buf out = {0};

    (void)state;
    buf_init(&out, 4096);
    response_init(&r);
    response_begin(&r, false, false, NULL);
    assert_int_equal(response_feed(&r, (const uint8_t *)first, sizeof first - 1, &out), sizeof first - 1);
    assert_int_equal(r.status, 200);
    response_begin(&r, false, true, NULL);
    assert_int_equal(response_feed(&r, (const uint8_t *)second, 10, &out), 10);
    assert_int_equal(r.state, RESPONSE_HEAD);
    assert_int_equal(r.status, 0);
    assert_int_equal(response_feed(&r, (const uint8_t *)second + 10, sizeof second - 11, &out), sizeof second - 11);
    assert_int_equal(r.state, RESPONSE_OPAQUE);
    response_done(&r);
}

/* A word that two chunks share; what is packed cannot be read, so it is refused. */
static void responses_are_blackened(void **state)
{
    struct redact r;
    auto_buf out = {0}, none = {0};

    (void)state;
    buf_init(&out, 4096);
    buf_init(&none, 4096);
    redact_init(&r);
    redact_word(&r, "secret-word");
    assert_true(answer("HTTP/1.1 200 OK\r\nX: secret-word\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "8\r\na secret\r\n6\r\n-wordb\r\n0\r\nT: secret-word\r\n\r\n", 1000, &r, false, &out) > 0);
    assert_string_equal(buf_str(&out), "HTTP/1.1 200 OK\r\nX: ***********\r\nTransfer-Encoding: chunked\r\n\r\n"
                                       "2\r\na \r\nc\r\n***********b\r\n0\r\n\r\n");
    assert_int_equal(answer("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nx", 1000, &r, false, &none), -1);
    assert_int_equal(none.len, 0);
    redact_done(&r);
}

/* One rule with one inject over one request; what comes out, or why not. */
static void put(struct policy_inject *j, bool redact, const char *before, const char *after, uint32_t want_used)
{
    struct policy_rule rule = {.action = POLICY_INJECT, .ninjects = 1, .injects = j, .redact = redact};
    struct secrets secrets = {0};
    struct redact words;
    struct request r;
    uint32_t used = 9;
    auto_buf out = {0};

    memcpy(j->secret_id, "se-1", sizeof "se-1");
    secrets_add(&secrets, "se-1", "TOKEN", "top-secret&1\n", 13);
    secrets_add(&secrets, "se-1", "BAD", "a\r\nb", 4);
    secrets_add(&secrets, "se-2", "OTHER", "of-another", 10);
    secrets_add(&secrets, "se-1", "NUL", "half\0rest", 9);
    const struct injection in = {.secrets = &secrets, .host = "a.test", .now_s = 1440938160};
    buf_init(&out, 4096);
    redact_init(&words);
    take(&r, before);
    const char *wrong = inject_apply(&r, &rule, &in, &used, &words);
    if (wrong == NULL)
        request_write(&r, &out);
    assert_string_equal(wrong != NULL ? wrong : buf_str(&out), after);
    if (wrong == NULL)
        assert_int_equal(used, want_used);
    request_done(&r);
    redact_done(&words);
    secrets_done(&secrets);
}

#define HEAD(target, fields) "GET " target " HTTP/1.1\r\nHost: a.test\r\n" fields "\r\n"
#define NO_SECRET "a secret that the rule names is not known, or has no such key"

static void injections(void **state)
{
    struct policy_inject header = {.kind = POLICY_HEADER, .name = "X-Key", .value = "k $TOKEN $$", .with = ""};
    struct policy_inject replaced = {.kind = POLICY_HEADER, .replace = true, .name = "X-Key", .value = "$TOKEN", .with = ""};
    struct policy_inject query = {.kind = POLICY_QUERY, .name = "key", .value = "${TOKEN}", .with = ""};
    struct policy_inject basic = {.kind = POLICY_BASIC, .name = "me", .value = "$TOKEN", .with = ""};
    struct policy_inject holder = {.kind = POLICY_PLACEHOLDER, .name = "E", .value = "sk-none", .with = "$TOKEN"};
    struct policy_inject other = {.kind = POLICY_HEADER, .name = "X-Key", .value = "$OTHER", .with = ""};
    struct policy_inject half = {.kind = POLICY_HEADER, .name = "X-Key", .value = "$NUL", .with = ""};
    struct policy_inject bad = {.kind = POLICY_HEADER, .name = "X-Key", .value = "$BAD", .with = ""};

    (void)state;
    put(&header, false, HEAD("/", ""), HEAD("/", "X-Key: k top-secret&1 $\r\n"), 1);
    put(&header, false, HEAD("/", "x-key: a\r\nX-KEY: b\r\n"), HEAD("/", "x-key: k top-secret&1 $\r\n"), 1);
    put(&header, true, HEAD("/", "Range: bytes=0-1\r\nAccept-Encoding: gzip\r\n"),
        HEAD("/", "Accept-Encoding: identity\r\nX-Key: k top-secret&1 $\r\n"), 1);
    /* What "Connection" names is taken away by proxies: not what the rule put in. */
    put(&header, false, HEAD("/", "Connection: close, x-KEY ,te\r\n"),
        HEAD("/", "Connection: close, te\r\nX-Key: k top-secret&1 $\r\n"), 1);
    put(&basic, false, HEAD("/", "Connection: X-Keys\r\nConnection: Authorization\r\n"),
        HEAD("/", "Connection: X-Keys\r\nConnection: \r\nAuthorization: Basic bWU6dG9wLXNlY3JldCYx\r\n"), 1);
    put(&replaced, false, HEAD("/", ""), HEAD("/", ""), 0);
    put(&replaced, false, HEAD("/", "x-key: a\r\n"), HEAD("/", "x-key: top-secret&1\r\n"), 1);
    put(&query, false, HEAD("/p", ""), HEAD("/p?key=top-secret%261", ""), 1);
    put(&query, false, HEAD("/p?a=b&k%65y=own&c", ""), HEAD("/p?a=b&c&key=top-secret%261", ""), 1);
    put(&basic, false, HEAD("/", "Authorization: own\r\n"), HEAD("/", "Authorization: Basic bWU6dG9wLXNlY3JldCYx\r\n"), 1);
    put(&holder, false, HEAD("/?k=sk-none", "X: a sk-none b\r\n"), HEAD("/?k=top-secret%261", "X: a top-secret&1 b\r\n"), 1);
    put(&holder, false, HEAD("/", "Authorization: Basic c2stbm9uZTo=\r\n"),
        HEAD("/", "Authorization: Basic dG9wLXNlY3JldCYxOg==\r\n"), 1);
    /* Several fields of the same name, the one with the placeholder last. */
    put(&holder, false, HEAD("/", "Authorization: Bearer x\r\nAuthorization: Basic c2stbm9uZTo=\r\n"),
        HEAD("/", "Authorization: Bearer x\r\nAuthorization: Basic dG9wLXNlY3JldCYxOg==\r\n"), 1);
    put(&holder, false, HEAD("/", "X: sk-non\r\n"), HEAD("/", "X: sk-non\r\n"), 0);
    put(&other, false, HEAD("/", ""), NO_SECRET, 0);
    put(&bad, false, HEAD("/", ""), "the value of a secret has characters that no request may have there", 0);
    put(&half, false, HEAD("/", ""), "the value of a secret has characters that no request may have there", 0);
    put(&header, false, "GET / HTTP/1.0\r\nHost: a.test\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a.test\r\nX-Key: k top-secret&1 $\r\n\r\n", 1);
    put(&header, false, "TRACE / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "a request of this method is sent back with what was put in", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(too_many_fields),
        cmocka_unit_test(signatures),
        cmocka_unit_test(signature_replaced),
        cmocka_unit_test(words_are_blackened),
        cmocka_unit_test(pauses),
        cmocka_unit_test(injections),
        cmocka_unit_test(responses),
        cmocka_unit_test(response_is_its_own),
        cmocka_unit_test(responses_are_blackened),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
