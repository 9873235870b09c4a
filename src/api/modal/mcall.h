/*
 * mcall.h - one call of the dialect, from its request to its answer
 *
 * Private to api/modal. A call lives until its handler has answered: exactly one of m_reply, m_fail, m_refuse, m_end. The client
 * may leave before; then on_gone is called, if the handler set it, and every answer goes nowhere.
 */
#ifndef QS_API_MODAL_MCALL_H
#define QS_API_MODAL_MCALL_H

#include <protobuf-c/protobuf-c.h>

#include "api/modal/modal.h"
#include "base/buf.h"
#include "base/map.h"
#include "core/blobs.h"
#include "core/idempotency.h"
#include "json/json.h"
#include "modal/client.pb-c.h"
#include "net/seal.h"
#include "store/objects.h"

#define M(type) Modal__Client__##type

struct mcall;

enum support { SUPPORT_NONE, SUPPORT_PARTIAL, SUPPORT_FULL };

struct rpc {
    const char *name;
    const ProtobufCMessageDescriptor *request;  /* NULL with SUPPORT_NONE */
    void (*fn)(struct mcall *c);                /* NULL with SUPPORT_NONE */
    enum support support;
    const char *scope;                          /* "" = any token */
    const char *note;                           /* what differs, or what to do instead */
};

extern const struct rpc rpcs[];
extern const size_t nrpcs;

struct modal {
    struct core *core;
    struct vault *vault;
    char router_host[128];
    int router_port;
    struct map waiting;                 /* queue id -> struct queue_waiters: gets that wait for a put */
    struct map stdins;                  /* sandbox id -> struct stdin_state */
    struct files *files;                /* what clients uploaded; owned */
    struct blobs *blobs;                /* owned */
    int64_t named_us;                   /* when files of named mounts are asked for again */
    unsigned char blob_key[NET_SEAL_KEY_SIZE];      /* of signed URLs */
    struct loop_timer *sweep;
};

struct mcall {
    struct modal *m;
    const struct rpc *rpc;
    struct grpc_call *grpc;             /* NULL once the client has gone */
    ProtobufCMessage *request;          /* owned; NULL until it has come */
    const char *nul_field;              /* a field of it with a NUL in it, or NULL */
    uint8_t hash[IDEM_HASH_SIZE];       /* of name and request */
    struct token token;                 /* who calls */
    bool is_tls;
    void *user;                         /* the handler's state */
    void (*on_gone)(struct mcall *c);   /* the client left: end the call, now or later */
    void (*on_writable)(struct mcall *c);
    int nwarnings;
    int64_t begin_ms;
    char target[LIMIT_ID];              /* for the audit line */
};

/* ObjectCreationType of the protocol. */
enum { CREATE_LOOKUP, CREATE_IF_MISSING, CREATE_NEW, CREATE_OVERWRITE, CREATE_ANONYMOUS, CREATE_EPHEMERAL };

/* The request as its type: REQ(c, SandboxWaitRequest). */
#define REQ(c, type) ((const M(type) *)(c)->request)

/* --- answers ------------------------------------------------------------------------------------------------------- */

void m_reply(struct mcall *c, const ProtobufCMessage *reply);
void m_reply_empty(struct mcall *c);
void m_fail(struct mcall *c, const struct err *e);
/* An error whose text clients look at, or whose status is not that of an err_code. */
void m_refuse(struct mcall *c, enum grpc_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Streams: messages, then the end. */
void m_send(struct mcall *c, const ProtobufCMessage *message);
void m_end(struct mcall *c);
/* The client prints it once. */
void m_warn(struct mcall *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- what handlers share ------------------------------------------------------------------------------------------- */

struct store *m_store(const struct mcall *c);
/* NULL = none. */
const char *m_idem_key(const struct mcall *c);
/* Text of an optional field: "" when it is absent. */
static inline const char *m_text(const char *s)
{
    return s != NULL ? s : "";
}
/* A message's string field: packing only reads. */
#define STR(s) ((char *)(uintptr_t)(s))

/* A timer of a long poll: fires once, and is gone when the call is. seconds < 0 counts as 0. */
uint64_t m_poll_ms(double seconds, double most);

/* Environment of a request: "" = the default one. *ret_key is what rows of apps and objects carry ("" for the default). */
int m_environment(const struct mcall *c, const char *name, struct environment_row *ret, struct err *e);
const char *m_env_key(const struct environment_row *env);
const char *m_env_name(struct mcall *c, const char *key, struct environment_row *room);

/* Object names: 1 to 64 of [A-Za-z0-9-_.], not of the form of an app id. */
int m_check_name(const char *what, const char *name, struct err *e);

/* Every text of a message, however deep, is UTF-8. */
int m_check_texts(const ProtobufCMessage *m, struct err *e);

/* Page of a list: before_us 0 = from the newest. */
void m_page(const M(ListPagination) *p, int64_t *ret_before_us, size_t *ret_limit);

/* Idempotency for creations without a sandbox: *ret_object is the object of the first call with the key, or `object`. */
int m_idem(struct mcall *c, const char *object, enum idem_result *ret, char ret_object[IDEM_OBJECT_SIZE], struct err *e);

/* Handlers, in the files named after what they are about. */
#define RPC(name, type, fn, support, scope, note) void fn(struct mcall *c);
#define RPC_NONE(name, note)
#include "api/modal/rpcs.def"
#undef RPC
#undef RPC_NONE

static inline M(CreationInfo) m_creation(int64_t created_us)
{
    M(CreationInfo) m = MODAL__CLIENT__CREATION_INFO__INIT;

    m.has_created_at = true;
    m.created_at = (double)created_us / 1e6;
    return m;
}

#endif
