/*
 * images.c - images: those that are here, by name or id
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/modal/image_def.h"
#include "api/modal/images.h"
#include "api/modal/mcall.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/image.h"

#define BASE "base"
#define TAGS_MAX 1000

int images_find_ref(struct mcall *c, const char *ref, struct image_row *row, struct err *e)
{
    char name[IMAGE_REF_MAX];
    struct err local = {0};

    for (size_t i = 0; image_ref_candidate(ref, i, name); i++) {
        if (image_get(c->m->core, name, row, &local) == 0)
            return 0;
        if (local.code != ERR_NOT_FOUND) {
            *e = local;
            return -1;
        }
    }
    if (image_ref_is_debian(ref) && image_get(c->m->core, BASE, row, &local) == 0) {
        m_warn(c, "%s is not here: the image named base, which has Debian and Python, stands for it", ref);
        return 0;
    }
    return err_set(e, ERR_NOT_FOUND, "the image %s is not here", ref);
}

void images_fill_metadata(const struct image_row *row, M(ImageMetadata) *meta)
{
    modal__client__image_metadata__init(meta);
    meta->workdir = row->workdir;
}

int images_find_id(struct mcall *c, const char *id, struct image_row *row)
{
    struct err e;

    if (id_is(m_text(id), "im-") && image_get(c->m->core, id, row, &e) == 0)
        return 0;
    return -1;
}

void rpc_image_from_id(struct mcall *c)
{
    const char *id = REQ(c, ImageFromIdRequest)->image_id;
    M(ImageFromIdResponse) rs = MODAL__CLIENT__IMAGE_FROM_ID_RESPONSE__INIT;
    M(ImageMetadata) meta;
    auto_image_row row = {0};

    if (images_find_id(c, id, &row) < 0) {
        m_refuse(c, GRPC_NOT_FOUND, "Could not find image with ID %.40s", m_text(id));
        return;
    }
    images_fill_metadata(&row, &meta);
    rs.image_id = row.id;
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

void rpc_image_delete(struct mcall *c)
{
    const char *id = REQ(c, ImageDeleteRequest)->image_id;
    auto_image_row row = {0};
    struct err e;

    if (images_find_id(c, id, &row) < 0)
        m_refuse(c, GRPC_NOT_FOUND, "No Image with ID %.40s", m_text(id));
    else if (image_remove(c->m->core, row.id, &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

/* An image is published as it is: its revision is itself. */
static void revision_id(const struct image_row *row, char out[ID_SIZE])
{
    (void)snprintf(out, ID_SIZE, "ir-%.22s", row->id + 3);
}

/* --- names --------------------------------------------------------------------------------------------------------- */

/* The prefix before the last slash is "environment" or "workspace/environment". */
static int name_of(struct mcall *c, const char *tag, const char *environment, char out[IMAGE_REF_MAX], struct err *e)
{
    struct environment_row env;
    char prefix[IMAGE_REF_MAX];
    const char *slash = strrchr(tag, '/');

    if (slash != NULL) {
        (void)snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - tag), tag);
        const char *last = strrchr(prefix, '/');
        environment = last != NULL ? last + 1 : prefix;
        if (m_environment(c, environment, &env, e) < 0)
            return -1;
    } else if (m_environment(c, environment, &env, e) < 0) {
        return -1;
    }
    if (!image_tag_name(tag, m_env_key(&env), out))
        return err_set(e, ERR_INVALID, "Invalid image name '%.100s': it is name:tag, each of A-Z a-z 0-9 . _ -", tag);
    return 0;
}

void rpc_image_get_by_tag(struct mcall *c)
{
    const M(ImageGetByTagRequest) *rq = REQ(c, ImageGetByTagRequest);
    M(ImageGetByTagResponse) rs = MODAL__CLIENT__IMAGE_GET_BY_TAG_RESPONSE__INIT;
    auto_image_row row = {0};
    char name[IMAGE_REF_MAX];
    struct err e;

    if (name_of(c, m_text(rq->tag), rq->environment_name, name, &e) < 0) {
        m_fail(c, &e);
    } else if (image_get(c->m->core, name, &row, &e) < 0) {
        m_refuse(c, e.code == ERR_NOT_FOUND ? GRPC_NOT_FOUND : GRPC_INTERNAL, "Image '%s' not found", rq->tag);
    } else {
        rs.image_id = row.id;
        m_reply(c, &rs.base);
    }
}

void rpc_image_publish(struct mcall *c)
{
    const M(ImagePublishRequest) *rq = REQ(c, ImagePublishRequest);
    M(ImagePublishResponse) rs = MODAL__CLIENT__IMAGE_PUBLISH_RESPONSE__INIT;
    auto_image_row row = {0};
    char name[IMAGE_REF_MAX], revision[ID_SIZE];
    struct err e;

    if (rq->allow_public)
        m_warn(c, "allow_public has no effect: there is one workspace");
    if (images_find_id(c, rq->image_id, &row) < 0) {
        m_refuse(c, GRPC_NOT_FOUND, "Could not find image with ID %.40s", m_text(rq->image_id));
        return;
    }
    if (name_of(c, m_text(rq->tag), rq->environment_name, name, &e) < 0 || store_image_name(m_store(c), name, row.id, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    revision_id(&row, revision);
    rs.image_id = row.id;
    rs.revision_id = revision;
    m_reply(c, &rs.base);
}

struct tag {
    char *text;
    char image[ID_SIZE], revision[ID_SIZE];
    double created;
};

struct tag_list {
    const char *prefix, *image;         /* NULL = any */
    const char *environment;            /* key */
    struct tag tags[TAGS_MAX];
    size_t n;
};

static void tag_list_done(struct tag_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->tags[i].text);
    free(l);
}

static void add_tag(struct tag_list *l, const char *name, const struct image_row *row)
{
    const char *slash = strrchr(name, '/');
    size_t n = slash != NULL ? (size_t)(slash - name) : 0;

    if (l->n == TAGS_MAX || n != strlen(l->environment) || strncmp(name, l->environment, n) != 0)
        return;
    name = slash != NULL ? slash + 1 : name;
    if (l->prefix != NULL && strncmp(name, l->prefix, strlen(l->prefix)) != 0)
        return;
    struct tag *t = &l->tags[l->n++];
    t->text = mem_printf("%s%s", name, strchr(name, ':') != NULL ? "" : ":latest");
    memcpy(t->image, row->id, sizeof t->image);
    revision_id(row, t->revision);
    t->created = (double)row->created_us / 1e6;
}

static void add_image(void *ctx, const struct image_row *row)
{
    struct tag_list *l = ctx;
    auto_json *names = json_loads(row->names, 0, NULL);
    size_t i;
    json_t *name;

    if (l->image != NULL && strcmp(l->image, row->id) != 0)
        return;
    json_array_foreach(names, i, name)
        add_tag(l, json_string_value(name), row);
}

void rpc_image_list_tags(struct mcall *c)
{
    const M(ImageListTagsRequest) *rq = REQ(c, ImageListTagsRequest);
    M(ImageListTagsResponse) rs = MODAL__CLIENT__IMAGE_LIST_TAGS_RESPONSE__INIT;
    struct environment_row env;
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    struct tag_list *l = mem_zalloc(sizeof *l);
    l->prefix = rq->tag_prefix;
    l->image = m_text(rq->image_id)[0] != '\0' ? rq->image_id : NULL;
    l->environment = m_env_key(&env);
    if (store_image_list(m_store(c), 0, NULL, TAGS_MAX, add_image, l, &e) < 0) {
        tag_list_done(l);
        m_fail(c, &e);
        return;
    }
    auto_free M(ImageListTagsItem) *items = mem_array(l->n + 1, sizeof *items);
    auto_free M(ImageListTagsItem) **list = mem_array(l->n + 1, sizeof *list);
    for (size_t i = 0; i < l->n; i++) {
        modal__client__image_list_tags_item__init(&items[i]);
        items[i].tag = l->tags[i].text;
        items[i].image_id = l->tags[i].image;
        items[i].revision_id = l->tags[i].revision;
        items[i].has_created_at = items[i].has_updated_at = true;
        items[i].created_at = items[i].updated_at = l->tags[i].created;
        list[i] = &items[i];
    }
    rs.items = list;
    rs.n_items = l->n;
    rs.next_page_token = STR("");
    rs.environment_name = env.name;
    m_reply(c, &rs.base);
    tag_list_done(l);
}

void rpc_image_tag_revisions(struct mcall *c)
{
    const M(ImageTagRevisionsRequest) *rq = REQ(c, ImageTagRevisionsRequest);
    M(ImageTagRevisionsResponse) rs = MODAL__CLIENT__IMAGE_TAG_REVISIONS_RESPONSE__INIT;
    M(ImageTagRevisionsItem) item = MODAL__CLIENT__IMAGE_TAG_REVISIONS_ITEM__INIT, *items[] = {&item};
    auto_image_row row = {0};
    char name[IMAGE_REF_MAX], revision[ID_SIZE];
    struct environment_row env;
    struct err e;

    if (m_environment(c, rq->environment_name, &env, &e) < 0
        || name_of(c, m_text(rq->tag), rq->environment_name, name, &e) < 0 || image_get(c->m->core, name, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    revision_id(&row, revision);
    item.image_id = row.id;
    item.revision_id = revision;
    item.has_created_at = true;
    item.created_at = (double)row.created_us / 1e6;
    item.published_by = STR("");
    rs.items = items;
    rs.n_items = 1;
    rs.next_page_token = STR("");
    rs.tag = rq->tag;
    rs.environment_name = env.name;
    m_reply(c, &rs.base);
}

void rpc_image_build_chain_get(struct mcall *c)
{
    const char *id = REQ(c, ImageBuildChainGetRequest)->image_id;
    M(ImageBuildChainGetResponse) rs = MODAL__CLIENT__IMAGE_BUILD_CHAIN_GET_RESPONSE__INIT;
    M(ImageBuildStep) step = MODAL__CLIENT__IMAGE_BUILD_STEP__INIT, *steps[] = {&step};
    auto_image_row row = {0};

    if (images_find_id(c, id, &row) < 0) {
        m_refuse(c, GRPC_NOT_FOUND, "Could not find image with ID %.40s", m_text(id));
        return;
    }
    step.image_id = row.id;
    rs.build_steps = steps;
    rs.n_build_steps = 1;
    m_reply(c, &rs.base);
}
