/*
 * image_manifest_fuzz.c - what registries say: manifests, configurations, challenges; references and patterns of users
 */
#include <stdint.h>
#include <string.h>

#include "base/glob.h"
#include "base/image_ref.h"
#include "base/mem.h"
#include "image/manifest.h"
#include "image/registry_auth.h"
#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void texts(const char *text)
{
    struct registry_challenge c;
    struct image_ref ref;
    char name[IMAGE_REF_SIZE];
    struct err e = {0};
    size_t n = strlen(text);

    (void)registry_challenge_read(text, &c);
    (void)image_ref_parse(text, &ref, &e);
    (void)image_name_normalize(text, name, &e);
    (void)glob_match(text, "a/b/c.txt");
    (void)glob_is_ignored(text, n, "a/b/c.txt");
    (void)glob_has_exceptions(text, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct manifest m;
    static struct manifest_config c;
    struct err e = {0};

    js_init();
    if (size > 16384)
        return 0;
    if (manifest_read(data, size, "amd64", &m, &e) == 0 && m.nlayers > MANIFEST_LAYERS_MAX)
        __builtin_trap();
    if (manifest_config_read(data, size, "amd64", 1, &c, &e) == 0)
        manifest_config_done(&c);
    static struct manifest_archive archive;
    if (manifest_archive_read(data, size, &archive, &e) == 0 &&
        (archive.nlayers > MANIFEST_LAYERS_MAX || !manifest_is_archive(data, size)))
        __builtin_trap();
    (void)manifest_layout_check(data, size, &e);
    auto_free char *text = mem_strndup((const char *)data, size);
    texts(text);
    return 0;
}
