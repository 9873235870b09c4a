/*
 * init_user_fuzz.c - lines of a tenant's passwd and group
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "init/user.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *copy(const uint8_t *data, size_t size)
{
    char *line = mem_alloc(size + 1);

    if (size > 0)
        memcpy(line, data, size);
    line[size] = '\0';
    return line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct passwd_entry p;
    struct group_entry g;
    uint32_t id;
    char *line = copy(data, size);

    if (user_id_parse(line, &id) && id == UINT32_MAX)
        abort();
    if (passwd_parse(line, &p) && (p.name[0] == '\0' || strlen(p.home) > size))
        abort();
    free(line);
    line = copy(data, size);
    if (group_parse(line, &g))
        (void)group_has_member(&g, "user");
    free(line);
    return 0;
}
