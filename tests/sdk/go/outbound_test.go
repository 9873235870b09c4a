// Outbound policies: headers that are replaced in requests outside of the sandbox, given at creation and while it runs. Outside are the
// servers of tests/network/world.py.
package sdktests

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
)

type seen struct {
	Own    *bool
	Fields map[string]string
	Error  string
}

func ask(t *testing.T, sb *modal.Sandbox, host, address string, headers map[string]string) seen {
	t.Helper()
	program, err := os.ReadFile(os.Getenv("QS_ASK"))
	must(t, err)
	s := spec{"url": "https://" + host + "/x", "address": address, "headers": headers}
	if headers == nil {
		delete(s, "headers")
	}
	text, err := json.Marshal(s)
	must(t, err)
	r := run(t, sb, nil, "python3", "-c", string(program), string(text))
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	var out seen
	must(t, json.Unmarshal([]byte(r.stdout), &out))
	return out
}

// field is what the server saw of a field, by a connection that was opened.
func field(t *testing.T, sb *modal.Sandbox, name, host string, headers map[string]string) string {
	t.Helper()
	r := ask(t, sb, host, host, headers)
	if r.Own == nil || !*r.Own {
		t.Fatalf("%s: %+v", host, r)
	}
	return r.Fields[name]
}

func untouched(t *testing.T, sb *modal.Sandbox, host string) bool {
	t.Helper()
	r := ask(t, sb, host, host, nil)
	return r.Own != nil && !*r.Own && r.Fields["x-key"] == "" && r.Fields["authorization"] == ""
}

func replacing(domain, header, value string, secret *modal.Secret) *modal.ExperimentalOutboundPolicy {
	p := modal.NewExperimentalOutboundPolicy(modal.ExperimentalOutboundPolicyHeaderReplacement{
		Domain: domain, Headers: map[string]string{header: value}, Secret: secret})
	return &p
}

func namedSecret(t *testing.T, value string) *modal.Secret {
	t.Helper()
	name := unique("secret")
	body, _ := json.Marshal(map[string]any{"values": map[string]string{"TOKEN": value, "USER": "me"}})
	rq, err := http.NewRequest("PUT", os.Getenv("MODAL_SERVER_URL")+"/v1/secrets/"+name, strings.NewReader(string(body)))
	must(t, err)
	rq.Header.Set("Authorization", "Bearer "+os.Getenv("MODAL_TOKEN_ID")+"."+os.Getenv("MODAL_TOKEN_SECRET"))
	rq.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(rq)
	must(t, err)
	_ = r.Body.Close()
	equal(t, r.StatusCode, 201)
	secret, err := client.Secrets.FromName(ctx, name, nil)
	must(t, err)
	return secret
}

func TestOutboundHeadersAreReplaced(t *testing.T) {
	t.Parallel()
	value := unique("value-of-the-secret")
	both := replacing("allowed.test", "Authorization", "Bearer $TOKEN", namedSecret(t, value)).WithHeaderReplacement(
		modal.ExperimentalOutboundPolicyHeaderReplacement{Domain: "*.wild.test", Headers: map[string]string{"X-Key": "a$$b ${USER}"}})
	sb := create(t, &modal.SandboxCreateParams{ExperimentalOutboundPolicy: &both})
	equal(t, field(t, sb, "authorization", "allowed.test", nil), "Bearer "+value)
	equal(t, field(t, sb, "authorization", "allowed.test", map[string]string{"Authorization": "mine"}), "Bearer "+value)
	equal(t, field(t, sb, "x-key", "www.wild.test", map[string]string{"X-Key": "mine"}), "a$b ${USER}")
	equal(t, field(t, sb, "x-key", "wild.test", nil), "a$b ${USER}")
	equal(t, untouched(t, sb, "other.test"), true)
	if strings.Contains(run(t, sb, nil, "sh", "-c", "env; cat /proc/1/environ").stdout, "value-of-the-secret") {
		t.Fatal("the value is inside")
	}
}

func TestLongOutboundReplacementsAllowNothing(t *testing.T) {
	t.Parallel()
	one := replacing("other.test", "X-Key", "1", nil)
	sb := create(t, &modal.SandboxCreateParams{ExperimentalOutboundPolicy: one, OutboundCIDRAllowlist: list(atOther)})
	equal(t, field(t, sb, "x-key", "other.test", nil), "1")
	equal(t, ask(t, sb, "allowed.test", atAllowed, nil).Error != "", true)
	allow(t, sb, list(), list())
	equal(t, ask(t, sb, "other.test", atOther, nil).Error != "", true)
	allow(t, sb, list(), list("*.test"))
	equal(t, field(t, sb, "x-key", "other.test", nil), "1")
	equal(t, untouched(t, sb, "evil.test"), true)
	for _, params := range []*modal.SandboxCreateParams{{ExperimentalOutboundPolicy: one, BlockNetwork: true},
		{ExperimentalOutboundPolicy: one, OutboundDomainAllowlist: list("a.test")}} {
		if _, err := client.Sandboxes.Create(ctx, app, image(), params); err == nil {
			t.Fatal("what does not go together was taken")
		}
	}
}

func TestOutboundHalvesChangeAlone(t *testing.T) {
	t.Parallel()
	sb := create(t, &modal.SandboxCreateParams{ExperimentalOutboundPolicy: replacing("allowed.test", "X-Key", "one", nil)})
	equal(t, field(t, sb, "x-key", "allowed.test", nil), "one")
	allow(t, sb, list(), list("allowed.test", "other.test"))
	equal(t, field(t, sb, "x-key", "allowed.test", nil), "one")
	must(t, sb.ExperimentalUpdateOutboundPolicy(ctx, replacing("other.test", "X-Key", "two", nil)))
	equal(t, field(t, sb, "x-key", "other.test", nil), "two")
	equal(t, untouched(t, sb, "allowed.test"), true)
	equal(t, ask(t, sb, "evil.test", atEvil, nil).Error != "", true)
	must(t, sb.ExperimentalUpdateOutboundPolicy(ctx, nil))
	equal(t, untouched(t, sb, "other.test"), true)
}

func TestLongOutboundOfSandboxMadeWithoutOne(t *testing.T) {
	t.Parallel()
	sb := create(t, nil)
	equal(t, untouched(t, sb, "allowed.test"), true)
	must(t, sb.ExperimentalUpdateOutboundPolicy(ctx, replacing("allowed.test", "X-Key", "late", nil)))
	equal(t, field(t, sb, "x-key", "allowed.test", nil), "late")
	blocked := create(t, &modal.SandboxCreateParams{BlockNetwork: true})
	err := blocked.ExperimentalUpdateOutboundPolicy(ctx, replacing("allowed.test", "X-Key", "late", nil))
	if err == nil || !strings.Contains(err.Error(), "is blocked for good") {
		t.Fatal(err)
	}
}

func TestLongOutboundWhatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	sb := create(t, nil)
	secret := namedSecret(t, "value")
	for text, bad := range map[string]*modal.ExperimentalOutboundPolicy{
		"has no key 'NO'":       replacing("allowed.test", "X-Key", "$NO", secret),
		"Invalid header 'Host'": replacing("allowed.test", "Host", "evil.test", nil),
		"Invalid domain":        replacing("a b", "X-Key", "1", nil),
		"secret key":            replacing("allowed.test", "X-Key", "$TOKEN", nil),
	} {
		_, err := client.Sandboxes.Create(ctx, app, image(), &modal.SandboxCreateParams{ExperimentalOutboundPolicy: bad})
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("%q: %v", text, err)
		}
		err = sb.ExperimentalUpdateOutboundPolicy(ctx, bad)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("%q: %v", text, err)
		}
	}
	equal(t, untouched(t, sb, "allowed.test"), true)
}
