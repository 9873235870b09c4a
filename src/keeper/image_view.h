/*
 * image_view.h - the file tree that the image role sees
 */
#ifndef QS_KEEPER_IMAGE_VIEW_H
#define QS_KEEPER_IMAGE_VIEW_H

/*
 * In the role's own user and mount namespaces, as root there: replaces the root by a small tree with the system's
 * programs and libraries, our own programs, the configuration and `layers` (a detached mount) at its usual path.
 * 0 or -errno.
 */
int image_view_enter(int layers);

#endif
