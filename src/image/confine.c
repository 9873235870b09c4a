/*
 * confine.c - the last privileges that a job's processes give up before the first byte of a stranger
 */
#include "image/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "sys/fd.h"
#include "sys/seccomp_role.h"

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE)
/* Everything of the first version, which Linux 5.13 brought. */
#define HANDLED                                                                                                    \
    (READ | WRITE | LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_CHAR |    \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |                   \
     LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

int confine_unpacker(struct err *e)
{
    return seccomp_role_install(SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_READ_FILES | SECCOMP_WRITE_FILES |
                                    SECCOMP_MEMFD | SECCOMP_TREE,
                                e);
}

static int allow(int ruleset, int fd, uint64_t access)
{
    struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};

    return (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

/* Names, certificates, libraries that are opened late; /proc is read by the sanitizers. */
static int hide_files(int blobs)
{
    static const char *const readable[] = {"/etc", "/usr", "/lib", "/lib64", "/dev", "/proc"};
    struct landlock_ruleset_attr attr = {.handled_access_fs = HANDLED};
    auto_close int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);

    if (ruleset < 0)
        return -errno;
    for (size_t i = 0; i < array_len(readable); i++) {
        auto_close int fd = open(readable[i], O_PATH | O_CLOEXEC);
        if (fd >= 0 && allow(ruleset, fd, READ) < 0)
            return -errno;
    }
    if ((blobs >= 0 && allow(ruleset, blobs, READ | WRITE) < 0) || syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return -errno;
    return 0;
}

static int drop_capabilities(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};

    return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

int confine_fetcher(int blobs, struct err *e)
{
    int r = drop_capabilities();

    if (r < 0)
        return err_sys(e, -r, "drop capabilities");
    r = hide_files(blobs);
    if (r == -ENOSYS || r == -EOPNOTSUPP)
        log_warn("image.landlock", "text=%s", "this_kernel_has_none:_the_fetching_process_sees_the_role's_files");
    else if (r < 0)
        return err_sys(e, -r, "restrict the file system");
    return seccomp_role_install(SECCOMP_BASE | SECCOMP_IO | SECCOMP_UNIX | SECCOMP_INET | SECCOMP_READ_FILES |
                                    SECCOMP_WRITE_FILES | SECCOMP_MEMFD | SECCOMP_THREADS,
                                e);
}
