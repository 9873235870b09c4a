/*
 * dicts.c - dicts: opaque keys and values; keys are equal when their bytes are
 */
#include <stdio.h>
#include <string.h>

#include "api/modal/objects.h"
#include "base/mem.h"

static int put_entries(struct mcall *c, const char *dict, M(DictEntry) *const *entries, size_t n, bool if_absent,
                       bool *ret_created, struct err *e)
{
    *ret_created = false;
    for (size_t i = 0; i < n; i++) {
        bool is_new;
        struct blob key = blob_of(entries[i]->has_key, entries[i]->key);
        struct blob value = blob_of(entries[i]->has_value, entries[i]->value);
        if (store_dict_put(m_store(c), dict, key, value, if_absent, &is_new, e) < 0)
            return -1;
        *ret_created |= is_new;
    }
    return 0;
}

/* All of them or none. */
static int put_all(struct mcall *c, const char *dict, M(DictEntry) *const *entries, size_t n, bool if_absent,
                   bool *ret_created, struct err *e)
{
    if (store_begin(m_store(c), STORE_FAST, e) < 0)
        return -1;
    if (put_entries(c, dict, entries, n, if_absent, ret_created, e) == 0 && store_commit(m_store(c), e) == 0)
        return 0;
    store_rollback(m_store(c));
    return -1;
}

void rpc_dict_get_or_create(struct mcall *c)
{
    const M(DictGetOrCreateRequest) *rq = REQ(c, DictGetOrCreateRequest);
    M(DictGetOrCreateResponse) rs = MODAL__CLIENT__DICT_GET_OR_CREATE_RESPONSE__INIT;
    M(DictMetadata) meta = MODAL__CLIENT__DICT_METADATA__INIT;
    struct object_row row;
    bool is_new, created;
    struct err e;

    if (object_get_or_create(c, OBJECT_DICT, rq->environment_name, m_text(rq->deployment_name), (int)rq->object_creation_type,
                             &row, &is_new, &e) < 0
        || (is_new && put_all(c, row.id, rq->data, rq->n_data, false, &created, &e) < 0)) {
        m_fail(c, &e);
        return;
    }
    M(CreationInfo) creation = m_creation(row.created_us);
    meta.name = row.name;
    meta.creation_info = &creation;
    rs.dict_id = row.id;
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

void rpc_dict_get_by_id(struct mcall *c)
{
    M(DictGetByIdResponse) rs = MODAL__CLIENT__DICT_GET_BY_ID_RESPONSE__INIT;
    M(DictMetadata) meta = MODAL__CLIENT__DICT_METADATA__INIT;
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_DICT, REQ(c, DictGetByIdRequest)->dict_id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    M(CreationInfo) creation = m_creation(row.created_us);
    meta.name = row.name;
    meta.creation_info = &creation;
    rs.dict_id = row.id;
    rs.metadata = &meta;
    m_reply(c, &rs.base);
}

void rpc_dict_heartbeat(struct mcall *c)
{
    object_heartbeat(c, OBJECT_DICT, REQ(c, DictHeartbeatRequest)->dict_id);
}

void rpc_dict_delete(struct mcall *c)
{
    object_delete(c, OBJECT_DICT, REQ(c, DictDeleteRequest)->dict_id);
}

void rpc_dict_list(struct mcall *c)
{
    const M(DictListRequest) *rq = REQ(c, DictListRequest);
    M(DictListResponse) rs = MODAL__CLIENT__DICT_LIST_RESPONSE__INIT;
    auto_free struct object_list *l = mem_zalloc(sizeof *l);
    struct err e;

    if (object_list(c, OBJECT_DICT, rq->environment_name, rq->pagination, l, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    auto_free M(DictListResponse__DictInfo) *items = mem_array(l->n + 1, sizeof *items);
    auto_free M(DictListResponse__DictInfo) **list = mem_array(l->n + 1, sizeof *list);
    auto_free M(DictMetadata) *metas = mem_array(l->n + 1, sizeof *metas);
    auto_free M(CreationInfo) *creations = mem_array(l->n + 1, sizeof *creations);
    for (size_t i = 0; i < l->n; i++) {
        modal__client__dict_metadata__init(&metas[i]);
        creations[i] = m_creation(l->rows[i].created_us);
        metas[i].name = l->rows[i].name;
        metas[i].creation_info = &creations[i];
        modal__client__dict_list_response__dict_info__init(&items[i]);
        items[i].name = l->rows[i].name;
        items[i].dict_id = l->rows[i].id;
        items[i].has_created_at = true;
        items[i].created_at = (double)l->rows[i].created_us / 1e6;
        items[i].metadata = &metas[i];
        list[i] = &items[i];
    }
    rs.dicts = list;
    rs.n_dicts = l->n;
    rs.environment_name = l->env.name;
    m_reply(c, &rs.base);
}

/* --- entries ------------------------------------------------------------------------------------------------------- */

static int get_value(struct mcall *c, const char *dict, struct blob key, void **ret_value, size_t *ret_n, struct err *e)
{
    struct object_row row;

    *ret_value = NULL;
    return object_get(c, OBJECT_DICT, dict, &row, e) < 0 ? -1 : store_dict_get(m_store(c), row.id, key, ret_value, ret_n, e);
}

void rpc_dict_get(struct mcall *c)
{
    const M(DictGetRequest) *rq = REQ(c, DictGetRequest);
    M(DictGetResponse) rs;
    auto_free void *value = NULL;
    size_t n = 0;
    struct err e;

    if (get_value(c, rq->dict_id, blob_of(rq->has_key, rq->key), &value, &n, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    modal__client__dict_get_response__init(&rs);
    rs.has_found = true;
    rs.found = rs.has_value = value != NULL;
    rs.value = (ProtobufCBinaryData){n, value};
    m_reply(c, &rs.base);
}

void rpc_dict_pop(struct mcall *c)
{
    const M(DictPopRequest) *rq = REQ(c, DictPopRequest);
    M(DictPopResponse) rs;
    struct blob key = blob_of(rq->has_key, rq->key);
    auto_free void *value = NULL;
    size_t n = 0;
    struct err e;

    if (get_value(c, rq->dict_id, key, &value, &n, &e) < 0
        || (value != NULL && store_dict_remove(m_store(c), rq->dict_id, &key, &e) < 0)) {
        m_fail(c, &e);
        return;
    }
    modal__client__dict_pop_response__init(&rs);
    rs.has_found = true;
    rs.found = rs.has_value = value != NULL;
    rs.value = (ProtobufCBinaryData){n, value};
    m_reply(c, &rs.base);
}

void rpc_dict_contains(struct mcall *c)
{
    const M(DictContainsRequest) *rq = REQ(c, DictContainsRequest);
    M(DictContainsResponse) rs = MODAL__CLIENT__DICT_CONTAINS_RESPONSE__INIT;
    auto_free void *value = NULL;
    size_t n = 0;
    struct err e;

    if (get_value(c, rq->dict_id, blob_of(rq->has_key, rq->key), &value, &n, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.has_found = true;
    rs.found = value != NULL;
    m_reply(c, &rs.base);
}

void rpc_dict_update(struct mcall *c)
{
    const M(DictUpdateRequest) *rq = REQ(c, DictUpdateRequest);
    M(DictUpdateResponse) rs = MODAL__CLIENT__DICT_UPDATE_RESPONSE__INIT;
    struct object_row row;
    bool created = false;
    struct err e;

    if (object_get(c, OBJECT_DICT, rq->dict_id, &row, &e) < 0
        || put_all(c, row.id, rq->updates, rq->n_updates, rq->if_not_exists, &created, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.has_created = true;
    rs.created = created;
    m_reply(c, &rs.base);
}

void rpc_dict_len(struct mcall *c)
{
    M(DictLenResponse) rs = MODAL__CLIENT__DICT_LEN_RESPONSE__INIT;
    struct object_row row;
    int64_t n = 0;
    struct err e;

    if (object_get(c, OBJECT_DICT, REQ(c, DictLenRequest)->dict_id, &row, &e) < 0
        || store_dict_len(m_store(c), row.id, &n, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.has_len = true;
    rs.len = (int32_t)n;
    m_reply(c, &rs.base);
}

void rpc_dict_clear(struct mcall *c)
{
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_DICT, REQ(c, DictClearRequest)->dict_id, &row, &e) < 0
        || store_dict_remove(m_store(c), row.id, NULL, &e) < 0)
        m_fail(c, &e);
    else
        m_reply_empty(c);
}

static void send_entry(void *ctx, struct blob key, struct blob value)
{
    struct mcall *c = ctx;
    const M(DictContentsRequest) *rq = REQ(c, DictContentsRequest);
    M(DictEntry) m;

    modal__client__dict_entry__init(&m);
    m.has_key = rq->keys;
    m.key = (ProtobufCBinaryData){key.n, (uint8_t *)(uintptr_t)key.p};
    m.has_value = rq->values;
    m.value = (ProtobufCBinaryData){value.n, (uint8_t *)(uintptr_t)value.p};
    m_send(c, &m.base);
}

void rpc_dict_contents(struct mcall *c)
{
    struct object_row row;
    struct err e;

    if (object_get(c, OBJECT_DICT, REQ(c, DictContentsRequest)->dict_id, &row, &e) < 0
        || store_dict_each(m_store(c), row.id, send_entry, c, &e) < 0)
        m_fail(c, &e);
    else
        m_end(c);
}
