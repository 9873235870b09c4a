"""
The programs of test_clients.py through connections that are opened, because a rule puts a field into every request: they find the
sandbox's authority without being told, and nothing else of it is other than without a rule. With --long, like those.
"""

import pathlib

import pytest

from test_clients import CLIENTS, RAW, RUN, clients, farm, go_program, put    # noqa: F401 - fixtures

pytestmark = pytest.mark.long

POLICY = {"rules": [{"name": "raw", "domains": ["*.farm.test"], "ports": RAW, "protocol": "tcp"},
                    {"name": "opened", "domains": ["*.farm.test"], "protocol": "any",
                     "inject": [{"header": "X-Opened", "value": "by-a-rule"}]}]}
SCRIPTS = ["apt.sh", "curl.sh", "git.sh", "libraries.py", "node.mjs", "pip.sh", "rpc.py", "streams.py", "websocket.py", "wget.sh"]
# Sessions are not resumed, and the chain is another: what is left of openssl.sh.
OPENSSL = r"""
ask() { printf 'GET /app/facts HTTP/1.1\r\nHost: www.farm.test\r\nConnection: close\r\n\r\n' |
    openssl s_client -connect www.farm.test:443 -servername www.farm.test -verify_return_error -verify_hostname www.farm.test -quiet "$@" 2>err; }
ask -tls1_3 | grep -q by-a-rule
ask -tls1_2 | grep -q by-a-rule
ask -split_send_frag 600 -max_send_frag 600 | grep -q by-a-rule
openssl s_client -connect www.farm.test:443 -servername www.farm.test -alpn h2,http/1.1 </dev/null 2>/dev/null | grep -q 'ALPN protocol: h2'
openssl s_client -connect www.farm.test:443 -servername www.farm.test </dev/null 2>/dev/null | grep -q 'issuer=CN = Quicksand sb-'
curl -fsS https://www.farm.test/app/facts | grep -q by-a-rule
curl -fsS http://www.farm.test/app/facts | grep -q by-a-rule
"""


@pytest.fixture(scope="module")
def box(daemon, world, farm, clients):     # noqa: F811
    with daemon.api.sandbox(image=clients, network=POLICY, timeout_s=7200) as sb:
        for path in CLIENTS.iterdir():
            put(daemon.api, sb, f"/opt/clients/{path.name}", path.read_bytes())
        put(daemon.api, sb, "/opt/clients/key", farm.key)
        assert daemon.api.run(sb, ["chmod", "600", "/opt/clients/key"])["exec"]["exit"]["code"] == 0
        yield sb


def run(api, box, command):
    r = api.run(box, command, stderr="merge", timeout=400, timeout_s=340)
    assert r["exec"]["exit"] == {**r["exec"]["exit"], "reason": "exited", "code": 0}, r["stdout"][-6000:]


@pytest.mark.parametrize("script", SCRIPTS)
def test_client(api, box, script):
    run(api, box, [*RUN[pathlib.Path(script).suffix], f"/opt/clients/{script}"])
    counted = api.get(f"/v1/sandboxes/{box.id}/network").json()
    assert counted["injected"] > 0 and not [d for d in counted["denials"] if d["reason"] != "address"], counted


def test_openssl(api, box):
    run(api, box, ["bash", "-eux", "-o", "pipefail", "-c", OPENSSL])


def test_go(api, box):
    r = api.put(f"/v1/sandboxes/{box.id}/files", params={"path": "/opt/clients/go", "mode": "755"}, content=go_program())
    assert r.status_code == 201, r.text
    run(api, box, ["/opt/clients/go"])


def test_the_servers_see_clients_as_they_are(api, farm, box):      # noqa: F811
    before = len(farm.accesses())
    run(api, box, ["curl", "-fsS", "https://www.farm.test/small?a", "--next", "-fsS", "--http1.1", "https://www.farm.test/small?b"])
    got = [a[:4] for a in farm.accesses()[before:] if "/small?" in a[2]]
    assert got == [("www.farm.test", "HTTP/2.0", "GET /small?a HTTP/2.0", "200"), ("www.farm.test", "HTTP/1.1", "GET /small?b HTTP/1.1", "200")]


def test_java_and_npm(daemon, farm, suites_tar):       # noqa: F811
    daemon.import_image("suites", suites_tar)
    with daemon.api.sandbox(image="suites", network=POLICY, timeout_s=7200) as sb:
        for name in ("npm.sh", "Client.java"):
            put(daemon.api, sb, f"/opt/clients/{name}", (CLIENTS / name).read_bytes())
        run(daemon.api, sb, ["bash", "-eux", "/opt/clients/npm.sh"])
        run(daemon.api, sb, ["java", "/opt/clients/Client.java"])
        run(daemon.api, sb, ["sh", "-c", "keytool -list -keystore /etc/quicksand/authorities.jks -storepass changeit | grep -q trustedCertEntry"])
        counted = daemon.api.get(f"/v1/sandboxes/{sb.id}/network").json()
        assert counted["injected"] > 0 and not [d for d in counted["denials"] if d["reason"] != "address"], counted
