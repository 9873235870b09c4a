/*
 * races.h - both sides of a race on paths
 */
#ifndef QS_ESCAPE_RACES_H
#define QS_ESCAPE_RACES_H

/* In `directory`, makes "x" a real directory and a link to `target` in turn, as fast as it can, until it is killed. */
int swap_main(const char *directory, const char *target);
/* What a server that trusts what it finds below `root` would do with `path`: the control of the file operations. */
int naive_main(const char *root, const char *operation, const char *path);

#endif
