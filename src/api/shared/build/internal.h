/*
 * internal.h - what the files of the builder share
 */
#ifndef QS_API_SHARED_BUILD_INTERNAL_H
#define QS_API_SHARED_BUILD_INTERNAL_H

#include "api/shared/build/build.h"
#include "core/image_fold.h"
#include "core/dockerfile/dockerfile.h"
#include "core/image_pull.h"
#include "node.pb-c.h"

#define BUILD_STEP_SOURCE "(a step of a build)"    /* source of the image rows that steps live on */
#define BUILD_LAYERS_MAX IMAGE_LAYERS_FOLD   /* of an image before its layers are copied into one */

struct run;

struct stage {
    char *name;                         /* "" = none; owned */
    size_t from, end;                   /* instructions [from, end) of the file, the first is its FROM */
    bool is_needed, is_done;
    bool has_cmd;                       /* of its own, not of its base */
    json_t *layers;                     /* array, top first; owned */
    json_t *config;                     /* "config" of the image; owned */
    json_t *env;                        /* object; owned */
    json_t *args;                       /* declared ones with a value; owned */
    json_t *onbuild;                    /* instructions of the base that are still to be done; owned, NULL = none */
    json_t *shell;                      /* array; owned */
};

struct build {
    struct core *core;
    struct operation *operation;
    struct df_file file;
    struct df_file trigger;             /* the ONBUILD instruction that is being done */
    struct stage *stages;
    size_t nstages, target;
    size_t stage, at;                   /* where we are */
    size_t step, nsteps;                /* for people */
    size_t cached;
    json_t *sizes;                      /* array of {step, layer, bytes, cached}; owned */
    json_t *global_args;                /* before the first FROM; owned */
    json_t *given_args, *secrets, *bases, *labels;   /* owned */
    json_t *network;                    /* of RUN: "block", "open" or a policy; owned */
    char context[72];
    char image[ID_SIZE];
    char *name;                         /* owned, NULL = none */
    struct registry_auth auth;          /* owned */
    json_t *temporary;                  /* layers that are garbage at the end; owned */
    bool no_cache, refresh, whole_context;
    bool secret_env;                    /* secrets are variables of every RUN */
    int64_t step_timeout_ms;
    uint64_t memory_mb, disk_mb;
    uint32_t cpu_milli;

    struct image_pull *pull;            /* under way */
    json_t *urls;                       /* of the current ADD: URL -> [layer, name] of what was fetched; owned */
    struct fetch *fetch;                /* of `call`, when that is one; owned (add.c) */
    bool is_half_copied;                /* the current ADD has its files of the context, and goes on with those of URLs */
    char *source;                       /* image that files are taken from, while it is pulled; owned */
    bool is_again;                      /* the current instruction is begun again: its source is here now */
    struct node_call *call;             /* under way */
    struct run *run;                    /* under way */
    const struct df_instruction *current;
    char *key;                          /* of the step under way, NULL = it has none; owned */
    bool is_flattening;
    uint64_t text_bytes;                /* that instructions have made of variables, labels and the like */
};

/* build.c: a step is over. */
void build_step_done(struct build *b);
void build_failed(struct build *b, const struct err *e);            /* with the step put before */
void build_add_layer(struct build *b, const char *layer, uint64_t bytes, uint64_t files, bool cached);
/* Garbage after the build, if nothing else names it then. */
void build_keep_layer(struct build *b, const char *layer, uint64_t bytes, uint64_t files);
struct stage *build_stage(struct build *b);

/* stages.c: what the file has, and what of it is to be done for the target. */
int build_find_stages(struct build *b, struct err *e);
/* What the value of RUN's --mount=...,from= names, NULL = nothing; the caller frees it. */
char *build_mount_from(const char *value);
int build_choose_target(struct build *b, const char *target, struct err *e);
/* FROM's words: one, or three with AS; the caller's. */
json_t *build_from_words(struct build *b, const struct df_instruction *in, struct err *e);
const char *build_machine(void);        /* "amd64" */
const char *build_predefined(const char *name);     /* TARGETARCH and its kind; NULL = none */
/* The stage that a --from names, already built; NULL if there is none. */
struct stage *build_find_stage(struct build *b, const char *name, bool before_only);
/* Variables of the stage for words.c. */
const char *build_lookup(void *ctx, const char *name, size_t n);
char *build_expand(struct build *b, const char *text, struct err *e);
/* Absolute: joined to the working directory when it is not. The caller frees. */
char *build_path(const struct stage *s, const char *path);

/* from.c */
int build_from(struct build *b, const struct df_instruction *in, struct err *e);
/* Images that the instruction takes files from: 1 = one is being pulled, and the instruction will be begun again. */
int build_fetch_sources(struct build *b, const struct df_instruction *in, struct err *e);
/* config.c: so many bytes more are kept for the build; -1 when they are too many. A few lines can make much of little. */
int build_charge(struct build *b, uint64_t n, struct err *e);
/* Instructions that change no file. */
int build_config(struct build *b, const struct df_instruction *in, struct err *e);
/* copy.c: COPY, ADD, and the directory of WORKDIR. */
int build_copy(struct build *b, const struct df_instruction *in, struct err *e);
/* add.c */
bool build_is_url(const char *word);
/* All that are URLs among the words, the last of which is the destination: 0 = they are in b->urls, 1 = one is being fetched, and
 * the instruction will be begun again. */
int build_fetch_urls(struct build *b, const struct df_instruction *in, const json_t *words, struct err *e);
char *build_url_item(const char *name);     /* where the layer has the file, as an item of a copy; the caller frees */
void build_fetch_cancel(struct build *b);
void build_copy_cancel(struct build *b);
/* What is made of it belongs to `owner` (NULL = root). */
int build_make_dir(struct build *b, const char *path, const char *owner, struct err *e);
/* Files of `source` (layers, NULL = none) on top of `onto`, as the image role copies them. */
void build_copy_call(struct build *b, Quicksand__Node__ImageCopyRequest *rq, const json_t *source, const json_t *onto,
                     node_reply_fn fn, void *ctx);
/* The layers that a from names: a stage, an image that is here, or (NULL) the context; the caller's. */
int build_find_source(struct build *b, const struct df_instruction *in, const char *from, json_t **ret, bool *ret_context,
                      struct err *e);
/* All layers of the stage into one. */
int build_flatten(struct build *b, struct err *e);
/* run.c */
int build_run(struct build *b, const struct df_instruction *in, struct err *e);
void build_run_cancel(struct build *b);

#endif
