# The compiler, its race detector and tests, many goroutines, signals, sockets.
# as: root dev
# image: suites
cd "$(mktemp -d)"
export GOPROXY=off GOCACHE=$PWD/cache GOFLAGS=-mod=mod
printf 'module inside\ngo 1.19\n' >go.mod
cat >main.go <<'C'
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func main() {
	var wg sync.WaitGroup
	c := make(chan int, 1000)
	for i := 0; i < 1000; i++ {
		wg.Add(1)
		go func(n int) { defer wg.Done(); c <- n; time.Sleep(time.Millisecond) }(i)
	}
	wg.Wait()
	l, _ := net.Listen("tcp", "localhost:0")
	go func() { k, _ := l.Accept(); k.Write([]byte("hi")) }()
	k, _ := net.Dial("tcp", l.Addr().String())
	b := make([]byte, 2)
	k.Read(b)
	o, _ := exec.Command("echo", "-n", "child").Output()
	s := make(chan os.Signal, 1)
	signal.Notify(s, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println(len(c), string(b), string(o), <-s, fib(20), runtime.NumCPU() > 0)
}
C
cat >main_test.go <<'C'
package main

import "testing"

func TestFib(t *testing.T) {
	if fib(10) != 55 {
		t.Fatal()
	}
}
C
expected="1000 hi child user defined signal 1 6765 true"
go build -o plain .
[ "$(./plain)" = "$expected" ]
go vet .
go test .
[ "$(go run .)" = "$expected" ]
CGO_ENABLED=1 go build -race -o racy .
[ "$(./racy)" = "$expected" ]
