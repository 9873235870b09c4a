// A large stream over connections that break. Run by test_hostile.py alone: QS_STREAM is "KIND MIB"; prints the two hashes as JSON.
package sdktests

import (
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
)

func TestHostileStream(t *testing.T) { // only hostile
	var kind string
	var mib int
	if _, err := fmt.Sscan(os.Getenv("QS_STREAM"), &kind, &mib); err != nil {
		t.Fatal(err)
	}
	sb := shared(t)
	h := sha256.New()
	path := "/tmp/big"
	switch kind {
	case "stdout":
		run(t, sb, nil, "sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >/tmp/big", mib<<20))
		p, err := sb.Exec(ctx, []string{"cat", path}, nil)
		must(t, err)
		_, err = io.Copy(h, p.Stdout)
		must(t, err)
	case "write":
		data := make([]byte, mib<<20)
		_, _ = rand.Read(data)
		_, _ = io.Copy(h, bytes.NewReader(data))
		must(t, sb.Filesystem.WriteBytes(ctx, data, path, nil))
	}
	theirs := strings.Fields(run(t, sb, nil, "sha256sum", path).stdout)[0]
	line, err := json.Marshal(map[string]string{"mine": hex.EncodeToString(h.Sum(nil)), "theirs": theirs})
	must(t, err)
	fmt.Println("RESULT", string(line))
}
