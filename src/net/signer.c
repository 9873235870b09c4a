/*
 * signer.c - the key that tokens are signed with
 */
#include "net/signer.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "net/pubkey.h"
#include "sys/fd.h"

#define DER_MAX 80              /* of an ECDSA signature over P-256 */
#define PEM_MAX 4096
#define HALF 32                 /* bytes of r and of s */

struct net_signer {
    EVP_PKEY *key;
    char kid[NET_KID_SIZE];
    char pem[512];              /* the public half */
};

static void bio_free_p(BIO **p)
{
    (void)BIO_free(*p);
}

#define auto_bio __attribute__((cleanup(bio_free_p))) BIO

static EVP_PKEY *read_key(const char *path, struct err *e)
{
    char text[PEM_MAX];
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0) {
        err_sys(e, errno, "open %s", path);
        return NULL;
    }
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0) {
        err_sys(e, errno, "read %s", path);
        return NULL;
    }
    auto_bio *bio = BIO_new_mem_buf(text, (int)n);
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    explicit_bzero(text, sizeof text);
    ERR_clear_error();
    if (key == NULL)
        err_set(e, ERR_INVALID, "%s holds no private key in PEM", path);
    return key;
}

static EVP_PKEY *make_key(const char *path, struct err *e)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    auto_bio *bio = BIO_new(BIO_s_secmem());
    char *text;

    if (key == NULL || bio == NULL || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1) {
        ERR_clear_error();
        EVP_PKEY_free(key);
        err_set(e, ERR_INTERNAL, "cannot make a key");
        return NULL;
    }
    long n = BIO_get_mem_data(bio, &text);
    int r = fd_replace_file(AT_FDCWD, path, text, (size_t)n, 0600, true);
    if (r < 0) {
        EVP_PKEY_free(key);
        err_sys(e, -r, "write %s", path);
        return NULL;
    }
    return key;
}

static bool describe(struct net_signer *s)
{
    auto_bio *bio = BIO_new(BIO_s_mem());
    unsigned char *der = NULL, hash[EVP_MAX_MD_SIZE];
    char *text;
    int len = i2d_PUBKEY(s->key, &der);
    bool ok = bio != NULL && len > 0 && PEM_write_bio_PUBKEY(bio, s->key) == 1 &&
              EVP_Digest(der, (size_t)len, hash, NULL, EVP_sha256(), NULL) == 1;

    OPENSSL_free(der);
    if (!ok)
        return false;
    long n = BIO_get_mem_data(bio, &text);
    if (n <= 0 || (size_t)n >= sizeof s->pem)
        return false;
    memcpy(s->pem, text, (size_t)n);
    for (int i = 0; i < (NET_KID_SIZE - 1) / 2; i++)
        (void)snprintf(s->kid + 2 * i, 3, "%02x", hash[i]);
    return true;
}

struct net_signer *net_signer_open(const char *path, struct err *e)
{
    struct err local = {0};
    EVP_PKEY *key = read_key(path, &local);

    if (key == NULL && local.sys_errno == ENOENT)
        key = make_key(path, &local);
    if (key == NULL) {
        if (e != NULL)
            *e = local;
        return NULL;
    }
    struct net_signer *s = mem_zalloc(sizeof *s);
    s->key = key;
    if (EVP_PKEY_is_a(key, "EC") != 1 || EVP_PKEY_get_bits(key) != 8 * HALF || !describe(s)) {
        ERR_clear_error();
        net_signer_free(s);
        err_set(e, ERR_INVALID, "%s holds no key of P-256", path);
        return NULL;
    }
    return s;
}

void net_signer_free(struct net_signer *s)
{
    if (s == NULL)
        return;
    EVP_PKEY_free(s->key);
    free(s);
}

const char *net_signer_kid(const struct net_signer *s)
{
    return s->kid;
}

const char *net_signer_public_pem(const struct net_signer *s)
{
    return s->pem;
}

static void add_base64url(struct buf *b, const unsigned char *p, size_t n)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    for (size_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        for (size_t k = 0; k < 4 && i + k <= n; k++)
            (void)buf_addc(b, alphabet[v >> (18 - 6 * k) & 63]);
    }
}

/* The form that tokens want, r and s, out of OpenSSL's DER. */
static bool from_der(const unsigned char *der, size_t n, unsigned char out[NET_SIGNATURE_SIZE])
{
    ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &der, (long)n);
    bool ok = sig != NULL && BN_bn2binpad(ECDSA_SIG_get0_r(sig), out, HALF) == HALF &&
              BN_bn2binpad(ECDSA_SIG_get0_s(sig), out + HALF, HALF) == HALF;

    ECDSA_SIG_free(sig);
    return ok;
}

static bool sign(const struct net_signer *s, const void *p, size_t n, unsigned char out[NET_SIGNATURE_SIZE])
{
    unsigned char der[DER_MAX];
    size_t len = sizeof der;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, s->key) == 1 &&
              EVP_DigestSign(ctx, der, &len, p, n) == 1 && from_der(der, len, out);

    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}

char *net_signer_jwt(const struct net_signer *s, const char *claims, struct err *e)
{
    unsigned char signature[NET_SIGNATURE_SIZE];
    auto_free char *head = mem_printf("{\"alg\":\"ES256\",\"kid\":\"%s\",\"typ\":\"JWT\"}", s->kid);
    auto_buf b = {0};

    buf_init(&b, 2 * (strlen(head) + strlen(claims)) + 256);
    add_base64url(&b, (const unsigned char *)head, strlen(head));
    (void)buf_addc(&b, '.');
    add_base64url(&b, (const unsigned char *)claims, strlen(claims));
    if (!sign(s, b.data, b.len, signature)) {
        err_set(e, ERR_INTERNAL, "cannot sign a token");
        return NULL;
    }
    (void)buf_addc(&b, '.');
    add_base64url(&b, signature, sizeof signature);
    return buf_take(&b, NULL);
}
