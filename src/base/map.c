/*
 * map.c - chained hash map with SipHash-2-4 (Aumasson and Bernstein, 2012)
 */
#include "base/map.h"

#include <stdint.h>
#include <string.h>

#include "base/ids.h"
#include "base/mem.h"

struct map_entry {
    struct map_entry *next;
    uint64_t hash;
    void *value;
    char key[];
};

static uint64_t rotl(uint64_t x, int b)
{
    return (x << b) | (x >> (64 - b));
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

static uint64_t hash_of(const char *key)
{
    static uint64_t k[2];
    static bool seeded;
    size_t len = strlen(key);

    if (!seeded) {
        random_bytes(k, sizeof k);
        seeded = true;
    }
    uint64_t v[4] = {k[0] ^ 0x736f6d6570736575ULL, k[1] ^ 0x646f72616e646f6dULL,
                     k[0] ^ 0x6c7967656e657261ULL, k[1] ^ 0x7465646279746573ULL};
    size_t left = len;
    for (; left >= 8; left -= 8, key += 8) {
        uint64_t m;
        memcpy(&m, key, 8);
        v[3] ^= m;
        sip_round(v);
        sip_round(v);
        v[0] ^= m;
    }
    uint64_t last = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)(unsigned char)key[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void map_init(struct map *m)
{
    *m = (struct map){0};
}

void map_done(struct map *m)
{
    for (size_t i = 0; i < m->nslots; i++) {
        struct map_entry *next;
        for (struct map_entry *e = m->slots[i]; e != NULL; e = next) {
            next = e->next;
            free(e);
        }
    }
    free(m->slots);
    *m = (struct map){0};
}

static struct map_entry **find(const struct map *m, const char *key, uint64_t hash)
{
    struct map_entry **p = &m->slots[hash & (m->nslots - 1)];

    while (*p != NULL && ((*p)->hash != hash || strcmp((*p)->key, key) != 0))
        p = &(*p)->next;
    return p;
}

static void grow(struct map *m)
{
    size_t n = m->nslots ? m->nslots * 2 : 16;
    struct map_entry **slots = mem_array(n, sizeof *slots);

    for (size_t i = 0; i < m->nslots; i++) {
        struct map_entry *next;
        for (struct map_entry *e = m->slots[i]; e != NULL; e = next) {
            next = e->next;
            e->next = slots[e->hash & (n - 1)];
            slots[e->hash & (n - 1)] = e;
        }
    }
    free(m->slots);
    m->slots = slots;
    m->nslots = n;
}

void *map_get(const struct map *m, const char *key)
{
    if (m->nslots == 0)
        return NULL;
    struct map_entry *e = *find(m, key, hash_of(key));
    return e != NULL ? e->value : NULL;
}

void *map_put(struct map *m, const char *key, void *value)
{
    uint64_t hash = hash_of(key);

    if (m->count >= m->nslots)
        grow(m);
    struct map_entry **p = find(m, key, hash);
    if (*p != NULL) {
        void *old = (*p)->value;
        (*p)->value = value;
        return old;
    }
    size_t len = strlen(key);
    struct map_entry *e = mem_alloc(sizeof *e + len + 1);
    e->next = NULL;
    e->hash = hash;
    e->value = value;
    memcpy(e->key, key, len + 1);
    *p = e;
    m->count++;
    return NULL;
}

void *map_del(struct map *m, const char *key)
{
    if (m->nslots == 0)
        return NULL;
    struct map_entry **p = find(m, key, hash_of(key));
    struct map_entry *e = *p;
    if (e == NULL)
        return NULL;
    void *value = e->value;
    *p = e->next;
    free(e);
    m->count--;
    return value;
}

bool map_next(const struct map *m, struct map_iter *it, const char **ret_key, void **ret_value)
{
    while (it->next == NULL) {
        if (it->slot >= m->nslots)
            return false;
        it->next = m->slots[it->slot++];
    }
    if (ret_key != NULL)
        *ret_key = it->next->key;
    if (ret_value != NULL)
        *ret_value = it->next->value;
    it->next = it->next->next;
    return true;
}
