/*
 * landlock.c - a second wall behind the syscall filter
 *
 * Called at SETUP, after the last mount. Everything in the sandbox is one domain: its processes cannot signal, trace or
 * connect by an abstract socket to one outside of it, cannot change the tree of mounts and cannot make block devices. The first
 * three are namespaces' business already, the others the filter's: this holds should one of those have a hole. Files are not
 * restricted otherwise, so nothing is looked up when one is opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <unistd.h>

#include "init/init.h"
#include "init/kernel.h"
#include "sys/fd.h"

/* Newer than the headers of some build hosts. */
#define ABI_REFER 2
#define ABI_NET 4
#define ABI_SCOPE 6
#define ABI_LOG 7
#define SCOPES 3u               /* abstract sockets and signals */
#define ACCESS_REFER (1ULL << 13)
#define QUIET 5u                /* no line in the host's audit log for what is refused in here */

/* The kernel's struct as of ABI_SCOPE; older kernels know a part of it. */
struct ruleset {
    uint64_t fs, net, scoped;
};

static size_t ruleset_size(int abi)
{
    if (abi >= ABI_SCOPE)
        return sizeof(struct ruleset);
    return abi >= ABI_NET ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
}

/* Renames between directories are refused in any domain about files unless they are allowed by name. */
static int allow_renames(int ruleset)
{
    auto_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = {.allowed_access = ACCESS_REFER, .parent_fd = root};

    if (root < 0)
        return -1;
    return (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

int landlock_domain(bool mounts_allowed, struct fault *f)
{
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    struct ruleset set = {0};

    if (abi >= ABI_REFER && !mounts_allowed)
        set.fs = LANDLOCK_ACCESS_FS_MAKE_BLOCK | ACCESS_REFER;
    if (abi >= ABI_SCOPE)
        set.scoped = SCOPES;
    if (set.fs == 0 && set.scoped == 0)
        return 0;               /* a kernel without it */
    auto_close int fd = (int)syscall(SYS_landlock_create_ruleset, &set, ruleset_size(abi), 0);
    if (fd < 0 || (set.fs != 0 && allow_renames(fd) < 0) ||
        syscall(SYS_landlock_restrict_self, fd, abi >= ABI_LOG ? QUIET : 0) < 0)
        return fault_set(f, "landlock");
    return 0;
}
