/*
 * authority.c - a certificate authority of our own
 */
#include "net/authority.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/clock.h"
#include "base/ids.h"
#include "base/map.h"
#include "base/mem.h"

#define AUTHORITY_DAYS 3650
#define LEAF_DAYS 30
#define LEAF_FRESH_MS (7 * 24 * 3600 * 1000LL)
#define LEAVES_MAX 512
#define COMMON_NAME_MAX 64

struct leaf {
    X509 *cert;                 /* owned */
    int64_t made_ms;
};

struct net_authority {
    EVP_PKEY *key;              /* owned, as are the next two */
    X509 *cert;
    EVP_PKEY *leaf_key;         /* of all certificates that it issues */
    struct map leaves;          /* name -> leaf, owned */
};

static void pkey_free_p(EVP_PKEY **p)
{
    EVP_PKEY_free(*p);
}

static void x509_free_p(X509 **p)
{
    X509_free(*p);
}

static void bio_free_p(BIO **p)
{
    (void)BIO_free(*p);
}

#define auto_pkey __attribute__((cleanup(pkey_free_p))) EVP_PKEY
#define auto_x509 __attribute__((cleanup(x509_free_p))) X509
#define auto_bio __attribute__((cleanup(bio_free_p))) BIO

static int fail(struct err *e, const char *what)
{
    char text[160] = "unknown reason";
    unsigned long code = ERR_peek_last_error();

    if (code != 0)
        ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return err_set(e, ERR_INTERNAL, "%s: %s", what, text);
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX v3;

    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    bool ok = ext != NULL && X509_add_ext(cert, ext, -1) == 1;
    X509_EXTENSION_free(ext);
    return ok;
}

static bool fill(X509 *cert, const char *name, EVP_PKEY *key, int days)
{
    unsigned char serial[16];

    random_bytes(serial, sizeof serial);
    serial[0] = (unsigned char)((serial[0] & 0x7f) | 0x40);
    BIGNUM *number = BN_bin2bn(serial, sizeof serial, NULL);
    bool ok = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL;
    BN_free(number);
    if (strlen(name) > COMMON_NAME_MAX)
        name = "quicksand";
    /* A day back: clocks of sandboxes are ours, those of programs in them need not be. */
    return ok && X509_set_version(cert, X509_VERSION_3) == 1 &&
           X509_time_adj_ex(X509_getm_notBefore(cert), -1, 0, NULL) != NULL &&
           X509_time_adj_ex(X509_getm_notAfter(cert), days, 0, NULL) != NULL &&
           X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1, 0) ==
               1 &&
           X509_set_pubkey(cert, key) == 1;
}

char *net_authority_make(const char *name, struct err *e)
{
    auto_pkey *key = EVP_EC_gen("P-256");
    auto_x509 *cert = X509_new();
    auto_bio *bio = BIO_new(BIO_s_secmem());
    char *text;

    if (key == NULL || cert == NULL || bio == NULL || !fill(cert, name, key, AUTHORITY_DAYS) ||
        X509_set_issuer_name(cert, X509_get_subject_name(cert)) != 1 ||
        !add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
        !add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") ||
        !add_extension(cert, cert, NID_subject_key_identifier, "hash") || X509_sign(cert, key, EVP_sha256()) <= 0 ||
        PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1 || PEM_write_bio_X509(bio, cert) != 1) {
        (void)fail(e, "cannot make an authority");
        return NULL;
    }
    long n = BIO_get_mem_data(bio, &text);
    return mem_strndup(text, (size_t)n);
}

const char *net_authority_certificate(const char *pem)
{
    return strstr(pem, "-----BEGIN CERTIFICATE-----");
}

struct net_authority *net_authority_load(const char *pem, size_t n, struct err *e)
{
    auto_bio *bio = n <= INT32_MAX ? BIO_new_mem_buf(pem, (int)n) : NULL;
    auto_pkey *key = bio == NULL ? NULL : PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    auto_x509 *cert = key == NULL ? NULL : PEM_read_bio_X509(bio, NULL, NULL, NULL);
    auto_pkey *leaf_key = EVP_EC_gen("P-256");

    if (cert == NULL || leaf_key == NULL || X509_check_private_key(cert, key) != 1) {
        (void)fail(e, "the authority cannot be read");
        return NULL;
    }
    struct net_authority *a = mem_zalloc(sizeof *a);
    a->key = take_ptr(&key);
    a->cert = take_ptr(&cert);
    a->leaf_key = take_ptr(&leaf_key);
    map_init(&a->leaves);
    return a;
}

static void forget(struct net_authority *a)
{
    struct map_iter it = MAP_ITER;
    const char *name;
    void *value;

    while (map_next(&a->leaves, &it, &name, &value)) {
        X509_free(((struct leaf *)value)->cert);
        free(value);
    }
    map_done(&a->leaves);
    map_init(&a->leaves);
}

void net_authority_free(struct net_authority *a)
{
    if (a == NULL)
        return;
    forget(a);
    map_done(&a->leaves);
    EVP_PKEY_free(a->key);
    EVP_PKEY_free(a->leaf_key);
    X509_free(a->cert);
    free(a);
}

static X509 *issue(const struct net_authority *a, const char *name)
{
    auto_free char *names = mem_printf("DNS:%s", name);
    auto_x509 *cert = X509_new();

    if (cert == NULL || !fill(cert, name, a->leaf_key, LEAF_DAYS) ||
        X509_set_issuer_name(cert, X509_get_subject_name(a->cert)) != 1 ||
        !add_extension(cert, a->cert, NID_basic_constraints, "critical,CA:FALSE") ||
        !add_extension(cert, a->cert, NID_key_usage, "critical,digitalSignature") ||
        !add_extension(cert, a->cert, NID_ext_key_usage, "serverAuth") ||
        !add_extension(cert, a->cert, NID_subject_key_identifier, "hash") ||
        !add_extension(cert, a->cert, NID_authority_key_identifier, "keyid") ||
        !add_extension(cert, a->cert, NID_subject_alt_name, names) || X509_sign(cert, a->key, EVP_sha256()) <= 0)
        return NULL;
    return take_ptr(&cert);
}

int net_authority_use(struct net_authority *a, struct ssl_st *ssl, const char *name, struct err *e)
{
    struct leaf *leaf = map_get(&a->leaves, name);
    int64_t now = clock_boot_ms();

    if (leaf == NULL || now - leaf->made_ms > LEAF_FRESH_MS) {
        X509 *cert = issue(a, name);
        if (cert == NULL)
            return fail(e, "cannot issue a certificate");
        if (a->leaves.count >= LEAVES_MAX)
            forget(a);
        struct leaf *old = map_get(&a->leaves, name);
        if (old != NULL)
            X509_free(old->cert);
        leaf = old != NULL ? old : mem_zalloc(sizeof *leaf);
        *leaf = (struct leaf){cert, now};
        (void)map_put(&a->leaves, name, leaf);
    }
    if (SSL_use_certificate(ssl, leaf->cert) != 1 || SSL_use_PrivateKey(ssl, a->leaf_key) != 1)
        return fail(e, "cannot use a certificate");
    return 0;
}
