/*
 * tls.c - the settings of TLS for opened connections
 *
 * Towards the sandbox certificates of its own authority are shown; the server has to show one that the host's authorities
 * vouch for. What the client offers is known before the server is asked, and what the server takes before the client is
 * answered: the client's greeting waits in OpenSSL meanwhile.
 */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "egress/open/open.h"
#include "net/authority.h"

struct open_tls {
    SSL_CTX *accept, *connect;  /* owned */
};

static const unsigned char alpn_h1[] = "\x08http/1.1", alpn_h2[] = "\x02h2", alpn_both[] = "\x02h2\x08http/1.1";

static void read_alpn(SSL *ssl, struct opened *o)
{
    const unsigned char *p;
    size_t n;

    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &p, &n) != 1 || n < 2)
        return;
    o->offers_alpn = true;
    for (size_t i = 2; i < n && i + p[i] < n; i += 1u + p[i]) {
        o->offers_h1 = o->offers_h1 || (p[i] == 8 && memcmp(p + i + 1, "http/1.1", 8) == 0);
        o->offers_h2 = o->offers_h2 || (p[i] == 2 && memcmp(p + i + 1, "h2", 2) == 0);
    }
}

static int on_hello(SSL *ssl, int *alert, void *arg)
{
    struct opened *o = SSL_get_app_data(ssl);

    if (o->state != OPENED_HELLO)
        return SSL_CLIENT_HELLO_SUCCESS;
    read_alpn(ssl, o);
    o->has_hello = true;
    return SSL_CLIENT_HELLO_RETRY;
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *outlen, const unsigned char *in, unsigned inlen, void *arg)
{
    const struct opened *o = SSL_get_app_data(ssl);
    const unsigned char *taken = NULL;
    unsigned n = 0;

    if (o->is_server_ready)
        SSL_get0_alpn_selected(o->server.ssl, &taken, &n);
    /* Where there is no server the client is told so in what it speaks. */
    if (n == 0 && o->may_h2 && !o->offers_h1) {
        taken = alpn_h2 + 1;
        n = alpn_h2[0];
    }
    if (n == 0 && !o->offers_h1)
        return o->offers_h2 ? SSL_TLSEXT_ERR_ALERT_FATAL : SSL_TLSEXT_ERR_NOACK;
    *out = n > 0 ? taken : alpn_h1 + 1;
    *outlen = (unsigned char)(n > 0 ? n : 8);
    return SSL_TLSEXT_ERR_OK;
}

/* The host's authorities, wherever its distribution keeps them. */
static void load_host(X509_STORE *store)
{
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                        "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"};

    for (size_t i = 0; i < array_len(files); i++)
        if (access(files[i], R_OK) == 0 && X509_STORE_load_file(store, files[i]) == 1)
            return;
    ERR_clear_error();
    log_warn("egress.authorities", "text=the_host_has_no_bundle_of_authorities");
}

struct open_tls *open_tls_new(const char *ca_file, struct err *e)
{
    struct open_tls *t = mem_zalloc(sizeof *t);

    t->accept = SSL_CTX_new(TLS_server_method());
    t->connect = SSL_CTX_new(TLS_client_method());
    if (t->accept == NULL || t->connect == NULL) {
        err_set(e, ERR_INTERNAL, "set up TLS");
        open_tls_free(t);
        return NULL;
    }
    SSL_CTX *both[] = {t->accept, t->connect};
    for (size_t i = 0; i < array_len(both); i++) {
        (void)SSL_CTX_set_min_proto_version(both[i], TLS1_2_VERSION);
        (void)SSL_CTX_set_options(both[i], SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
        (void)SSL_CTX_set_mode(both[i], SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
        (void)SSL_CTX_set_session_cache_mode(both[i], SSL_SESS_CACHE_OFF);
    }
    (void)SSL_CTX_set_num_tickets(t->accept, 0);
    (void)SSL_CTX_set_cipher_list(t->accept, "ECDHE+AESGCM:ECDHE+CHACHA20");
    SSL_CTX_set_client_hello_cb(t->accept, on_hello, NULL);
    SSL_CTX_set_alpn_select_cb(t->accept, on_alpn, NULL);
    SSL_CTX_set_verify(t->connect, SSL_VERIFY_PEER, NULL);
    load_host(SSL_CTX_get_cert_store(t->connect));
    if (ca_file[0] != '\0' && X509_STORE_load_file(SSL_CTX_get_cert_store(t->connect), ca_file) != 1) {
        ERR_clear_error();
        err_set(e, ERR_INVALID, "egress_ca: %s has no certificates that can be read", ca_file);
        open_tls_free(t);
        return NULL;
    }
    return t;
}

void open_tls_free(struct open_tls *t)
{
    if (t == NULL)
        return;
    SSL_CTX_free(t->accept);
    SSL_CTX_free(t->connect);
    free(t);
}

SSL *open_tls_client(struct open_tls *t, struct opened *o)
{
    struct box *b = o->flow->box;
    SSL *ssl = SSL_new(t->accept);
    struct err e;

    if (ssl == NULL)
        return NULL;
    if (b->authority == NULL || net_authority_use(b->authority, ssl, o->flow->name, &e) < 0) {
        log_warn("egress.authority", "sandbox=%s name=%s", b->id, o->flow->name);
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_app_data(ssl, o);
    SSL_set_accept_state(ssl);
    return ssl;
}

SSL *open_tls_server(struct open_tls *t, const struct opened *o)
{
    const char *name = o->flow->name;
    SSL *ssl = SSL_new(t->connect);
    const unsigned char *alpn = !o->offers_alpn ? NULL : !o->may_h2 ? alpn_h1 : o->offers_h1 ? alpn_both : alpn_h2;

    if (ssl == NULL)
        return NULL;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (SSL_set1_host(ssl, name) != 1 || SSL_set_tlsext_host_name(ssl, name) != 1 ||
        (alpn != NULL && SSL_set_alpn_protos(ssl, alpn, (unsigned)strlen((const char *)alpn)) != 0)) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_connect_state(ssl);
    return ssl;
}

bool open_tls_is_pinned(void)
{
    int why = ERR_GET_REASON(ERR_peek_last_error());

    return why == SSL_R_TLSV1_ALERT_UNKNOWN_CA || why == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE ||
           why == SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN || why == SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE ||
           why == SSL_R_TLSV1_ALERT_ACCESS_DENIED || why == SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED;
}

bool open_tls_is_h2(const struct end *e)
{
    const unsigned char *taken = NULL;
    unsigned n = 0;

    if (e->ssl != NULL)
        SSL_get0_alpn_selected(e->ssl, &taken, &n);
    return n == 2 && memcmp(taken, "h2", 2) == 0;
}
