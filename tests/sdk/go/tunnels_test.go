// Servers in a sandbox reached from outside through the Go client: tunnels and connect tokens.
package sdktests

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	modal "github.com/modal-labs/modal-client/go"
)

const webServer = `
import http.server, json, sys
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()`

const echoServer = `
import socket, sys, threading
s = socket.create_server(("127.0.0.1", int(sys.argv[1])))
def serve(c):
    while data := c.recv(65536): c.sendall(data)
    c.close()
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()`

// The certificate of a test server is signed by itself.
var trusting = &tls.Config{InsecureSkipVerify: true}

func get(url, token string) (int, string, error) {
	rq, _ := http.NewRequest("GET", url, nil)
	if token != "" {
		rq.Header.Set("Authorization", "Bearer "+token)
		rq.Header.Set("X-Verified-User-Data", "forged")
	}
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: trusting, DisableKeepAlives: true}}
	r, err := c.Do(rq)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return r.StatusCode, string(body), err
}

func eventually(t *testing.T, fn func() bool) {
	t.Helper()
	for i := 0; !fn(); i++ {
		if i > 300 {
			t.Fatal("it did not happen")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func echoes(c net.Conn, err error) bool {
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 5)
	_, err = c.Write([]byte("hello"))
	if err == nil {
		_, err = io.ReadFull(c, b)
	}
	return err == nil && string(b) == "hello"
}

func tunnel(t *testing.T, sb *modal.Sandbox, port int) *modal.Tunnel {
	t.Helper()
	all, err := sb.Tunnels(ctx, time.Minute, nil)
	must(t, err)
	if all[port] == nil {
		t.Fatalf("no tunnel for port %d in %v", port, all)
	}
	return all[port]
}

func TestTunnelEncrypted(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{EncryptedPorts: []int{8000}, Command: []string{"python3", "-c", webServer, "8000"}})
	tun := tunnel(t, sb, 8000)
	equal(t, tun.URL(), fmt.Sprintf("https://%s:%d", tun.Host, tun.Port))
	_, _, err := tun.TCPSocket()
	fails[modal.InvalidError](t, err)
	eventually(t, func() bool { code, body, _ := get(tun.URL()+"/there", ""); return code == 200 && len(body) > 0 })
}

func TestTunnelUnencrypted(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{UnencryptedPorts: []int{7777}, Command: []string{"python3", "-c", echoServer, "7777"}})
	host, port, err := tunnel(t, sb, 7777).TCPSocket()
	must(t, err)
	eventually(t, func() bool { return echoes(net.Dial("tcp", fmt.Sprintf("%s:%d", host, port))) })
	host, port = tunnel(t, sb, 7777).TLSSocket()
	c, err := tls.Dial("tcp", fmt.Sprintf("%s:%d", host, port), trusting)
	must(t, err)
	equal(t, echoes(c, nil), true)
}

func TestTunnelH2(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{H2Ports: []int{8443}})
	host, port := tunnel(t, sb, 8443).TLSSocket()
	c, err := tls.Dial("tcp", fmt.Sprintf("%s:%d", host, port), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}})
	must(t, err)
	defer c.Close()
	equal(t, c.ConnectionState().NegotiatedProtocol, "h2")
}

func TestTunnelNone(t *testing.T) {
	t.Parallel()
	all, err := shared(t).Tunnels(ctx, time.Minute, nil)
	must(t, err)
	equal(t, len(all), 0)
}

func TestConnectToken(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{Command: []string{"python3", "-c", webServer, "8080"}})
	c, err := sb.CreateConnectToken(ctx, &modal.SandboxCreateConnectTokenParams{UserMetadata: "me"})
	must(t, err)
	var body string
	eventually(t, func() bool { var code int; code, body, _ = get(c.URL+"/a", c.Token); return code == 200 })
	var seen struct {
		Path    string
		Headers map[string]string
	}
	must(t, json.Unmarshal([]byte(body), &seen))
	equal(t, seen.Path, "/a")
	equal(t, seen.Headers["x-verified-user-data"], "me")
	equal(t, seen.Headers["authorization"], "")
	code, _, err := get(c.URL, "")
	must(t, err)
	equal(t, code, 401)
}

func TestConnectTokenOfAnotherPort(t *testing.T) {
	t.Parallel()
	c, err := shared(t).CreateConnectToken(ctx, &modal.SandboxCreateConnectTokenParams{Port: 9})
	must(t, err)
	code, _, err := get(c.URL, c.Token)
	must(t, err)
	equal(t, code, 502)
}

func TestTunnelNobodyListens(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{EncryptedPorts: []int{8000}})
	code, body, err := get(tunnel(t, sb, 8000).URL(), "")
	must(t, err)
	equal(t, code, 502)
	equal(t, body, "nothing listens on port 8000 of the sandbox\n")
}

func TestTunnelInboundAllowlist(t *testing.T) {
	t.Parallel()
	for list, passes := range map[string]bool{"127.0.0.0/8": true, "10.0.0.0/8": false} {
		sb := create(t, &modal.SandboxCreateParams{UnencryptedPorts: []int{7777}, InboundCIDRAllowlist: []string{list},
			Command: []string{"python3", "-c", echoServer, "7777"}})
		host, port, err := tunnel(t, sb, 7777).TCPSocket()
		must(t, err)
		dial := func() bool { return echoes(net.Dial("tcp", fmt.Sprintf("%s:%d", host, port))) }
		if passes {
			eventually(t, dial)
			continue
		}
		for i := 0; i < 3; i++ {
			equal(t, dial(), false)
			time.Sleep(300 * time.Millisecond)
		}
	}
}

func TestTunnelEndsWithItsSandbox(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{UnencryptedPorts: []int{7777}, Command: []string{"python3", "-c", echoServer, "7777"}})
	host, port, err := tunnel(t, sb, 7777).TCPSocket()
	must(t, err)
	eventually(t, func() bool { return echoes(net.Dial("tcp", fmt.Sprintf("%s:%d", host, port))) })
	_, err = sb.Terminate(ctx, nil)
	must(t, err)
	eventually(t, func() bool { return !echoes(net.Dial("tcp", fmt.Sprintf("%s:%d", host, port))) })
}
