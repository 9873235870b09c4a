"""
What RUN of a build may reach: the configured default, the build's policy, the step's flag; proxies that are in no key.
"""

import pytest

import world as w


def build(api, dockerfile, **fields):
    r = api.post("/v1/builds", json={"dockerfile": dockerfile, **fields})
    assert r.status_code == 202, r.text
    r = api.get(f"/v1/operations/{r.json()['id']}", params={"wait_s": 120}, timeout=150)
    op = r.json()
    lines = [line["text"] for line in api.get(f"/v1/operations/{op['id']}/log").json()["items"]]
    return op, lines


def reached(api, url, flag="", **fields):
    """What a RUN of the build sees of the URL."""
    op, lines = build(api, f"FROM base\nRUN {flag} curl -s -m 20 -o /dev/null -w 'status %{{http_code}}\\n' {url}; true\n", no_cache=True, **fields)
    assert op["state"] == "succeeded", (op["error"], lines)
    status, = [line for line in lines if line.startswith("status ")]
    return int(status.split()[1])


def test_the_public_network_is_open_by_default(api, world):
    assert reached(api, "http://allowed.test/") == 200
    assert reached(api, f"http://{w.EVIL}/") == 200
    for closed in ("http://10.9.8.7/", "http://169.254.169.254/", f"http://{w.HOST}/", "http://private.test/"):
        assert reached(api, closed) in (0, 403), closed
    assert {address for address, *_ in world.requests} == {w.ALLOWED, w.EVIL}


@pytest.mark.parametrize("network,flag", [("block", ""), (None, "--network=none"), ("open", "--network=none")])
def test_a_blocked_step(api, world, network, flag):
    assert reached(api, "http://allowed.test/", flag, network=network) == 0
    assert world.requests == []


def test_a_policy(api, world):
    policy = {"rules": [{"domains": ["allowed.test"]}, {"cidrs": ["10.9.8.7"]}]}
    assert reached(api, "http://allowed.test/", "--network=default", network=policy) == 200
    assert reached(api, "http://10.9.8.7/", network=policy) == 200
    assert reached(api, "http://evil.test/", network=policy) in (0, 403)
    r = api.post("/v1/builds", json={"dockerfile": "FROM base\n", "network": {"rules": [{"cidrs": ["10.0.0.1/8"]}]}})
    assert r.status_code == 400 and r.json()["error"]["param"] == "network", r.text
    r = api.post("/v1/builds", json={"dockerfile": "FROM base\n", "network": "host"})
    assert r.status_code == 400 and r.json()["error"]["param"] == "network", r.text


@pytest.mark.parametrize("flag,word", [("--network=host", "--network=host"), ("--network=x", "none or default"),
                                       ("--security=insecure", "--security=insecure")])
def test_flags_that_are_not_there(api, flag, word):
    op, _ = build(api, f"FROM base\nRUN {flag} true\n")
    assert op["state"] == "failed" and op["error"]["code"] == "invalid_argument"
    assert "line 2" in op["error"]["message"] and word in op["error"]["message"]


def test_the_resolver_is_named(api, world):
    _, lines = build(api, "FROM base\nRUN cat /etc/resolv.conf; getent hosts allowed.test\n", no_cache=True)
    assert "nameserver 192.0.2.53" in lines
    assert any("allowed.test" in line and line.startswith((w.ALLOWED, w.ALLOWED6)) for line in lines), lines


def test_proxies_are_for_run_alone(api, world):
    text = "FROM base\nRUN echo \"proxy $HTTP_PROXY $no_proxy\"; cat /proc/sys/kernel/random/uuid >/unique\n"
    first, lines = build(api, text, args={"HTTP_PROXY": "http://proxy.test:3128", "no_proxy": "x"})
    assert "proxy http://proxy.test:3128 x" in lines
    second, lines = build(api, text, args={"HTTP_PROXY": "http://other.test:3128"})
    assert second["result"]["cached_steps"] == 1
    image = api.get(f"/v1/images/{first['image']}").json()
    assert not [name for name in image["env"] if name.lower().endswith("_proxy")]
    # Declared, it is an argument like any other.
    declared = text.replace("RUN", "ARG HTTP_PROXY\nRUN", 1)
    assert build(api, declared, args={"HTTP_PROXY": "a"})[0]["result"]["cached_steps"] == 0
    assert build(api, declared, args={"HTTP_PROXY": "b"})[0]["result"]["cached_steps"] == 0


def test_the_configured_network(world, daemon):
    import qsdaemon
    instance = qsdaemon.Daemon(qsdaemon.build_dir(), egress_dns=w.DNS, pool_size=1, build_network="10.9.8.7 private.test, allowed.test")
    try:
        instance.start()
        instance.import_base()
        assert reached(instance.api, "http://private.test/") == 200
        assert reached(instance.api, "http://allowed.test/") == 200
        assert reached(instance.api, "http://evil.test/") in (0, 403)
        assert reached(instance.api, "http://evil.test/", network="open") == 200
    finally:
        left = instance.stop()
        instance.purge()
    assert not left, left
