/*
 * seccomp_filter.c - compiling a syscall filter
 */
#include "sys/seccomp_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sys/fd.h"

static scmp_filter_ctx context(struct seccomp_filter *f)
{
    return (scmp_filter_ctx)f;
}

struct seccomp_filter *seccomp_filter_new(int default_errno)
{
    scmp_filter_ctx c = seccomp_init(SCMP_ACT_ERRNO((unsigned)default_errno));

    if (c == NULL)
        return NULL;
    /* A binary tree loads and runs faster than a list; foreign architectures get "no such call". */
    if (seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0 ||
        seccomp_attr_set(c, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS)) < 0) {
        seccomp_release(c);
        return NULL;
    }
    return (struct seccomp_filter *)c;
}

void seccomp_filter_free(struct seccomp_filter *f)
{
    if (f != NULL)
        seccomp_release(context(f));
}

static uint32_t action(int error)
{
    return error == 0 ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO((unsigned)error);
}

int seccomp_filter_add(struct seccomp_filter *f, int error, const char *name)
{
    int nr = seccomp_syscall_resolve_name(name);

    return nr < 0 ? 0 : seccomp_rule_add(context(f), action(error), nr, 0);
}

int seccomp_filter_add_if(struct seccomp_filter *f, int error, const char *name, unsigned arg,
                          enum seccomp_test test, uint64_t value, uint64_t mask)
{
    int nr = seccomp_syscall_resolve_name(name);
    struct scmp_arg_cmp cmp = {.arg = arg, .datum_a = value};

    if (nr < 0)
        return 0;
    switch (test) {
    case SECCOMP_EQ:
        cmp.op = SCMP_CMP_EQ;
        break;
    case SECCOMP_NE:
        cmp.op = SCMP_CMP_NE;
        break;
    case SECCOMP_GT:
        cmp.op = SCMP_CMP_GT;
        break;
    case SECCOMP_MASK:
        cmp.op = SCMP_CMP_MASKED_EQ;
        cmp.datum_a = mask;
        cmp.datum_b = value;
        break;
    }
    return seccomp_rule_add_array(context(f), action(error), nr, 1, &cmp);
}

int seccomp_filter_load(struct seccomp_filter *f)
{
    return seccomp_load(context(f));
}

int seccomp_filter_export(struct seccomp_filter *f)
{
    auto_close int fd = memfd_create("filter", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int r = seccomp_export_bpf(context(f), fd);
    if (r < 0)
        return r;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0 ||
        lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    return take_fd(&fd);
}
