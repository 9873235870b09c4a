// Files, queues and secrets through the Go client.
package sdktests

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
)

func TestFileText(t *testing.T) {
	t.Parallel()
	f, p := shared(t).Filesystem, "/tmp/"+unique("f")
	must(t, f.WriteText(ctx, "hello ü€\n", p, nil))
	got, err := f.ReadText(ctx, p, nil)
	must(t, err)
	equal(t, got, "hello ü€\n")
}

func TestFileBytes(t *testing.T) {
	t.Parallel()
	f, p := shared(t).Filesystem, "/tmp/"+unique("f")+"/made/on/the/way"
	data := make([]byte, 3<<20)
	_, _ = rand.Read(data)
	must(t, f.WriteBytes(ctx, data, p, nil))
	got, err := f.ReadBytes(ctx, p, nil)
	must(t, err)
	equal(t, bytes.Equal(got, data), true)
}

func TestFileStatAndList(t *testing.T) {
	t.Parallel()
	f, d := shared(t).Filesystem, "/tmp/"+unique("d")
	must(t, f.WriteText(ctx, "12345", d+"/b", nil))
	must(t, f.MakeDirectory(ctx, d+"/a", nil))
	run(t, shared(t), nil, "ln", "-s", "/nowhere", d+"/c")
	entries, err := f.ListFiles(ctx, d, nil)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name+":"+string(e.Type))
	}
	equal(t, strings.Join(names, " "), "a:directory b:file c:symlink")
	s, err := f.Stat(ctx, d+"/b", nil)
	must(t, err)
	equal(t, s.Size, int64(5))
	equal(t, s.Permissions, "0644")
	equal(t, *entries[2].SymlinkTarget, "/nowhere")
}

func TestFileCopies(t *testing.T) {
	t.Parallel()
	f, p, d := shared(t).Filesystem, "/tmp/"+unique("f"), t.TempDir()
	must(t, os.WriteFile(filepath.Join(d, "a"), []byte("from here"), 0o644))
	must(t, f.CopyFromLocal(ctx, filepath.Join(d, "a"), p, nil))
	must(t, f.CopyToLocal(ctx, p, filepath.Join(d, "b"), nil))
	got, err := os.ReadFile(filepath.Join(d, "b"))
	must(t, err)
	equal(t, string(got), "from here")
}

func TestFileErrors(t *testing.T) {
	t.Parallel()
	f, p, no := shared(t).Filesystem, "/tmp/"+unique("f"), false
	_, err := f.ReadText(ctx, p, nil)
	fails[modal.SandboxFilesystemNotFoundError](t, err)
	_, err = f.ListFiles(ctx, p, nil)
	fails[modal.SandboxFilesystemNotFoundError](t, err)
	_, err = f.Stat(ctx, p, nil)
	fails[modal.SandboxFilesystemNotFoundError](t, err)
	fails[modal.SandboxFilesystemNotFoundError](t, f.Remove(ctx, p, nil))
	_, err = f.ReadText(ctx, "/tmp", nil)
	fails[modal.SandboxFilesystemIsADirectoryError](t, err)
	fails[modal.SandboxFilesystemIsADirectoryError](t, f.WriteText(ctx, "x", "/tmp", nil))
	must(t, f.WriteText(ctx, "x", p, nil))
	_, err = f.ListFiles(ctx, p, nil)
	fails[modal.SandboxFilesystemNotADirectoryError](t, err)
	fails[modal.SandboxFilesystemNotADirectoryError](t, f.WriteText(ctx, "x", p+"/below", nil))
	fails[modal.SandboxFilesystemPathAlreadyExistsError](t, f.MakeDirectory(ctx, p, nil))
	fails[modal.SandboxFilesystemNotFoundError](t,
		f.MakeDirectory(ctx, "/tmp/"+unique("no")+"/x", &modal.SandboxFilesystemMakeDirectoryParams{CreateParents: &no}))
	must(t, f.WriteText(ctx, "x", p+".d/x", nil))
	fails[modal.SandboxFilesystemDirectoryNotEmptyError](t, f.Remove(ctx, p+".d", nil))
	must(t, f.Remove(ctx, p+".d", &modal.SandboxFilesystemRemoveParams{Recursive: true}))
}

func TestQueue(t *testing.T) {
	t.Parallel()
	q, err := client.Queues.Ephemeral(ctx, nil)
	must(t, err)
	defer q.CloseEphemeral()
	must(t, q.PutMany(ctx, []any{"one", int64(2), "three"}, nil))
	n, err := q.Len(ctx, nil)
	must(t, err)
	equal(t, n, 3)
	first, err := q.Get(ctx, nil)
	must(t, err)
	equal(t, first.(string), "one")
	rest, err := q.GetMany(ctx, 5, nil)
	must(t, err)
	equal(t, len(rest), 2)
	short := 300 * time.Millisecond
	_, err = q.Get(ctx, &modal.QueueGetParams{Timeout: &short})
	fails[modal.QueueEmptyError](t, err)
}

func TestQueueByName(t *testing.T) {
	t.Parallel()
	name := unique("queue")
	_, err := client.Queues.FromName(ctx, name, nil)
	fails[modal.NotFoundError](t, err)
	q, err := client.Queues.FromName(ctx, name, &modal.QueueFromNameParams{CreateIfMissing: true})
	must(t, err)
	must(t, q.Put(ctx, "kept", &modal.QueuePutParams{Partition: "P"}))
	again, err := client.Queues.FromName(ctx, name, nil)
	must(t, err)
	got, err := again.Get(ctx, &modal.QueueGetParams{Partition: "P"})
	must(t, err)
	equal(t, got.(string), "kept")
	must(t, client.Queues.Delete(ctx, name, nil))
}

func TestSecretErrors(t *testing.T) {
	t.Parallel()
	name := unique("nobody")
	_, err := client.Secrets.FromName(ctx, name, nil)
	fails[modal.NotFoundError](t, err)
	equal(t, strings.Contains(err.Error(), "Secret '"+name+"' not found"), true)
	fails[modal.NotFoundError](t, client.Secrets.Delete(ctx, name, nil))
}

func TestImageErrors(t *testing.T) {
	t.Parallel()
	_, err := client.Images.FromID(ctx, "im-0000000000000000000000", nil)
	fails[modal.NotFoundError](t, err)
	_, err = client.Images.FromRegistry("no-such-image-here:v1", nil).Build(ctx, app, nil)
	if err == nil {
		t.Fatal("an image that nobody imported was found")
	}
}

func TestWrongToken(t *testing.T) {
	t.Parallel()
	other, err := modal.NewClientWithOptions(&modal.ClientParams{TokenID: "ak-nobody", TokenSecret: "as-wrong"})
	if err == nil {
		defer other.Close()
		_, err = other.Apps.FromName(ctx, "x", &modal.AppFromNameParams{CreateIfMissing: true})
	}
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "unauthenticated") {
		t.Fatalf("got %v", err)
	}
}

func TestAppErrors(t *testing.T) {
	t.Parallel()
	_, err := client.Apps.FromName(ctx, unique("nobody"), nil)
	fails[modal.NotFoundError](t, err)
}

func TestGPU(t *testing.T) {
	t.Parallel()
	start := time.Now()
	_, err := client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{GPU: "T4"})
	if err == nil || time.Since(start) > 8*time.Second {
		t.Fatalf("after %v: %v", time.Since(start), err)
	}
}
