/*
 * allow.c - see allow.h
 */
#include "node/tunnel/allow.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int allow_read(struct allow *a, bool restricted, char *const *prefixes, size_t n, struct err *e)
{
    a->is_open = !restricted;
    a->n = n;
    a->list = mem_array(n + 1, sizeof *a->list);
    for (size_t i = 0; i < n; i++) {
        const char *why = cidr_parse(prefixes[i], &a->list[i]);
        if (why != NULL)
            return err_param(e, ERR_INVALID, "inbound_allow", "'%.60s': %s", prefixes[i], why);
    }
    return 0;
}

void allow_done(struct allow *a)
{
    free(a->list);
    *a = (struct allow){0};
}

bool allow_is_same(const struct allow *a, const struct allow *b)
{
    return a->is_open == b->is_open && a->n == b->n && memcmp(a->list, b->list, a->n * sizeof *a->list) == 0;
}

static bool peer_address(const struct sockaddr *sa, struct address *ret)
{
    char text[INET6_ADDRSTRLEN];
    const void *at = sa->sa_family == AF_INET    ? (const void *)&((const struct sockaddr_in *)sa)->sin_addr
                     : sa->sa_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr
                                                 : NULL;

    return at != NULL && inet_ntop(sa->sa_family, at, text, sizeof text) != NULL && address_parse(text, ret);
}

bool allow_has(const struct allow *a, const struct sockaddr *peer)
{
    struct address address;

    if (a->is_open)
        return true;
    if (!peer_address(peer, &address))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (cidr_has(&a->list[i], &address))
            return true;
    return false;
}

void allow_to_json(const struct allow *a, json_t *o)
{
    char text[ADDRESS_TEXT + 8];

    if (a->is_open)
        return;
    json_t *list = json_array();
    for (size_t i = 0; i < a->n; i++) {
        (void)cidr_text(&a->list[i], text, sizeof text);
        json_array_append_new(list, json_string(text));
    }
    json_object_set_new(o, "allowed", list);
}

void allow_from_json(struct allow *a, const json_t *o)
{
    const json_t *list = json_object_get(o, "allowed"), *item;
    size_t i;

    a->is_open = list == NULL;
    a->list = mem_array(json_array_size(list) + 1, sizeof *a->list);
    json_array_foreach(list, i, item)
        if (json_is_string(item) && cidr_parse(json_string_value(item), &a->list[a->n]) == NULL)
            a->n++;
}
