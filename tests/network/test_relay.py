"""
Bytes on their way: ends of one direction, slow readers, many connections, what is left of them.
"""

import time

import world as w
from test_policy import network


def settled(api, sb):
    give_up = time.monotonic() + 20
    while (n := network(api, sb))["connections_open"] and time.monotonic() < give_up:
        time.sleep(0.1)
    return n


def test_half_close(api, world):
    """What is sent before the end of one direction comes back through the other."""
    script = ("import socket,threading\ns=socket.create_connection(('%s',9999))\nd=b'0123456789'*100000\n"
              "def send():\n s.sendall(d); s.shutdown(socket.SHUT_WR)\n"
              "threading.Thread(target=send).start()\nb=b''\nwhile (p:=s.recv(65536)): b+=p\nprint(b==d)" % w.ALLOWED)
    with api.sandbox(network={"rules": [{"cidrs": [w.ALLOWED]}]}) as sb:
        assert api.run(sb, ["python3", "-c", script])["stdout"] == "True\n"
        assert settled(api, sb)["connections_open"] == 0


def test_a_slow_reader_holds_only_itself(api, world):
    script = ("import socket,time,hashlib\ns=socket.create_connection(('allowed.test',80))\n"
              "s.sendall(b'GET /bytes/30000000 HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'); time.sleep(3)\n"
              "n=0\nh=hashlib.sha256()\nb=b''\n"
              "while b'\\r\\n\\r\\n' not in b: b+=s.recv(1)\n"
              "while n<30000000:\n d=s.recv(65536); h.update(d); n+=len(d)\nprint(n,h.hexdigest())")
    import hashlib
    want = hashlib.sha256((bytes(range(256)) * 256 * 500)[:30000000]).hexdigest()
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        assert api.run(sb, ["python3", "-c", script])["stdout"].split() == ["30000000", want]


def test_many_connections_leave_nothing(api, world, daemon):
    script = ("import socket\nok=0\nfor i in range(300):\n s=socket.create_connection(('%s',80))\n"
              " s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n"
              " d=b''\n while (p:=s.recv(4096)): d+=p\n ok+=d.startswith(b'HTTP/1.1 200')\n s.close()\nprint(ok)" % w.ALLOWED)
    pid, = daemon.pids("egress")
    with api.sandbox(network={"rules": [{"cidrs": [w.ALLOWED]}]}) as sb:
        import os
        before = len(os.listdir(f"/proc/{pid}/fd"))
        assert api.run(sb, ["python3", "-c", script], timeout=300)["stdout"].strip() == "300"
        n = settled(api, sb)
        assert n["connections_open"] == 0 and n["connections"] == 300
        assert len(os.listdir(f"/proc/{pid}/fd")) == before
    # The end of the sandbox is the end of its sockets.
    give_up = time.monotonic() + 20
    while len(os.listdir(f"/proc/{pid}/fd")) > before - 2 and time.monotonic() < give_up:
        time.sleep(0.1)
    assert len(os.listdir(f"/proc/{pid}/fd")) <= before - 2


def test_websocket(api, world):
    script = ("import socket\ns=socket.create_connection(('allowed.test',80))\n"
              "s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n\\r\\n')\n"
              "print(s.recv(4096).split()[1]); s.sendall(b'anything at all'); print(s.recv(100))")
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        out = api.run(sb, ["python3", "-c", script])["stdout"]
        assert out == "b'101'\nb'anything at all'\n"
