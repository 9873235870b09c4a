/*
 * setup.c - a slot becomes a sandbox
 *
 * Called once, at SETUP, by serve.c. From here on the image's files are in view, so every path in the
 * new root is resolved without following links and without leaving it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "init/init.h"
#include "init/kernel.h"
#include "sys/fd.h"

#define VOLATILE "u/work/work/incompat/volatile"
#define NESTED_NAMESPACES "1024"    /* memory of the kernel, each of them */
#define IN_ROOT (RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS)

static int identity_write(const struct init_setup *s, struct fault *f)
{
    char text[256];

    if (sethostname(s->hostname, strlen(s->hostname)) < 0)
        return fault_set(f, "hostname");
    snprintf(text, sizeof text,
             "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%s\n",
             s->hostname);
    int r = fd_write_at(AT_FDCWD, "etc/hosts", text);
    snprintf(text, sizeof text, "%s\n", s->hostname);
    if (r == 0)
        r = fd_write_at(AT_FDCWD, "etc/hostname", text);
    if (r < 0) {
        errno = -r;
        return fault_set(f, "etc");
    }
    return 0;
}

/* The real size of the tmpfs; with inodes in proportion, because they are memory too. */
static int staging_size(uint64_t bytes, struct fault *f)
{
    char options[96];

    if (bytes == 0)
        return 0;
    snprintf(options, sizeof options, "size=%" PRIu64 ",nr_inodes=%" PRIu64, bytes,
             bytes / 4096 + 1024);
    if (k_mount(NULL, "/", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV, options) < 0)
        return fault_set(f, "tmpfs size");
    return 0;
}

static int layers_attach(const struct init_setup *s, const int *fds, struct fault *f)
{
    char name[24];

    if (k_move_mount(fds[0], "", AT_FDCWD, "u") < 0)
        return fault_set(f, "upper");
    for (uint32_t i = 0; i < s->nlayers; i++) {
        snprintf(name, sizeof name, "l%" PRIu32, i);
        if (k_move_mount(fds[1 + i], "", AT_FDCWD, name) < 0) {
            snprintf(name, sizeof name, "layer %" PRIu32, i);
            return fault_set(f, name);
        }
    }
    return 0;
}

/* Names are short and relative, because mount(2) takes one page of options. */
static int overlay_mount(const struct init_setup *s, struct fault *f)
{
    char options[4096];
    size_t n = (size_t)snprintf(options, sizeof options, "userxattr,xino=on,%slowerdir=",
                                s->volatile_upper ? "volatile," : "");

    for (uint32_t i = 0; i < s->nlayers; i++)
        n += (size_t)snprintf(options + n, sizeof options - n, "%sl%" PRIu32, i == 0 ? "" : ":", i);
    snprintf(options + n, sizeof options - n, ",upperdir=u/upper,workdir=u/work");

    /* What an earlier volatile mount left makes the kernel refuse the tree. */
    if ((unlink(VOLATILE "/dirty") < 0 && errno != ENOENT) || (rmdir(VOLATILE) < 0 && errno != ENOENT))
        return fault_set(f, "volatile residue");
    if (k_mount("overlay", "r", "overlay", 0, options) < 0)
        return fault_set(f, "overlay");
    return 0;
}

/* Moves a finished tree onto a directory of the new root. */
static int tree_move(int root, const char *name, struct fault *f)
{
    auto_close int at = k_openat2(root, name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, IN_ROOT);

    if (at < 0 || k_move_mount(AT_FDCWD, name, at, "") < 0)
        return fault_set(f, name);
    return 0;
}

/*
 * Binds the generated files. An earlier owner of the tree may have replaced /etc or a file in it: what
 * is missing is made, and what is not a plain file in a plain directory is left as it is.
 */
static int etc_bind(struct init *in, int root, struct fault *f)
{
    static const char *const names[ETC_MAX] = {"hosts", "hostname", "resolv.conf", "machine-id"};

    (void)mkdirat(root, "etc", 0755);           /* there as a rule */
    auto_close int etc = k_openat2(root, "etc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0, IN_ROOT);
    for (int i = 0; i < ETC_MAX; i++) {
        auto_close int mount = take_fd(&in->etc[i]);
        struct stat st;

        if (etc < 0)
            continue;
        if (fstatat(etc, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0) {
            auto_close int made = openat(etc, names[i],
                                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
            if (made < 0)
                continue;
        } else if (!S_ISREG(st.st_mode)) {
            continue;
        }
        if (k_move_mount(mount, "", etc, names[i]) < 0)
            return fault_set(f, names[i]);
    }
    return 0;
}

static int root_enter(int root, struct fault *f)
{
    if (fchdir(root) < 0 || k_pivot_root(".", ".") < 0)
        return fault_set(f, "pivot");
    if (k_umount2(".", KERNEL_MNT_DETACH) < 0)
        return fault_set(f, "detach staging");
    if (chdir("/") < 0)
        return fault_set(f, "root");
    return 0;
}

/* While we hold CAP_SYS_ADMIN in here: then neither asks for no_new_privs, and setuid programs work. */
static int confine(struct init *in, const struct init_setup *s, int filter, struct fault *f)
{
    if (s->no_new_privs && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fault_set(f, "no_new_privs");
    if (s->user_namespaces && pwrite(in->nesting, NESTED_NAMESPACES, strlen(NESTED_NAMESPACES), 0) < 0)
        return fault_set(f, "max_user_namespaces");
    fd_close(&in->nesting);
    if (landlock_domain(s->user_namespaces, f) < 0)
        return -1;
    return caps_filter(filter, f);
}

int setup_run(struct init *in, const struct init_setup *s, const int *fds, int nfds, struct fault *f)
{
    if (s->nlayers == 0 || s->nlayers > LIMIT_LAYERS + 1 || (uint32_t)nfds != s->nlayers + 2) {
        errno = EINVAL;
        return fault_set(f, "descriptors");
    }
    if (identity_write(s, f) < 0 || staging_size(s->shm_bytes, f) < 0 ||
        layers_attach(s, fds, f) < 0 || overlay_mount(s, f) < 0)
        return -1;
    auto_close int root = open("r", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return fault_set(f, "root");
    if (figures_of_cpus(in, s->cpus, f) < 0)
        return -1;
    if (tree_move(root, "proc", f) < 0 || tree_move(root, "dev", f) < 0 || tree_move(root, "sys", f) < 0 ||
        etc_bind(in, root, f) < 0)
        return -1;
    if (root_enter(root, f) < 0)
        return -1;
    fd_close(&in->staging);
    if (confine(in, s, fds[s->nlayers + 1], f) < 0)
        return -1;
    return caps_drop(f);
}
