/*
 * tls.c - the server's TLS settings
 */
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"

#define READ_BUFFER (64 * 1024) /* several records by one system call; released while there is nothing in it */

struct net_tls {
    SSL_CTX *ctx;
    const char *alpn;           /* ours, best first; each with its length in front */
    net_tls_choose_cb choose;   /* may be NULL */
    void *choose_arg;
};

/* Of a connection: the protocols that were chosen for it. Slot 0 is OpenSSL's "app data", which nobody else uses. */
static void set_chosen(SSL *ssl, const char *alpn)
{
    (void)SSL_set_app_data(ssl, (void *)(uintptr_t)alpn);
}

static int fail(struct err *e, const char *what, const char *name)
{
    char text[160] = "unknown reason";
    unsigned long code = ERR_peek_last_error();

    if (code != 0)
        ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return err_set(e, ERR_INVALID, "%s %s: %s", what, name, text);
}

/* The server's order; a client that offers none of ours gets no ALPN and may try. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *outlen, const unsigned char *in,
                   unsigned inlen, void *arg)
{
    const struct net_tls *t = arg;
    const char *alpn = SSL_get_app_data(ssl);
    unsigned char *chosen;

    if (alpn == NULL)
        alpn = t->alpn;
    if (SSL_select_next_proto(&chosen, outlen, (const unsigned char *)alpn, (unsigned)strlen(alpn), in, inlen) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

void net_tls_name(const char *text, char out[NET_TLS_NAME])
{
    size_t n = strlen(text);

    if (n > 0 && text[n - 1] == '.')
        n--;
    out[0] = '\0';
    if (n == 0 || n >= NET_TLS_NAME)
        return;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool is_upper = c >= 'A' && c <= 'Z', is_lower = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!is_upper && !is_lower && c != '-' && c != '_' && (c != '.' || i == 0 || text[i - 1] == '.')) {
            out[0] = '\0';
            return;
        }
        out[i] = is_upper ? (char)(c - 'A' + 'a') : c;
    }
    out[n] = '\0';
}

static int on_name(SSL *ssl, int *alert, void *arg)
{
    struct net_tls *t = arg, *chosen = NULL;
    const char *sent = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name), *alpn = NULL;
    char name[NET_TLS_NAME];

    net_tls_name(sent != NULL ? sent : "", name);
    t->choose(t->choose_arg, name, &chosen, &alpn);
    set_chosen(ssl, alpn != NULL ? alpn : t->alpn);
    if (chosen != NULL)
        (void)SSL_set_SSL_CTX(ssl, chosen->ctx);
    return SSL_TLSEXT_ERR_OK;
}

void net_tls_set_chooser(struct net_tls *t, net_tls_choose_cb cb, void *arg)
{
    t->choose = cb;
    t->choose_arg = arg;
    (void)SSL_CTX_set_tlsext_servername_callback(t->ctx, on_name);
    (void)SSL_CTX_set_tlsext_servername_arg(t->ctx, t);
}

struct net_tls *net_tls_server(const char *cert_file, const char *key_file, struct err *e)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    if (ctx == NULL) {
        (void)fail(e, "set up", "TLS");
        return NULL;
    }
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                       SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    /* The AEAD suites with forward secrecy: HTTP/2 forbids the others. */
    (void)SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20");
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, READ_BUFFER);
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1) {
        (void)fail(e, "certificate", cert_file);
    } else if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1) {
        (void)fail(e, "private key", key_file);
    } else if (SSL_CTX_check_private_key(ctx) != 1) {
        (void)fail(e, "private key does not belong to", cert_file);
    } else {
        struct net_tls *t = mem_zalloc(sizeof *t);
        t->ctx = ctx;
        t->alpn = "\x02h2\x08http/1.1";
        SSL_CTX_set_alpn_select_cb(ctx, on_alpn, t);
        return t;
    }
    SSL_CTX_free(ctx);
    return NULL;
}

void net_tls_free(struct net_tls *t)
{
    if (t == NULL)
        return;
    /* Connections hold the context for longer than we exist. */
    SSL_CTX_set_alpn_select_cb(t->ctx, NULL, NULL);
    (void)SSL_CTX_set_tlsext_servername_callback(t->ctx, NULL);
    SSL_CTX_free(t->ctx);
    free(t);
}

void net_tls_set_alpn(struct net_tls *t, const char *protocols)
{
    t->alpn = protocols;
}

struct ssl_st *net_tls_accept(struct net_tls *t, int fd)
{
    SSL *ssl = SSL_new(t->ctx);
    BIO *in = BIO_new_socket(fd, BIO_NOCLOSE);
    BIO *out = BIO_new(BIO_s_mem());

    ERR_clear_error();
    if (ssl == NULL || in == NULL || out == NULL) {
        SSL_free(ssl);
        (void)BIO_free(in);
        (void)BIO_free(out);
        return NULL;
    }
    SSL_set_bio(ssl, in, out);
    SSL_set_accept_state(ssl);
    return ssl;
}
