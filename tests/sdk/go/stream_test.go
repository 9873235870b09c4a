// Programs of test_hostile.py: large streams over connections that break, and answers that are lost. QS_HOSTILE has the arguments;
// RESULT and JSON are printed, as by the programs of js/hostile.
package sdktests

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
)

func result(t *testing.T, value map[string]any) {
	t.Helper()
	line, err := json.Marshal(value)
	must(t, err)
	fmt.Println("RESULT", string(line))
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

func sumOf(t *testing.T, sb *modal.Sandbox, path string) string {
	t.Helper()
	return strings.Fields(run(t, sb, nil, "sha256sum", path).stdout)[0]
}

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data)
	return data
}

func TestHostileStream(t *testing.T) { // only hostile
	var kind, mine, theirs string
	var size int
	if _, err := fmt.Sscan(os.Getenv("QS_HOSTILE"), &kind, &size); err != nil {
		t.Fatal(err)
	}
	size <<= 20
	if kind == "main" {
		lines := size / 77
		script := fmt.Sprintf("head -c %d /dev/urandom | base64 -w 76 | tee /tmp/all; sleep 600", lines*57)
		sb := create(t, &modal.SandboxCreateParams{Command: []string{"sh", "-c", script}, Timeout: 15 * time.Minute})
		h := sha256.New()
		_, err := io.CopyN(h, sb.Stdout, int64(lines*77))
		must(t, err)
		result(t, map[string]any{"mine": hex.EncodeToString(h.Sum(nil)), "theirs": sumOf(t, sb, "/tmp/all")})
		return
	}
	sb := shared(t)
	switch kind {
	case "stdout":
		run(t, sb, nil, "sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >/tmp/big", size))
		p, err := sb.Exec(ctx, []string{"cat", "/tmp/big"}, nil)
		must(t, err)
		h := sha256.New()
		_, err = io.Copy(h, p.Stdout)
		must(t, err)
		mine, theirs = hex.EncodeToString(h.Sum(nil)), sumOf(t, sb, "/tmp/big")
	case "stdin":
		data := random(size)
		p, err := sb.Exec(ctx, []string{"sh", "-c", "cat >/tmp/in"}, nil)
		must(t, err)
		_, err = io.CopyBuffer(struct{ io.Writer }{p.Stdin}, struct{ io.Reader }{bytes.NewReader(data)}, make([]byte, 1<<20))
		must(t, err)
		must(t, p.Stdin.Close())
		code, err := p.Wait(ctx, nil)
		must(t, err)
		equal(t, code, 0)
		mine, theirs = sum(data), sumOf(t, sb, "/tmp/in")
	case "read":
		run(t, sb, nil, "sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >/tmp/big", size))
		data, err := sb.Filesystem.ReadBytes(ctx, "/tmp/big", nil)
		must(t, err)
		mine, theirs = sum(data), sumOf(t, sb, "/tmp/big")
	case "write":
		data := random(size)
		must(t, sb.Filesystem.WriteBytes(ctx, data, "/tmp/written", nil))
		mine, theirs = sum(data), sumOf(t, sb, "/tmp/written")
	default:
		t.Fatal(kind)
	}
	result(t, map[string]any{"mine": mine, "theirs": theirs})
}

// arm asks for the loss of an answer and waits until it is prepared.
func arm(t *testing.T) {
	t.Helper()
	fmt.Println("arm")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	must(t, err)
}

func count(t *testing.T) int {
	t.Helper()
	n := 0
	seq, err := client.Sandboxes.List(ctx, &modal.SandboxListParams{AppID: app.AppID})
	must(t, err)
	for _, err := range seq {
		must(t, err)
		n++
	}
	return n
}

var lost = map[string]func(t *testing.T) map[string]any{
	"create": func(t *testing.T) map[string]any {
		built, err := image().Build(ctx, app, nil)
		must(t, err)
		before := count(t)
		arm(t)
		sb, err := client.Sandboxes.Create(ctx, app, built, nil)
		must(t, err)
		made := count(t) - before
		out := run(t, sb, nil, "echo", "ok").stdout
		_, err = sb.Terminate(ctx, nil)
		must(t, err)
		return map[string]any{"made": made, "stdout": out}
	},
	"terminate": func(t *testing.T) map[string]any {
		sb := create(t, nil)
		arm(t)
		code, err := sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true})
		must(t, err)
		return map[string]any{"code": code}
	},
	"exec": func(t *testing.T) map[string]any {
		run(t, shared(t), nil, "true")
		arm(t)
		got := run(t, shared(t), nil, "sh", "-c", "echo once >>/tmp/runs; cat /tmp/runs")
		return map[string]any{"stdout": got.stdout, "code": got.code}
	},
	"stdin": func(t *testing.T) map[string]any {
		p, err := shared(t).Exec(ctx, []string{"cat"}, nil)
		must(t, err)
		for i, s := range []string{"one\n", "two\n", "three\n"} {
			if i == 1 {
				arm(t)
			}
			_, err = p.Stdin.Write([]byte(s))
			must(t, err)
		}
		must(t, p.Stdin.Close())
		return map[string]any{"stdout": text(t, p.Stdout)}
	},
	"file": func(t *testing.T) map[string]any {
		data := random(1 << 20)
		run(t, shared(t), nil, "true")
		arm(t)
		must(t, shared(t).Filesystem.WriteBytes(ctx, data, "/tmp/f", nil))
		return map[string]any{"same": sumOf(t, shared(t), "/tmp/f") == sum(data)}
	},
	"queue": func(t *testing.T) map[string]any {
		q, err := client.Queues.Ephemeral(ctx, nil)
		must(t, err)
		defer q.CloseEphemeral()
		must(t, q.Put(ctx, "first", nil))
		arm(t)
		must(t, q.Put(ctx, "second", nil))
		n, err := q.Len(ctx, nil)
		must(t, err)
		return map[string]any{"n": n}
	},
	"named": func(t *testing.T) map[string]any {
		name, params := unique("queue"), &modal.QueueFromNameParams{CreateIfMissing: true}
		_, err := client.Queues.FromName(ctx, unique("other"), params)
		must(t, err)
		arm(t)
		made, err := client.Queues.FromName(ctx, name, params)
		must(t, err)
		again, err := client.Queues.FromName(ctx, name, nil)
		must(t, err)
		return map[string]any{"same": again.QueueID == made.QueueID}
	},
}

func TestHostileAnswers(t *testing.T) { // only hostile
	result(t, lost[os.Getenv("QS_HOSTILE")](t))
}
