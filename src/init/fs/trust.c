/*
 * trust.c - Trust: programs in the sandbox accept a certificate authority, beside those of the image
 *
 * For the node, before anything runs under a network policy that opens connections. The certificate goes behind the image's own
 * store, between two lines that tell it apart, so that doing it again changes nothing and another one takes its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "init/fs/jks.h"
#include "init/fs/op.h"
#include "init/fs/write.h"
#include "ipc/fs_proto.h"
#include "sys/fd.h"

#define STORE_MAX (8 * 1024 * 1024)
#define BEGIN "# quicksand: authority of this sandbox\n"
#define END "# quicksand: end\n"
/* What update-ca-certificates takes up when it makes the store anew. */
#define LOCAL "/usr/local/share/ca-certificates"

static const char *const stores[] = {
    "/etc/ssl/certs/ca-certificates.crt",       /* Debian, Alpine, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",         /* Fedora */
    "/etc/ssl/ca-bundle.pem",                   /* SUSE */
    "/etc/ssl/cert.pem",
};

/* The text of the first store that there is, NUL-terminated; "" and *ret_path NULL if there is none. */
static int read_store(struct op *o, const char **ret_path, char **ret_text, struct fs_error *e)
{
    *ret_path = NULL;
    *ret_text = arena_copy(o->arena, "", 0);
    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++) {
        struct stat st;
        auto_close int fd = open(stores[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (st.st_size > STORE_MAX)
            return fs_fail_at(e, EFBIG, stores[i]);
        char *text = arena_alloc(o->arena, (size_t)st.st_size + 1);
        ssize_t n = fd_read_all(fd, text, (size_t)st.st_size);
        if (n < 0)
            return fs_fail_at(e, (int)-n, stores[i]);
        text[n] = '\0';
        *ret_path = stores[i];
        *ret_text = text;
        return 0;
    }
    return 0;
}

/* Takes out what was put in before. */
static void strip(char *text)
{
    char *at, *end;

    while ((at = strstr(text, BEGIN)) != NULL && (end = strstr(at, END)) != NULL)
        memmove(at, end + strlen(END), strlen(end + strlen(END)) + 1);
}

static void append(char *text, const char *more)
{
    size_t n = strlen(text);

    memcpy(text + n, more, strlen(more) + 1);
}

int op_trust(struct op *o, struct fs_error *e)
{
    const char *pem, *path;
    char *store;
    struct stat st;
    size_t n, len;

    if (arg_text(o, "pem", &pem, &n, e) < 0)
        return -1;
    if (pem == NULL || n == 0 || pem[n - 1] != '\n' || strlen(pem) != n)
        return fs_fail_kind(e, "Invalid", "pem must be text that ends with a newline");
    if (read_store(o, &path, &store, e) < 0)
        return -1;
    strip(store);
    char *text = arena_alloc(o->arena, strlen(store) + n + sizeof BEGIN + sizeof END + 2);
    text[0] = '\0';
    append(text, store);
    if (text[0] != '\0' && text[strlen(text) - 1] != '\n')
        append(text, "\n");
    append(text, BEGIN);
    append(text, pem);
    append(text, END);
    if (path != NULL && write_content(o, path, text, strlen(text), e) < 0)
        return -1;
    if (stat(LOCAL, &st) == 0 && write_content(o, LOCAL "/quicksand.crt", pem, n, e) < 0)
        return -1;
    if (write_content(o, FS_TRUST_BUNDLE, text, strlen(text), e) < 0)
        return -1;
    const uint8_t *java = jks_from_pem(o->arena, text, &len);
    if (write_content(o, FS_TRUST_JAVA, java, len, e) < 0)
        return -1;
    return write_content(o, FS_TRUST_AUTHORITY, pem, n, e);
}
