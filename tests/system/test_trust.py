"""The authority of a sandbox whose connections are opened: made with the first policy that needs it, accepted inside, its key outside."""

import base64
import hashlib
import re
import ssl
import struct
import subprocess
import time

import pytest

import qsdaemon

from nodeclient import NodeClient, NodeError
from test_reports_stdio import output

PLACEHOLDER = "sk-test-0123456789abcdef"
BUNDLE = "/etc/quicksand/authorities.pem"
ALONE = "/etc/quicksand/authority.pem"
JAVA = "/etc/quicksand/authorities.jks"


def text(s):
    return struct.pack("<I", len(s)) + s.encode()


def policy(*injects, secret_id=""):
    """As src/ipc/policy_wire.h: one rule for api.test; an inject is (kind, name, value, with)."""
    rule = struct.pack("<BB", 4 if injects else 1, 2) + text("") + struct.pack("<I", 1) + text("api.test") + struct.pack("<II", 0, 0)
    if not injects:
        return HEAD + rule + b"\0"
    rule += b"\1" + struct.pack("<IIBI", 0, 0, 0, len(injects))
    for kind, name, value, other in injects:
        rule += struct.pack("<BB", kind, 0) + text("mine" if secret_id else "") + text(secret_id) + text(name) + text(value) + text(other)
    return HEAD + rule


# Version, flags, bits a second up and down, number of rules.
HEAD = struct.pack("<BIQQI", 3, 0, 0, 0, 1)
OPENING = ((1, "x-key", "fixed", ""), (5, "API_KEY", PLACEHOLDER, "fixed"))


@pytest.fixture
def node(daemon):
    return NodeClient(daemon.run_dir)


def again(call):
    """The connection to the node is as old as the one that was killed."""
    end = time.monotonic() + 30
    while True:
        try:
            return call()
        except NodeError as e:
            if e.name != "unavailable" or time.monotonic() > end:
                raise
        time.sleep(0.1)


def read(api, sb, path):
    return output(api.run(sb, ["cat", path])).decode()


def certificates(pem):
    return re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", pem, re.S)


def java_store(data):
    """The certificates in a store of Java's, and whether its end is that of the usual password."""
    (magic, version, count), at, found = struct.unpack(">III", data[:12]), 12, {}
    assert (magic, version) == (0xfeedfeed, 2)
    for _ in range(count):
        tag, n = struct.unpack(">IH", data[at:at + 6])
        name = data[at + 6:at + 6 + n].decode()
        at += 6 + n
        date, n = struct.unpack(">QH", data[at:at + 10])
        assert (tag, date, data[at + 10:at + 10 + n]) == (2, 0, b"X.509")
        at += 10 + n
        n, = struct.unpack(">I", data[at:at + 4])
        found[name] = ssl.DER_cert_to_PEM_cert(data[at + 4:at + 4 + n])
        at += 4 + n
    whole = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + data[:at]
    return found, data[at:] == hashlib.sha1(whole).digest()


def test_the_authority_comes_with_the_first_rule_that_needs_it(daemon, api, node, tmp_path):
    with api.sandbox(network={"rules": []}, env={"PIP_CERT": "/mine"}) as sb:
        env = output(api.run(sb, ["env"])).decode()
        assert "SSL_CERT_FILE" not in env and "API_KEY" not in env
        assert output(api.run(sb, ["sh", "-c", "ls -d /etc/quicksand 2>/dev/null; true"])) == b""
        key = daemon.data_dir / "node/.network" / f"{sb.id}.ca"
        node.SetNetwork(sandbox_id=sb.id, network={"policy": policy()})
        assert not key.exists()
        # A store of the image's own is added to, not replaced.
        other = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                                "/dev/null", "-subj", "/CN=other", "-days", "2"], capture_output=True, check=True).stdout.decode()
        store = "/etc/ssl/certs/ca-certificates.crt"
        api.run(sb, ["sh", "-c", f"mkdir -p /etc/ssl/certs /usr/local/share/ca-certificates; printf %s \"$1\" >{store}; chmod 640 {store}", "sh",
                     other])
        node.SetNetwork(sandbox_id=sb.id, network={"policy": policy(*OPENING)})

        assert (key.stat().st_mode & 0o777) == 0o600 and "PRIVATE KEY" in key.read_text()
        alone = read(api, sb, ALONE)
        assert certificates(alone) == [alone] and alone in key.read_text()
        for path in (BUNDLE, store):
            assert [c.strip() for c in certificates(read(api, sb, path))] == [other.strip(), alone.strip()]
        assert read(api, sb, "/usr/local/share/ca-certificates/quicksand.crt") == alone
        assert java_store(output(api.run(sb, ["cat", JAVA]))) == ({"authority-1": other, "authority-2": alone}, True)
        assert output(api.run(sb, ["stat", "-c", "%a", store, BUNDLE, ALONE])).decode().split() == ["640", "644", "644"]
        assert "PRIVATE KEY" not in output(api.run(sb, ["sh", "-c", "cat /etc/quicksand/* /usr/local/share/ca-certificates/*"])).decode("latin-1")

        env = dict(line.split("=", 1) for line in output(api.run(sb, ["env"])).decode().splitlines())
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NPM_CONFIG_CAFILE", "AWS_CA_BUNDLE",
                     "CARGO_HTTP_CAINFO"):
            assert env[name] == BUNDLE
        assert (env["NODE_EXTRA_CA_CERTS"], env["DENO_CERT"]) == (ALONE, ALONE)
        assert env["JAVA_TOOL_OPTIONS"] == "-Djavax.net.ssl.trustStore=" + JAVA
        assert (env["PIP_CERT"], env["API_KEY"]) == ("/mine", PLACEHOLDER)
        assert output(api.run(sb, ["sh", "-c", "echo $SSL_CERT_FILE"], env={"SSL_CERT_FILE": "/own"})) == b"/own\n"

        # A leaf of the authority is accepted by the bundle as it is inside.
        (tmp_path / "ca.pem").write_text(key.read_text())
        (tmp_path / "bundle.pem").write_text(read(api, sb, BUNDLE))
        subprocess.run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout leaf.key -subj /CN=api.test -out leaf.csr && "
                       "openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.pem -days 1 -out leaf.pem", shell=True, check=True, cwd=tmp_path,
                       capture_output=True)
        r = subprocess.run(["openssl", "verify", "-CAfile", "bundle.pem", "leaf.pem"], cwd=tmp_path, capture_output=True, text=True)
        assert r.stdout == "leaf.pem: OK\n"

        # Again it is the same one, once; after a restart of the node too.
        node.SetNetwork(sandbox_id=sb.id, network={"policy": policy(*OPENING[:1])})
        assert read(api, sb, BUNDLE).count("BEGIN CERTIFICATE") == 2 and read(api, sb, ALONE) == alone
        assert "API_KEY" not in output(api.run(sb, ["env"])).decode()
        before = key.read_text()
        daemon.kill_role("node")
        daemon.wait_ready()
        assert "NODE_EXTRA_CA_CERTS=" + ALONE in output(api.run(sb, ["env"])).decode()
        assert key.read_text() == before
        again(lambda: node.SetNetwork(sandbox_id=sb.id, network={"policy": policy()}))
        assert "NODE_EXTRA_CA_CERTS" not in output(api.run(sb, ["env"])).decode()
        assert [e["id"] for e in api.get(f"/v1/sandboxes/{sb.id}/execs").json()["items"] if e["id"].startswith("trust-")] == []
    assert not key.exists()


def test_what_is_no_certificate_stays_out_of_the_store_for_java(api, node):
    store = "/etc/ssl/certs/ca-certificates.crt"
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    # A sequence of 3 bytes; one that is longer than it says; one that is shorter; none; no base64; one without an end.
    wrong = [begin + "\n" + base64.b64encode(b).decode() + "\n" + end for b in (b"\x30\x01\x00\x00", b"\x30\x82\x01\x00\x00", b"\x02\x01\x00", b"\x30", b"")]
    wrong += [begin + "\n!!!!\n" + end, begin + "\n"]
    good = [begin + "\n" + base64.b64encode(b"\x30" + n + bytes(size)).decode() + "\n" + end
            for n, size in ((b"\x03", 3), (b"\x81\x80", 128), (b"\x82\x40\x00", 16384))]
    with api.sandbox(network={"rules": []}) as sb:
        assert api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": store, "parents": True},
                       content="\n".join(good + wrong).encode()).status_code in (200, 201)
        node.SetNetwork(sandbox_id=sb.id, network={"policy": policy(*OPENING)})
        found, is_sealed = java_store(output(api.run(sb, ["cat", JAVA])))
        assert is_sealed and list(found.values()) == [ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(c)) for c in good] + [read(api, sb, ALONE)]


def test_a_sandbox_that_cannot_take_the_authority_keeps_its_policy(api, node):
    with api.sandbox(network={"rules": []}) as sb:
        revision = api.get(f"/v1/sandboxes/{sb.id}/policy").json()["revision"]
        api.run(sb, ["sh", "-c", "echo mine >/etc/quicksand"])
        with pytest.raises(NodeError) as e:
            node.SetNetwork(sandbox_id=sb.id, network={"policy": policy(*OPENING)})
        assert e.value.name == "precondition_failed" and "authority" in e.value.text
        now = api.get(f"/v1/sandboxes/{sb.id}/policy").json()
        assert (now["revision"], now["rules"]) == (revision, [])
