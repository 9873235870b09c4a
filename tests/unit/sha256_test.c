/*
 * sha256_test.c - SHA-256 beside OpenSSL's, in every length around its blocks and in pieces
 */
#include "base/sha256.h"

#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint8_t bytes[1 << 20];

static void compare(size_t n, const size_t *cuts, size_t ncuts)
{
    struct sha256 s;
    uint8_t is[SHA256_SIZE], should[SHA256_DIGEST_LENGTH];
    size_t at = 0;

    sha256_init(&s);
    for (size_t i = 0; i < ncuts && at < n; i++) {
        size_t part = cuts[i] < n - at ? cuts[i] : n - at;
        sha256_add(&s, bytes + at, part);
        at += part;
    }
    sha256_add(&s, bytes + at, n - at);
    sha256_end(&s, is);
    (void)SHA256(bytes, n, should);
    assert_memory_equal(is, should, sizeof is);
}

static void is_that_of_the_standard(void **state)
{
    /* FIPS 180-4's example "abc". */
    static const char should[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    struct sha256 s;
    uint8_t digest[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];

    sha256_init(&s);
    sha256_add(&s, "abc", 3);
    sha256_end(&s, digest);
    sha256_hex(digest, hex);
    assert_string_equal(hex, should);
}

static void is_openssls(void **state)
{
    for (size_t n = 0; n < 300; n++)
        for (size_t cut = 0; cut <= n; cut += 1 + n / 20)
            compare(n, &cut, 1);
    for (size_t i = 0; i < 50; i++) {
        size_t cuts[] = {i, 1, 63, 64 + i % 3, 65, 4096 + i, 0, 100000};
        compare(sizeof bytes - i, cuts, sizeof cuts / sizeof cuts[0]);
    }
}

static int fill(void **state)
{
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i / 7 + i);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_that_of_the_standard),
        cmocka_unit_test(is_openssls),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
