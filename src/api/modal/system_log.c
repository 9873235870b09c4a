/*
 * system_log.c - decisions as text
 */
#include "api/modal/system_log.h"

#include <inttypes.h>
#include <string.h>

static void put_target(const Quicksand__Node__Decision *d, struct buf *out)
{
    bool is_query = strcmp(d->protocol, "dns") == 0, has_address = strcmp(d->address, "::") != 0;

    (void)buf_addf(out, "%s %s", is_query ? "DNS query for" : d->protocol, d->name[0] != '\0' ? d->name : d->address);
    if (d->name[0] != '\0' && has_address)
        (void)buf_addf(out, " (%s)", d->address);
    if (!is_query)
        (void)buf_addf(out, " port %u", d->port);
}

/* Names and rules are checked by egress: letters, digits and few others. */
void system_log_text(const Quicksand__Node__Decision *d, struct buf *out)
{
    if (d->missed > 0)
        (void)buf_addf(out, "network policy: %" PRIu64 " more decisions, of which there is no record\n", d->missed);
    (void)buf_addf(out, "network policy: %s ", d->allowed ? "allowed" : "denied");
    put_target(d, out);
    if (d->method != NULL && d->method[0] != '\0')
        (void)buf_addf(out, " %s %s", d->method, d->path);
    if (d->secrets != NULL && d->secrets[0] != '\0')
        (void)buf_addf(out, " with %s", d->secrets);
    if (d->rule[0] != '\0')
        (void)buf_addf(out, " by rule %s", d->rule);
    else if (strcmp(d->reason, "rule") == 0)
        (void)buf_addf(out, ": no rule allows it");
    if (strcmp(d->reason, "rule") != 0 && !d->allowed)
        (void)buf_addf(out, " (%s)", d->reason);
    if (d->count > 1)
        (void)buf_addf(out, ", %u times", d->count);
    (void)buf_addf(out, "\n");
}
