/*
 * rmtree.h - removing a directory and everything below it, following nothing
 */
#ifndef QS_SYS_RMTREE_H
#define QS_SYS_RMTREE_H

/* 0 also if it is not there; else -errno of the first failure, with as much removed as could be. */
int rmtree(int dirfd, const char *name);

/* The same for what is in the directory, which stays. */
int rmtree_inside(int dirfd, const char *name);

#endif
