/*
 * mounts.c - sets of a client's files
 *
 * Contents are files of core/files.h; a mount is a list of paths, hashes and modes. Its id comes from what is in it, so the same
 * files are the same mount, and what is built of them is found again. One without a name is forgotten when it was not used
 * for a while.
 */
#include <stdio.h>
#include <string.h>

#include "api/modal/images.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"

#define MOUNT_KEEP_S (7 * 24 * 3600LL)      /* less than files are kept without use */
#define NAMED_US (3600 * 1000000LL)         /* how often files of named mounts are asked for */

/* --- files --------------------------------------------------------------------------------------------- */

static M(Timestamp) now(void)
{
    M(Timestamp) t = MODAL__CLIENT__TIMESTAMP__INIT;
    int64_t us = clock_wall_us();

    t.has_seconds = t.has_nanos = true;
    t.seconds = us / 1000000;
    t.nanos = (int32_t)(us % 1000000 * 1000);
    return t;
}

void rpc_mount_batched_check_existence(struct mcall *c)
{
    const M(MountBatchedCheckExistenceRequest) *rq = REQ(c, MountBatchedCheckExistenceRequest);
    M(MountBatchedCheckExistenceResponse) rs = MODAL__CLIENT__MOUNT_BATCHED_CHECK_EXISTENCE_RESPONSE__INIT;
    M(Timestamp) t = now();
    auto_free char **missing = mem_array(rq->n_sha256_hex_hashes + 1, sizeof *missing);
    struct err e;

    if (store_begin(m_store(c), STORE_FAST, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    for (size_t i = 0; i < rq->n_sha256_hex_hashes; i++)
        if (!files_has(c->m->files, rq->sha256_hex_hashes[i]))
            missing[rs.n_missing_sha256_hex_hashes++] = rq->sha256_hex_hashes[i];
    if (store_commit(m_store(c), &e) < 0) {
        m_fail(c, &e);
        return;
    }
    rs.missing_sha256_hex_hashes = missing;
    rs.checked_at = &t;
    m_reply(c, &rs.base);
}

static int put_blob(struct mcall *c, const char *id, const char *hash, struct err *e)
{
    struct blob_row row;

    if (store_blob_get(m_store(c), id, &row, e) < 0)
        return -1;
    if (strcmp(row.hash, hash) != 0)
        return err_set(e, ERR_INVALID, "the blob %s has the hash %.12s... and not %.12s...", id, row.hash, hash);
    if (!row.is_complete)
        return err_set(e, ERR_PRECONDITION, "the blob %s was not uploaded completely", id);
    if (!files_has(c->m->files, hash))
        return err_set(e, ERR_PRECONDITION, "the blob %s is not here any more: upload it again", id);
    return 0;
}

void rpc_mount_put_file(struct mcall *c)
{
    const M(MountPutFileRequest) *rq = REQ(c, MountPutFileRequest);
    M(MountPutFileResponse) rs = MODAL__CLIENT__MOUNT_PUT_FILE_RESPONSE__INIT;
    M(Timestamp) t = now();
    const char *hash = m_text(rq->sha256_hex), *blob = m_text(rq->data_blob_id);
    struct err e;

    if (!files_is_hash(hash)) {
        m_refuse(c, GRPC_INVALID_ARGUMENT, "sha256_hex is not 64 hexadecimal digits");
        return;
    }
    if ((blob[0] != '\0' && put_blob(c, blob, hash, &e) < 0) ||
        (rq->has_data && files_put(c->m->files, hash, rq->data.data, rq->data.len, &e) < 0)) {
        m_fail(c, &e);
        return;
    }
    rs.has_exists = true;
    rs.exists = files_has(c->m->files, hash);
    rs.checked_at = &t;
    m_reply(c, &rs.base);
}

/* --- mounts -------------------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b)
{
    const M(MountFile) *const *x = a, *const *y = b;

    return strcmp(m_text((*x)->filename), m_text((*y)->filename));
}

static int add_file(struct mcall *c, const M(MountFile) *f, json_t *files, struct err *e)
{
    const char *name = m_text(f->filename), *hash = m_text(f->sha256_hex);

    if (name[0] == '\0' || strlen(name) >= LIMIT_PATH)
        return err_set(e, ERR_INVALID, "a path in the mount is empty or has more than %d bytes", LIMIT_PATH - 1);
    if (!files_has(c->m->files, hash))
        return err_set(e, ERR_PRECONDITION, "the file '%.100s' of the mount was not uploaded", name);
    (void)json_array_append_new(files, json_pack("[s, s, i]", name, hash, f->has_mode ? (int)(f->mode & 07777) : 0644));
    return 0;
}

/* In the order of their paths: clients send them as they come. */
static json_t *list_files(struct mcall *c, const M(MountGetOrCreateRequest) *rq, struct err *e)
{
    auto_json *files = json_array();

    if (rq->n_files > LIMIT_MOUNT_FILES) {
        (void)err_set(e, ERR_TOO_LARGE, "a mount has at most %d files, this one has %zu", LIMIT_MOUNT_FILES, rq->n_files);
        return NULL;
    }
    auto_free const M(MountFile) **sorted = mem_array(rq->n_files + 1, sizeof *sorted);
    for (size_t i = 0; i < rq->n_files; i++)
        sorted[i] = rq->files[i];
    qsort(sorted, rq->n_files, sizeof *sorted, compare_paths);
    if (store_begin(m_store(c), STORE_FAST, e) < 0)
        return NULL;
    for (size_t i = 0; i < rq->n_files; i++) {
        if (add_file(c, sorted[i], files, e) < 0) {
            store_rollback(m_store(c));
            return NULL;
        }
    }
    return store_commit(m_store(c), e) == 0 ? take_ptr(&files) : NULL;
}

static void make_id(const char *environment, const char *name, const char *files,
                    char ret_id[ID_SIZE], char ret_hex[SHA256_HEX_SIZE])
{
    static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, environment, strlen(environment) + 1);
    sha256_add(&s, name, strlen(name) + 1);
    sha256_add(&s, files, strlen(files));
    sha256_end(&s, sum);
    sha256_hex(sum, ret_hex);
    memcpy(ret_id, "mo-", 3);
    for (size_t i = 0; i < ID_SUFFIX; i++)
        ret_id[3 + i] = alphabet[sum[i] % 62];
    ret_id[3 + ID_SUFFIX] = '\0';
}

/* A nameless one is the same whoever asks: the environment is that of the name. */
static int make(struct mcall *c, const M(MountGetOrCreateRequest) *rq, const char *environment, char ret_id[ID_SIZE],
                char ret_hex[SHA256_HEX_SIZE], struct err *e)
{
    const char *name = m_text(rq->deployment_name);
    char other[ID_SIZE];

    if (rq->object_creation_type ==
            MODAL__CLIENT__OBJECT_CREATION_TYPE__OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS &&
        name[0] != '\0' && store_mount_by_name(m_store(c), environment, name, other, NULL) == 0)
        return err_set(e, ERR_EXISTS, "Mount '%.100s' already exists", name);
    auto_json *files = list_files(c, rq, e);
    if (files == NULL)
        return -1;
    auto_free char *text = js_text(files, false);
    if (name[0] == '\0')
        environment = "";
    make_id(environment, name, text, ret_id, ret_hex);
    return store_mount_put(m_store(c), ret_id, environment, name, text, clock_wall_us(), e);
}

/* Those that Modal's own service has under these names, and what a client wants them for. */
static int find_named(struct mcall *c, const char *environment, const char *name, char id[ID_SIZE], struct err *e)
{
    int r = store_mount_by_name(m_store(c), environment, name, id, e);

    if (r == 0 || e->code != ERR_NOT_FOUND)
        return r;
    if (strncmp(name, "modal-client-mount", 18) == 0)
        return err_set(
            e, ERR_NOT_FOUND,
            "Mount '%.60s' not found: this server runs no functions, in builds (run_function) neither; do the same "
            "with run_commands",
            name);
    if (strncmp(name, "python-build-standalone", 23) == 0)
        return err_set(
            e, ERR_NOT_FOUND,
            "Mount '%.80s' not found: this server has no Pythons for add_python; begin with an image that has one",
            name);
    return r;
}

void rpc_mount_get_or_create(struct mcall *c)
{
    const M(MountGetOrCreateRequest) *rq = REQ(c, MountGetOrCreateRequest);
    M(MountGetOrCreateResponse) rs = MODAL__CLIENT__MOUNT_GET_OR_CREATE_RESPONSE__INIT;
    M(MountHandleMetadata) meta = MODAL__CLIENT__MOUNT_HANDLE_METADATA__INIT;
    const char *name = m_text(rq->deployment_name);
    struct environment_row env;
    char id[ID_SIZE], hex[SHA256_HEX_SIZE] = "";
    struct err e;
    int r = m_environment(c, rq->environment_name, &env, &e);

    if (r == 0 && name[0] != '\0' && rq->n_files == 0)
        r = find_named(c, m_env_key(&env), name, id, &e);
    else if (r == 0)
        r = make(c, rq, m_env_key(&env), id, hex, &e);
    if (r < 0) {
        m_fail(c, &e);
        return;
    }
    rs.mount_id = id;
    meta.content_checksum_sha256_hex = hex;
    rs.handle_metadata = &meta;
    m_reply(c, &rs.base);
}

/* --- use ------------------------------------------------------------------------------------------------- */

json_t *mount_files(struct modal *m, const char *id, struct err *e)
{
    struct store *s = core_store(m->core);
    auto_free char *text = NULL;

    if (store_mount_get(s, id, &text, e) < 0 || store_mount_used(s, id, clock_wall_us(), e) < 0)
        return NULL;
    json_t *files = json_loads(text, 0, NULL);
    if (files == NULL)
        (void)err_set(e, ERR_INTERNAL, "the row of the mount %s cannot be read", id);
    return files;
}

static void keep_files(void *ctx, const char *id, const char *files)
{
    struct modal *m = ctx;
    auto_json *list = json_loads(files, 0, NULL);
    size_t i;
    json_t *f;

    json_array_foreach(list, i, f)
        (void)files_has(m->files, json_string_value(json_array_get(f, 1)));
}

void mounts_sweep(struct modal *m)
{
    struct store *s = core_store(m->core);
    int64_t now_us = clock_wall_us();
    struct err e = {0};

    if (store_mount_expire(s, now_us - MOUNT_KEEP_S * 1000000, &e) < 0)
        log_warn("mounts.sweep", "cause=\"%s\"", e.message);
    if (now_us < m->named_us)
        return;
    m->named_us = now_us + NAMED_US;
    if (store_begin(s, STORE_FAST, &e) < 0 || store_mount_named(s, keep_files, m, &e) < 0 || store_commit(s, &e) < 0) {
        store_rollback(s);
        log_warn("mounts.sweep", "cause=\"%s\"", e.message);
    }
}
