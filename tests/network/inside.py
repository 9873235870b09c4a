"""
Runs inside of sandboxes: one attempt a call, JSON out. Sent as the text of `python3 -c`.
"""

import json
import socket
import ssl
import sys
import time


def main(args):
    spec = json.loads(args)
    start = time.monotonic()
    try:
        out = {"ok": True, **attempt(spec)}
    except OSError as e:
        out = {"ok": False, "error": type(e).__name__, "text": str(e)}
    out["seconds"] = round(time.monotonic() - start, 2)
    print(json.dumps(out))


def attempt(spec):
    kind = spec["kind"]
    timeout = spec.get("timeout", 10)
    if kind == "resolve":
        return {"addresses": sorted({a[4][0] for a in socket.getaddrinfo(spec["name"], 80, type=socket.SOCK_STREAM)})}
    if kind == "udp":
        family = socket.AF_INET6 if ":" in spec["address"] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.settimeout(timeout)
            s.connect((spec["address"], spec["port"]))
            s.send(bytes.fromhex(spec.get("data", "00")))
            return {"data": s.recv(2048).hex()}
    with socket.create_connection((spec["address"], spec["port"]), timeout=timeout) as s:
        s.settimeout(timeout)
        if kind == "tls":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(s, server_hostname=spec.get("sni")) as t:
                host = spec.get("host", spec.get("sni"))
                t.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                return {"data": read(t)}
        for piece in spec.get("pieces", [spec.get("data", "")]):
            s.sendall(piece.encode("latin-1"))
            time.sleep(spec.get("pause", 0))
        if spec.get("half_close"):
            s.shutdown(socket.SHUT_WR)
        return {"data": read(s, spec.get("until_close", True))}


def read(s, until_close=True):
    out = b""
    while data := s.recv(65536):
        out += data
        if not until_close:
            break
    return out.decode("latin-1")


main(sys.argv[1])
