/*
 * tls_cert.c - makes the certificate of a first run: EC P-256, signed by itself
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/ids.h"
#include "base/mem.h"
#include "net/tls.h"
#include "sys/fd.h"

#define VALID_DAYS 3650

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

static bool add_extension(X509 *cert, int nid, const char *value)
{
    X509V3_CTX v3;

    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    bool ok = ext != NULL && X509_add_ext(cert, ext, -1) == 1;
    X509_EXTENSION_free(ext);
    return ok;
}

/* The host's name, or NULL if it could not stand in a certificate. */
static const char *host_name(char *out, size_t size)
{
    if (gethostname(out, size) < 0 || out[0] == '\0' || strcmp(out, "localhost") == 0)
        return NULL;
    out[size - 1] = '\0';
    size_t len = strspn(out, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-");
    return out[len] == '\0' ? out : NULL;
}

static bool fill(X509 *cert, EVP_PKEY *key)
{
    char host[64], names[160];
    unsigned char serial[16];

    random_bytes(serial, sizeof serial);
    serial[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(serial, sizeof serial, NULL);
    bool ok = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL;
    BN_free(number);
    const char *extra = host_name(host, sizeof host);
    (void)snprintf(names, sizeof names, "DNS:localhost,IP:127.0.0.1,IP:::1%s%s",
                   extra != NULL ? ",DNS:" : "", extra != NULL ? extra : "");
    X509_NAME *name = X509_get_subject_name(cert);
    return ok && X509_set_version(cert, X509_VERSION_3) == 1 &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -3600) != NULL &&
           X509_time_adj_ex(X509_getm_notAfter(cert), VALID_DAYS, 0, NULL) != NULL &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"quicksand",
                                      -1, -1, 0) == 1 &&
           X509_set_issuer_name(cert, name) == 1 && X509_set_pubkey(cert, key) == 1 &&
           add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, NID_ext_key_usage, "serverAuth") &&
           add_extension(cert, NID_subject_alt_name, names) &&
           X509_sign(cert, key, EVP_sha256()) > 0;
}

static int write_bio(BIO *bio, const char *path, mode_t mode, struct err *e)
{
    char dir[PATH_MAX], base[PATH_MAX];
    char *p;
    long n = BIO_get_mem_data(bio, &p);

    if (strlen(path) >= sizeof dir)
        return err_set(e, ERR_INVALID, "path of certificate is too long");
    (void)snprintf(dir, sizeof dir, "%s", path);
    (void)snprintf(base, sizeof base, "%s", path);
    auto_close int dirfd = open(dirname(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0)
        return err_sys(e, errno, "directory of %s", path);
    int r = fd_replace_file(dirfd, basename(base), p, (size_t)n, mode, true);
    return r < 0 ? err_sys(e, -r, "write %s", path) : 0;
}

int net_tls_self_signed(const char *cert_file, const char *key_file, bool *ret_made, struct err *e)
{
    if (access(cert_file, F_OK) == 0 && access(key_file, F_OK) == 0) {
        if (ret_made != NULL)
            *ret_made = false;
        return 0;
    }
    __attribute__((cleanup(pkey_free_p))) EVP_PKEY *key = EVP_EC_gen("P-256");
    __attribute__((cleanup(x509_free_p))) X509 *cert = X509_new();
    __attribute__((cleanup(bio_free_p))) BIO *key_pem = BIO_new(BIO_s_secmem());
    __attribute__((cleanup(bio_free_p))) BIO *cert_pem = BIO_new(BIO_s_mem());

    if (key == NULL || cert == NULL || key_pem == NULL || cert_pem == NULL || !fill(cert, key) ||
        PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL) != 1 ||
        PEM_write_bio_X509(cert_pem, cert) != 1) {
        ERR_clear_error();
        return err_set(e, ERR_INTERNAL, "cannot make a certificate");
    }
    /* The key first: a certificate without its key would be taken for a finished pair by nobody. */
    if (write_bio(key_pem, key_file, 0600, e) < 0 || write_bio(cert_pem, cert_file, 0644, e) < 0)
        return -1;
    if (ret_made != NULL)
        *ret_made = true;
    return 0;
}
