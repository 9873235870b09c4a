/*
 * absent.c - what this server does not do, each with its reason
 *
 * Sidecar containers, snapshots, mounts and volumes do not exist here. The codes are final ones: nobody
 * tries again what can never work.
 */
#include "node/modal/router.h"

#define RQ(op, type) ((const Modal__TaskCommandRouter__##type *)(op)->rq)

/* Refuses, unless the caller had no right to ask. */
static void refuse(struct op *op, const char *task_id, const char *container_id, enum err_code code,
                   const char *why)
{
    char sandbox[ID_SIZE];
    struct err e;

    if (router_sandbox(op, task_id, container_id, sandbox, &e) == 0)
        err_set(&e, code, "%s", why);
    op_fail(op, &e);
}

/* --- sidecars -------------------------------------------------------------------------------- */

void router_container_create(struct op *op)
{
    refuse(op, RQ(op, TaskContainerCreateRequest)->task_id, NULL, ERR_UNSUPPORTED,
           "sidecar containers are not supported by this server");
}

void router_container_get(struct op *op)
{
    refuse(op, RQ(op, TaskContainerGetRequest)->task_id, NULL, ERR_NOT_FOUND,
           "the sandbox has no sidecar container");
}

void router_container_list(struct op *op)
{
    Modal__TaskCommandRouter__TaskContainerListResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_CONTAINER_LIST_RESPONSE__INIT;
    char sandbox[ID_SIZE];
    struct err e;

    if (router_sandbox(op, RQ(op, TaskContainerListRequest)->task_id, NULL, sandbox, &e) < 0)
        op_fail(op, &e);
    else
        op_reply(op, &m.base);
}

void router_container_wait(struct op *op)
{
    refuse(op, RQ(op, TaskContainerWaitRequest)->task_id, NULL, ERR_NOT_FOUND,
           "the sandbox has no sidecar container");
}

void router_container_terminate(struct op *op)
{
    refuse(op, RQ(op, TaskContainerTerminateRequest)->task_id, NULL, ERR_NOT_FOUND,
           "the sandbox has no sidecar container");
}

/* --- volumes and mounts ---------------------------------------------------------------------- */

/* Without volumes there is nothing that could be out of date. */
void router_reload_volumes(struct op *op)
{
    const Modal__TaskCommandRouter__TaskReloadVolumesRequest *rq = RQ(op, TaskReloadVolumesRequest);
    Modal__TaskCommandRouter__TaskReloadVolumesResponse m =
        MODAL__TASK_COMMAND_ROUTER__TASK_RELOAD_VOLUMES_RESPONSE__INIT;
    char sandbox[ID_SIZE];
    struct err e;

    if (router_sandbox(op, rq->task_id, rq->container_id, sandbox, &e) < 0)
        op_fail(op, &e);
    else
        op_reply(op, &m.base);
}

void router_mount_directory(struct op *op)
{
    const Modal__TaskCommandRouter__TaskMountDirectoryRequest *rq = RQ(op, TaskMountDirectoryRequest);

    refuse(op, rq->task_id, rq->container_id, ERR_UNSUPPORTED,
           "mounting images in a running sandbox is not supported by this server");
}

void router_unmount_directory(struct op *op)
{
    const Modal__TaskCommandRouter__TaskUnmountDirectoryRequest *rq =
        RQ(op, TaskUnmountDirectoryRequest);

    refuse(op, rq->task_id, rq->container_id, ERR_PRECONDITION, "nothing is mounted there");
}

/* --- snapshots ------------------------------------------------------------------------------- */

void router_snapshot_directory(struct op *op)
{
    const Modal__TaskCommandRouter__TaskSnapshotDirectoryRequest *rq =
        RQ(op, TaskSnapshotDirectoryRequest);

    refuse(op, rq->task_id, rq->container_id, ERR_UNSUPPORTED,
           "snapshots of directories are not supported by this server");
}

void router_snapshot_filesystem(struct op *op)
{
    const Modal__TaskCommandRouter__TaskSnapshotFilesystemRequest *rq =
        RQ(op, TaskSnapshotFilesystemRequest);

    refuse(op, rq->task_id, rq->container_id, ERR_UNSUPPORTED,
           "snapshots of file systems are not supported by this server");
}

void router_snapshot_memory(struct op *op)
{
    refuse(op, RQ(op, TaskSnapshotMemoryRequest)->task_id, NULL, ERR_UNSUPPORTED,
           "snapshots of memory are not supported by this server");
}
