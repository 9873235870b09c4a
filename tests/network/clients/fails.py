# What a client sees of a server that cannot be reached, and which of several addresses is taken. $1: name or cidr, $2: slow too.
import concurrent.futures
import http.client
import socket
import ssl
import sys
import time

BY_NAME = sys.argv[1] == "name"
RESET = ("ConnectionResetError", "RemoteDisconnected", "BrokenPipeError")     # the last: it came before anything was sent


def answer(host, port=80):
    c = http.client.HTTPConnection(host, port, timeout=60)
    try:
        c.request("GET", "/small")
        r = c.getresponse()
        return r.status, r.read().decode()
    except OSError as e:
        return type(e).__name__, ""
    finally:
        c.close()


def handshake(host, port=443):
    try:
        with socket.create_connection((host, port), timeout=60) as s:
            with ssl.create_default_context().wrap_socket(s, server_hostname=host):
                return "ok"
    except OSError as e:
        return type(e).__name__


def raw(host, port=9005):
    try:
        with socket.create_connection((host, port), timeout=60) as s:
            return s.recv(100)
    except OSError as e:
        return type(e).__name__


def http_says(host, status, text):
    got = answer(host)
    if BY_NAME:
        assert got[0] == status and text in got[1], got
    else:
        assert got[0] in RESET, got


def check_refused():
    http_says("empty.farm.test", 502, "refused")
    assert handshake("empty.farm.test") in RESET
    assert raw("empty.farm.test") in RESET


def check_no_way():
    http_says("nobody.farm.test", 502, "no way")
    assert handshake("nobody.farm.test") in RESET


def check_no_name():
    for name in ("nothing.farm.test", "bare.farm.test"):
        start = time.monotonic()
        try:
            socket.getaddrinfo(name, 80)
            raise AssertionError
        except socket.gaierror as e:
            assert e.errno in (socket.EAI_NONAME, socket.EAI_NODATA), e
        assert time.monotonic() - start < 15


def check_the_next_address():
    for name in ("first-empty", "first-silent", "silent-six", "broken-six"):
        # By an address the program goes through the list itself, and cannot tell that the first was only taken here.
        if not BY_NAME and name.startswith("first"):
            continue
        assert answer(f"{name}.farm.test") == (200, "small\n"), name
        assert handshake(f"{name}.farm.test") == "ok"
    assert {a[4][0] for a in socket.getaddrinfo("broken-six.farm.test", 80)} == {"93.184.218.10"}
    with socket.create_connection((socket.getaddrinfo("silent-six.farm.test", 443, socket.AF_INET6)[0][4][0], 443), timeout=60) as s:
        with ssl.create_default_context().wrap_socket(s, server_hostname="silent-six.farm.test"):
            pass


def check_silent():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        told = pool.submit(http_says, "silent.farm.test", 504, "no answer")
        assert pool.submit(handshake, "silent.farm.test").result() in RESET
        assert pool.submit(raw, "silent.farm.test").result() in RESET
        told.result()


for name, check in list(globals().items()):
    if name.startswith("check_") and (name == "check_silent") == (len(sys.argv) > 2):
        check()
