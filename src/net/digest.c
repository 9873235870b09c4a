/*
 * digest.c - SHA-1 through OpenSSL
 */
#include "net/digest.h"

#include <errno.h>
#include <openssl/evp.h>

int net_sha1_base64(const void *p, size_t n, char out[NET_SHA1_BASE64_SIZE])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (EVP_Digest(p, n, digest, &len, EVP_sha1(), NULL) != 1 || len != 20)
        return -EIO;
    (void)EVP_EncodeBlock((unsigned char *)out, digest, (int)len);
    return 0;
}
