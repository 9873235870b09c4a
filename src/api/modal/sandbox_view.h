/*
 * sandbox_view.h - a sandbox of core as clients see it: ids, results, access to the router
 */
#ifndef QS_API_MODAL_SANDBOX_VIEW_H
#define QS_API_MODAL_SANDBOX_VIEW_H

#include "api/modal/mcall.h"
#include "base/modal_ids.h"
#include "core/sandbox.h"

/* How the sandbox was made; V1 if by another dialect. */
enum modal_generation view_generation(const struct sandbox_row *row);
/* Number kept by sandbox_def.c in the row's spec; 0 if there is none. */
int64_t view_number(const struct sandbox_row *row, const char *key);

/* The end of a row in state ended. Points into the row. */
void view_result(const struct sandbox_row *row, M(GenericResult) *ret);

struct view_metadata {
    M(SandboxHandleMetadata) m;
    M(GenericResult) result;
    char app_id[ID_SIZE];
};

void view_metadata(struct mcall *c, const struct sandbox_row *row, struct view_metadata *ret);

/* Core's id of a client's; ERR_NOT_FOUND for what cannot be one. Notes it for the audit line. */
int view_id(struct mcall *c, const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g, struct err *e);
int view_task(struct mcall *c, const char *text, char ret_id[ID_SIZE], enum modal_generation *ret_g, struct err *e);
/* The row as the store has it. */
int view_row(struct mcall *c, const char *id, struct sandbox_row *ret, struct err *e);

/* URL and token of the router for a task; the caller frees both. */
int view_access(struct mcall *c, const char *id, enum modal_generation g, char **ret_url, char **ret_jwt, struct err *e);
/* "https://host:port" out of the authority that a client used; pure. */
char *view_router_url(const char *authority, const char *host, int port);

#endif
