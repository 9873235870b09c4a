/*
 * conf_fuzz.c - the configuration file: any text is either taken or refused with a message
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf c;
    struct err e = {0};

    conf_defaults(&c);
    int r = conf_parse(&c, (const char *)data, size, &e);
    if (r < 0 && (e.code == ERR_OK || e.message[0] == '\0'))
        abort();
    if (strnlen(c.data_dir, sizeof c.data_dir) == sizeof c.data_dir || c.pool_size > 256)
        abort();
    return 0;
}
