/*
 * secret_mark.h - the extended attribute of a file that no layer may keep
 *
 * The helper inside sets it on the secrets of a build's step (init/fs/write.c); whoever makes a layer of what a sandbox has
 * written passes over files that have it (image/fold.c). What is inside may set it too, and leaves out its own files by that.
 */
#ifndef QS_BASE_SECRET_MARK_H
#define QS_BASE_SECRET_MARK_H

#define SECRET_MARK "user.quicksand.secret"

#endif
