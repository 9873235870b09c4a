# gdb and strace on programs that they start and on running ones.
# as: root dev
cd "$(mktemp -d)"
cat >t.c <<'C'
#include <stdio.h>
#include <unistd.h>
int deep(int n) { return n == 0 ? getpid() : deep(n - 1) + 0 * n; }
int main(void) { printf("%d\n", deep(5) > 0); fflush(stdout); for (;;) pause(); }
C
gcc -g -O0 -o t t.c
gdb -batch -nx -ex 'break deep if n == 0' -ex run -ex bt -ex 'print n' -ex kill ./t >out 2>&1
grep -q '^#6 .* main ' out
grep -q '^\$1 = 0' out
gdb -batch -nx -ex 'watch *(int*)$sp' -ex 'info registers rip' -ex quit ./t >/dev/null 2>&1
./t >/dev/null &
gdb -batch -nx -p $! -ex bt -ex detach >out 2>&1
grep -q 'main ()' out
gcore -o core $! >/dev/null
gdb -batch -nx -ex bt ./t core.$! 2>&1 | grep -q 'main ()'
timeout 1 strace -p $! -o attached || [ $? = 124 ]
kill $!
strace -f -o trace sh -c 'echo hi; ls /'
grep -q 'execve("/bin/ls"\|execve("/usr/bin/ls"' trace
grep -q '+++ exited with 0 +++' trace
strace -c -o counts true
grep -q execve counts
strace -e inject=openat:error=ENOENT:when=1 -o /dev/null true || true
