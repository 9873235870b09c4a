/*
 * apps.h - what other files of the dialect need of apps
 */
#ifndef QS_API_MODAL_APPS_H
#define QS_API_MODAL_APPS_H

#include "api/modal/mcall.h"

/* ERR_NOT_FOUND for NULL, "" and ids of none. */
int app_get(struct mcall *c, const char *id, struct app_info *ret, struct err *e);
/* Ends the apps of clients that were not heard of any more. */
void apps_sweep(struct modal *m);

#endif
