/*
 * main.c - the file helper: finds the operation and runs it
 */
#include <stdio.h>

#include "init/fs/fs.h"

int fs_main(int argc, char **argv)
{
    dprintf(2, "{\"version\":1,\"error_kind\":\"NotSupported\",\"message\":\"unknown operation\"}\n");
    return 1;
}
