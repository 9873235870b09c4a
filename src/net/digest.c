/*
 * digest.c - digests and HMAC through OpenSSL
 */
#include "net/digest.h"

#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/mem.h"

struct net_digest {
    EVP_MD_CTX *ctx;
};

int net_sha1_base64(const void *p, size_t n, char out[NET_SHA1_BASE64_SIZE])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (EVP_Digest(p, n, digest, &len, EVP_sha1(), NULL) != 1 || len != 20)
        return -EIO;
    (void)EVP_EncodeBlock((unsigned char *)out, digest, (int)len);
    return 0;
}

struct net_digest *net_digest_new(enum net_digest_kind kind)
{
    struct net_digest *d = mem_zalloc(sizeof *d);

    d->ctx = EVP_MD_CTX_new();
    if (d->ctx != NULL && EVP_DigestInit_ex2(d->ctx, kind == NET_MD5 ? EVP_md5() : EVP_sha256(), NULL) == 1)
        return d;
    net_digest_free(d);
    return NULL;
}

int net_digest_add(struct net_digest *d, const void *p, size_t n)
{
    return EVP_DigestUpdate(d->ctx, p, n) == 1 ? 0 : -EIO;
}

int net_digest_end(struct net_digest *d, uint8_t *out)
{
    return EVP_DigestFinal_ex(d->ctx, out, NULL) == 1 ? 0 : -EIO;
}

void net_digest_free(struct net_digest *d)
{
    if (d == NULL)
        return;
    EVP_MD_CTX_free(d->ctx);
    free(d);
}

int net_hmac(const void *key, size_t nkey, const void *p, size_t n, uint8_t out[NET_SHA256_SIZE])
{
    unsigned len = 0;

    if (nkey > INT_MAX || HMAC(EVP_sha256(), key, (int)nkey, p, n, out, &len) == NULL || len != NET_SHA256_SIZE)
        return -EIO;
    return 0;
}

bool net_equal(const void *a, const void *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}
