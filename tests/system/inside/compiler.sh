# C and C++: threads, sanitizers (which map huge ranges and, for leaks, trace their own threads), profiles, many jobs at once.
# as: root dev
cd "$(mktemp -d)"
cat >t.c <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;
long shared;

static void *work(void *p)
{
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&lock);
        sum += 1;
        pthread_mutex_unlock(&lock);
    }
    if (p != NULL)
        for (int i = 0; i < 100000; i++)
            shared += 1;
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t t[8];
    const char *fault = argc > 1 ? argv[1] : "";

    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, work, strcmp(fault, "race") == 0 ? t : NULL);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    volatile char *p = malloc(10);
    if (strcmp(fault, "overflow") == 0)
        p[argc + 8] = 1;
    if (strcmp(fault, "leak") != 0)
        free((void *)p);
    p = NULL;
    printf("%ld\n", sum);
    return 0;
}
C
gcc -O2 -Wall -pthread -o plain t.c
[ "$(./plain)" = 80000 ]
gcc -static -O2 -pthread -o static t.c
[ "$(./static)" = 80000 ]
gcc -g -fsanitize=address,undefined -pthread -o asan t.c
[ "$(./asan)" = 80000 ]
./asan overflow 2>&1 | grep -q heap-buffer-overflow
./asan leak 2>&1 | grep -q "detected memory leaks"
gcc -g -fsanitize=leak -pthread -o lsan t.c
./lsan leak 2>&1 | grep -q "detected memory leaks"
gcc -g -fsanitize=thread -pthread -o tsan t.c
[ "$(./tsan)" = 80000 ]
./tsan race 2>&1 | grep -q "data race"
gcc -O0 --coverage -pthread -o cov t.c
./cov
gcov cov-t.gcno >/dev/null
echo 'int main() { try { throw 42; } catch (int n) { return n; } }' >e.cc
g++ -O2 -flto -o e e.cc
! ./e
for i in $(seq 12); do echo "int f$i(void) { return $i; }" >"m$i.c"; done
printf 'o = $(patsubst %%.c,%%.o,$(wildcard m*.c))\nlib.so: $o\n\tgcc -shared -o $@ $^\n%%.o: %%.c\n\tgcc -fPIC -c -o $@ $<\n' >Makefile
make -s -j4
nm -D lib.so | grep -c ' T f' | grep -qx 12
