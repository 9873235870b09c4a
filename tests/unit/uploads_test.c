/*
 * uploads_test.c - files by their content and blobs on their way: hashes, ages, parts, two senders at once, signed URLs
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/modal/blobs.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/blobs.h"
#include "json/json.h"
#include "store/store.h"
#include "sys/fd.h"

static char dir[64];
static struct loop *loop;
static struct store *store;
static struct core *core;
static struct files *files;
static struct blobs *blobs;

static int open_all(void **state)
{
    char path[128];
    struct err e;

    (void)snprintf(dir, sizeof dir, "/tmp/uploads-test-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/control", dir);
    if (mkdir(path, 0700) < 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/control/state.db", dir);
    js_init();
    loop = loop_new();
    if (store_open(path, &store, &e) < 0)
        return -1;
    core = core_new(loop, store, "unix:/nowhere", dir);
    files = files_open(core, &e);
    blobs = blobs_open(core, files);
    return files != NULL ? 0 : -1;
}

static int close_all(void **state)
{
    char command[128];

    blobs_free(blobs);
    files_free(files);
    core_free(core);
    store_close(store);
    loop_free(loop);
    static const char *const left[] = {"control/state.db",
                                       "control/state.db-wal",
                                       "control/state.db-shm",
                                       "control/uploads",
                                       "control",
                                       ""};
    for (size_t i = 0; i < array_len(left); i++) {
        (void)snprintf(command, sizeof command, "%s/%s", dir, left[i]);
        (void)remove(command);
    }
    return access(dir, F_OK) < 0 ? 0 : -1;      /* nothing was left in uploads */
}

static void hash_of(const void *p, size_t n, char out[FILE_HASH_SIZE])
{
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, p, n);
    sha256_end(&s, sum);
    sha256_hex(sum, out);
}

static bool is_on_disk(const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/control/uploads/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* Nobody has asked for it for so long. */
static void age_file(const char *hash, int64_t seconds)
{
    struct err e;

    assert_int_equal(store_file_used(store, hash, clock_wall_us() - seconds * 1000000, &e), 0);
}

static void files_by_content(void **state)
{
    char hash[FILE_HASH_SIZE], path[256], text[8] = {0};
    int64_t bytes;
    struct err e;
    int fd;

    hash_of("hello", 5, hash);
    assert_false(files_has(files, hash));
    assert_int_equal(files_put(files, hash, "hellO", 5, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_false(is_on_disk(hash));
    assert_int_equal(files_put(files, hash, "hello", 5, &e), 0);
    assert_int_equal(files_put(files, hash, "hello", 5, &e), 0);
    assert_true(files_has(files, hash));
    assert_int_equal(files_read(files, hash, &fd, &bytes, &e), 0);
    assert_int_equal(bytes, 5);
    assert_int_equal(read(fd, text, sizeof text), 5);
    assert_string_equal(text, "hello");
    fd_close(&fd);

    /* Cut short by a power cut: it counts as missing, and can be sent again. */
    (void)snprintf(path, sizeof path, "%s/control/uploads/%s", dir, hash);
    assert_int_equal(truncate(path, 0), 0);
    assert_false(files_has(files, hash));
    assert_int_equal(files_read(files, hash, &fd, &bytes, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(files_put(files, hash, "hello", 5, &e), 0);
    assert_true(files_has(files, hash));

    age_file(hash, FILES_KEEP_S - 100);
    files_sweep(files);
    assert_true(is_on_disk(hash));
    assert_true(files_has(files, hash));        /* asked for: young again */
    age_file(hash, FILES_KEEP_S + 100);
    files_sweep(files);
    assert_false(is_on_disk(hash));
    assert_false(files_has(files, hash));
    for (const char *const *bad = (const char *const[]){"", "x", "../../etc/passwd", NULL}; *bad != NULL; bad++)
        assert_false(files_has(files, *bad));
}

static int lost;

static void on_lost(void *ctx)
{
    lost++;
}

static void remove_file(const char *hash)
{
    age_file(hash, FILES_KEEP_S + 100);
    files_sweep(files);
    assert_false(is_on_disk(hash));
}

static void a_blob_in_one_piece(void **state)
{
    char hash[FILE_HASH_SIZE], md5[33];
    struct blob_row row;
    struct blob_upload *u, *second;
    struct err e;

    hash_of("hello", 5, hash);
    assert_int_equal(blob_declare(blobs, hash, "", 5, true, &row, &e), 0);
    assert_int_equal(blob_parts(&row), 1);
    assert_null(blob_upload_begin(blobs, "bl-0000000000000000000000", 1, on_lost, NULL, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_null(blob_upload_begin(blobs, row.id, 2, on_lost, NULL, &e));
    assert_int_equal(e.code, ERR_INVALID);

    /* The connection is cut, another one begins while the first is not known to be dead, a third cannot. */
    u = blob_upload_begin(blobs, row.id, 1, on_lost, NULL, &e);
    assert_non_null(u);
    assert_int_equal(blob_upload_data(u, "XX", 2, &e), 0);
    lost = 0;
    second = blob_upload_begin(blobs, row.id, 1, on_lost, NULL, &e);
    assert_non_null(second);
    assert_int_equal(lost, 1);
    assert_int_equal(blob_upload_data(second, "hel", 3, &e), 0);
    assert_int_equal(blob_upload_end(second, md5, &e), -1);
    assert_non_null(strstr(e.message, "2 bytes shorter"));
    u = blob_upload_begin(blobs, row.id, 1, on_lost, NULL, &e);
    assert_int_equal(blob_upload_data(u, "hello!", 6, &e), -1);
    assert_non_null(strstr(e.message, "longer than the 5 bytes"));
    u = blob_upload_begin(blobs, row.id, 1, on_lost, NULL, &e);
    assert_int_equal(blob_upload_data(u, "HELLO", 5, &e), 0);
    assert_int_equal(blob_upload_end(u, md5, &e), -1);
    assert_false(files_has(files, hash));
    u = blob_upload_begin(blobs, row.id, 1, on_lost, NULL, &e);
    assert_int_equal(blob_upload_data(u, "hel", 3, &e), 0);
    assert_int_equal(blob_upload_data(u, "lo", 2, &e), 0);
    assert_int_equal(blob_upload_end(u, md5, &e), 0);
    assert_string_equal(md5, "5d41402abc4b2a76b9719d911017c592");
    assert_true(files_has(files, hash));
    assert_false(is_on_disk(row.id));

    /* Sent again after its answer was lost: only compared. */
    u = blob_upload_begin(blobs, row.id, 1, on_lost, NULL, &e);
    assert_int_equal(blob_upload_data(u, "hello", 5, &e), 0);
    assert_int_equal(blob_upload_end(u, md5, &e), 0);
    assert_int_equal(lost, 1);
    remove_file(hash);
}

static char etag[64];
static struct err answer;

static void on_checked(void *ctx, const char *text, const struct err *e)
{
    (void)snprintf(etag, sizeof etag, "%s", text);
    answer = e != NULL ? *e : (struct err){0};
    loop_stop(loop);
}

static int check(const char *id, struct err *e)
{
    memset(&answer, 0, sizeof answer);
    if (blob_check_begin(blobs, id, on_checked, NULL, e) == NULL)
        return -1;
    assert_int_equal(loop_run(loop), 0);
    *e = answer;
    return answer.code == ERR_OK ? 0 : -1;
}

static void send_part(const char *id, int part, const char *text)
{
    char md5[33];
    struct err e;
    struct blob_upload *u = blob_upload_begin(blobs, id, part, on_lost, NULL, &e);

    assert_non_null(u);
    assert_int_equal(blob_upload_data(u, text, strlen(text), &e), 0);
    assert_int_equal(blob_upload_end(u, md5, &e), 0);
}

static void a_blob_in_parts(void **state)
{
    struct blob_row row = {.id = "bl-aaaaaaaaaaaaaaaaaaaaaa", .bytes = 5, .part_bytes = 2, .created_us = clock_wall_us()};
    struct blob_upload *u;
    struct err e;

    hash_of("hello", 5, row.hash);
    assert_int_equal(store_blob_put(store, &row, &e), 0);
    assert_int_equal(blob_parts(&row), 3);
    assert_int_equal(blob_part_bytes(&row, 1), 2);
    assert_int_equal(blob_part_bytes(&row, 3), 1);
    send_part(row.id, 3, "o");
    send_part(row.id, 1, "he");
    assert_int_equal(check(row.id, &e), -1);
    assert_string_equal(e.message, "part 2 of 3 was not sent");
    send_part(row.id, 2, "LL");
    assert_int_equal(check(row.id, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    u = blob_upload_begin(blobs, row.id, 2, on_lost, NULL, &e);
    assert_int_equal(check(row.id, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
    blob_upload_cancel(u);
    send_part(row.id, 2, "ll");

    /* Nobody writes while the whole is read. */
    struct blob_check *ck = blob_check_begin(blobs, row.id, on_checked, NULL, &e);
    assert_non_null(ck);
    assert_null(blob_upload_begin(blobs, row.id, 1, on_lost, NULL, &e));
    assert_int_equal(e.code, ERR_CONFLICT);
    blob_check_cancel(ck);
    assert_false(files_has(files, row.hash));
    assert_int_equal(check(row.id, &e), 0);
    assert_string_equal(etag, "75994d598838ab475c86e3140adc14c7-3");
    assert_true(files_has(files, row.hash));
    assert_int_equal(check(row.id, &e), 0);     /* the same again */
    remove_file(row.hash);
}

static void what_is_not_sent_goes(void **state)
{
    struct blob_row old = {.id = "bl-bbbbbbbbbbbbbbbbbbbbbb", .bytes = 5}, row;
    struct err e;

    hash_of("hello", 5, old.hash);
    old.created_us = clock_wall_us() - (BLOB_OPEN_S + 100) * 1000000;
    assert_int_equal(store_blob_put(store, &old, &e), 0);
    struct blob_upload *u = blob_upload_begin(blobs, old.id, 1, on_lost, NULL, &e);
    assert_int_equal(blob_upload_data(u, "he", 2, &e), 0);
    blobs_sweep(blobs);                         /* late, but it is coming */
    assert_true(is_on_disk(old.id));
    blob_upload_cancel(u);
    blobs_sweep(blobs);
    assert_false(is_on_disk(old.id));
    assert_int_equal(store_blob_get(store, old.id, &row, &e), -1);
    assert_int_equal(blob_declare(blobs, old.hash, "", 5, false, &row, &e), 0);
    blobs_sweep(blobs);
    assert_int_equal(store_blob_get(store, row.id, &row, &e), 0);
}

static void what_cannot_be_declared(void **state)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    struct blob_row row;
    struct err e;

    assert_int_equal(blob_declare(blobs, "abc", "", 5, false, &row, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_int_equal(blob_declare(blobs, zeros, "", -1, false, &row, &e), -1);
    assert_int_equal(blob_declare(blobs, zeros, "", LIMIT_UPLOAD_BYTES + 1, false, &row, &e), -1);
    assert_int_equal(e.code, ERR_TOO_LARGE);
    assert_int_equal(files_check_room(files, 1LL << 60, &e), -1);
    assert_int_equal(e.code, ERR_CAPACITY);
    assert_int_equal(blob_declare(blobs, zeros, "", BLOB_PART_BYTES + 1, false, &row, &e), 0);
    assert_int_equal(blob_parts(&row), 1);
    assert_int_equal(blob_declare(blobs, zeros, "", BLOB_PART_BYTES + 1, true, &row, &e), 0);
    assert_int_equal(blob_parts(&row), 2);
}

static void count_image(void *ctx, const char *image)
{
    ++*(int *)ctx;
    assert_string_equal(image, "im-eeeeeeeeeeeeeeeeeeeeee");
}

static void mounts_and_definitions_expire(void **state)
{
    struct definition_row used = {"im-dddddddddddddddddddddd", "mounted:1", "", 100, ""},
                          unused = {"im-eeeeeeeeeeeeeeeeeeeeee", "mounted:2", "", 100, ""},
                          other = {"im-ffffffffffffffffffffff", "built", "", 100, "im-dddddddddddddddddddddd"}, found;
    struct image_row image = {.id = "im-dddddddddddddddddddddd", .created_us = 1, .layers = (char *)(uintptr_t)"[]",
                              .env = (char *)(uintptr_t)"{}"};
    auto_free char *list = NULL;
    char id[ID_SIZE];
    struct err e;
    int n = 0;

    assert_int_equal(store_mount_put(store, "mo-1", "", "", "[]", 100, &e), 0);
    assert_int_equal(store_mount_put(store, "mo-2", "", "", "[]", 100, &e), 0);
    assert_int_equal(store_mount_put(store, "mo-3", "", "named", "[]", 100, &e), 0);
    assert_int_equal(store_mount_used(store, "mo-2", 300, &e), 0);
    assert_int_equal(store_mount_expire(store, 200, &e), 0);
    assert_int_equal(store_mount_get(store, "mo-1", &list, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(store_mount_get(store, "mo-2", &list, &e), 0);
    assert_int_equal(store_mount_by_name(store, "", "named", id, &e), 0);
    assert_string_equal(id, "mo-3");

    assert_int_equal(store_image_insert(store, &image, &e), 0);
    assert_int_equal(store_image_set_used(store, image.id, 300, &e), 0);
    assert_int_equal(store_definition_put(store, &used, &e), 0);
    assert_int_equal(store_definition_put(store, &unused, &e), 0);
    assert_int_equal(store_definition_put(store, &other, &e), 0);
    assert_int_equal(store_definition_old(store, "mounted:", 200, 10, count_image, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(store_definition_get(store, "built", NULL, &found, &e), 0);
    assert_string_equal(found.base, image.id);
    assert_int_equal(store_definition_expire(store, 200, &e), 0);
    assert_int_equal(store_definition_get(store, "built", NULL, &found, &e), 0);
    assert_string_equal(found.image, "");       /* its image is gone */
    assert_int_equal(store_definition_get(store, "mounted:1", NULL, &found, &e), 0);
    assert_string_equal(found.image, image.id);
}

static void count_revision(void *ctx, const struct revision_row *r)
{
    int *n = ctx;

    assert_int_equal(r->published_us, 30 - 10 * *n);    /* newest first */
    ++*n;
}

static void names_of_images_have_a_history(void **state)
{
    struct revision_row r = {.image = "im-dddddddddddddddddddddd", .revision = "ir-1", .published_by = "me"};
    struct err e;
    int n = 0;

    for (r.published_us = 10; r.published_us <= 30; r.published_us += 10)
        assert_int_equal(store_revision_put(store, "tool", &r, &e), 0);
    assert_int_equal(store_revision_put(store, "other", &r, &e), 0);
    assert_int_equal(store_revision_list(store, "tool", 0, 10, count_revision, &n, &e), 0);
    assert_int_equal(n, 3);
    assert_int_equal(store_revision_remove(store, "tool", &e), 0);
    assert_int_equal(store_revision_list(store, "tool", 0, 10, count_revision, &n, &e), 0);
    assert_int_equal(n, 3);
}

static int judge(const struct modal *m, const char *method, char *url, int64_t now_s, int *ret_part)
{
    char id[ID_SIZE], *query = strchr(url, '?');
    struct err e;

    *query = '\0';
    int r = blob_check_url(m, method, url, query + 1, now_s, id, ret_part, &e);
    *query = '?';
    if (r == 0)
        assert_string_equal(id, "bl-cccccccccccccccccccccc");
    else
        assert_int_equal(e.code, ERR_DENIED);
    return r;
}

static void urls(void **state)
{
    struct modal m = {.blob_key = {7}}, other = {.blob_key = {8}};
    auto_free char *url = blob_sign(&m, "PUT", "bl-cccccccccccccccccccccc", 12, 1000);
    auto_free char *whole = blob_sign(&m, "GET", "bl-cccccccccccccccccccccc", 0, 1000);
    int part;

    assert_int_equal(judge(&m, "PUT", url, 1000, &part), 0);
    assert_int_equal(part, 12);
    assert_int_equal(judge(&m, "GET", whole, 999, &part), 0);
    assert_int_equal(part, 0);
    assert_int_equal(judge(&m, "PUT", url, 1001, &part), -1);
    assert_int_equal(judge(&m, "GET", url, 999, &part), -1);
    assert_int_equal(judge(&other, "PUT", url, 999, &part), -1);
    for (size_t i = strlen(BLOB_PATH); i < strlen(url); i++) {
        if (url[i] == '?')
            continue;
        url[i] ^= 1;
        assert_int_equal(judge(&m, "PUT", url, 0, &part), -1);
        url[i] ^= 1;
    }
    assert_int_equal(judge(&m, "PUT", url, 999, &part), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_by_content),        TEST(a_blob_in_one_piece),     TEST(a_blob_in_parts),
        TEST(what_is_not_sent_goes),   TEST(what_cannot_be_declared), TEST(mounts_and_definitions_expire),
        TEST(names_of_images_have_a_history), cmocka_unit_test(urls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
