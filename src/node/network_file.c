/*
 * network_file.c - the policies of the sandboxes here on disk: a file each, as egress gets it, without what is on no disk
 */
#include "node/network_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "ipc/policy_wire.h"
#include "sys/fd.h"

bool network_is_known(const struct network *w, const char *sandbox)
{
    return faccessat(w->fd, sandbox, F_OK, 0) == 0;
}

static ssize_t load(struct network *w, const char *sandbox, uint8_t *out)
{
    auto_close int fd = openat(w->fd, sandbox, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd_read_all(fd, out, NETWORK_FILE_MAX);
}

int network_load(struct network *w, const char *sandbox, uint8_t *out, struct egress_policy *ret, struct err *e)
{
    ssize_t n = load(w, sandbox, out);

    if (n < 0)
        return err_sys(e, (int)-n, "read the network policy of %s", sandbox);
    if (egress_policy_decode(ret, out, (size_t)n) < 0)
        return err_set(e, ERR_INTERNAL, "the network policy of %s on disk cannot be read", sandbox);
    return 0;
}

uint8_t *network_message(const char *sandbox, const Quicksand__Node__Network *m, uint64_t revision, size_t *ret_len,
                         struct err *e)
{
    struct egress_policy out = {
        .revision = revision,
        .keep = m->keep,
        .policy = m->policy.data,
        .policy_len = m->policy.len,
        .version = m->version,
        .follows = m->follows,
    };
    struct policy p;

    if (m->name != NULL && strlen(m->name) >= sizeof out.name) {
        err_param(e, ERR_INVALID, "network", "the name of the policy is too long");
        return NULL;
    }
    (void)snprintf(out.name, sizeof out.name, "%s", m->name != NULL ? m->name : "");

    if (m->policy.len > LIMIT_POLICY_BYTES) {
        err_param(e, ERR_TOO_LARGE, "network", "the network policy has %zu bytes, at most %d are accepted",
                  m->policy.len, LIMIT_POLICY_BYTES);
        return NULL;
    }
    if (policy_decode(&p, m->policy.data, m->policy.len) < 0) {
        err_param(e, ERR_INVALID, "network", "the network policy is malformed");
        return NULL;
    }
    policy_done(&p);
    (void)snprintf(out.sandbox, sizeof out.sandbox, "%s", sandbox);
    auto_free uint8_t *bytes = mem_alloc(NETWORK_FILE_MAX);
    *ret_len = egress_policy_encode(&out, bytes, NETWORK_FILE_MAX);
    if (*ret_len == 0) {
        err_param(e, ERR_TOO_LARGE, "network", "the network policy is too large");
        return NULL;
    }
    return take_ptr(&bytes);
}

int network_store(struct network *w, const char *sandbox, const uint8_t *bytes, size_t n, struct err *e)
{
    int r = fd_replace_file(w->fd, sandbox, bytes, n, 0600, false);

    return r < 0 ? err_sys(e, -r, "keep the network policy of %s", sandbox) : 0;
}

int network_save(struct network *w, const char *sandbox, const Quicksand__Node__Network *m, struct err *e)
{
    size_t n;
    auto_free uint8_t *bytes = network_message(sandbox, m, 1, &n, e);

    return bytes == NULL ? -1 : network_store(w, sandbox, bytes, n, e);
}
