/*
 * config.h - the address and the token of the server
 *
 * In this order: QUICKSAND_URL and QUICKSAND_TOKEN; ~/.config/quicksand/config (url = ..., token = ..., ca = ...); for
 * root on the server itself the admin token that its first start wrote.
 */
#ifndef QS_CLI_CONFIG_H
#define QS_CLI_CONFIG_H

#include <stddef.h>

#include "base/err.h"

struct cli_config {
    char url[512];
    char token[256];
    char ca_file[512];
};

int cli_config_load(struct cli_config *c, struct err *e);
/* The lines of a configuration file over *c. Exported for its test. */
int cli_config_parse(struct cli_config *c, char *text, struct err *e);

#endif
