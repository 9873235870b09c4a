/*
 * decisions.c - what did not go out, and what went out under the eyes of a rule: counted, kept for status, told to the node
 *
 * Counters are exact. The node, which keeps a log, is told of each kind of decision at once and then, while it goes on, once in
 * WINDOW_MS with a count: a program that tries in a loop is one line. RATE lines a second; what finds no room among KINDS
 * different ones is counted in `missed` of the next line. So lines and what they say is missed always add up to the counters.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/egress.h"

#define KINDS 32
#define WINDOW_MS 5000
#define TICK_MS 500
#define RATE 20.0               /* lines a second, and at once */

struct kind {
    bool used;
    struct egress_decision d;   /* count: not told yet */
    int64_t next_ms;            /* boot clock: not told before it */
};

struct teller {
    struct box *box;
    struct loop_timer *timer;   /* runs while a kind is used */
    bool runs;
    struct kind kinds[KINDS];
    uint64_t missed;
    double tokens;
    int64_t tokens_ms;
};

static bool take_token(struct teller *t)
{
    int64_t now = clock_boot_ms();

    t->tokens += (double)(now - t->tokens_ms) * RATE / 1000;
    t->tokens_ms = now;
    if (t->tokens > RATE)
        t->tokens = RATE;
    if (t->tokens < 1)
        return false;
    t->tokens -= 1;
    return true;
}

static void tell(struct teller *t, struct kind *k, bool limited)
{
    uint8_t out[EGRESS_LINE_BYTES];

    if (k->d.count == 0 || (limited && !take_token(t)))
        return;
    k->d.missed = t->missed;
    size_t n = egress_decision_encode(t->box->id, &k->d, out, sizeof out);
    if (!links_tell(t->box->egress, EGRESS_DECISION, out, n))
        return;                 /* the node is away, or slow: later */
    t->missed = 0;
    k->d.count = 0;
    k->next_ms = clock_boot_ms() + WINDOW_MS;
}

static void on_tick(void *arg)
{
    struct teller *t = arg;
    int64_t now = clock_boot_ms();

    t->runs = false;
    for (size_t i = 0; i < KINDS; i++) {
        struct kind *k = &t->kinds[i];
        if (!k->used)
            continue;
        if (k->next_ms <= now) {
            k->used = k->d.count > 0;
            tell(t, k, true);
        }
        t->runs = t->runs || k->used;
    }
    if (t->runs)
        loop_timer_set(t->timer, TICK_MS);
}

static struct teller *teller_of(struct box *b)
{
    struct teller *t = b->teller;

    if (t != NULL)
        return t;
    t = b->teller = mem_zalloc(sizeof *t);
    t->box = b;
    t->timer = loop_timer_new(b->egress->loop, on_tick, t);
    t->tokens = RATE;
    t->tokens_ms = clock_boot_ms();
    return t;
}

static bool is_alike(const struct egress_decision *a, const struct egress_decision *b)
{
    return a->verdict == b->verdict && a->revision == b->revision && a->about.reason == b->about.reason &&
           a->about.protocol == b->about.protocol && a->about.port == b->about.port &&
           memcmp(&a->about.to, &b->about.to, sizeof a->about.to) == 0 && strcmp(a->about.rule, b->about.rule) == 0 &&
           strcmp(a->about.name, b->about.name) == 0 && strcmp(a->method, b->method) == 0 && strcmp(a->path, b->path) == 0 &&
           strcmp(a->secrets, b->secrets) == 0;
}

static void log_decision(struct box *b, const struct egress_decision *d)
{
    struct teller *t = teller_of(b);
    struct kind *room = NULL;

    for (size_t i = 0; i < KINDS; i++) {
        struct kind *k = &t->kinds[i];
        if (k->used && is_alike(&k->d, d)) {
            if (k->d.count++ == 0)
                k->d.about.when_ms = d->about.when_ms;
            return;
        }
        if (!k->used && room == NULL)
            room = k;
    }
    if (room == NULL) {
        t->missed++;
        return;
    }
    *room = (struct kind){.used = true, .d = *d};
    tell(t, room, true);
    if (!t->runs)
        loop_timer_set(t->timer, TICK_MS);
    t->runs = true;
}

static void rule_text(const struct policy *p, int rule, char out[LIMIT_NAME + 1])
{
    if (rule < 0 || (uint32_t)rule >= p->nrules)
        out[0] = '\0';
    else if (p->rules[rule].name[0] != '\0')
        (void)snprintf(out, LIMIT_NAME + 1, "%s", p->rules[rule].name);
    else
        (void)snprintf(out, LIMIT_NAME + 1, "#%d", rule + 1);
}

static struct egress_decision make(const struct box *b, enum policy_action verdict, enum egress_reason reason,
                                   unsigned protocol, const struct address *to, uint16_t port, const char *name, int rule)
{
    struct egress_decision d = {
        .about = {.when_ms = clock_wall_ms(), .reason = (uint8_t)reason, .protocol = (uint8_t)protocol, .port = port},
        .verdict = (uint8_t)verdict,
        .revision = b->revision,
        .count = 1,
    };

    if (to != NULL)
        d.about.to = *to;
    if (name != NULL)
        (void)snprintf(d.about.name, sizeof d.about.name, "%s", name);
    rule_text(&b->policy, rule, d.about.rule);
    return d;
}

/* Cut, and without what a terminal might take for a command. */
static void put_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
    for (char *c = out; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 127)
            *c = '?';
}

static void put_request(struct egress_decision *d, const struct request_about *r)
{
    put_text(d->method, sizeof d->method, r->method);
    put_text(d->path, sizeof d->path, r->path != NULL ? r->path : "");
    put_text(d->secrets, sizeof d->secrets, r->secrets != NULL ? r->secrets : "");
}

static void deny(struct box *b, struct egress_decision *d)
{
    struct egress_status *s = &b->status;

    if (s->ndenials == EGRESS_DENIALS)
        memmove(&s->denials[0], &s->denials[1], (EGRESS_DENIALS - 1) * sizeof s->denials[0]);
    else
        s->ndenials++;
    d->about.seq = ++s->totals.denied;
    s->denials[s->ndenials - 1] = d->about;
    log_decision(b, d);
}

void box_deny(struct box *b, enum egress_reason reason, unsigned protocol, const struct address *to, uint16_t port,
              const char *name, int rule)
{
    struct egress_decision d = make(b, POLICY_DENY, reason, protocol, to, port, name, rule);

    deny(b, &d);
}

void box_note(struct box *b, unsigned protocol, const struct address *to, uint16_t port, const char *name, int rule)
{
    struct egress_decision d = make(b, POLICY_ALLOW, EGRESS_NOTED, protocol, to, port, name, rule);

    d.about.seq = ++b->status.totals.noted;
    log_decision(b, &d);
}

static struct egress_decision make_request(const struct flow *f, enum policy_action verdict, enum egress_reason reason, int rule,
                                           const struct request_about *r)
{
    struct egress_decision d = make(f->box, verdict, reason, f->protocol, &f->dialled, f->port, f->name, rule);

    put_request(&d, r);
    return d;
}

void box_deny_request(struct flow *f, enum egress_reason reason, int rule, const struct request_about *r)
{
    struct egress_decision d = make_request(f, POLICY_DENY, reason, rule, r);

    deny(f->box, &d);
}

void box_note_request(struct flow *f, int rule, const struct request_about *r)
{
    struct egress_decision d = make_request(f, POLICY_ALLOW, EGRESS_NOTED, rule, r);

    d.about.seq = ++f->box->status.totals.noted;
    log_decision(f->box, &d);
}

void box_injected(struct flow *f, int rule, const struct request_about *r)
{
    struct egress_decision d = make_request(f, POLICY_ALLOW, EGRESS_INJECTED, rule, r);

    d.about.seq = ++f->box->status.totals.injected;
    log_decision(f->box, &d);
}

void box_tell_totals(struct box *b)
{
    uint8_t out[256];

    if (memcmp(&b->told, &b->status.totals, sizeof b->told) == 0)
        return;
    if (links_tell(b->egress, EGRESS_TOTALS, out, egress_totals_encode(b->id, &b->status.totals, out, sizeof out)))
        b->told = b->status.totals;
}

void box_tell_rest(struct box *b)
{
    struct teller *t = b->teller;

    for (size_t i = 0; t != NULL && i < KINDS; i++)
        if (t->kinds[i].used)
            tell(t, &t->kinds[i], false);
    box_tell_totals(b);
    if (t != NULL)
        loop_timer_free(t->timer);
    free(take_ptr(&b->teller));
}
