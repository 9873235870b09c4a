/*
 * trust.c - the certificate authority of a sandbox whose connections are opened
 */
#include "node/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "ipc/egress_proto.h"
#include "json/json.h"
#include "net/authority.h"
#include "node/ops.h"
#include "node/query.h"
#include "sys/fd.h"

#define HELPER "/__modal/.bin/modal-sandbox-fs-tools"
#define PLACE_MS 30000

/* --- the key --------------------------------------------------------------------------------- */

static void file_name(const char *sandbox, char out[ID_SIZE + 8])
{
    (void)snprintf(out, ID_SIZE + 8, "%s.ca", sandbox);
}

void trust_wipe(char **pem)
{
    if (*pem != NULL)
        explicit_bzero(*pem, strlen(*pem));
    free(*pem);
}

static char *load(int dir_fd, const char *name)
{
    char text[EGRESS_AUTHORITY_BYTES];
    auto_close int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fd_read_all(fd, text, sizeof text);
    char *pem = n > 0 ? mem_strndup(text, (size_t)n) : NULL;

    explicit_bzero(text, sizeof text);
    return pem;
}

char *trust_authority(int dir_fd, const char *sandbox, struct err *e)
{
    char name[ID_SIZE + 8], common[ID_SIZE + 16];

    file_name(sandbox, name);
    char *pem = load(dir_fd, name);
    if (pem != NULL)
        return pem;
    (void)snprintf(common, sizeof common, "Quicksand %s", sandbox);
    pem = net_authority_make(common, e);
    if (pem == NULL)
        return NULL;
    int r = fd_replace_file(dir_fd, name, pem, strlen(pem), 0600, true);
    if (r < 0) {
        trust_wipe(&pem);
        err_sys(e, -r, "keep the authority of %s", sandbox);
        return NULL;
    }
    log_info("authority-made", "sandbox=%s", sandbox);
    return pem;
}

void trust_remove(int dir_fd, const char *sandbox)
{
    char name[ID_SIZE + 8];

    file_name(sandbox, name);
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        log_warn("authority-not-removed", "sandbox=%s error=%s", sandbox, strerror(errno));
}

/* --- the certificate ------------------------------------------------------------------------- */

struct place {
    struct node *node;
    char sandbox[ID_SIZE];
    struct mon_ref ref;
    struct query *q;
    char said[200];
    struct err failure;         /* ERR_OK: none */
    trust_done done;
    void *arg;
};

static void end(struct place *p, const struct err *e)
{
    p->done(p->arg, e);         /* e may be in it */
    free(p);
}

static void on_forgotten(void *arg, const struct err *e)
{
    struct place *p = arg;

    (void)e;                    /* it goes with the sandbox */
    end(p, p->failure.code != ERR_OK ? &p->failure : NULL);
}

static void forget(struct place *p)
{
    uint8_t space[256];

    query_do(p->node, &p->q, p->sandbox, MON_FORGET, space, mon_ref_encode(&p->ref, space, sizeof space), on_forgotten, p);
}

static void on_said(void *arg, const struct mon_read_r *r, const struct err *e)
{
    struct place *p = arg;
    size_t n = r != NULL ? r->len : 0;

    if (n >= sizeof p->said)
        n = sizeof p->said - 1;
    for (size_t i = 0; i < n; i++)
        p->said[i] = r->data[i] >= 0x20 && r->data[i] < 0x7f ? (char)r->data[i] : ' ';
    p->said[n] = '\0';
    err_param(&p->failure, ERR_PRECONDITION, "network",
              "the authority that the policy needs could not be put into the sandbox: %.150s",
              n > 0 ? p->said : "no reason was given");
    forget(p);
}

static void on_ended(void *arg, const struct exec_record *r, const struct err *e)
{
    struct place *p = arg;
    struct mon_read m = {.stream = 1, .max = sizeof p->said};

    if (e != NULL) {
        end(p, e);
    } else if (r->state < EXEC_EXITED) {
        query_exec(p->node, &p->q, p->sandbox, &p->ref, QUERY_POLL_MS, on_ended, p);
    } else if (r->state == EXEC_EXITED && r->signal == 0 && r->code == 0) {
        forget(p);
    } else {
        memcpy(m.exec_id, p->ref.exec_id, sizeof m.exec_id);
        query_read(p->node, &p->q, p->sandbox, &m, on_said, p);
    }
}

static int make_request(struct place *p, const char *certificate, struct mon_exec *ret, struct buf *spec, struct err *e)
{
    Quicksand__Node__ExecRef ref = QUICKSAND__NODE__EXEC_REF__INIT;
    Quicksand__Node__Command command = QUICKSAND__NODE__COMMAND__INIT;
    Quicksand__Node__ExecStartRequest rq = QUICKSAND__NODE__EXEC_START_REQUEST__INIT;
    auto_json *all = json_pack("{s:{s:s}}", "Trust", "pem", certificate);
    auto_free char *argument = js_text(all, false);
    ProtobufCBinaryData argv[2] = {{sizeof HELPER - 1, (uint8_t *)(uintptr_t)HELPER},
                                   {strlen(argument), (uint8_t *)argument}};
    char exec_id[ID_SIZE];

    id_make(exec_id, "trust-");
    (void)snprintf(p->ref.exec_id, sizeof p->ref.exec_id, "%s", exec_id);
    ref.sandbox_id = p->sandbox;
    ref.exec_id = exec_id;
    command.argv = argv;
    command.n_argv = 2;
    command.user = (char *)(uintptr_t) "0:0";
    command.has_cwd = 1;
    command.cwd = (ProtobufCBinaryData){1, (uint8_t *)(uintptr_t) "/"};
    rq.ref = &ref;
    rq.command = &command;
    rq.has_hidden = rq.has_merge_stderr = rq.has_timeout_ms = rq.has_helper = 1;
    rq.hidden = rq.merge_stderr = rq.helper = 1;
    rq.timeout_ms = PLACE_MS;
    return exec_request(p->node, &rq, ret, spec, e);
}

void trust_place(struct node *n, int dir_fd, const char *sandbox, trust_done done, void *arg)
{
    struct place *p = mem_zalloc(sizeof *p);
    struct mon_exec m;
    struct err e;
    auto_buf spec = {0};
    auto_trust *pem = trust_authority(dir_fd, sandbox, &e);
    const char *certificate = pem != NULL ? net_authority_certificate(pem) : NULL;

    *p = (struct place){.node = n, .done = done, .arg = arg};
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", sandbox);
    buf_init(&spec, LIMIT_CHANNEL_MESSAGE);
    if (pem != NULL && certificate == NULL)
        err_set(&e, ERR_INTERNAL, "the authority of %s on disk cannot be read", sandbox);
    if (certificate == NULL || make_request(p, certificate, &m, &spec, &e) < 0)
        end(p, &e);
    else
        query_start(n, &p->q, p->sandbox, &m, on_ended, p);
}
