/*
 * certificate.c - see certificate.h
 */
#include "node/certificate.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "net/tls.h"

int certificate_files(const struct node *n, char *cert, char *key, size_t size, struct err *e)
{
    const struct conf *c = &n->conf;
    bool is_made = false;

    if (c->tls_cert[0] != '\0' && access(c->tls_key, R_OK) == 0) {
        (void)snprintf(cert, size, "%s", c->tls_cert);
        (void)snprintf(key, size, "%s", c->tls_key);
        return 0;
    }
    if (c->tls_cert[0] != '\0')
        log_warn("certificate", "key=%s error=\"%s\"", c->tls_key,
                 "not readable by the node: its clients see a certificate signed by itself");
    (void)snprintf(cert, size, "%s/node/tls.crt", c->data_dir);
    (void)snprintf(key, size, "%s/node/tls.key", c->data_dir);
    if (net_tls_self_signed(cert, key, &is_made, e) < 0)
        return -1;
    if (is_made)
        log_info("certificate", "file=%s signed by itself", cert);
    return 0;
}
