/*
 * manifest.c - reading what registries and archives say of an image: index, manifest, configuration
 */
#include "image/manifest.h"

#include <inttypes.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"

#define SIZE_MAX_BLOB (1LL << 40)

const char *manifest_machine(void)
{
    static const char *const names[][2] = {
        {"x86_64", "amd64"}, {"aarch64", "arm64"}, {"armv7l", "arm"}, {"i686", "386"}, {"ppc64le", "ppc64le"}, {"s390x", "s390x"},
        {"riscv64", "riscv64"},
    };
    struct utsname u;

    if (uname(&u) == 0)
        for (size_t i = 0; i < array_len(names); i++)
            if (strcmp(u.machine, names[i][0]) == 0)
                return names[i][1];
    return "unknown";
}

static const char *text_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    /* A NUL inside would cut it. */
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return "";
    return json_string_value(v);
}

static bool is_media(const json_t *o, const char *const *types, size_t n)
{
    const char *type = text_of(o, "mediaType");

    for (size_t i = 0; i < n; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

static const char *const index_types[] = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
};
static const char *const layer_types[] = {
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
    "application/x-tar",
};

static int read_blob(const json_t *o, const char *what, struct manifest_blob *ret, struct err *e)
{
    const char *digest = text_of(o, "digest");
    const json_t *size = json_object_get(o, "size");

    if (!json_is_object(o))
        return err_set(e, ERR_INVALID, "the manifest names no %s", what);
    if (!image_digest_is_valid(digest))
        return err_set(e, ERR_INVALID, "the digest of the %s is not sha256 and 64 digits", what);
    if (!json_is_integer(size) || json_integer_value(size) < 0 || json_integer_value(size) > SIZE_MAX_BLOB)
        return err_set(e, ERR_INVALID, "the size of the %s is not a number from 0 to %lld", what, SIZE_MAX_BLOB);
    memcpy(ret->digest, digest, sizeof ret->digest);
    ret->size = (uint64_t)json_integer_value(size);
    return 0;
}

/* What an index offers, for the message. */
static void add_platform(struct buf *list, const json_t *platform)
{
    (void)buf_addf(list, "%s%.20s/%.20s", list->len > 0 ? ", " : "", text_of(platform, "os"), text_of(platform, "architecture"));
}

static int choose(const json_t *manifests, const char *arch, struct manifest *ret, struct err *e)
{
    auto_buf seen = {0};
    json_t *item, *found = NULL, *inner = NULL;
    size_t i;

    buf_init(&seen, 160);
    if (json_array_size(manifests) > MANIFEST_INDEX_MAX)
        return err_set(e, ERR_TOO_LARGE, "the index has %zu entries, at most %d are read", json_array_size(manifests),
                       MANIFEST_INDEX_MAX);
    json_array_foreach(manifests, i, item)
    {
        const json_t *platform = json_object_get(item, "platform");
        /* One image alone may come without saying what it is for; its configuration tells. */
        bool is_alone = platform == NULL && json_array_size(manifests) == 1;
        if (is_alone ||
            (strcmp(text_of(platform, "os"), "linux") == 0 && strcmp(text_of(platform, "architecture"), arch) == 0)) {
            found = item;
            break;
        }
        /* An index of several platforms is of none itself. */
        if (inner == NULL && platform == NULL && is_media(item, index_types, array_len(index_types)))
            inner = item;
        add_platform(&seen, platform);
    }
    if (found == NULL)
        found = inner;
    if (found == NULL)
        return err_set(e, ERR_NOT_FOUND, "the image is not there for linux/%s, but for: %s", arch,
                       seen.len > 0 ? buf_str(&seen) : "nothing");
    ret->is_index = true;
    return read_blob(found, "manifest in the index", &ret->chosen, e);
}

static int read_layers(const json_t *layers, struct manifest *ret, struct err *e)
{
    json_t *item;
    size_t i;

    if (!json_is_array(layers))
        return err_set(e, ERR_INVALID, "the manifest has no list of layers");
    if (json_array_size(layers) > MANIFEST_LAYERS_MAX)
        return err_set(e, ERR_TOO_LARGE, "the image has %zu layers, at most %d are accepted", json_array_size(layers),
                       MANIFEST_LAYERS_MAX);
    json_array_foreach(layers, i, item)
    {
        if (!is_media(item, layer_types, array_len(layer_types)))
            return err_set(e, ERR_UNSUPPORTED, "layer %zu is of the kind '%.80s', which is not a file system layer that can be "
                           "pulled", i, text_of(item, "mediaType"));
        if (read_blob(item, "layer", &ret->layers[i], e) < 0)
            return -1;
    }
    ret->nlayers = (uint32_t)json_array_size(layers);
    return 0;
}

int manifest_read(const void *p, size_t n, const char *arch, struct manifest *ret, struct err *e)
{
    auto_json *o = js_parse(p, n, MANIFEST_BYTES_MAX, e);

    memset(ret, 0, sizeof *ret);
    if (o == NULL)
        return err_wrap(e, "manifest");
    if (json_integer_value(json_object_get(o, "schemaVersion")) == 1)
        return err_set(
            e, ERR_UNSUPPORTED,
            "the registry has this image in the manifest form of schema version 1 alone, which has "
            "been out of use since 2017: push it again with a current tool");
    if (json_integer_value(json_object_get(o, "schemaVersion")) != 2)
        return err_set(e, ERR_INVALID, "the manifest has no schema version 2");
    const json_t *manifests = json_object_get(o, "manifests");
    if (is_media(o, index_types, array_len(index_types)) || json_is_array(manifests))
        return choose(manifests, arch, ret, e);
    if (read_blob(json_object_get(o, "config"), "configuration", &ret->config, e) < 0)
        return -1;
    return read_layers(json_object_get(o, "layers"), ret, e);
}

/* --- configuration --------------------------------------------------------------------------------------------------- */

static int read_diff_ids(const json_t *ids, struct manifest_config *ret, struct err *e)
{
    json_t *item;
    size_t i;

    json_array_foreach(ids, i, item)
    {
        const char *id = json_is_string(item) ? json_string_value(item) : "";
        if (!image_digest_is_valid(id))
            return err_set(e, ERR_INVALID, "diff id %zu of the image's configuration is not sha256 and 64 digits", i);
        memcpy(ret->diff_ids[i], id, IMAGE_DIGEST_SIZE);
    }
    ret->nlayers = (uint32_t)json_array_size(ids);
    return 0;
}

int manifest_config_read(const void *p, size_t n, const char *arch, uint32_t nlayers, struct manifest_config *ret, struct err *e)
{
    static const char *const kept[] = {"architecture", "os", "variant", "created", "config", "history"};
    auto_json *o = js_parse(p, n, MANIFEST_BYTES_MAX, e);
    auto_json *out = json_object();

    memset(ret, 0, sizeof *ret);
    if (o == NULL)
        return err_wrap(e, "configuration of the image");
    const json_t *ids = json_object_get(json_object_get(o, "rootfs"), "diff_ids");
    if (!json_is_array(ids) || json_array_size(ids) != nlayers)
        return err_set(e, ERR_INVALID,
                       "the image's configuration lists %zu layers and its manifest %" PRIu32,
                       json_array_size(ids), nlayers);
    const char *has = text_of(o, "architecture");
    if (*has != '\0' && strcmp(has, arch) != 0)
        return err_set(e, ERR_NOT_FOUND, "the image is for %.40s/%.40s, not for linux/%s", text_of(o, "os"), has, arch);
    if (strcmp(text_of(o, "os"), "linux") != 0 && *text_of(o, "os") != '\0')
        return err_set(e, ERR_NOT_FOUND, "the image is for %.40s, not for linux", text_of(o, "os"));
    if (json_object_get(o, "config") != NULL && !json_is_object(json_object_get(o, "config")) &&
        !json_is_null(json_object_get(o, "config")))
        return err_set(e, ERR_INVALID, "'config' in the image's configuration is not an object");
    if (read_diff_ids(ids, ret, e) < 0)
        return -1;
    for (size_t i = 0; i < array_len(kept); i++)
        if (json_object_get(o, kept[i]) != NULL)
            (void)json_object_set(out, kept[i], json_object_get(o, kept[i]));
    ret->text = js_text(out, false);
    return 0;
}

/* What an entry of a layout is called. Of an image for several machines all entries have one name, or none. */
static const char *layout_name(const json_t *entry)
{
    const json_t *notes = json_object_get(entry, "annotations");
    const char *name = text_of(notes, "io.containerd.image.name");

    return *name != '\0' ? name : text_of(notes, "org.opencontainers.image.ref.name");
}

int manifest_layout_check(const void *p, size_t n, struct err *e)
{
    auto_json *o = js_parse(p, n, MANIFEST_BYTES_MAX, e);
    auto_json *others = json_object();      /* by digest: entries that are another image than those before */
    const json_t *entries = json_object_get(o, "manifests");
    json_t *item, *earlier;
    auto_buf names = {0};
    size_t i, k;

    if (o == NULL)
        return err_wrap(e, "index.json of the archive");
    if (json_array_size(entries) > MANIFEST_INDEX_MAX)
        return err_set(e, ERR_TOO_LARGE, "index.json of the archive has %zu entries, at most %d are read",
                       json_array_size(entries), MANIFEST_INDEX_MAX);
    buf_init(&names, 160);
    json_array_foreach(entries, i, item)
    {
        bool is_same = json_object_get(others, text_of(item, "digest")) != NULL;
        json_array_foreach(entries, k, earlier)
        {
            if (k >= i || is_same)
                break;
            is_same = strcmp(layout_name(earlier), layout_name(item)) == 0 &&
                      json_is_object(json_object_get(earlier, "platform")) && json_is_object(json_object_get(item, "platform"));
        }
        if (is_same)
            continue;
        (void)json_object_set_new(others, text_of(item, "digest"), json_true());
        if (*layout_name(item) != '\0')
            (void)buf_addf(&names, "%s%.60s", names.len > 0 ? ", " : "", layout_name(item));
    }
    if (json_object_size(others) <= 1)
        return 0;
    return err_set(e, ERR_INVALID, "the archive has %zu images%s%s%s, but one is imported at a time", json_object_size(others),
                   names.len > 0 ? " (" : "", names.len > 0 ? buf_str(&names) : "", names.len > 0 ? ")" : "");
}

void manifest_config_done(struct manifest_config *c)
{
    free(c->text);
    c->text = NULL;
}

bool manifest_is_archive(const void *p, size_t n)
{
    struct err ignored;
    auto_json *list = js_parse(p, n, MANIFEST_BYTES_MAX, &ignored);
    const json_t *first = json_array_get(list, 0);

    return json_is_string(json_object_get(first, "Config")) && json_is_array(json_object_get(first, "Layers"));
}

int manifest_archive_read(const void *p, size_t n, struct manifest_archive *ret, struct err *e)
{
    auto_json *list = js_parse(p, n, MANIFEST_BYTES_MAX, e);
    const json_t *image = json_array_get(list, 0), *layers = json_object_get(image, "Layers");
    json_t *item;
    size_t i;

    memset(ret, 0, sizeof *ret);
    if (list == NULL)
        return err_wrap(e, "manifest.json of the archive");
    if (json_array_size(list) != 1)
        return err_set(e, ERR_INVALID, "the archive has %zu images, but one is imported at a time", json_array_size(list));
    if (!json_is_array(layers) || json_array_size(layers) > MANIFEST_LAYERS_MAX)
        return err_set(e, ERR_INVALID, "manifest.json of the archive lists no layers, or more than %d", MANIFEST_LAYERS_MAX);
    if (strlen(text_of(image, "Config")) >= sizeof ret->config || *text_of(image, "Config") == '\0')
        return err_set(e, ERR_INVALID, "manifest.json of the archive names no configuration");
    memcpy(ret->config, text_of(image, "Config"), strlen(text_of(image, "Config")));
    json_array_foreach(layers, i, item)
    {
        const char *path = json_is_string(item) ? json_string_value(item) : "";
        if (*path == '\0' || strlen(path) >= sizeof ret->layers[0])
            return err_set(e, ERR_INVALID, "the path of layer %zu in manifest.json of the archive is empty or too long", i);
        memcpy(ret->layers[i], path, strlen(path));
    }
    ret->nlayers = (uint32_t)json_array_size(layers);
    return 0;
}
