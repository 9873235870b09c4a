"""
Programs that people run, through rules that allow what they do: nothing of it may be other than without a sandbox. Rules by
name and rules by address; the servers are farm.py's, with names and an authority of their own.

The programs are tests/network/clients/*; each stops at the first thing that is not as it should be. Their image takes minutes to make, so all
of it runs with --long; curl, apt, pip and npm are met in the other tests too.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import time

import pytest

import farm as f
import qsdaemon
import world as w

pytestmark = pytest.mark.long

CLIENTS = pathlib.Path(__file__).parent / "clients"
RUN = {".sh": ["bash", "-eux"], ".py": ["python3", "-B"], ".mjs": ["node", "--unhandled-rejections=strict"], "": []}

RAW = [f.PORTS["ssh"], f.PORTS["git"], f.PORTS["postgres"], f.PORTS["redis"], f.PORTS["grpc-plain"], "9001-9009"]
POLICIES = {
    "name": {"rules": [{"name": "raw", "domains": ["*.farm.test"], "ports": RAW, "protocol": "tcp"},
                       {"name": "web", "domains": ["*.farm.test"]}]},
    "cidr": {"rules": [{"name": "farm", "cidrs": [f.NET, f.NET6, f.NOBODY, f.BROKEN6]}], "dns": "open"},
}

PREPARE = """
printf '%s' "$0" >/usr/local/share/ca-certificates/farm.crt
update-ca-certificates >/dev/null
chmod 600 /opt/clients/key
"""


def put(api, sb, path, content):
    r = api.put(f"/v1/sandboxes/{sb.id}/files", params={"path": path, "parents": True}, content=content)
    assert r.status_code in (200, 201), r.text


def run(api, sb, script, *args, timeout_s=240, **fields):
    command = [*RUN[pathlib.Path(script).suffix], f"/opt/clients/{script}", *args]
    fields.setdefault("env", {})["NODE_EXTRA_CA_CERTS"] = "/usr/local/share/ca-certificates/farm.crt"
    r = api.run(sb, command, stderr="merge", timeout=timeout_s + 60, timeout_s=timeout_s, **fields)
    assert r["exec"]["exit"] == {**r["exec"]["exit"], "reason": "exited", "code": 0}, r["stdout"][-6000:]
    return r["stdout"]


def go_program():
    """clients/client.go as a program that needs nothing else; made once a machine."""
    go = shutil.which("go", path=os.environ["PATH"] + ":/usr/local/go/bin")
    if go is None:
        pytest.skip("there is no Go on this machine")
    source = (CLIENTS / "client.go").read_bytes()
    version = subprocess.run([go, "env", "GOVERSION"], check=True, capture_output=True).stdout
    path = qsdaemon.CACHE / f"client-go-{hashlib.sha256(source + version).hexdigest()[:12]}"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        subprocess.run([go, "build", "-o", part, CLIENTS / "client.go"], check=True, cwd=CLIENTS,
                       env={"PATH": os.environ["PATH"], "HOME": "/root", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GO111MODULE": "off",
                            "GOCACHE": str(qsdaemon.CACHE / "go-build")})
        part.rename(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def farm(world, daemon, clients_tar):
    servers = f.Farm(world, clients_tar)
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def clients(daemon, clients_tar):
    daemon.import_image("clients", clients_tar)
    return "clients"


@pytest.fixture(scope="module", params=["name", "cidr"])
def kind(request):
    """Which rules let the clients out: of POLICIES."""
    return request.param


def prepare(api, sb, world, farm):
    for path in CLIENTS.iterdir():
        put(api, sb, f"/opt/clients/{path.name}", path.read_bytes())
    put(api, sb, "/opt/clients/key", farm.key)
    r = api.run(sb, ["bash", "-euc", PREPARE, world.ca], stderr="merge")
    assert r["exec"]["exit"]["code"] == 0, r


@pytest.fixture(scope="module")
def box(daemon, world, farm, clients, kind):
    with daemon.api.sandbox(image=clients, network=POLICIES[kind], timeout_s=7200) as sb:
        prepare(daemon.api, sb, world, farm)
        yield sb


SCRIPTS = ["apt.sh", "curl.sh", "git.sh", "libraries.py", "node.mjs", "openssl.sh", "pip.sh", "rows.sh", "rpc.py", "streams.py",
           "websocket.py", "wget.sh"]


@pytest.mark.parametrize("kind,script", [(kind, script) for kind in ("name", "cidr") for script in SCRIPTS], indirect=["kind"], scope="module")
def test_client(api, box, script):
    run(api, box, script)


def test_connections(api, farm, box):
    came = farm.srv / "came"
    came.write_text("")
    run(api, box, "tcp.py")
    give_up = time.monotonic() + 60
    while came.read_text() != "1000000":
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_go(api, box):
    r = api.put(f"/v1/sandboxes/{box.id}/files", params={"path": "/opt/clients/go", "mode": "755"}, content=go_program())
    assert r.status_code == 201, r.text
    run(api, box, "go")


def test_servers_that_cannot_be_reached(api, box, kind):
    run(api, box, "fails.py", kind)


def test_what_is_not_allowed_fails_soon(api, world, box, kind):
    run(api, box, "denied.sh", kind)
    assert not world.went_to(w.EVIL, w.EVIL6)
    assert not [name for name, _ in world.queries if name.endswith("evil.test")] or kind == "cidr"


def test_protocols_are_those_of_the_client(api, farm, box):
    """Nothing between made HTTP/1.1 of HTTP/2, or took the name out of the greeting."""
    before = len(farm.accesses())
    r = api.run(box, ["curl", "-fsS", "https://www.farm.test/small?a", "--next", "-fsS", "--http1.1", "https://www.farm.test/small?b"])
    assert r["stdout"] == "small\nsmall\n", r
    got = [a[:4] for a in farm.accesses()[before:] if "/small?" in a[2]]
    assert got == [("www.farm.test", "HTTP/2.0", "GET /small?a HTTP/2.0", "200"),
                   ("www.farm.test", "HTTP/1.1", "GET /small?b HTTP/1.1", "200")]


def test_long_waits(api, box):
    run(api, box, "streams.py", "65", timeout_s=900)


@pytest.mark.parametrize("script", ["rpc.py", "websocket.py"])
def test_long_conversations(api, box, script):
    run(api, box, script, "180", timeout_s=900)


def test_servers_that_say_nothing(api, box, kind):
    run(api, box, "fails.py", kind, "slow")


def test_java_and_npm(daemon, world, farm, suites_tar, kind):
    daemon.import_image("suites", suites_tar)
    with daemon.api.sandbox(image="suites", network=POLICIES[kind], timeout_s=7200) as sb:
        prepare(daemon.api, sb, world, farm)
        run(daemon.api, sb, "npm.sh")
        r = daemon.api.run(sb, ["java", "/opt/clients/Client.java"], stderr="merge", timeout=600, timeout_s=500)
        assert r["exec"]["exit"]["code"] == 0, r["stdout"][-4000:]
