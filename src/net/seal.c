/*
 * seal.c - AES-256-GCM: a random nonce of 12 bytes, the text, a tag of 16 bytes
 */
#include "net/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

#include "base/ids.h"
#include "sys/fd.h"

#define NONCE 12
#define TAG 16

int net_seal_key(const char *path, unsigned char ret_key[NET_SEAL_KEY_SIZE], struct err *e)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 && errno == ENOENT) {
        random_bytes(ret_key, NET_SEAL_KEY_SIZE);
        int r = fd_replace_file(AT_FDCWD, path, ret_key, NET_SEAL_KEY_SIZE, 0600, true);
        return r < 0 ? err_sys(e, -r, "write %s", path) : 0;
    }
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    ssize_t n = read(fd, ret_key, NET_SEAL_KEY_SIZE);
    if (n < 0)
        return err_sys(e, errno, "read %s", path);
    return n == NET_SEAL_KEY_SIZE ? 0 : err_set(e, ERR_INVALID, "%s has no key of %d bytes", path, NET_SEAL_KEY_SIZE);
}

static int fail(struct err *e, const char *name, const char *what)
{
    ERR_clear_error();
    return err_set(e, ERR_INTERNAL, "%s: %s", name, what);
}

int net_seal(const unsigned char key[NET_SEAL_KEY_SIZE], const char *name, const void *p, size_t n, unsigned char *out,
             struct err *e)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int len = 0, tail = 0, bound;

    random_bytes(out, NONCE);
    bool ok = ctx != NULL && n <= INT_MAX && EVP_EncryptInit_ex2(ctx, EVP_aes_256_gcm(), key, out, NULL) == 1 &&
              EVP_EncryptUpdate(ctx, NULL, &bound, (const unsigned char *)name, (int)strlen(name)) == 1 &&
              EVP_EncryptUpdate(ctx, out + NONCE, &len, p, (int)n) == 1 &&
              EVP_EncryptFinal_ex(ctx, out + NONCE + len, &tail) == 1 && (size_t)len + (size_t)tail == n &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, out + NONCE + n) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return ok ? 0 : fail(e, name, "cannot be encrypted");
}

int net_unseal(const unsigned char key[NET_SEAL_KEY_SIZE], const char *name, const void *p, size_t n, unsigned char *out,
               size_t *ret_n, struct err *e)
{
    const unsigned char *in = p;
    unsigned char tag[TAG];
    int len = 0, tail = 0, bound;

    if (n < NET_SEAL_EXTRA || n > INT_MAX)
        return fail(e, name, "what is stored is cut short");
    size_t text = n - NET_SEAL_EXTRA;
    memcpy(tag, in + NONCE + text, TAG);
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    bool ok = ctx != NULL && EVP_DecryptInit_ex2(ctx, EVP_aes_256_gcm(), key, in, NULL) == 1 &&
              EVP_DecryptUpdate(ctx, NULL, &bound, (const unsigned char *)name, (int)strlen(name)) == 1 &&
              EVP_DecryptUpdate(ctx, out, &len, in + NONCE, (int)text) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG, tag) == 1 &&
              EVP_DecryptFinal_ex(ctx, out + len, &tail) == 1;
    EVP_CIPHER_CTX_free(ctx);
    if (!ok)
        return fail(e, name, "what is stored was changed, or sealed with another key");
    *ret_n = (size_t)len + (size_t)tail;
    return 0;
}
