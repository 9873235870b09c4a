/*
 * images.c - images: those that are here, by name or id
 */
#include "api/modal/images.h"

#include <stdio.h>
#include <string.h>

#include "api/modal/image_def.h"
#include "api/modal/mcall.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/image.h"

#define BASE "base"
#define STEPS_MAX 200                   /* of a chain, the newest */

int images_find_ref(struct mcall *c, const char *ref, struct image_row *row, bool *ret_stands_in, struct err *e)
{
    struct err local = {0};

    *ret_stands_in = false;
    if (image_get(c->m->core, ref, row, &local) == 0)
        return 0;
    if (local.code == ERR_NOT_FOUND && image_ref_is_debian(ref) && image_get(c->m->core, BASE, row, &local) == 0) {
        *ret_stands_in = true;
        return 0;
    }
    *e = local;
    return -1;
}

json_t *images_command(struct mcall *c, const char *id)
{
    auto_image_row row = {0};
    json_t *argv = json_array();

    if (images_find_id(c, id, &row) == 0) {
        auto_json *whole = json_loads(row.config, 0, NULL);
        json_t *config = json_object_get(whole, "config");
        (void)json_array_extend(argv, json_object_get(config, "Entrypoint"));
        (void)json_array_extend(argv, json_object_get(config, "Cmd"));
    }
    if (json_array_size(argv) > 0)
        return argv;
    json_decref(argv);
    return NULL;
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

/* --- how it was built ------------------------------------------------------------------------------------ */

struct step {
    M(ImageBuildStep) m;
    M(Timestamp) begin, end;
    char image[ID_SIZE], task[ID_SIZE];
};

static void fill_time(M(Timestamp) *t, int64_t us)
{
    modal__client__timestamp__init(t);
    t->has_seconds = t->has_nanos = true;
    t->seconds = us / 1000000;
    t->nanos = (int32_t)(us % 1000000 * 1000);
}

/* The task of a step is its operation: that is where history.c finds the log. */
static void fill_step(struct mcall *c, const char *image, const struct definition_row *d, int64_t made_us, struct step *s)
{
    auto_operation_row operation = {0};
    struct err e;
    int64_t begin_us = made_us, end_us = made_us;

    modal__client__image_build_step__init(&s->m);
    (void)snprintf(s->image, sizeof s->image, "%s", image);
    if (d->operation[0] != '\0' && store_operation_get(m_store(c), d->operation, &operation, &e) == 0) {
        memcpy(s->task, d->operation, sizeof s->task);
        begin_us = operation.created_us;
        end_us = operation.ended_us != 0 ? operation.ended_us : clock_wall_us();
    }
    fill_time(&s->begin, begin_us);
    fill_time(&s->end, end_us + 1000000);       /* the last line too */
    s->m.image_id = s->image;
    s->m.started_at = &s->begin;
    s->m.finished_at = &s->end;
    s->m.builder_app_id = STR(IMAGES_APP);
    s->m.builder_task_id = s->task;
}

/* Of the image back to the first that was not defined by a client; a build that failed has a chain too. */
void rpc_image_build_chain_get(struct mcall *c)
{
    const char *id = m_text(REQ(c, ImageBuildChainGetRequest)->image_id);
    M(ImageBuildChainGetResponse) rs = MODAL__CLIENT__IMAGE_BUILD_CHAIN_GET_RESPONSE__INIT;
    auto_free struct step *steps = mem_array(STEPS_MAX, sizeof *steps);
    M(ImageBuildStep) *list[STEPS_MAX];
    char at[ID_SIZE];
    size_t n = 0;
    struct err e;

    (void)snprintf(at, sizeof at, "%s", id);
    while (at[0] != '\0' && n < STEPS_MAX) {
        auto_image_row row = {0};
        struct definition_row d;
        bool is_here = images_find_id(c, at, &row) == 0;
        if (store_definition_get(m_store(c), NULL, at, &d, &e) < 0) {
            m_fail(c, &e);
            return;
        }
        if (!is_here && d.image[0] == '\0')
            break;
        memset(&steps[n], 0, sizeof steps[n]);
        fill_step(c, at, &d, is_here ? row.created_us : d.created_us, &steps[n]);
        n++;
        memcpy(at, d.base, sizeof at);
    }
    if (n == 0) {
        m_refuse(c, GRPC_NOT_FOUND, "Could not find image with ID %.40s", id);
        return;
    }
    for (size_t i = 0; i < n; i++)
        list[i] = &steps[n - 1 - i].m;
    rs.build_steps = list;
    rs.n_build_steps = n;
    m_reply(c, &rs.base);
}
