/*
 * range.c - ports for tunnels, see range.h
 */
#include "node/tunnel/range.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/addr.h"
#include "sys/fd.h"

static int bad(const char *text, struct err *e)
{
    return err_param(e, ERR_INVALID, "tunnel_listen",
                     "'%.100s' is not <address>:<first port>-<last port> with at most %d ports", text, LIMIT_TUNNEL_PORTS);
}

static int parse(const char *text, char host[100], unsigned long *ret_first, unsigned long *ret_last, struct err *e)
{
    const char *colon = strrchr(text, ':');
    char *end;

    if (colon == NULL || colon - text >= 100)
        return bad(text, e);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    *ret_first = strtoul(colon + 1, &end, 10);
    *ret_last = *end == '-' ? strtoul(end + 1, &end, 10) : *ret_first;
    if (*end != '\0' || *ret_first == 0 || *ret_last > 65535 || *ret_last < *ret_first ||
        *ret_last - *ret_first >= LIMIT_TUNNEL_PORTS)
        return bad(text, e);
    return 0;
}

/* A descriptor, or -errno. */
static int bind_port(const struct net_addr *a)
{
    int on = 1;
    auto_close int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);     /* or the last run's connections keep it */
    if (bind(fd, (const struct sockaddr *)&a->sa, a->len) < 0)
        return -errno;
    return take_fd(&fd);
}

int range_open(struct range *r, const char *text, struct err *e)
{
    char host[100], address[128];
    unsigned long first = 0, last = 0;
    struct net_addr a;

    *r = (struct range){0};
    if (text[0] == '\0')
        return 0;
    if (parse(text, host, &first, &last, e) < 0)
        return -1;
    r->ports = mem_array(last - first + 1, sizeof *r->ports);
    for (unsigned long port = first; port <= last; port++) {
        (void)snprintf(address, sizeof address, "%s:%lu", host, port);
        if (net_addr_parse(address, &a, e) < 0)
            return -1;
        int fd = bind_port(&a);
        if (fd >= 0)
            r->ports[r->n++] = (struct range_port){.number = (uint16_t)port, .fd = fd};
        else
            log_warn("tunnel.port", "port=%lu error=%s", port, strerror(-fd));
    }
    return 0;
}

void range_close(struct range *r)
{
    for (size_t i = 0; i < r->n; i++) {
        net_listener_free(r->ports[i].listener);
        fd_close(&r->ports[i].fd);
    }
    free(r->ports);
    *r = (struct range){0};
}

/* The port begins to listen; false if somebody else listens there. */
static bool start(struct range_port *p, struct loop *l, net_accept_cb cb, void *arg, struct err *e)
{
    if (listen(p->fd, SOMAXCONN) < 0) {
        (void)err_sys(e, errno, "listen on port %u", p->number);
        return false;
    }
    int copy = fcntl(p->fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) {
        (void)err_sys(e, errno, "listen on port %u", p->number);
        return false;
    }
    p->listener = net_listen_fd(l, copy, cb, arg, e);
    return p->listener != NULL;
}

struct range_port *range_take(struct range *r, uint16_t number, struct loop *l, net_accept_cb cb, void *arg, struct err *e)
{
    (void)err_set(e, ERR_CAPACITY, "all %zu ports for tunnels are in use", r->n);
    for (size_t i = 0; i < r->n; i++) {
        struct range_port *p = &r->ports[(r->next + i) % r->n];
        if (p->is_taken || (number != 0 && p->number != number))
            continue;
        if (start(p, l, cb, arg, e)) {
            p->is_taken = true;
            if (number == 0)
                r->next = (size_t)(p - r->ports) + 1;
            return p;
        }
    }
    return NULL;
}

void range_give(struct range_port *p)
{
    if (p == NULL)
        return;
    net_listener_free(p->listener);
    p->listener = NULL;
    p->is_taken = false;
    /* Back to bound: connections that nobody accepted are reset, and new ones refused. */
    (void)shutdown(p->fd, SHUT_RDWR);
}
