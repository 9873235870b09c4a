/*
 * probe.c - what a program inside sees of the places that every sandbox must have, whatever its image holds there
 *
 * A static program, so that it runs in an image that has nothing else. Prints one "name=value" a line.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void first_line(const char *name, const char *path)
{
    char text[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    if (n < 0) {
        printf("%s=errno %d\n", name, errno);
        return;
    }
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    printf("%s=%s\n", name, text);
    (void)close(fd);
}

static void kind(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0) {
        printf("%s=errno %d\n", path, errno);
        return;
    }
    printf("%s=%s\n", path,
           S_ISDIR(st.st_mode) ? "directory" : S_ISREG(st.st_mode) ? "file"
                                           : S_ISLNK(st.st_mode)   ? "link"
                                           : S_ISCHR(st.st_mode)   ? "device"
                                                                   : "other");
}

int main(void)
{
    char host[256] = "";
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    first_line("status", "/proc/self/status");
    printf("null=%s\n", fd >= 0 && write(fd, "x", 1) == 1 ? "ok" : "broken");
    (void)gethostname(host, sizeof host - 1);
    printf("host=%s\n", host);
    first_line("hosts", "/etc/hosts");
    first_line("hostname", "/etc/hostname");
    first_line("canary", "/canary");
    kind("/proc");
    kind("/dev");
    kind("/sys");
    kind("/etc");
    kind("/etc/hosts");
    kind("/__modal");
    kind("/__modal/.bin/modal-sandbox-fs-tools");
    kind("/dev/pts/ptmx");
    kind("/dev/shm");
    return 0;
}
