/*
 * role_view.c - which files of the host the spawner and each role can see
 */
#include "keeper/role_view.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/mem.h"
#include "keeper/objects.h"
#include "keeper/view.h"
#include "sys/detached_mount.h"
#include "sys/fd.h"

#define ENTRIES 40
#define PATHS 12
#define PROGRAM (VIEW_EXEC | VIEW_TREE)

/* Entries of one view, and the paths that had to be put together for it. */
struct view {
    struct view_entry entries[ENTRIES];
    size_t n;
    char paths[PATHS][320];
    size_t npaths;
};

static void show(struct view *v, const char *path, unsigned flags)
{
    if (v->n < ENTRIES)
        v->entries[v->n] = (struct view_entry){.path = path, .flags = flags};
    v->n++;
}

/* `name` in directory `dir`; NULL if there is no place left, which view_done() then says. */
static void show_in(struct view *v, const char *dir, const char *name, unsigned flags)
{
    if (v->npaths == PATHS) {
        v->n = ENTRIES + 1;
        return;
    }
    char *path = v->paths[v->npaths++];
    (void)snprintf(path, sizeof v->paths[0], "%s/%s", dir, name);
    show(v, path, flags);
}

/* What any dynamic program of ours needs, and its configuration. */
static void show_programs(struct view *v)
{
    static const char *const dirs[] = {"/usr", "/bin", "/lib", "/lib32", "/lib64"};

    for (size_t i = 0; i < array_len(dirs); i++)
        show(v, dirs[i], PROGRAM);
    show(v, keeper.conf.lib_dir, PROGRAM | VIEW_NEEDED);
    show(v, keeper.conf_path[0] != '\0' ? keeper.conf_path : CONF_DEFAULT_PATH, 0);
}

static void show_all(struct view *v, const char *const *paths, size_t n, unsigned flags)
{
    for (size_t i = 0; i < n; i++)
        show(v, paths[i], flags);
}

/* Without names of the network: users, the loader's cache, the settings of OpenSSL. */
static void show_etc(struct view *v)
{
    static const char *const files[] = {"/etc/ld.so.cache", "/etc/passwd", "/etc/localtime", "/etc/ssl/openssl.cnf"};

    show_all(v, files, array_len(files), 0);
}

/* All of /etc, because its files are replaced while we run: the resolver's, certificates; and what they are links to. */
static void show_resolver(struct view *v)
{
    static const char *const dirs[] = {"/etc", "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"};

    show_all(v, dirs, array_len(dirs), VIEW_TREE);
}

static void show_devices(struct view *v)
{
    static const char *const nodes[] = {"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};

    show_all(v, nodes, array_len(nodes), VIEW_WRITE | VIEW_NODES);
}

static void show_tls(struct view *v)
{
    show(v, keeper.conf.tls_cert, 0);
    show(v, keeper.conf.tls_key, 0);
}

#ifdef __SANITIZE_ADDRESS__
/* All of it: the sanitizer reads it. */
static int show_proc(struct view *v, enum role r, int *ret_mount)
{
    show(v, "/proc", VIEW_TREE | VIEW_WRITE);
    return 0;
}
#else
/* Of processes the role's own alone, and nothing else. A less privileged namespace may mount none; the image role needs none. */
static int show_proc(struct view *v, enum role r, int *ret_mount)
{
    static const struct mount_option options[] = {{"hidepid", "invisible"}, {"subset", "pid"}};

    if (r == ROLE_IMAGE)
        return 0;
    *ret_mount = mount_new("proc", options, array_len(options), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (*ret_mount < 0)
        return *ret_mount;
    show(v, "/proc", 0);
    v->entries[v->n - 1].mount = *ret_mount;
    return 0;
}
#endif

static int enter(struct view *v)
{
    char base[sizeof keeper.conf.data_dir + 16];

    if (v->n > ENTRIES)
        return -E2BIG;
    snprintf(base, sizeof base, "%s/keeper", keeper.conf.data_dir);
    return view_enter(base, v->entries, v->n);
}

int role_view_enter(enum role r, int layers)
{
    const struct conf *c = &keeper.conf;
    struct view v = {.n = 0};
    auto_close int proc = -1;

    show_programs(&v);
    show_devices(&v);
    switch (r) {
    case ROLE_CONTROL:
        show_resolver(&v);
        show_tls(&v);
        show(&v, c->registry_auth, 0);
        show_in(&v, c->data_dir, "control", VIEW_WRITE | VIEW_NEEDED);
        show_in(&v, c->run_dir, "node.sock", VIEW_NEEDED);
        break;
    case ROLE_NODE:
        show_etc(&v);
        show_tls(&v);
        show(&v, c->tunnel_certs, VIEW_TREE);
        show_in(&v, c->data_dir, "node", VIEW_WRITE | VIEW_NEEDED);
        show_in(&v, c->data_dir, "run", VIEW_NEEDED);
        show_in(&v, c->run_dir, "keeper.sock", VIEW_NEEDED);
        show_in(&v, c->run_dir, "image.sock", VIEW_NEEDED);
        show_in(&v, c->run_dir, "egress.sock", VIEW_NEEDED);
        break;
    case ROLE_EGRESS:
        show_resolver(&v);
        show(&v, c->egress_ca, 0);
        show_in(&v, c->data_dir, "egress", VIEW_WRITE | VIEW_NEEDED);
        break;
    case ROLE_IMAGE:
        show_resolver(&v);
        show_in(&v, c->data_dir, "layers", VIEW_WRITE);
        v.entries[v.n - 1].mount = layers;
        break;
    case ROLES:
        return -EINVAL;
    }
    int error = show_proc(&v, r, &proc);
    return error < 0 ? error : enter(&v);
}

/* What it shows to roles and builders, what it writes itself: ids and settings in /proc, and /dev/null. */
int spawner_view_enter(void)
{
    struct view v = {.n = 0};

    if (unshare(CLONE_NEWNS) < 0)
        return -errno;
    show_programs(&v);
    show_devices(&v);
    show_resolver(&v);
    show_tls(&v);
    show(&v, keeper.conf.tunnel_certs, VIEW_TREE);
    show(&v, keeper.conf.registry_auth, 0);
    show(&v, keeper.conf.egress_ca, 0);
    show(&v, "/proc", VIEW_WRITE | VIEW_TREE);
    show(&v, "/sys", 0);
    show(&v, keeper.conf.run_dir, VIEW_NEEDED | VIEW_WRITE);
    show(&v, keeper.conf.data_dir, VIEW_NEEDED | VIEW_WRITE | VIEW_EXEC);
    int r = enter(&v);
    if (r < 0)
        return r;
    /* Mounts can be cloned only in the namespace that they are in. */
    fd_close(&keeper.data_fd);
    keeper.data_fd = open(keeper.conf.data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return keeper.data_fd < 0 ? -errno : objects_attach();
}
