/*
 * image_names.c - names of images: publishing, finding, listing, what they stood for before, deleting
 *
 * A name is "name:tag"; the tag latest is not spelled in the store. Names of environments other than the default one have
 * "environment/" before them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/modal/image_def.h"
#include "api/modal/images.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/image.h"

#define PAGE_MAX 1000
#define PAGE_USUAL 100

/* The prefix before the last slash is "environment" or "workspace/environment". */
static int name_of(struct mcall *c, const char *tag, const char *environment,
                   struct environment_row *env, char out[IMAGE_REF_MAX], struct err *e)
{
    char prefix[IMAGE_REF_MAX];
    const char *slash = strrchr(tag, '/');

    if (slash != NULL) {
        (void)snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - tag), tag);
        const char *last = strrchr(prefix, '/');
        environment = last != NULL ? last + 1 : prefix;
    }
    if (m_environment(c, environment, env, e) < 0)
        return -1;
    if (!image_tag_name(tag, m_env_key(env), out))
        return err_set(e, ERR_INVALID, "Invalid image name '%.100s': it is name:tag, each of A-Z a-z 0-9 . _ -", tag);
    return 0;
}

static size_t page_size(uint32_t asked)
{
    return asked == 0 ? PAGE_USUAL : asked < PAGE_MAX ? asked : PAGE_MAX;
}

static void fail_or_not_found(struct mcall *c, const char *tag, const struct err *e)
{
    if (e->code == ERR_NOT_FOUND)
        m_refuse(c, GRPC_NOT_FOUND, "Image '%.200s' not found", tag);
    else
        m_fail(c, e);
}

void rpc_image_get_by_tag(struct mcall *c)
{
    const M(ImageGetByTagRequest) *rq = REQ(c, ImageGetByTagRequest);
    M(ImageGetByTagResponse) rs = MODAL__CLIENT__IMAGE_GET_BY_TAG_RESPONSE__INIT;
    auto_image_row row = {0};
    char name[IMAGE_REF_MAX];
    struct environment_row env;
    struct err e;

    if (name_of(c, m_text(rq->tag), rq->environment_name, &env, name, &e) < 0) {
        m_fail(c, &e);
    } else if (store_image_get(m_store(c), name, &row, &e) < 0) {
        fail_or_not_found(c, m_text(rq->tag), &e);
    } else {
        rs.image_id = row.id;
        m_reply(c, &rs.base);
    }
}

static int publish(struct mcall *c, const char *name, struct revision_row *r, struct err *e)
{
    struct store *s = m_store(c);

    if (store_begin(s, STORE_DURABLE, e) < 0)
        return -1;
    if (store_image_name(s, name, r->image, e) == 0 && store_revision_put(s, name, r, e) == 0 && store_commit(s, e) == 0)
        return 0;
    store_rollback(s);
    return -1;
}

void rpc_image_publish(struct mcall *c)
{
    const M(ImagePublishRequest) *rq = REQ(c, ImagePublishRequest);
    M(ImagePublishResponse) rs = MODAL__CLIENT__IMAGE_PUBLISH_RESPONSE__INIT;
    struct revision_row r = {.published_us = clock_wall_us()};
    auto_image_row row = {0};
    char name[IMAGE_REF_MAX];
    struct environment_row env;
    struct err e;

    if (rq->allow_public)
        m_warn(c, "allow_public has no effect: there is one workspace");
    if (images_find_id(c, rq->image_id, &row) < 0) {
        m_refuse(c, GRPC_NOT_FOUND, "Could not find image with ID %.40s", m_text(rq->image_id));
        return;
    }
    memcpy(r.image, row.id, sizeof r.image);
    id_make(r.revision, "ir-");
    (void)snprintf(r.published_by, sizeof r.published_by, "%s", c->token.name);
    if (name_of(c, m_text(rq->tag), rq->environment_name, &env, name, &e) < 0 || publish(c, name, &r, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.image_id = row.id;
    rs.revision_id = r.revision;
    m_reply(c, &rs.base);
}

void rpc_image_name_delete(struct mcall *c)
{
    const char *tag = m_text(REQ(c, ImageNameDeleteRequest)->tag);
    struct store *s = m_store(c);
    char name[IMAGE_REF_MAX];
    struct environment_row env;
    struct err e;

    if (name_of(c, tag, NULL, &env, name, &e) < 0 || store_begin(s, STORE_DURABLE, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (store_image_unname(s, name, &e) < 0 || store_revision_remove(s, name, &e) < 0 || store_commit(s, &e) < 0) {
        store_rollback(s);
        fail_or_not_found(c, tag, &e);
        return;
    }
    m_reply_empty(c);
}

/* --- lists ----------------------------------------------------------------------------------------------- */

struct tag {
    M(ImageListTagsItem) m;
    char text[IMAGE_REF_MAX + 8], image[ID_SIZE];
};

struct tag_list {
    const char *prefix, *image;         /* "" = any */
    const char *environment;            /* key */
    char last[IMAGE_REF_SIZE];          /* name that was looked at */
    struct tag *tags;                   /* owned */
    size_t n, size, seen;
};

static void add_tag(void *ctx, const struct image_name_row *r)
{
    struct tag_list *l = ctx;
    const char *slash = strrchr(r->name, '/');
    size_t n = slash != NULL ? (size_t)(slash - r->name) : 0;

    if (l->n == l->size)
        return;                         /* the next page begins after `last` */
    l->seen++;
    (void)snprintf(l->last, sizeof l->last, "%s", r->name);
    if (n != strlen(l->environment) || strncmp(r->name, l->environment, n) != 0 ||
        (l->image[0] != '\0' && strcmp(l->image, r->image) != 0))
        return;
    struct tag *t = &l->tags[l->n];
    const char *name = slash != NULL ? slash + 1 : r->name;
    (void)snprintf(t->text, sizeof t->text, "%s%s", name, strchr(name, ':') != NULL ? "" : ":latest");
    if (strncmp(t->text, l->prefix, strlen(l->prefix)) != 0)
        return;
    l->n++;
    (void)snprintf(t->image, sizeof t->image, "%s", r->image);
    modal__client__image_list_tags_item__init(&t->m);
    t->m.tag = t->text;
    t->m.image_id = t->image;
    t->m.has_created_at = t->m.has_updated_at = true;
    t->m.created_at = (double)r->created_us / 1e6;
    t->m.updated_at = (double)r->updated_us / 1e6;
}

/* Until the page is full or there are no more names. */
static int fill_page(struct mcall *c, struct tag_list *l, bool *ret_more, struct err *e)
{
    do {
        char after[sizeof l->last];
        memcpy(after, l->last, sizeof after);
        l->seen = 0;
        if (store_image_names(m_store(c), after, PAGE_MAX, add_tag, l, e) < 0)
            return -1;
    } while (l->n < l->size && l->seen == PAGE_MAX);
    *ret_more = l->n == l->size;
    return 0;
}

void rpc_image_list_tags(struct mcall *c)
{
    const M(ImageListTagsRequest) *rq = REQ(c, ImageListTagsRequest);
    M(ImageListTagsResponse) rs = MODAL__CLIENT__IMAGE_LIST_TAGS_RESPONSE__INIT;
    struct environment_row env;
    bool has_more = false;
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    struct tag_list l = {.prefix = m_text(rq->tag_prefix), .image = m_text(rq->image_id), .environment = m_env_key(&env)};
    l.size = page_size(rq->max_objects);
    auto_free struct tag *tags = mem_array(l.size, sizeof *tags);
    auto_free M(ImageListTagsItem) **list = mem_array(l.size, sizeof *list);
    l.tags = tags;
    (void)snprintf(l.last, sizeof l.last, "%s", m_text(rq->page_token));
    if (fill_page(c, &l, &has_more, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    for (size_t i = 0; i < l.n; i++)
        list[i] = &tags[i].m;
    rs.items = list;
    rs.n_items = l.n;
    rs.next_page_token = has_more ? l.last : STR("");
    rs.environment_name = env.name;
    m_reply(c, &rs.base);
}

struct revision {
    M(ImageTagRevisionsItem) m;
    struct revision_row row;
};

struct revision_list {
    struct revision *items;             /* owned */
    size_t n, size;
    bool has_more;
};

static void add_revision(void *ctx, const struct revision_row *r)
{
    struct revision_list *l = ctx;

    if (l->n == l->size) {
        l->has_more = true;
        return;
    }
    struct revision *v = &l->items[l->n++];
    v->row = *r;
    modal__client__image_tag_revisions_item__init(&v->m);
    v->m.image_id = v->row.image;
    v->m.revision_id = v->row.revision;
    v->m.has_created_at = true;
    v->m.created_at = (double)r->published_us / 1e6;
    v->m.published_by = v->row.published_by;
}

/* A name that was given elsewhere stands for its image since that was made. */
static int add_present(struct mcall *c, const char *name, struct revision_list *l, struct err *e)
{
    auto_image_row row = {0};
    struct revision_row r = {.seq = INT64_MAX};

    if (store_image_get(m_store(c), name, &row, e) < 0)
        return e->code == ERR_NOT_FOUND ? 0 : -1;
    if (l->n > 0 && strcmp(l->items[0].row.image, row.id) == 0)
        return 0;
    memcpy(r.image, row.id, sizeof r.image);
    (void)snprintf(r.revision, sizeof r.revision, "ir-%.22s", row.id + 3);
    r.published_us = row.created_us;
    if (l->n == l->size) {
        l->n--;
        l->has_more = true;
    }
    memmove(l->items + 1, l->items, l->n * sizeof *l->items);
    size_t n = l->n;
    l->n = 0;
    add_revision(l, &r);
    l->n = n + 1;
    for (size_t i = 1; i < l->n; i++) {         /* they moved */
        l->items[i].m.image_id = l->items[i].row.image;
        l->items[i].m.revision_id = l->items[i].row.revision;
        l->items[i].m.published_by = l->items[i].row.published_by;
    }
    return 0;
}

void rpc_image_tag_revisions(struct mcall *c)
{
    const M(ImageTagRevisionsRequest) *rq = REQ(c, ImageTagRevisionsRequest);
    M(ImageTagRevisionsResponse) rs = MODAL__CLIENT__IMAGE_TAG_REVISIONS_RESPONSE__INIT;
    struct revision_list l = {.size = page_size(rq->max_objects)};
    auto_free struct revision *items = mem_array(l.size + 1, sizeof *items);
    auto_free M(ImageTagRevisionsItem) **list = mem_array(l.size + 1, sizeof *list);
    int64_t before = strtoll(m_text(rq->page_token), NULL, 10);
    char name[IMAGE_REF_MAX], next[24] = "";
    struct environment_row env;
    struct err e = {0};

    l.items = items;
    if (name_of(c, m_text(rq->tag), rq->environment_name, &env, name, &e) < 0 ||
        store_revision_list(m_store(c), name, before, l.size + 1, add_revision, &l, &e) < 0 ||
        (before == 0 && add_present(c, name, &l, &e) < 0)) {
        m_fail(c, &e);
        return;
    }
    for (size_t i = 0; i < l.n; i++)
        list[i] = &items[i].m;
    if (l.has_more)
        (void)snprintf(next, sizeof next, "%" PRId64, items[l.n - 1].row.seq);
    rs.items = list;
    rs.n_items = l.n;
    rs.next_page_token = next;
    rs.tag = rq->tag;
    rs.environment_name = env.name;
    m_reply(c, &rs.base);
}
