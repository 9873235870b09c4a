/*
 * fs.h - the file helper: one operation given as JSON in argv[1]
 */
#ifndef QS_INIT_FS_FS_H
#define QS_INIT_FS_FS_H

/* Returns the exit status. */
int fs_main(int argc, char **argv);

#endif
