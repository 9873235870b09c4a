/*
 * wire_fuzz.c - every decoder of the internal messages over one input
 *
 * What decodes must encode again to the same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ipc/exec_spec.h"
#include "ipc/image_proto.h"
#include "ipc/init_proto.h"
#include "ipc/keeper_proto.h"
#include "ipc/monitor_proto.h"
#include "ipc/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t again[64 * 1024 + 1024];

#define TRY(name)                                                       \
    do {                                                                \
        struct name m;                                                  \
        if (name##_decode(&m, data, size) == 0) {                       \
            size_t n = name##_encode(&m, again, sizeof again);          \
            if (n != 0 && (n != size || memcmp(again, data, n) != 0))   \
                abort();                                                \
        }                                                               \
    } while (0)

static void try_messages(const uint8_t *data, size_t size)
{
    TRY(init_setup);
    TRY(init_cpus);
    TRY(init_oom);
    TRY(init_oom_r);
    TRY(init_ready);
    TRY(init_exec);
    TRY(init_started);
    TRY(init_exited);
    TRY(init_signal);
    TRY(image_unpack);
    TRY(image_progress);
    TRY(image_done);
    TRY(image_pull);
    TRY(image_fold);
    TRY(image_copy);
    TRY(image_fetch);
    TRY(image_export);
    TRY(image_list);
    TRY(image_layers);
    TRY(image_verify);
    TRY(image_verdict);
    TRY(keeper_create);
    TRY(keeper_destroy);
    TRY(keeper_tree);
    TRY(keeper_limits);
    TRY(keeper_layer);
    TRY(keeper_stats);
    TRY(keeper_configure);
    TRY(exec_record);
    TRY(sandbox_record);
}

static void try_monitor(const uint8_t *data, size_t size)
{
    TRY(mon_exec);
    TRY(mon_ref);
    TRY(mon_read);
    TRY(mon_dial);
    TRY(mon_read_r);
    TRY(mon_stdin);
    TRY(mon_stdin_r);
    TRY(mon_wait);
    TRY(mon_list);
    TRY(mon_signal);
    TRY(mon_resize);
    TRY(mon_kill);
    TRY(mon_terminate);
    TRY(mon_status);
    TRY(mon_update);
    TRY(mon_error);
}

static void try_spec(const uint8_t *data, size_t size)
{
    static const char *arrays[LIMIT_ARGC + LIMIT_ENVC + 2];
    struct exec_spec s;
    char text[128];
    size_t used = 0;
    struct keeper_reply reply;
    auto_free uint8_t *copy = mem_alloc(size > 0 ? size : 1);

    memcpy(copy, data, size);
    exec_spec_summary(copy, size, text, sizeof text);
    if (exec_spec_decode(&s, copy, size, arrays, array_len(arrays)) == 0) {
        size_t n = 0;
        if (exec_spec_encode(&s, again, sizeof again, &n) == 0 &&
            (n != size || memcmp(again, data, n) != 0))
            abort();
    }
    if (keeper_reply_decode(&reply, data, size, &used) == 0 && used > size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_messages(data, size);
    try_monitor(data, size);
    try_spec(data, size);
    return 0;
}
