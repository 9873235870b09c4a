/*
 * names.c - what names lead to, remembered a sandbox
 *
 * A connection goes to the addresses that the resolver just named to the sandbox, for as long as their time to live; and
 * what has been named stays known for telling from an address which name was meant.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "egress/egress.h"

#define ENTRIES 64
#define MIN_MS 2000             /* a time to live of 0 is no reason to ask twice for one connection */

struct name_cache {
    struct name_entry *entries[ENTRIES];    /* owned */
    size_t next;                /* replaced next */
};

/* Of several for one name the first asks and the others wait for its answer. */
struct lookup {
    struct lookup *next;        /* of the box */
    struct box *box;
    struct question *question;  /* NULL: another asks */
    names_cb cb;                /* NULL: cancelled */
    void *arg;
    char name[POLICY_DOMAIN_MAX + 1];
};

static struct name_entry *known(const struct box *b, const char *name)
{
    for (size_t i = 0; b->names != NULL && i < ENTRIES; i++)
        if (b->names->entries[i] != NULL && strcmp(b->names->entries[i]->name, name) == 0)
            return b->names->entries[i];
    return NULL;
}

static bool is_fresh(const struct name_entry *n)
{
    return n != NULL && clock_boot_ms() < n->until_ms;
}

bool names_knows(const struct box *b, const char *name)
{
    return is_fresh(known(b, name));
}

static struct name_entry *remember(struct box *b, const char *name)
{
    struct name_entry *n = known(b, name);

    if (n != NULL)
        return n;
    if (b->names == NULL)
        b->names = mem_zalloc(sizeof *b->names);
    struct name_entry **at = &b->names->entries[b->names->next];
    b->names->next = (b->names->next + 1) % ENTRIES;
    if (*at == NULL)
        *at = mem_alloc(sizeof **at);
    n = *at;
    *n = (struct name_entry){0};
    (void)snprintf(n->name, sizeof n->name, "%s", name);
    return n;
}

/* Takes one for this name off the list. */
static struct lookup *take(struct box *b, const char *name)
{
    struct lookup **at = &b->lookups;

    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    struct lookup *l = *at;
    if (l != NULL)
        *at = l->next;
    return l;
}

static void on_answer(void *arg, enum names_result r, const struct address *addresses, size_t n, uint32_t ttl)
{
    struct lookup *l = arg;

    if (r == NAMES_FOUND) {
        struct name_entry *entry = remember(l->box, l->name);
        memcpy(entry->addresses, addresses, n * sizeof *addresses);
        entry->n = n;
        entry->until_ms = clock_boot_ms() + (ttl * 1000LL > MIN_MS ? ttl * 1000LL : MIN_MS);
    }
    struct box *b = l->box;
    char name[POLICY_DOMAIN_MAX + 1];
    memcpy(name, l->name, sizeof name);
    while ((l = take(b, name)) != NULL) {
        names_cb cb = l->cb;
        void *cb_arg = l->arg;
        free(l);
        /* Each gets the entry as it is now: the one before may have asked for many other names. */
        if (cb != NULL)
            cb(cb_arg, r == NAMES_FOUND ? known(b, name) : NULL, r);
    }
}

static bool is_asked(const struct box *b, const char *name)
{
    const struct lookup *l = b->lookups;

    while (l != NULL && strcmp(l->name, name) != 0)
        l = l->next;
    return l != NULL;
}

struct lookup *names_find(struct box *b, const char *name, names_cb cb, void *arg)
{
    const struct name_entry *entry = known(b, name);

    if (is_fresh(entry)) {
        cb(arg, entry, NAMES_FOUND);
        return NULL;
    }
    struct lookup *l = mem_zalloc(sizeof *l);
    bool asked = is_asked(b, name);
    *l = (struct lookup){.next = b->lookups, .box = b, .cb = cb, .arg = arg};
    (void)snprintf(l->name, sizeof l->name, "%s", name);
    b->lookups = l;
    if (!asked)
        l->question = resolver_ask(b->egress->resolver, name, on_answer, l);
    return l;
}

void names_cancel(struct lookup *l)
{
    if (l != NULL)
        l->cb = NULL;           /* freed by the answer, for which others may wait */
}

void names_cancel_all(struct box *b)
{
    while (b->lookups != NULL) {
        struct lookup *l = b->lookups;
        b->lookups = l->next;
        if (l->question != NULL)
            resolver_cancel(l->question);
        free(l);
    }
}

const struct name_entry *names_of(const struct box *b, const struct address *to, const struct name_entry *after)
{
    bool found = after == NULL;

    for (size_t i = 0; b->names != NULL && i < ENTRIES; i++) {
        const struct name_entry *n = b->names->entries[i];
        if (n == NULL)
            continue;
        for (size_t j = 0; found && j < n->n; j++)
            if (memcmp(&n->addresses[j], to, sizeof *to) == 0)
                return n;
        found = found || n == after;
    }
    return NULL;
}

void names_free(struct name_cache *c)
{
    for (size_t i = 0; c != NULL && i < ENTRIES; i++)
        free(c->entries[i]);
    free(c);
}
