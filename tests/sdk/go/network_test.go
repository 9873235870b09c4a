// What may leave a sandbox. Outside are the servers of tests/network/world.py: 93.184.216.34 is allowed.test, wild.test and names
// below it, .35 is other.test, 198.97.190.53 is evil.test, 10.9.8.7 is a private one.
package sdktests

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
)

const (
	atAllowed = "93.184.216.34"
	atOther   = "93.184.216.35"
	atEvil    = "198.97.190.53"
	atPrivate = "10.9.8.7"
)

type spec map[string]any

type answer struct {
	Ok    bool
	Data  string
	Error string
}

func attempt(t *testing.T, sb *modal.Sandbox, s spec) answer {
	t.Helper()
	inside, err := os.ReadFile(os.Getenv("QS_INSIDE"))
	must(t, err)
	s["timeout"] = 20
	text, err := json.Marshal(s)
	must(t, err)
	r := run(t, sb, nil, "python3", "-c", string(inside), string(text))
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	var a answer
	must(t, json.Unmarshal([]byte(r.stdout), &a))
	return a
}

var addressOf = regexp.MustCompile(`"address": "([^"]+)"`)

// said is the address of the server that answered, or nothing.
func said(a answer) string {
	if found := addressOf.FindStringSubmatch(a.Data); found != nil {
		return found[1]
	}
	return ""
}

func overTLS(t *testing.T, sb *modal.Sandbox, name, address string, port int) string {
	t.Helper()
	return said(attempt(t, sb, spec{"kind": "tls", "address": address, "port": port, "sni": name}))
}

func overHTTP(t *testing.T, sb *modal.Sandbox, name string) string {
	t.Helper()
	return said(attempt(t, sb, spec{"kind": "tcp", "address": name, "port": 80,
		"data": "GET / HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n\r\n"}))
}

// raw tells whether the bytes come back from a server that speaks no protocol.
func raw(t *testing.T, sb *modal.Sandbox, address string, port int) bool {
	t.Helper()
	return attempt(t, sb, spec{"kind": "tcp", "address": address, "port": port, "data": "hello", "until_close": false}).Data == "hello"
}

func resolves(t *testing.T, sb *modal.Sandbox, name string) bool {
	t.Helper()
	return attempt(t, sb, spec{"kind": "resolve", "name": name}).Ok
}

func list(entries ...string) *modal.Allowlist {
	return &modal.Allowlist{Entries: entries}
}

func allow(t *testing.T, sb *modal.Sandbox, cidrs, domains *modal.Allowlist) {
	t.Helper()
	must(t, sb.UpdateNetworkPolicy(ctx, &modal.SandboxUpdateNetworkPolicyParams{OutboundCIDRAllowlist: cidrs, OutboundDomainAllowlist: domains}))
}

func TestLongNetworkOpen(t *testing.T) {
	t.Parallel()
	sb := create(t, nil)
	equal(t, overTLS(t, sb, "allowed.test", "allowed.test", 443), atAllowed)
	equal(t, overHTTP(t, sb, "evil.test"), atEvil)
	equal(t, raw(t, sb, atOther, 9999), true)
	equal(t, raw(t, sb, atPrivate, 9999), false)
	equal(t, attempt(t, sb, spec{"kind": "tcp", "address": atAllowed, "port": 25, "until_close": false}).Ok, false)
}

func TestNetworkBlocked(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{BlockNetwork: true})
	equal(t, raw(t, sb, atAllowed, 9999), false)
	equal(t, overTLS(t, sb, "allowed.test", atAllowed, 443), "")
	equal(t, resolves(t, sb, "allowed.test"), false)
	err := sb.UpdateNetworkPolicy(ctx, &modal.SandboxUpdateNetworkPolicyParams{OutboundCIDRAllowlist: list("0.0.0.0/0"), OutboundDomainAllowlist: list("*")})
	if err == nil || !strings.Contains(err.Error(), "is blocked for good") {
		t.Fatal(err)
	}
	equal(t, raw(t, sb, atAllowed, 9999), false)
	for _, params := range []*modal.SandboxCreateParams{{BlockNetwork: true, OutboundCIDRAllowlist: list()},
		{BlockNetwork: true, OutboundDomainAllowlist: list()}} {
		if _, err := client.Sandboxes.Create(ctx, app, image(), params); err == nil {
			t.Fatal("a list beside a blocked network was taken")
		}
	}
}

func TestLongNetworkPrefixes(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{OutboundCIDRAllowlist: list(atOther+"/31", "2606:2800:220:1::34")})
	for _, address := range []string{atOther, atAllowed, "2606:2800:220:1::34"} {
		equal(t, raw(t, sb, address, 9999), true)
	}
	for _, address := range []string{atEvil, atPrivate} {
		equal(t, raw(t, sb, address, 9999), false)
	}
	equal(t, overTLS(t, sb, "allowed.test", atEvil, 443), "")
	equal(t, resolves(t, sb, "allowed.test"), false)
	sb = create(t, &modal.SandboxCreateParams{OutboundCIDRAllowlist: list("0.0.0.0/0")})
	equal(t, raw(t, sb, atEvil, 9999), true)
	equal(t, raw(t, sb, atPrivate, 9999), false)
	equal(t, overTLS(t, sb, "allowed.test", "allowed.test", 443), atAllowed)
}

func TestLongNetworkNames(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{OutboundDomainAllowlist: list("Allowed.test", "*.wild.test")})
	equal(t, overTLS(t, sb, "allowed.test", "allowed.test", 443), atAllowed)
	equal(t, overTLS(t, sb, "deep.er.wild.test", "deep.er.wild.test", 443), atAllowed)
	equal(t, overTLS(t, sb, "wild.test", atAllowed, 443), "")
	equal(t, overTLS(t, sb, "evil.test", atAllowed, 443), "")
	equal(t, overTLS(t, sb, "allowed.test", atEvil, 443), atAllowed) // where the name leads, not where the program went
	equal(t, overTLS(t, sb, "allowed.test", "allowed.test", 8443), "")
	equal(t, overHTTP(t, sb, "allowed.test"), "")
	equal(t, raw(t, sb, atAllowed, 443), false)
	equal(t, resolves(t, sb, "evil.test"), false)
}

func TestNetworkPrefixesAndNames(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{OutboundCIDRAllowlist: list(atOther), OutboundDomainAllowlist: list("allowed.test")})
	equal(t, overTLS(t, sb, "allowed.test", "allowed.test", 443), atAllowed)
	equal(t, raw(t, sb, atOther, 9999), true)
	equal(t, raw(t, sb, atAllowed, 9999), false)
	equal(t, overTLS(t, sb, "evil.test", atEvil, 443), "")
}

func TestLongNetworkEmptyListAllowsNothing(t *testing.T) {
	t.Parallel()
	for _, params := range []*modal.SandboxCreateParams{{OutboundCIDRAllowlist: list()}, {OutboundDomainAllowlist: list()},
		{OutboundCIDRAllowlist: &modal.Allowlist{}, OutboundDomainAllowlist: &modal.Allowlist{}}} {
		sb := create(t, params)
		equal(t, overTLS(t, sb, "allowed.test", atAllowed, 443), "")
		equal(t, raw(t, sb, atAllowed, 9999), false)
		allow(t, sb, list("0.0.0.0/0"), list("*"))
		equal(t, overTLS(t, sb, "allowed.test", "allowed.test", 443), atAllowed)
		equal(t, raw(t, sb, atAllowed, 9999), true)
	}
}

func TestLongNetworkBadEntries(t *testing.T) {
	t.Parallel()
	named := func(err error, text string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("%q is not in %v", text, err)
		}
	}
	live := create(t, &modal.SandboxCreateParams{OutboundDomainAllowlist: list("allowed.test")})
	for _, bad := range []string{"10.0.0.0/33", "2001:db8::/129", "1.2.3", "example.com", "1.2.3.4/", ""} {
		_, err := client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{OutboundCIDRAllowlist: list("10.0.0.0/8", bad)})
		named(err, "Invalid CIDR: '"+bad+"'")
		_, err = client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{InboundCIDRAllowlist: []string{bad}})
		named(err, "Invalid CIDR: '"+bad+"'")
		named(live.UpdateNetworkPolicy(ctx, &modal.SandboxUpdateNetworkPolicyParams{OutboundCIDRAllowlist: list(bad), OutboundDomainAllowlist: list()}),
			"Invalid CIDR: '"+bad+"'")
	}
	for _, bad := range []string{"a b", "1.2.3.4", "a..b", "a.*", "http://a.test", ""} {
		_, err := client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{OutboundDomainAllowlist: list("allowed.test", bad)})
		named(err, "Invalid domain: '"+bad+"'")
		named(live.UpdateNetworkPolicy(ctx, &modal.SandboxUpdateNetworkPolicyParams{OutboundCIDRAllowlist: list(), OutboundDomainAllowlist: list(bad)}),
			"Invalid domain: '"+bad+"'")
	}
	equal(t, overTLS(t, live, "allowed.test", "allowed.test", 443), atAllowed)
	equal(t, overTLS(t, live, "evil.test", atEvil, 443), "")
}

const talk = `
import socket, sys
s = socket.create_connection((sys.argv[1], 9999))
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        data = s.recv(100)
    except OSError:
        data = b""
    print("got", data.decode().strip() or "nothing", flush=True)`

func TestNetworkLiveChange(t *testing.T) {
	t.Parallel()
	sb := create(t, nil)
	p, err := sb.Exec(ctx, []string{"python3", "-c", talk, atAllowed}, nil)
	must(t, err)
	lines := bufio.NewReader(p.Stdout)
	say := func(word string) string {
		_, err := io.WriteString(p.Stdin, word+"\n")
		must(t, err)
		line, err := lines.ReadString('\n')
		must(t, err)
		return line
	}
	equal(t, say("one"), "got one\n")
	allow(t, sb, list(atAllowed), list("other.test"))
	equal(t, say("two"), "got two\n")
	equal(t, raw(t, sb, atAllowed, 9999), true)
	equal(t, overTLS(t, sb, "other.test", "other.test", 443), atOther)
	equal(t, overTLS(t, sb, "evil.test", atEvil, 443), "")
	allow(t, sb, list(), list("other.test"))
	equal(t, say("three"), "got nothing\n") // what is not allowed any more is cut
	equal(t, raw(t, sb, atAllowed, 9999), false)
	allow(t, sb, list(), list())
	equal(t, overTLS(t, sb, "other.test", atOther, 443), "")
	must(t, p.Stdin.Close())
	fails[modal.InvalidError](t, sb.UpdateNetworkPolicy(ctx, &modal.SandboxUpdateNetworkPolicyParams{OutboundCIDRAllowlist: list()}))
}

func TestNetworkDenialsInSystemStream(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{OutboundDomainAllowlist: list("allowed.test"),
		Command: []string{"sh", "-c", "echo out; echo err >&2; sleep 600"}})
	equal(t, overTLS(t, sb, "evil.test", atEvil, 443), "")
	equal(t, raw(t, sb, atOther, 9999), false)
	equal(t, resolves(t, sb, "evil.test"), false)
	want := []string{"network policy: denied DNS query for evil.test: no rule allows it",
		"network policy: denied tcp " + atOther + " port 9999: no rule allows it",
		"network policy: denied tls evil.test (" + atEvil + ") port 443: no rule allows it"}
	count := regexp.MustCompile(`, \d+ times$`)
	decided := func() []string {
		var seen []string
		entries, err := sb.Logs.Tail(ctx, &modal.LogTailParams{Source: modal.LogSourceSystem})
		must(t, err)
		for entry, err := range entries {
			must(t, err)
			equal(t, entry.Source, modal.LogSourceSystem)
			seen = append(seen, count.ReplaceAllString(strings.TrimSpace(entry.Message), ""))
		}
		slices.Sort(seen)
		return slices.Compact(seen)
	}
	eventually(t, func() bool { return len(decided()) >= len(want) })
	if got := decided(); !slices.Equal(got, want) {
		t.Fatal(got)
	}
}

func TestLongNetworkReadinessAndOptions(t *testing.T) {
	t.Parallel()
	serve := "import socket, time; time.sleep(0.5); s = socket.create_server(('0.0.0.0', 8077)); time.sleep(600)"
	probe, err := modal.NewTCPProbe(8077, &modal.TCPProbeParams{Interval: 50 * time.Millisecond})
	must(t, err)
	sb := create(t, &modal.SandboxCreateParams{BlockNetwork: true, ReadinessProbe: probe, Command: []string{"python3", "-c", serve},
		ExperimentalOptions: map[string]any{"unheard_of": true, "enable_docker": false}})
	must(t, sb.WaitUntilReady(ctx, time.Minute, nil))
	failing, err := modal.NewExecProbe([]string{"sh", "-c", "echo not yet >&2; exit 7"}, &modal.ExecProbeParams{Interval: 50 * time.Millisecond})
	must(t, err)
	sb = create(t, &modal.SandboxCreateParams{ReadinessProbe: failing})
	fails[modal.TimeoutError](t, sb.WaitUntilReady(ctx, 2*time.Second, nil))
	_, err = client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{ExperimentalOptions: map[string]any{"enable_exit_snapshot": true}})
	if err == nil || !strings.Contains(err.Error(), "enable_exit_snapshot") {
		t.Fatal(err)
	}
}
