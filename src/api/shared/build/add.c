/*
 * add.c - sources of ADD that are URLs: fetched by the image role under the build's network policy, each into a layer
 *
 * copy.c copies out of those layers. A file with a checksum is fetched once; of another the server is asked whether it has
 * changed.
 */
#include <stdio.h>
#include <string.h>

#include "api/shared/build/internal.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "core/network.h"
#include "core/policy_json.h"
#include "ipc/image_proto.h"

#define MORE_MS 60000                   /* than the fetching itself may take */

/* --- what is one ------------------------------------------------------------------------------ */

static bool begins(const char *word, const char *with)
{
    return strncasecmp(word, with, strlen(with)) == 0;
}

static bool is_web(const char *word)
{
    return begins(word, "http://") || begins(word, "https://");
}

static bool is_git(const char *word)
{
    size_t n = strcspn(word, "?#");

    if (begins(word, "git://") || begins(word, "ssh://") || begins(word, "git+") || begins(word, "git@"))
        return true;
    return is_web(word) && n > 4 && strncmp(word + n - 4, ".git", 4) == 0;
}

bool build_is_url(const char *word)
{
    return strncmp(word, "<<", 2) != 0 && (strstr(word, "://") != NULL || is_git(word));
}

/* With the column, if the word stands in the text as it is. */
static int fail_at(const struct df_instruction *in, const char *word, struct err *e, const char *what)
{
    const char *at = strstr(in->source, word);

    if (at == NULL)
        return df_fail(in, e, "'%.100s': %s", word, what);
    return err_set(e, ERR_INVALID, "line %d, column %zu: %s: '%.100s': %s", in->line,
                   (size_t)(at - in->source) + 1, df_name(in->kind), word, what);
}

/* --- names ------------------------------------------------------------------------------------ */

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The last part of the URL's path, unescaped; "" = it has none. -1 = no file can have such a name. */
static int name_of(const char *url, char *out, size_t size)
{
    const char *path = strstr(url, "://") + 3;
    const char *end = path + strcspn(path, "?#");
    size_t n = 0;

    path += strcspn(path, "/?#");
    const char *at = path;
    for (const char *p = path; p < end; p++)
        if (*p == '/')
            at = p + 1;
    for (; at < end; at++) {
        int high = *at == '%' ? digit(at[1]) : -1, low = high >= 0 ? digit(at[2]) : -1;
        char c = low >= 0 ? (char)(high * 16 + low) : *at;
        if (c == '\0' || c == '/' || n + 1 >= size)
            return -1;
        out[n++] = c;
        at += low >= 0 ? 2 : 0;
    }
    out[n] = '\0';
    return strcmp(out, ".") == 0 || strcmp(out, "..") == 0 ? -1 : 0;
}

char *build_url_item(const char *name)
{
    char *out = mem_alloc(sizeof IMAGE_FETCHED + 1 + 2 * strlen(name) + 1), *to = out;

    memcpy(to, IMAGE_FETCHED "/", sizeof IMAGE_FETCHED);
    to += sizeof IMAGE_FETCHED;
    /* It is a name and no pattern. */
    for (; *name != '\0'; *to++ = *name++)
        if (strchr("*?[]\\", *name) != NULL)
            *to++ = '\\';
    *to = '\0';
    return out;
}

/* --- the request ------------------------------------------------------------------------------ */

struct fetch {
    struct build *build;
    char *url;                          /* owned */
    char name[256], checksum[65], known[72];
    char before[72];                    /* what the key named, "" = nothing */
    char key[80];
};

static void fetch_free(struct fetch *f)
{
    free(f->url);
    free(f);
}

static void make_key(struct fetch *f)
{
    uint8_t sum[SHA256_SIZE];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, f->url, strlen(f->url) + 1);
    sha256_add(&s, f->name, strlen(f->name) + 1);
    sha256_add(&s, f->checksum, strlen(f->checksum) + 1);
    sha256_end(&s, sum);
    memcpy(f->key, "url:", 4);
    sha256_hex(sum, f->key + 4);
}

static void take(struct fetch *f, const char *layer)
{
    (void)json_object_set_new(f->build->urls, f->url, json_pack("[s, s]", layer, f->name));
}

static void on_fetched(void *ctx, const ProtobufCMessage *reply, const struct err *e)
{
    const Quicksand__Node__Layer *layer = (const Quicksand__Node__Layer *)reply;
    struct fetch *f = ctx;
    struct build *b = f->build;
    struct store *s = core_store(b->core);
    struct err ignored;

    b->call = NULL;
    b->fetch = NULL;
    if (e != NULL) {
        fetch_free(f);
        build_failed(b, e);
        return;
    }
    if (strcmp(layer->layer, f->known) == 0) {
        operation_log(b->operation, "%s has not changed", f->name);
    } else {
        operation_log(b->operation, "fetched %s: %llu bytes", f->name, (unsigned long long)layer->bytes);
        build_keep_layer(b, layer->layer, layer->bytes, layer->files);
        (void)store_step_put(s, f->key, layer->layer, clock_wall_us(), &ignored);
        if (f->before[0] != '\0' && strcmp(f->before, layer->layer) != 0)
            (void)json_array_append_new(b->temporary, json_string(f->before));
    }
    take(f, layer->layer);
    fetch_free(f);
    b->is_again = true;
    build_step_done(b);
}

void build_fetch_cancel(struct build *b)
{
    node_call_cancel(b->call);
    b->call = NULL;
    fetch_free(take_ptr(&b->fetch));
    b->is_again = true;
    build_step_done(b);                 /* which sees why */
}

static int send(struct fetch *f, struct err *e)
{
    Quicksand__Node__ImageFetchRequest rq = QUICKSAND__NODE__IMAGE_FETCH_REQUEST__INIT;
    Quicksand__Node__Network network = QUICKSAND__NODE__NETWORK__INIT;
    auto_free uint8_t *bytes = NULL;
    struct build *b = f->build;

    if (network_request(b->core, b->network, NULL, &network, &bytes, e) < 0)
        return -1;
    rq.url = f->url;
    rq.name = f->name;
    rq.checksum = f->checksum;
    rq.known = f->known;
    rq.has_max_bytes = rq.has_timeout_s = rq.has_policy = true;
    rq.max_bytes = (b->disk_mb != 0 ? b->disk_mb : BUILD_STEP_DISK_MB) << 20;
    rq.timeout_s = (uint32_t)(b->step_timeout_ms / 1000 > 0 ? b->step_timeout_ms / 1000 : 1);
    rq.policy = network.policy;
    b->fetch = f;
    b->call = node_unary(b->core, "ImageFetch", &rq.base, &quicksand__node__layer__descriptor,
                         (uint64_t)b->step_timeout_ms + MORE_MS, false, on_fetched, f);
    return 1;
}

/* 1 = it is being fetched, 0 = it is here. */
static int fetch(struct build *b, const struct df_instruction *in, const char *url, const char *checksum, struct err *e)
{
    struct fetch *f = mem_zalloc(sizeof *f);
    bool found = false;
    int r = -1;

    f->build = b;
    f->url = mem_strdup(url);
    (void)snprintf(f->checksum, sizeof f->checksum, "%s", checksum != NULL ? checksum + 7 : "");
    if (name_of(url, f->name, sizeof f->name) < 0)
        (void)fail_at(in, url, e, "the last part of its path is no name of a file");
    else if (network_is_blocked(b->network))
        (void)fail_at(in, url, e, "the build has no network");
    else
        r = 0;
    if (f->name[0] == '\0')
        (void)snprintf(f->name, sizeof f->name, "%s", "index");
    make_key(f);
    if (r == 0)
        r = store_step_get(core_store(b->core), f->key, clock_wall_us(), &found, f->known, e);
    if (found)
        memcpy(f->before, f->known, sizeof f->before);
    if (!found || b->no_cache)
        f->known[0] = '\0';
    if (r == 0 && f->known[0] != '\0' && checksum != NULL) {
        operation_log(b->operation, "%s is here (cached)", f->name);
        take(f, f->known);
    } else if (r == 0) {
        r = send(f, e);
    }
    if (r != 1)
        fetch_free(f);
    return r;
}

/* "sha256:" and 64 digits, lower case in *ret; the caller frees. */
static int read_checksum(struct build *b, const struct df_instruction *in, char **ret, struct err *e)
{
    const char *flag = df_flag(in, "checksum");

    *ret = flag != NULL ? build_expand(b, flag, e) : NULL;
    if (flag == NULL || *ret == NULL)
        return flag == NULL ? 0 : -1;
    if (strncmp(*ret, "sha256:", 7) == 0 && strspn(*ret + 7, "0123456789abcdef") == 64 && (*ret)[71] == '\0')
        return 0;
    return df_fail(in, e, "--checksum is '%.80s', but must be sha256: and 64 digits of 0-9a-f", *ret);
}

static int check(const struct df_instruction *in, const char *word, bool needs_name, struct err *e)
{
    char name[256];

    if (is_git(word))
        return fail_at(in, word, e, "repositories of git are not fetched: clone it in a RUN, or put it into the build context");
    if (!is_web(word))
        return fail_at(in, word, e, "files are fetched from http:// and https:// alone");
    if (strlen(word) >= sizeof((struct image_fetch *)0)->url)
        return fail_at(in, word, e, "the URL is longer than 2047 bytes");
    if (needs_name && name_of(word, name, sizeof name) == 0 && name[0] == '\0')
        return fail_at(in, word, e, "there is no file name in the URL: name the file in the destination");
    return 0;
}

int build_fetch_urls(struct build *b, const struct df_instruction *in, const json_t *words, struct err *e)
{
    size_t n = json_array_size(words) - 1, nurls = 0;
    const char *dest = json_string_value(json_array_get(words, n));
    auto_free char *checksum = NULL;

    if (read_checksum(b, in, &checksum, e) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        nurls += build_is_url(json_string_value(json_array_get(words, i)));
    if (checksum != NULL && (n > 1 || nurls == 0))
        return df_fail(in, e,
                       nurls == 0 ? "--checksum is for a file of http:// or https://"
                                  : "--checksum is for one source alone");
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        if (!build_is_url(word))
            continue;
        if (check(in, word, n > 1 || dest[strlen(dest) - 1] == '/', e) < 0)
            return -1;
        if (json_object_get(b->urls, word) != NULL)
            continue;
        int r = fetch(b, in, word, checksum, e);
        if (r != 0)
            return r;
    }
    return 0;
}
