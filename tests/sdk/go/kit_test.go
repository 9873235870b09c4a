// What every Go case file uses: a client, an app, a sandbox, small helpers. Run as a test binary by tests/sdk/programs.py.
package sdktests

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
)

var (
	ctx     = context.Background()
	client  *modal.Client
	app     *modal.App
	appName string
	isV2    = os.Getenv("QS_GENERATION") == "v2"
	once    sync.Once
	common  *modal.Sandbox
)

func unique(prefix string) string {
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	return prefix + "-" + hex.EncodeToString(b)
}

func TestMain(m *testing.M) {
	var err error
	if client, err = modal.NewClient(); err == nil {
		appName = unique("app")
		app, err = client.Apps.FromName(ctx, appName, &modal.AppFromNameParams{CreateIfMissing: true})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if common != nil {
		_, _ = common.Terminate(ctx, nil)
	}
	client.Close()
	os.Exit(code)
}

func image() *modal.Image {
	return client.Images.FromRegistry(os.Getenv("QS_IMAGE"), nil)
}

// create makes a sandbox that ends with the test.
func create(t *testing.T, params *modal.SandboxCreateParams) *modal.Sandbox {
	t.Helper()
	sb, err := client.Sandboxes.Create(ctx, app, image(), params)
	must(t, err)
	t.Cleanup(func() {
		if again, err := client.Sandboxes.FromID(ctx, sb.SandboxID, nil); err == nil {
			_, _ = again.Terminate(ctx, nil)
		}
	})
	return sb
}

// shared is one sandbox for all tests that do not change it.
func shared(t *testing.T) *modal.Sandbox {
	t.Helper()
	once.Do(func() {
		sb, err := client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{Timeout: 15 * time.Minute})
		if err == nil {
			common = sb
		}
	})
	if common == nil {
		t.Fatal("the shared sandbox could not be made")
	}
	return common
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%T: %v", err, err)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// fails checks that there is an error of type E.
func fails[E error](t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("expected an error, there was none")
	}
	for e := err; e != nil; {
		if _, ok := e.(E); ok {
			return
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	t.Fatalf("got %T: %v", err, err)
}

func text(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	must(t, err)
	return string(b)
}

type outcome struct {
	stdout, stderr string
	code           int
}

func run(t *testing.T, sb *modal.Sandbox, params *modal.SandboxExecParams, argv ...string) outcome {
	t.Helper()
	p, err := sb.Exec(ctx, argv, params)
	must(t, err)
	var out, errs bytes.Buffer
	var wg sync.WaitGroup
	wg.Add(2)
	go func() { defer wg.Done(); _, _ = io.Copy(&out, p.Stdout) }()
	go func() { defer wg.Done(); _, _ = io.Copy(&errs, p.Stderr) }()
	code, err := p.Wait(ctx, nil)
	must(t, err)
	wg.Wait()
	return outcome{out.String(), errs.String(), code}
}
