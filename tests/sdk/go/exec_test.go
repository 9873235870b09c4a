// Commands in a running sandbox through the Go client.
package sdktests

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
)

func TestStreamsAreApart(t *testing.T) {
	t.Parallel()
	equal(t, run(t, shared(t), nil, "sh", "-c", "echo out; echo err >&2; exit 3"), outcome{"out\n", "err\n", 3})
}

func TestArguments(t *testing.T) {
	t.Parallel()
	args := []string{"x", "a b", "", "*", "$HOME", "ü€", "-n", "new\nline"}
	equal(t, run(t, shared(t), nil, append([]string{"printf", "%s|"}, args...)...).stdout, strings.Join(args, "|")+"|")
}

func TestSignal(t *testing.T) {
	t.Parallel()
	equal(t, run(t, shared(t), nil, "sh", "-c", "kill -9 $$").code, 137)
}

func TestStdin(t *testing.T) {
	t.Parallel()
	p, err := shared(t).Exec(ctx, []string{"cat"}, nil)
	must(t, err)
	for _, s := range []string{"one\n", "two\n"} {
		_, err = p.Stdin.Write([]byte(s))
		must(t, err)
	}
	must(t, p.Stdin.Close())
	equal(t, text(t, p.Stdout), "one\ntwo\n")
}

func TestBinary(t *testing.T) {
	t.Parallel()
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	p, err := shared(t).Exec(ctx, []string{"cat"}, nil)
	must(t, err)
	go func() {
		_, _ = io.Copy(p.Stdin, bytes.NewReader(data))
		_ = p.Stdin.Close()
	}()
	if got := text(t, p.Stdout); got != string(data) {
		t.Fatalf("%d bytes came back, not the same", len(got))
	}
}

func TestWorkdirAndEnv(t *testing.T) {
	t.Parallel()
	secret, err := client.Secrets.FromMap(ctx, map[string]string{"PASS": "word", "BOTH": "secret"}, nil)
	must(t, err)
	params := &modal.SandboxExecParams{
		Workdir: "/usr", Env: map[string]string{"HERE": "yes", "BOTH": "env"}, Secrets: []*modal.Secret{secret}}
	equal(t, run(t, shared(t), params, "sh", "-c", "echo $(pwd) $HERE $PASS $BOTH").stdout, "/usr yes word env\n")
}

func TestExecTimeout(t *testing.T) {
	t.Parallel()
	start := time.Now()
	p, err := shared(t).Exec(ctx, []string{"sleep", "999"}, &modal.SandboxExecParams{Timeout: time.Second})
	must(t, err)
	code, err := p.Wait(ctx, nil)
	if err == nil {
		equal(t, code, 137)
	} else {
		fails[modal.ExecTimeoutError](t, err)
	}
	if time.Since(start) > 10*time.Second {
		t.Fatalf("only after %v", time.Since(start))
	}
}

func TestIgnoredStdout(t *testing.T) {
	t.Parallel()
	got := run(t, shared(t), &modal.SandboxExecParams{Stdout: modal.Ignore}, "sh", "-c", "echo out; echo err >&2")
	equal(t, got, outcome{"", "err\n", 0})
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	got := run(t, shared(t), &modal.SandboxExecParams{PTY: true}, "sh", "-c", "test -t 0 && echo tty; echo err >&2")
	equal(t, got, outcome{"tty\r\nerr\r\n", "", 0})
}

func TestOutputAfterWait(t *testing.T) {
	t.Parallel()
	p, err := shared(t).Exec(ctx, []string{"echo", "later"}, nil)
	must(t, err)
	code, err := p.Wait(ctx, nil)
	must(t, err)
	equal(t, code, 0)
	equal(t, text(t, p.Stdout), "later\n")
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	p, err := shared(t).Exec(ctx, []string{"no-such-program-here"}, nil)
	if err != nil {
		return
	}
	code, err := p.Wait(ctx, nil)
	must(t, err)
	equal(t, code, 127)
}

func TestFortyAtOnce(t *testing.T) {
	manyAtOnce(t, 40)
}

func TestLongFiveHundredAtOnce(t *testing.T) {
	manyAtOnce(t, 500)
}

func TestLongIdleConnection(t *testing.T) {
	t.Parallel()
	run(t, shared(t), nil, "true")
	time.Sleep(35 * time.Second)
	equal(t, run(t, shared(t), nil, "echo", "again").stdout, "again\n")
}

func TestSlowReader(t *testing.T) {
	t.Parallel()
	p, err := shared(t).Exec(ctx, []string{"seq", "1", "400000"}, nil)
	must(t, err)
	var all bytes.Buffer
	for i := 0; ; i++ {
		n, err := io.CopyN(&all, p.Stdout, 100_000)
		if err == io.EOF && n < 100_000 {
			break
		}
		must(t, err)
		if i < 15 {
			time.Sleep(60 * time.Millisecond)
		}
	}
	lines := strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
	equal(t, len(lines), 400000)
	for i, line := range lines {
		equal(t, line, fmt.Sprint(i+1))
	}
}

func manyAtOnce(t *testing.T, count int) {
	sb := shared(t)
	var wg sync.WaitGroup
	for i := range count {
		wg.Add(1)
		go func() {
			defer wg.Done()
			p, err := sb.Exec(ctx, []string{"sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i%256)}, nil)
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			out, _ := io.ReadAll(p.Stdout)
			code, err := p.Wait(ctx, nil)
			if err != nil || code != i%256 || string(out) != fmt.Sprintf("%d\n", i) {
				t.Errorf("%d: %q, %d, %v", i, out, code, err)
			}
		}()
	}
	wg.Wait()
}

func TestHundredMiB(t *testing.T) {
	sb := shared(t)
	sum := strings.Fields(run(t, sb, nil, "sh", "-c", "head -c 104857600 /dev/urandom >/tmp/big; sha256sum /tmp/big").stdout)[0]
	p, err := sb.Exec(ctx, []string{"cat", "/tmp/big"}, nil)
	must(t, err)
	h := sha256.New()
	n, err := io.Copy(h, p.Stdout)
	must(t, err)
	equal(t, n, int64(104857600))
	equal(t, hex.EncodeToString(h.Sum(nil)), sum)
	run(t, sb, nil, "rm", "/tmp/big")
}
