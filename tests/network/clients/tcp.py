# Ends of connections as the servers meant them: half closed, reset, silent; and 200 of them at once.
import concurrent.futures
import hashlib
import os
import socket
import ssl
import threading

HOST = "www.farm.test"


def connect(port, host=HOST):
    return socket.create_connection((host, port), timeout=60)


def rest(s):
    out = b""
    while data := s.recv(1 << 16):
        out += data
    return out


for family in (socket.AF_INET, socket.AF_INET6):
    with socket.socket(family) as s:
        s.settimeout(60)
        s.connect(socket.getaddrinfo(HOST, 9002, family, socket.SOCK_STREAM)[0][4])
        data = os.urandom(3_000_000)
        sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        assert rest(s) == data
        sender.join()

# An end without a byte before it.
with connect(9002) as s:
    s.shutdown(socket.SHUT_WR)
    assert rest(s) == b""

# The server's direction ends first; ours goes on.
with connect(9003) as s:
    assert rest(s) == b"that is all"
    s.sendall(b"x" * 1_000_000)

# What came before a reset may still be read; then the reset is seen as one.
with connect(9001) as s:
    s.sendall(b"anything")
    assert s.recv(100) == b"before"
    try:
        assert s.recv(100) == b"?", "an end where there was none"
    except ConnectionResetError:
        pass

# A server that speaks first.
with connect(9005) as s:
    assert s.recv(100) == b"hello\n"
    s.sendall(b"and back")
    assert s.recv(100) == b"and back"

# A server that says nothing is silent, not gone.
with connect(9004) as s:
    s.sendall(b"?")
    s.settimeout(2)
    try:
        assert s.recv(1) == b"?", "something came"
    except TimeoutError:
        pass

context = ssl.create_default_context()


def one(i):
    with context.wrap_socket(connect(443), server_hostname=HOST) as s:
        s.sendall(f"GET /big HTTP/1.1\r\nHost: {HOST}\r\nRange: bytes={i * 1000}-{i * 1000 + 99999}\r\nConnection: close\r\n\r\n".encode())
        barrier.wait(120)
        return hashlib.sha256(rest(s).partition(b"\r\n\r\n")[2]).hexdigest()


barrier = threading.Barrier(200)
with concurrent.futures.ThreadPoolExecutor(200) as pool:
    got = list(pool.map(one, range(200)))
with context.wrap_socket(connect(443), server_hostname=HOST) as s:
    s.sendall(f"GET /big HTTP/1.1\r\nHost: {HOST}\r\nRange: bytes=0-299999\r\nConnection: close\r\n\r\n".encode())
    data = rest(s).partition(b"\r\n\r\n")[2]
assert got == [hashlib.sha256(data[i * 1000:i * 1000 + 100_000]).hexdigest() for i in range(200)]
