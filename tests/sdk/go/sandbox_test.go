// The life of a sandbox through the Go client.
package sdktests

import (
	"regexp"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
)

func TestCreateRunTerminate(t *testing.T) {
	t.Parallel()
	sb := create(t, nil)
	equal(t, run(t, sb, nil, "echo", "hello"), outcome{"hello\n", "", 0})
	code, err := sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true})
	must(t, err)
	equal(t, code, 137)
}

func TestShapeOfIDs(t *testing.T) {
	t.Parallel()
	equal(t, regexp.MustCompile(`^sb-[0-9A-Za-z]{22}$`).MatchString(create(t, nil).SandboxID), !isV2)
}

func TestPollWhileItRuns(t *testing.T) {
	t.Parallel()
	code, err := create(t, nil).Poll(ctx, nil)
	must(t, err)
	if code != nil {
		t.Fatalf("got %d", *code)
	}
}

func TestExitCodeOfTheMainProcess(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{Command: []string{"sh", "-c", "exit 7"}})
	code, err := sb.Wait(ctx, nil)
	must(t, err)
	equal(t, code, 7)
	polled, err := sb.Poll(ctx, nil)
	must(t, err)
	equal(t, *polled, 7)
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	code, err := create(t, &modal.SandboxCreateParams{Timeout: 2 * time.Second}).Wait(ctx, nil)
	must(t, err)
	equal(t, code, 124)
}

func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	_, err := create(t, &modal.SandboxCreateParams{IdleTimeout: 2 * time.Second}).Wait(ctx, nil)
	must(t, err)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	secret, err := client.Secrets.FromMap(ctx, map[string]string{"PASS": "word"}, nil)
	must(t, err)
	sb := create(t, &modal.SandboxCreateParams{
		Env: map[string]string{"GREETING": "hello ü"}, Secrets: []*modal.Secret{secret}, Workdir: "/tmp", CPU: 0.5, MemoryMiB: 128,
		BlockNetwork: true, Verbose: true,
	})
	equal(t, run(t, sb, nil, "sh", "-c", "echo $GREETING $PASS $(pwd)").stdout, "hello ü word /tmp\n")
	equal(t, run(t, sb, nil, "sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").stdout, "lo\n")
}

func TestFromID(t *testing.T) {
	t.Parallel()
	sb := create(t, nil)
	run(t, sb, nil, "sh", "-c", "echo mark >/tmp/mark")
	other, err := client.Sandboxes.FromID(ctx, sb.SandboxID, nil)
	must(t, err)
	equal(t, run(t, other, nil, "cat", "/tmp/mark").stdout, "mark\n")
	must(t, other.Detach())
}

func TestUnknownID(t *testing.T) {
	t.Parallel()
	id := "sb-0000000000000000000000"
	if isV2 {
		id = "sb-01JZ7N5V8Q2M4K6T9R3W5X7Y1Z"
	}
	sb, err := client.Sandboxes.FromID(ctx, id, nil)
	if err == nil {
		_, err = sb.Wait(ctx, nil)
	}
	if err == nil {
		t.Fatal("an unknown id was found")
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	name := unique("name")
	sb := create(t, &modal.SandboxCreateParams{Name: name})
	found, err := client.Sandboxes.FromName(ctx, appName, name, nil)
	must(t, err)
	equal(t, found.SandboxID, sb.SandboxID)
	_, err = client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{Name: name})
	fails[modal.AlreadyExistsError](t, err)
	_, err = sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true})
	must(t, err)
	_, err = client.Sandboxes.FromName(ctx, appName, name, nil)
	fails[modal.NotFoundError](t, err)
	found, err = client.Sandboxes.FromName(ctx, appName, name, &modal.SandboxFromNameParams{IncludeTerminated: true})
	must(t, err)
	equal(t, found.SandboxID, sb.SandboxID)
}

func TestTagsAndList(t *testing.T) {
	t.Parallel()
	tag := unique("tag")
	made := map[string]bool{}
	for i := 0; i < 3; i++ {
		made[create(t, &modal.SandboxCreateParams{Tags: map[string]string{"run": tag}}).SandboxID] = true
	}
	seq, err := client.Sandboxes.List(ctx, &modal.SandboxListParams{AppID: app.AppID, Tags: map[string]string{"run": tag}})
	must(t, err)
	n := 0
	for sb, err := range seq {
		must(t, err)
		if !made[sb.SandboxID] {
			t.Fatalf("%s is not one of them", sb.SandboxID)
		}
		tags, err := sb.GetTags(ctx, nil)
		must(t, err)
		equal(t, tags["run"], tag)
		n++
		must(t, sb.SetTags(ctx, map[string]string{}, nil))
	}
	equal(t, n, 3)
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	probe, err := modal.NewExecProbe([]string{"test", "-e", "/tmp/ready"}, &modal.ExecProbeParams{Interval: 100 * time.Millisecond})
	must(t, err)
	sb := create(t, &modal.SandboxCreateParams{
		ReadinessProbe: probe, Command: []string{"sh", "-c", "sleep 1; touch /tmp/ready; sleep 60"}})
	must(t, sb.WaitUntilReady(ctx, 30*time.Second, nil))
}

func TestReadinessOfAPort(t *testing.T) {
	t.Parallel()
	probe, err := modal.NewTCPProbe(8077, nil)
	must(t, err)
	serve := "import socket, time; time.sleep(1); s = socket.create_server(('127.0.0.1', 8077)); time.sleep(60)"
	sb := create(t, &modal.SandboxCreateParams{ReadinessProbe: probe, Command: []string{"python3", "-c", serve}})
	must(t, sb.WaitUntilReady(ctx, 30*time.Second, nil))
}

func TestReadinessThatNeverComes(t *testing.T) {
	t.Parallel()
	probe, err := modal.NewExecProbe([]string{"false"}, nil)
	must(t, err)
	sb := create(t, &modal.SandboxCreateParams{ReadinessProbe: probe})
	fails[modal.TimeoutError](t, sb.WaitUntilReady(ctx, 2*time.Second, nil))
}

func TestMainProcessOutput(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{Command: []string{"sh", "-c", "echo out; echo err >&2"}})
	_, err := sb.Wait(ctx, nil)
	must(t, err)
	equal(t, text(t, sb.Stdout), "out\n")
	equal(t, text(t, sb.Stderr), "err\n")
}

func TestMainProcessInput(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{Command: []string{"cat"}})
	for _, s := range []string{"one\n", "two\n"} {
		_, err := sb.Stdin.Write([]byte(s))
		must(t, err)
	}
	must(t, sb.Stdin.Close())
	equal(t, text(t, sb.Stdout), "one\ntwo\n")
}

func TestMainProcessTerminal(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{PTY: true, Command: []string{"sh", "-c", "test -t 1 && echo tty"}})
	equal(t, text(t, sb.Stdout), "tty\r\n")
}

func TestLogTail(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{Command: []string{"sh", "-c", "seq 1 5"}})
	_, err := sb.Wait(ctx, nil)
	must(t, err)
	time.Sleep(500 * time.Millisecond)
	seq, err := sb.Logs.Tail(ctx, &modal.LogTailParams{Entries: 100})
	must(t, err)
	var all strings.Builder
	for entry, err := range seq {
		must(t, err)
		all.WriteString(entry.Message)
	}
	equal(t, all.String(), "1\n2\n3\n4\n5\n")
}

func TestCommandAfterTheEnd(t *testing.T) {
	t.Parallel()
	sb := create(t, nil)
	id := sb.SandboxID
	_, err := sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true})
	must(t, err)
	start := time.Now()
	other, err := client.Sandboxes.FromID(ctx, id, nil)
	if err == nil {
		_, err = other.Exec(ctx, []string{"true"}, nil)
	}
	if err == nil {
		t.Fatal("a command ran in an ended sandbox")
	}
	if time.Since(start) > 10*time.Second {
		t.Fatalf("only after %v: %v", time.Since(start), err)
	}
}

func TestNameGivenLater(t *testing.T) { // only v2
	t.Parallel()
	sb, name := create(t, nil), unique("late")
	must(t, sb.ExperimentalSetName(ctx, name, nil))
	found, err := client.Sandboxes.FromName(ctx, appName, name, nil)
	must(t, err)
	equal(t, found.SandboxID, sb.SandboxID)
}
