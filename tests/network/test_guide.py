"""
docs/guides/network.md and what README.md says of the network, as they are printed: policies are given to the daemon, commands are run, what
`explain` is said to say is compared, and compared again with what really leaves.
"""

import json
import pathlib
import re
import subprocess
import time

import httpx
import pytest

import qsdaemon
import world as w
from test_policy import attempt, get, network, status, tls

ROOT = qsdaemon.ROOT
GUIDE = (ROOT / "docs/guides/network.md").read_text()
README = (ROOT / "README.md").read_text()
FENCED = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.M | re.S)
POLICIES = [json.loads(text) for kind, text in FENCED if kind == "json"]
BLOCKS = [text for kind, text in FENCED if kind == ""]
EXPLAINED = re.findall(r"^\| `(\w+://[^`]+)` \| (allow|deny), (?:rule (\d+) `([\w-]+)`|no rule)", GUIDE, re.M)

WHERE = {"pypi.org": w.ALLOWED, "files.pythonhosted.org": w.OTHER, "pythonhosted.org": w.OTHER, "evil.example.com": w.EVIL,
         "github.com": w.ALLOWED, "pool.ntp.org": w.OTHER, "www.example.com": w.ALLOWED}


@pytest.fixture
def names(world):
    world.zone.update({name: [address] for name, address in WHERE.items()})
    yield
    for name in WHERE:
        del world.zone[name]


@pytest.fixture
def quicksand(daemon, tmp_path):
    def run(command, check=True, **options):
        env = {"PATH": f"{daemon.lib_dir}:/usr/bin:/bin", "HOME": str(tmp_path), "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token,
               "ASAN_OPTIONS": "detect_leaks=0"}
        r = subprocess.run(["bash", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, **options)
        assert r.returncode == 0 or not check, (command, r.stderr)
        return r.stdout

    return run


def test_nothing_of_the_guide_is_left_out():
    assert len(POLICIES) == 2 and len(BLOCKS) == 3 and len(EXPLAINED) == 13
    assert len(re.findall("^```", GUIDE, re.M)) == 2 * (len(POLICIES) + len(BLOCKS))


def test_the_policy_is_taken_as_it_is(api):
    given = POLICIES[0]
    with api.sandbox(network=given) as sb:
        kept = api.get(f"/v1/sandboxes/{sb.id}/policy").json()
        assert [kept[k] for k in ("dns", "refuse_ech", "bandwidth")] == [given[k] for k in ("dns", "refuse_ech", "bandwidth")]
        for rule, was in zip(kept["rules"], given["rules"], strict=True):
            assert {k: v for k, v in rule.items() if k in was} == {**was, **({"cidrs": ["10.20.0.5/32"]} if "cidrs" in was else {})}


def test_rules_over_requests_are_taken_as_they_are(api):
    """The requests themselves: test_requests.py, test_inject.py."""
    assert api.put("/v1/secrets/github", json={"values": {"TOKEN": "a value"}}).status_code in (200, 201)
    try:
        with api.sandbox(network=POLICIES[1]) as sb:
            for rule, was in zip(api.get(f"/v1/sandboxes/{sb.id}/policy").json()["rules"], POLICIES[1]["rules"], strict=True):
                inject = [{"mode": "set", **i} for i in was.get("inject", [])]
                assert {k: v for k, v in rule.items() if k in was} == {**was, **({"inject": inject} if inject else {})}
            for url, method, *says in (("https://api.github.com/admin/x", "GET", "deny", "no-admin", False),
                                       ("https://api.github.com/user", "GET", "allow", "read", True),
                                       ("https://api.github.com/user", "POST", "deny", None, False)):
                told = api.get(f"/v1/sandboxes/{sb.id}/policy/explain", params={"url": url, "method": method}).json()
                assert [told[k] for k in ("action", "rule_name", "injects")] == says and told["opened"], told
            told = api.get(f"/v1/sandboxes/{sb.id}/policy/explain", params={"url": "https://pypi.org/x"}).json()
            assert (told["action"], told["rule_name"], told["opened"]) == ("allow", "rest", False)
    finally:
        api.delete("/v1/secrets/github")


def go(api, sb, url):
    """The same as the URL, by a real program."""
    scheme, rest = url.split("://")
    host, _, port = rest.split("/")[0].partition(":")
    port = int(port or {"https": 443, "http": 80, "ssh": 22, "quic": 443}[scheme])
    if scheme == "https":
        return tls(api, sb, host, address=WHERE[host], port=port)
    if scheme == "http":
        return get(api, sb, host, address=WHERE[host], port=port)
    return attempt(api, sb, kind="udp" if scheme in ("udp", "quic") else "tcp", address=host, port=port, timeout=2, until_close=False)


def test_what_is_explained_is_what_happens(api, world, names, quicksand):
    with api.sandbox(network=POLICIES[0]) as sb:
        for url, action, number, name in EXPLAINED:
            told = json.loads(quicksand(f"quicksand policy explain {sb.id} {url}"))
            assert (told["action"], told["rule"], told["rule_name"]) == (action, int(number) if number else None, name or None), url
            world.clear()
            go(api, sb, url)
            host = url.split("://")[1].split("/")[0].partition(":")[0]
            assert bool(world.went_to(WHERE.get(host, host))) == (action == "allow"), (url, world.seen)


def test_names_of_policies(api, world, quicksand, tmp_path):
    lines = [line for line in BLOCKS[0].splitlines() if line]
    assert len(lines) == 4
    (tmp_path / "prod.json").write_text(json.dumps(POLICIES[0]))
    try:
        assert quicksand(lines[0]) == "prod version 1\n" and "# version 1" in lines[0]
        sandbox = quicksand(lines[1].replace(" ...", "")).split()[0]
        assert re.fullmatch(r"sb-\w+", sandbox), sandbox
        (tmp_path / "prod.json").write_text(json.dumps({**POLICIES[0], "dns": "open"}))
        assert quicksand(lines[2]).startswith("prod version 2\n") and "# version 2" in lines[2]
        assert json.loads(quicksand(f"quicksand policy get {sandbox}"))["dns"] == "open"
        quicksand(lines[3].replace("SANDBOX", sandbox))
        kept = json.loads(quicksand(f"quicksand policy get {sandbox}"))
        assert (kept["version"], kept["follows"], kept["dns"]) == (1, False, "rules")
        assert json.loads(quicksand(f"quicksand policy status {sandbox}"))["revision"] == kept["revision"] == 3
        api.delete(f"/v1/sandboxes/{sandbox}")
    finally:
        api.delete("/v1/policies/prod", params={"force": "true"})


def test_secrets(api, quicksand, tmp_path):
    lines = BLOCKS[1].splitlines()
    (tmp_path / "token.txt").write_text("a value that nobody is shown")
    try:
        for line in lines:
            out = quicksand(line)
        assert re.search(r"^github\s.*TOKEN", out, re.M) and "a value" not in out
    finally:
        quicksand("quicksand secret rm github", check=False)


def test_the_log(api, world, names, quicksand, daemon, tmp_path):
    command, deny, allow = BLOCKS[2].splitlines()
    rules = [POLICIES[0]["rules"][0], {"name": "watched", "action": "log", "domains": ["www.example.com"]},
             {"domains": ["*.example.com"], "protocol": "http"}]
    with api.sandbox(network={"rules": rules}) as sb:
        for _ in range(3):
            assert not tls(api, sb, "evil.example.com", address=w.EVIL)["ok"]
        assert status(get(api, sb, "www.example.com")) == 200
        def told():
            return sum(int((re.search(r"(\d+) times$", line) or [1, 1])[1]) for line in shown.splitlines())

        shown = ""
        give_up = time.monotonic() + 60
        while told() < 4:
            assert time.monotonic() < give_up, shown
            shown = quicksand(command.removeprefix("$ ").replace(" -f", "").replace("SANDBOX", sb.id))
        n = network(api, sb)
        assert (n["denied"], n["noted"]) == (3, 1)
    lines = re.sub(r"^[\d-]+ [\d:.]+", "T", shown, flags=re.M).replace(w.EVIL, "198.51.100.7").replace(w.ALLOWED, "203.0.113.9").splitlines()
    want = [re.sub(r"^[\d-]+ [\d:.]+", "T", line) for line in (deny, allow)]
    # The first is told at once, those that are alike and follow it together, which a slow machine may make two of.
    assert {re.sub("  [0-9]+ times$", "", line) for line in lines} == {want[0].removesuffix("  3 times"), want[1]} and told() == 4


SAYS = ["No way out that was not given", "decided and logged outside of the sandbox", "Without one there is none.",
        "A sandbox has a loopback device and nothing else. What leaves it is dialled outside of it by `egress`, if the policy of the sandbox says so",
        "from outside when they are opened by name."]


def test_what_the_readme_says(api, world, daemon):
    """Each sentence about the network; who changes one finds this test."""
    assert not [s for s in SAYS if s not in README]
    serve = ["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", "/etc"]
    with api.sandbox(command=serve, ports=[8000]) as sb:
        devices = api.run(sb, ["sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1; ls /sys/class/net 2>/dev/null"])["stdout"].split()
        assert set(devices) == {"lo"}
        for address in (w.ALLOWED, w.ALLOWED6, w.DNS):
            assert get(api, sb, "allowed.test", address=address)["error"] == "ConnectionRefusedError"
        assert not world.went_anywhere() and not world.queries
        # In, with a blocked network.
        p = api.get(f"/v1/sandboxes/{sb.id}/ports").json()["items"][0]
        give_up = time.monotonic() + 60
        while True:
            try:
                r = httpx.get(p["url"].rstrip("/") + "/hostname", verify=False, trust_env=False)
                if r.status_code == 200:
                    break
            except httpx.TransportError:
                pass
            assert time.monotonic() < give_up
            time.sleep(0.1)
        assert r.text.strip() == api.run(sb, ["cat", "/etc/hostname"])["stdout"].strip()
        r = api.delete(f"/v1/sandboxes/{sb.id}/ports/8000")
        assert r.status_code == 204
        with pytest.raises(httpx.TransportError):
            httpx.get(p["url"], verify=False, trust_env=False)
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        assert status(get(api, sb, "allowed.test")) == 200 and not tls(api, sb, "evil.test", address=w.EVIL)["ok"]
        # Dialled by egress: from an address of the host, and from none of the sandbox's.
        assert {p.src for p in world.went_anywhere()} <= {w.HOST, w.HOST6}
        egress, = daemon.pids("egress")
        sockets = pathlib.Path(f"/proc/{egress}/net/dev").read_text()
        assert "out0" in sockets
        give_up = time.monotonic() + 30
        while not (lines := api.get(f"/v1/sandboxes/{sb.id}/network/log").json()["items"]):
            assert time.monotonic() < give_up
            time.sleep(0.1)
        assert (lines[0]["verdict"], lines[0]["name"], lines[0]["port"]) == ("deny", "evil.test", 443)
