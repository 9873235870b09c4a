/*
 * network_def.c - what may leave a sandbox, by its client's definition
 *
 * Three messages say it: network_access alone, network_access with header replacements, or routes instead of both.
 */
#include "api/modal/network_def.h"

#include <arpa/inet.h>
#include <string.h>

#include "api/modal/outbound.h"
#include "core/policy_json.h"

#define OPEN MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__OPEN
#define BLOCKED MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__BLOCKED
#define ALLOWLIST MODAL__CLIENT__NETWORK_ACCESS__NETWORK_ACCESS_TYPE__ALLOWLIST

bool cidr_is_valid(const char *text)
{
    char host[64];
    struct in6_addr a;
    const char *slash = strchr(text, '/');
    size_t n = slash != NULL ? (size_t)(slash - text) : strlen(text);
    char *end;

    if (n == 0 || n >= sizeof host)
        return false;
    memcpy(host, text, n);
    host[n] = '\0';
    long most = inet_pton(AF_INET, host, &a) == 1 ? 32 : inet_pton(AF_INET6, host, &a) == 1 ? 128 : -1;
    if (most < 0)
        return false;
    if (slash == NULL)
        return true;
    if (slash[1] < '0' || slash[1] > '9')
        return false;
    long bits = strtol(slash + 1, &end, 10);
    return *end == '\0' && bits <= most;
}

static int refuse(struct err *e, const char *option, const char *why)
{
    return err_param(e, ERR_INVALID, option, "the option %s is not supported by this server: %s", option, why);
}

static bool is_blocked(const M(Sandbox) *d)
{
    return d->block_network || (d->network_access != NULL && d->network_access->network_access_type == BLOCKED);
}

static int check(const M(Sandbox) *d, struct err *e)
{
    const M(NetworkAccess) *n = d->network_access;

    if (m_text(d->proxy_id)[0] != '\0')
        return refuse(e, "proxy", "it has no proxies");
    if (m_text(d->custom_domain)[0] != '\0')
        return refuse(e, "custom_domain", "it has no domains");
    if (d->i6pn_enabled)
        return refuse(e, "i6pn_enabled", "sandboxes have no network among each other");
    if (d->outbound_policy != NULL && d->experimental_outbound_policy != NULL)
        return err_param(e, ERR_INVALID, "outbound_policy", "outbound_policy cannot be used with experimental_outbound_policy");
    if (d->outbound_policy != NULL && (is_blocked(d) || (n != NULL && n->network_access_type == ALLOWLIST)))
        return err_param(e, ERR_INVALID, "outbound_policy",
                         "outbound_policy cannot be used with a network access other than OPEN");
    if (d->experimental_outbound_policy != NULL && is_blocked(d))
        return err_param(e, ERR_INVALID, "outbound_policy",
                         "experimental_outbound_policy cannot be used when block_network is enabled");
    for (size_t i = 0; i < d->n_inbound_cidr_allowlist; i++)
        if (!cidr_is_valid(d->inbound_cidr_allowlist[i]))
            return err_set(e, ERR_INVALID, "Invalid CIDR: '%.80s'", d->inbound_cidr_allowlist[i]);
    return 0;
}

/* --- secrets ----------------------------------------------------------------------------------------------------------- */

static enum replace_key has_key(void *ctx, const char *secret_id, const char *key, size_t n)
{
    struct mcall *c = ctx;
    auto_secret_row row = {0};
    struct err e;
    size_t i;
    json_t *v;

    if (store_secret_get(m_store(c), secret_id, &row, &e) < 0)
        return REPLACE_NO_SECRET;
    auto_json *keys = json_loads(row.keys, 0, NULL);
    json_array_foreach(keys, i, v)
        if (json_string_length(v) == n && memcmp(json_string_value(v), key, n) == 0)
            return REPLACE_KEY_KNOWN;
    return REPLACE_KEY_MISSING;
}

/* --- policies ---------------------------------------------------------------------------------------------------------- */

/* Both lists present and empty allow nothing, but may be changed. */
static int read_access(const M(NetworkAccess) *n, struct policy *ret, struct err *e)
{
    if (n->network_access_type == ALLOWLIST)
        return policy_allow_lists(ret, n->allowed_cidrs, n->n_allowed_cidrs, n->allowed_domains, n->n_allowed_domains, e);
    policy_open(ret);
    return 0;
}

static int read_policy(struct mcall *c, const M(Sandbox) *d, struct policy *ret, struct err *e)
{
    struct policy access, rules;

    if (d->outbound_policy != NULL)
        return outbound_routes(d->outbound_policy, has_key, c, ret, e);
    policy_init(&access);
    policy_init(&rules);
    int r = read_access(d->network_access, &access, e);
    if (r == 0 && d->experimental_outbound_policy != NULL)
        r = outbound_replacements(d->experimental_outbound_policy, has_key, c, &rules, e);
    if (r == 0)
        replace_put(&rules, &access, ret);
    policy_done(&access);
    policy_done(&rules);
    return r;
}

/* What may be told by a word is: then it is shown so. */
static bool is_just_open(const M(Sandbox) *d)
{
    return d->outbound_policy == NULL && d->network_access->network_access_type != ALLOWLIST &&
           (d->experimental_outbound_policy == NULL || d->experimental_outbound_policy->n_header_replacements == 0);
}

int network_def_read(struct mcall *c, const M(Sandbox) *d, json_t **ret, struct err *e)
{
    struct policy p;

    *ret = NULL;
    if (check(d, e) < 0)
        return -1;
    if (is_blocked(d) || (d->network_access == NULL && d->outbound_policy == NULL))
        return 0;
    if (is_just_open(d)) {
        *ret = json_string("open");
        return 0;
    }
    policy_init(&p);
    int r = read_policy(c, d, &p, e);
    if (r == 0)
        *ret = policy_to_json(&p);
    policy_done(&p);
    return r;
}
