/*
 * blobs.c - declaring and finding blobs, and the URLs by which they are sent
 *
 * Clients of two generations read the answer: one looks at upload_url, the other at the lists. Only the latter can send in parts.
 */
#include "api/modal/blobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/blobs.h"
#include "net/digest.h"

#define MD5_PLACEHOLDER "baadbaadbaadbaadbaadbaadbaadbaad"     /* "not computed" */

/* --- URLs -------------------------------------------------------------------------------------------- */

static int sign(const struct modal *m, const char *method, const char *id, int part,
                int64_t expires_s, char ret_hex[SHA256_HEX_SIZE])
{
    auto_free char *text = mem_printf("%s\n%s\n%d\n%" PRId64, method, id, part, expires_s);
    uint8_t sum[NET_SHA256_SIZE];

    if (net_hmac(m->blob_key, sizeof m->blob_key, text, strlen(text), sum) < 0)
        return -1;
    sha256_hex(sum, ret_hex);
    return 0;
}

char *blob_sign(const struct modal *m, const char *method, const char *id, int part, int64_t expires_s)
{
    char hex[SHA256_HEX_SIZE] = "", number[16] = "";

    (void)sign(m, method, id, part, expires_s, hex);
    if (part > 0)
        (void)snprintf(number, sizeof number, "/%d", part);
    return mem_printf(BLOB_PATH "%s%s?expires=%" PRId64 "&signature=%s", id, number, expires_s, hex);
}

int blob_check_url(const struct modal *m, const char *method, const char *path, const char *query, int64_t now_s,
                   char ret_id[ID_SIZE], int *ret_part, struct err *e)
{
    char given[SHA256_HEX_SIZE], hex[SHA256_HEX_SIZE], rest = 0;
    int64_t expires_s = 0;
    int n = 0;

    *ret_part = 0;
    path += strlen(BLOB_PATH);
    size_t len = strcspn(path, "/");
    if (len >= ID_SIZE)
        return err_set(e, ERR_DENIED, "the path names no blob");
    memcpy(ret_id, path, len);
    ret_id[len] = '\0';
    bool has_part = path[len] == '/';
    if (!id_is(ret_id, "bl-") || (has_part && (sscanf(path + len, "/%5d%c", ret_part, &rest) != 1 || *ret_part < 1)))
        return err_set(e, ERR_DENIED, "the path names no blob");
    if (sscanf(query, "expires=%16" SCNd64 "&signature=%64[0-9a-f]%n", &expires_s, given, &n) != 2 || query[n] != '\0' ||
        strlen(given) != sizeof given - 1)
        return err_set(e, ERR_DENIED, "the URL is not signed");
    if (sign(m, method, ret_id, *ret_part, expires_s, hex) < 0 || !net_equal(hex, given, sizeof hex))
        return err_set(e, ERR_DENIED, "the signature of the URL is wrong");
    return expires_s < now_s ? err_set(e, ERR_DENIED, "the URL has expired") : 0;
}

/* The server as the client reaches it. */
static char *url_of(const struct mcall *c, const char *method, const char *id, int part)
{
    auto_free char *path = blob_sign(c->m, method, id, part, clock_wall_ms() / 1000 + BLOB_OPEN_S);

    return mem_printf("%s://%s%s", c->is_tls ? "https" : "http", c->grpc != NULL ? grpc_call_authority(c->grpc) : "", path);
}

/* --- calls ------------------------------------------------------------------------------------------- */

/* Digests come in base64; hexadecimal here. */
static int read_digest(const char *text, size_t size, const char *field, char *ret_hex, struct err *e)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t raw[48];
    size_t n = strlen(text), len = 0;

    if (n > 64 || !base64_decode(text, n, raw, &len) || len != size)
        return err_param(e, ERR_INVALID, field, "the field %s is not the base64 of %zu bytes", field, size);
    for (size_t i = 0; i < len; i++) {
        ret_hex[2 * i] = digits[raw[i] >> 4];
        ret_hex[2 * i + 1] = digits[raw[i] & 15];
    }
    ret_hex[2 * len] = '\0';
    return 0;
}

static int declare(struct mcall *c, const M(BlobCreateRequest) *rq, bool in_parts, struct blob_row *ret, struct err *e)
{
    char hash[FILE_HASH_SIZE], md5[33] = "";

    if (read_digest(m_text(rq->content_sha256_base64), NET_SHA256_SIZE, "content_sha256_base64", hash, e) < 0 ||
        (m_text(rq->content_md5)[0] != '\0' && read_digest(rq->content_md5, NET_MD5_SIZE, "content_md5", md5, e) < 0))
        return -1;
    return blob_declare(c->m->blobs, hash, strcmp(md5, MD5_PLACEHOLDER) != 0 ? md5 : "", rq->content_length, in_parts, ret, e);
}

/* The clients that know no parts say who they are. */
static bool takes_parts(const struct mcall *c)
{
    const char *type = grpc_call_metadata(c->grpc, "x-modal-client-type");

    return type == NULL || (strcmp(type, "8") != 0 && strcmp(type, "9") != 0);
}

void rpc_blob_create(struct mcall *c)
{
    M(BlobCreateResponse) rs = MODAL__CLIENT__BLOB_CREATE_RESPONSE__INIT;
    M(UploadUrlList) urls = MODAL__CLIENT__UPLOAD_URL_LIST__INIT;
    M(MultiPartUploadList) lists = MODAL__CLIENT__MULTI_PART_UPLOAD_LIST__INIT;
    M(MultiPartUpload) parts = MODAL__CLIENT__MULTI_PART_UPLOAD__INIT, *items[] = {&parts};
    struct blob_row row;
    struct err e;

    if (declare(c, REQ(c, BlobCreateRequest), takes_parts(c), &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    int n = blob_parts(&row);
    auto_free char **list = mem_array((size_t)n, sizeof *list);
    auto_free char *end = url_of(c, "POST", row.id, 0);
    char *ids[] = {row.id};
    for (int i = 0; i < n; i++)
        list[i] = url_of(c, "PUT", row.id, i + 1);
    rs.blob_id = row.id;
    rs.blob_ids = ids;
    rs.n_blob_ids = 1;
    if (n == 1) {
        urls.items = list;
        urls.n_items = 1;
        rs.upload_type_oneof_case = MODAL__CLIENT__BLOB_CREATE_RESPONSE__UPLOAD_TYPE_ONEOF_UPLOAD_URL;
        rs.upload_url = list[0];
        rs.upload_types_oneof_case = MODAL__CLIENT__BLOB_CREATE_RESPONSE__UPLOAD_TYPES_ONEOF_UPLOAD_URLS;
        rs.upload_urls = &urls;
    } else {
        parts.has_part_length = true;
        parts.part_length = row.part_bytes;
        parts.upload_urls = list;
        parts.n_upload_urls = (size_t)n;
        parts.completion_url = end;
        lists.items = items;
        lists.n_items = 1;
        rs.upload_types_oneof_case = MODAL__CLIENT__BLOB_CREATE_RESPONSE__UPLOAD_TYPES_ONEOF_MULTIPARTS;
        rs.multiparts = &lists;
    }
    m_reply(c, &rs.base);
    for (int i = 0; i < n; i++)
        free(list[i]);
}

void rpc_blob_get(struct mcall *c)
{
    M(BlobGetResponse) rs = MODAL__CLIENT__BLOB_GET_RESPONSE__INIT;
    const char *id = m_text(REQ(c, BlobGetRequest)->blob_id);
    struct blob_row row;
    struct err e;

    if (store_blob_get(m_store(c), id, &row, &e) < 0) {
        m_fail(c, &e);
        return;
    }
    if (!row.is_complete || !files_has(c->m->files, row.hash)) {
        m_refuse(c, GRPC_NOT_FOUND, row.is_complete ? "Blob '%s' not found" : "Blob '%s' was not uploaded completely", id);
        return;
    }
    auto_free char *url = url_of(c, "GET", id, 0);
    rs.download_url = url;
    m_reply(c, &rs.base);
}
