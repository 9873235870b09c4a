/*
 * build_context.h - which files of a directory a build is given
 */
#ifndef QS_CLI_BUILD_CONTEXT_H
#define QS_CLI_BUILD_CONTEXT_H

#include "base/err.h"

/*
 * A file with the names below `dir`, each with "./" before and a NUL behind it: those that neither DOCKERFILE.dockerignore nor,
 * if there is none, .dockerignore leaves out. Its descriptor, which children inherit and the caller closes; -1.
 */
int build_context_list(const char *dir, const char *dockerfile, struct err *e);

#endif
