/*
 * objects.h - what queues and dicts share: named or ephemeral objects of an environment
 */
#ifndef QS_API_MODAL_OBJECTS_H
#define QS_API_MODAL_OBJECTS_H

#include "api/modal/mcall.h"

#define OBJECTS_MAX 1000

/* As ObjectCreationType says; *ret_new: it was made by this call. */
int object_get_or_create(struct mcall *c, enum object_kind kind, const char *environment, const char *name, int how,
                         struct object_row *ret, bool *ret_new, struct err *e);
/* ERR_NOT_FOUND for an id of no such object. */
int object_get(struct mcall *c, enum object_kind kind, const char *id, struct object_row *ret, struct err *e);
void object_heartbeat(struct mcall *c, enum object_kind kind, const char *id);
void object_delete(struct mcall *c, enum object_kind kind, const char *id);

struct object_list {
    struct object_row rows[OBJECTS_MAX];
    size_t n;
    struct environment_row env;
};

int object_list(struct mcall *c, enum object_kind kind, const char *environment, const M(ListPagination) *page,
                struct object_list *ret, struct err *e);

static inline struct blob blob_of(protobuf_c_boolean has, ProtobufCBinaryData d)
{
    return has ? (struct blob){d.data, d.len} : (struct blob){"", 0};
}

#endif
