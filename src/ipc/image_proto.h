/*
 * image_proto.h - node -> image, over image.sock: one connection a job
 *
 * The tar bytes of UNPACK travel by a pipe whose read end goes with the request. A PULL has none: its answer is PROGRESS and
 * LOG, then the PIECES of the image's configuration, LAYERS and DONE. Closing the connection cancels the job and removes
 * what it had unpacked.
 */
#ifndef QS_IPC_IMAGE_PROTO_H
#define QS_IPC_IMAGE_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

enum image_type {
    IMAGE_UNPACK = 1,   /* node -> image: struct image_unpack + read end of a pipe */
    IMAGE_PROGRESS,     /* image -> node: struct image_progress, at most ten a second */
    IMAGE_DONE,         /* image -> node: struct image_done */
    IMAGE_PULL,         /* node -> image: struct image_pull */
    IMAGE_LOG,          /* image -> node: text, one line */
    IMAGE_PIECE,        /* image -> node: bytes of the configuration, JSON as text, in order */
    IMAGE_LAYERS,       /* image -> node: struct image_layers */
    /* node -> image: struct image_fold + a directory: what a sandbox wrote; answered DONE, layer "" = nothing */
    IMAGE_FOLD,
    IMAGE_COPY,         /* node -> image: struct image_copy; answered DONE, layer "" = nothing changed */
    IMAGE_EXPORT,       /* node -> image: struct image_export + write end of a pipe; the archive goes there, then DONE comes */
    IMAGE_VERIFY,       /* node -> image: struct image_verify; a VERDICT a layer, in order, then DONE */
    IMAGE_VERDICT,      /* image -> node: struct image_verdict */
    /* node -> image: struct image_fetch; answered DONE with a layer that has the file as IMAGE_FETCHED/<name> */
    IMAGE_FETCH,
    IMAGE_LIST,         /* node -> image: struct image_list; one LAYERS, whose digest and source are empty, then DONE */
};

#define IMAGE_LAYERS_MAX 256        /* that an image may come with */

struct image_unpack {
    uint64_t max_bytes;         /* unpacked; 0 = no limit */
    uint64_t max_files;
};

struct image_progress {
    uint64_t bytes, files;      /* of an unpacking: done; of a pull: bytes come and bytes in all */
};

enum image_auth {
    IMAGE_AUTH_BASIC,
    IMAGE_AUTH_AWS,             /* user and password are an access key of AWS, for which it gives out others */
    IMAGE_AUTH_MAX_,
};

struct image_pull {
    char ref[300];              /* registry/path:tag or @digest */
    char arch[32];              /* "" = this machine's */
    uint16_t auth;              /* enum image_auth */
    char user[256];             /* "" = anonymous */
    char password[8192];
    char session[8192];         /* of AWS, "" = none */
    char region[64];            /* of AWS, "" = as the registry's name has it */
    uint64_t max_bytes;         /* unpacked, all layers together; 0 = no limit */
    uint64_t max_files;
};

#define IMAGE_EXCLUDE_MAX 48
#define IMAGE_PATH_SIZE 512

struct image_fold {
    uint64_t max_bytes, max_files;
    uint32_t nexclude;
    char exclude[IMAGE_EXCLUDE_MAX][IMAGE_PATH_SIZE];   /* paths without a slash in front, which are left out with all below */
    char only[IMAGE_PATH_SIZE];             /* this path and what is below it alone; "" = everything */
    uint32_t nstubs;
    char stubs[IMAGE_EXCLUDE_MAX][IMAGE_PATH_SIZE];     /* directories that are left out if nothing else is in them */
};

#define IMAGE_COPY_ITEMS 64
#define IMAGE_COPY_TEXTS 8

/* COPY and ADD of a build: files of one chain of layers become a layer on top of another chain. */
struct image_copy {
    bool keep_owner;            /* files keep theirs; else they are `owner`'s */
    bool is_context;            /* a .dockerignore at the root of the source counts */
    bool keep_ignored;          /* it does not */
    bool extract;               /* archives are unpacked */
    bool dest_is_dir;
    bool parents;               /* items keep the directories that they are in */
    char exclude[4096];         /* patterns of what is left out, a line each; "" = none */
    bool replace;               /* what is at dest is hidden; one item at most: a directory's content or a file */
    int32_t mode;               /* -1 = as it is */
    char owner[128];            /* user[:group], names or numbers; "" = 0:0 */
    char dest[LIMIT_PATH];      /* absolute; made if there are neither items nor texts */
    uint32_t nsource, nbase;
    char source[IMAGE_LAYERS_MAX][72], base[IMAGE_LAYERS_MAX][72];  /* top first */
    uint32_t nitems;
    char items[IMAGE_COPY_ITEMS][1024];     /* paths or patterns in the source */
    uint32_t ntexts;
    struct {
        char name[256];
        const char *text;       /* borrowed from the message */
        size_t len;
    } texts[IMAGE_COPY_TEXTS];  /* files given as text */
    uint64_t max_bytes, max_files;
};

#define IMAGE_FETCHED "f"

/* A file from elsewhere, for ADD of a build. */
struct image_fetch {
    char url[2048];
    char name[256];             /* of the file: one part of a path */
    char checksum[65];          /* SHA-256, "" = whatever comes */
    char known[72];             /* layer of an earlier fetch of it, which is the answer if the server says so; "" = none */
    uint64_t max_bytes;
    uint32_t timeout_s;
    const void *policy;         /* as in ipc/policy_wire.h; borrowed from the message */
    size_t policy_len;
};

enum image_compression { IMAGE_GZIP, IMAGE_ZSTD, IMAGE_PLAIN, IMAGE_COMPRESSIONS_ };

/* An image as a tar of an OCI layout, which `docker load` takes as well. */
struct image_export {
    enum image_compression compression;     /* of the layers */
    char name[300];             /* "" = it has none */
    uint32_t nlayers;
    char layers[LIMIT_LAYERS][72];          /* top first */
    const char *config;         /* JSON of the configuration without `rootfs`; borrowed from the message */
    size_t config_len;
};

struct image_verify {
    uint32_t nlayers;
    char layers[LIMIT_LAYERS][72];
};

enum image_verdict_state { IMAGE_WHOLE, IMAGE_DAMAGED, IMAGE_MISSING, IMAGE_UNKNOWN, IMAGE_VERDICTS_ };

struct image_verdict {
    char layer[72];
    uint16_t state;             /* enum image_verdict_state */
    char message[200];          /* "" for whole ones */
};

struct image_list {
    char after[72];             /* layers whose name is greater, in the order of names; "" = from the first one */
    uint64_t age_s;             /* and that came so long ago */
};

struct image_layers {
    char digest[72];            /* of the manifest that was pulled */
    char source[72];            /* of what the reference names: that manifest, or an index */
    uint32_t nlayers;           /* top first, none twice */
    struct {
        char layer[72];
        uint64_t bytes, files;  /* both 0 if the layer was there already */
    } layers[IMAGE_LAYERS_MAX];
};

struct image_done {
    uint16_t code;              /* enum err_code, 0 = done */
    char message[240];          /* names the entry at fault */
    char layer[72];             /* 64 hex: SHA-256 of the uncompressed tar; the tree is layers/<layer> */
    uint64_t bytes, files;
    char path[IMAGE_PATH_SIZE]; /* of a copy: dest without a link and without a slash in front */
    uint32_t existing;          /* so many bytes of it were there before */
};

size_t image_unpack_encode(const struct image_unpack *m, void *out, size_t size);
size_t image_progress_encode(const struct image_progress *m, void *out, size_t size);
size_t image_pull_encode(const struct image_pull *m, void *out, size_t size);
size_t image_fold_encode(const struct image_fold *m, void *out, size_t size);
size_t image_copy_encode(const struct image_copy *m, void *out, size_t size);
size_t image_fetch_encode(const struct image_fetch *m, void *out, size_t size);
size_t image_export_encode(const struct image_export *m, void *out, size_t size);
size_t image_verify_encode(const struct image_verify *m, void *out, size_t size);
size_t image_verdict_encode(const struct image_verdict *m, void *out, size_t size);
size_t image_list_encode(const struct image_list *m, void *out, size_t size);
size_t image_layers_encode(const struct image_layers *m, void *out, size_t size);
size_t image_done_encode(const struct image_done *m, void *out, size_t size);
int image_unpack_decode(struct image_unpack *ret, const void *p, size_t n);
int image_progress_decode(struct image_progress *ret, const void *p, size_t n);
int image_pull_decode(struct image_pull *ret, const void *p, size_t n);
int image_fold_decode(struct image_fold *ret, const void *p, size_t n);
int image_copy_decode(struct image_copy *ret, const void *p, size_t n);
int image_fetch_decode(struct image_fetch *ret, const void *p, size_t n);
int image_export_decode(struct image_export *ret, const void *p, size_t n);
int image_verify_decode(struct image_verify *ret, const void *p, size_t n);
int image_verdict_decode(struct image_verdict *ret, const void *p, size_t n);
int image_list_decode(struct image_list *ret, const void *p, size_t n);
int image_layers_decode(struct image_layers *ret, const void *p, size_t n);
int image_done_decode(struct image_done *ret, const void *p, size_t n);

#endif
