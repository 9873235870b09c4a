/*
 * cmd_image.h - the commands of `quicksand image`, which cmd_image.c tells apart
 */
#ifndef QS_CLI_CMD_IMAGE_H
#define QS_CLI_CMD_IMAGE_H

/* cmd_image_archive.c, cmd_image_store.c */
int image_import(int argc, char **argv);
int image_export(int argc, char **argv);
int image_pull(int argc, char **argv);
int image_inspect(int argc, char **argv);
int image_verify(int argc, char **argv);
int image_tag(int argc, char **argv);
int image_untag(int argc, char **argv);
int image_gc(int argc, char **argv);

#endif
