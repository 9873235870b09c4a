/*
 * modal_request_fuzz.c - requests of Modal's clients: any bytes are either refused or a message whose texts are UTF-8
 *
 * The first byte chooses the RPC. What looks like a definition of an image, or like ids, goes through the readers of those too.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/modal/image_def.h"
#include "api/modal/mcall.h"
#include "api/modal/network_def.h"
#include "api/modal/sandbox_def.h"
#include "api/modal/utf8.h"
#include "base/mem.h"
#include "base/modal_ids.h"
#include "http/proto_nul.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_text(const char *text)
{
    char id[ID_SIZE], again[ID_SIZE], name[IMAGE_REF_MAX];
    enum modal_generation g;

    if (modal_sandbox_parse(text, id, &g)) {
        modal_sandbox_id(id, g, again);
        if (!id_is(id, "sb-") || strcmp(again, text) != 0)
            abort();
    }
    if (modal_task_parse(text, id, &g) && !id_is(id, "sb-"))
        abort();
    (void)cidr_is_valid(text);
    (void)image_ref_is_debian(text);
    (void)image_tag_name(text, "", name);
}

static void read_bytes(const uint8_t *data, size_t size)
{
    auto_free char *text = mem_alloc(size + 1);
    auto_buf out;
    struct image_def def;

    memcpy(text, data, size);
    text[size] = '\0';
    image_def_read(&text, 1, &def);
    read_text(text);
    buf_init(&out, 4 * size + 4);
    bool has_text = utf8_take(data, size, true, &out) == size;
    if (!has_text || (memchr(buf_str(&out), '\0', out.len) == NULL && !utf8_is_valid(buf_str(&out))))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};

    if (size == 0)
        return 0;
    read_bytes(data + 1, size - 1);
    const struct rpc *rpc = &rpcs[data[0] % nrpcs];
    if (rpc->request == NULL)
        return 0;
    (void)proto_nul_field(rpc->request, data + 1, size - 1);
    ProtobufCMessage *m = protobuf_c_message_unpack(rpc->request, NULL, size - 1, data + 1);
    if (m == NULL)
        return 0;
    if (m_check_texts(m, &e) < 0 && (e.code == ERR_OK || e.message[0] == '\0'))
        abort();
    protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}
