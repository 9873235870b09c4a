/*
 * pubkey.c - verifying signatures of tokens
 */
#include "net/pubkey.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>

#include "base/mem.h"

#define DER_MAX 80              /* of an ECDSA signature over P-256 */

struct net_pubkey {
    EVP_PKEY *key;
    bool is_ec;
};

static void bio_free_p(BIO **p)
{
    (void)BIO_free(*p);
}

static bool is_p256(EVP_PKEY *key)
{
    char group[32] = "";

    return EVP_PKEY_is_a(key, "EC") == 1 && EVP_PKEY_get_group_name(key, group, sizeof group, NULL) == 1 &&
           strcmp(group, "prime256v1") == 0;
}

struct net_pubkey *net_pubkey_load(const char *pem, struct err *e)
{
    __attribute__((cleanup(bio_free_p))) BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PUBKEY(bio, NULL, NULL, NULL) : NULL;

    ERR_clear_error();
    if (key == NULL) {
        err_set(e, ERR_INVALID, "the key is not a public key in PEM");
        return NULL;
    }
    bool is_ec = is_p256(key);
    if (!is_ec && EVP_PKEY_is_a(key, "ED25519") != 1) {
        EVP_PKEY_free(key);
        err_set(e, ERR_INVALID, "the key is neither of P-256 nor of Ed25519");
        return NULL;
    }
    struct net_pubkey *k = mem_zalloc(sizeof *k);
    k->key = key;
    k->is_ec = is_ec;
    return k;
}

void net_pubkey_free(struct net_pubkey *k)
{
    if (k == NULL)
        return;
    EVP_PKEY_free(k->key);
    free(k);
}

const char *net_pubkey_alg(const struct net_pubkey *k)
{
    return k->is_ec ? "ES256" : "EdDSA";
}

/* r and s, 32 bytes each, as the DER that OpenSSL wants. Returns the length, 0 on failure. */
static size_t to_der(const unsigned char *raw, unsigned char out[DER_MAX])
{
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(raw, 32, NULL), *s = BN_bin2bn(raw + 32, 32, NULL);
    int n = 0;

    if (sig != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(sig, r, s) == 1) {
        r = s = NULL;
        unsigned char *p = out;
        if (i2d_ECDSA_SIG(sig, NULL) <= DER_MAX)
            n = i2d_ECDSA_SIG(sig, &p);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(sig);
    return n > 0 ? (size_t)n : 0;
}

bool net_pubkey_verify(const struct net_pubkey *k, const void *p, size_t n,
                       const unsigned char signature[NET_SIGNATURE_SIZE])
{
    unsigned char der[DER_MAX];
    const unsigned char *sig = signature;
    size_t len = NET_SIGNATURE_SIZE;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (k->is_ec) {
        len = to_der(signature, der);
        sig = der;
    }
    bool ok = ctx != NULL && len > 0 &&
              EVP_DigestVerifyInit(ctx, NULL, k->is_ec ? EVP_sha256() : NULL, NULL, k->key) == 1 &&
              EVP_DigestVerify(ctx, sig, len, p, n) == 1;
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}
