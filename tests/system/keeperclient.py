"""Speaks to quicksandd and to monitors in their own messages, for tests without a node."""
import array
import os
import secrets
import select
import socket
import string
import struct
import time

CREATE, DESTROY, LIST, LIMITS, LAYER_DELETE, STATS, REPLY = range(1, 8)
MON_EXEC, MON_EXEC_R, MON_READ, MON_READ_R = 1, 2, 3, 4
MON_STDIN, MON_STDIN_R, MON_STDIN_STATUS, MON_WAIT = 5, 6, 7, 8
MON_TERMINATE, MON_STATUS, MON_STATUS_R, MON_UPDATE, MON_OK, MON_ERROR = 15, 16, 17, 18, 19, 20
EXEC_TTY, EXEC_STDIN, EXEC_ENTRY = 1, 2, 32


def new_id(prefix="sb-"):
    return prefix + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(22))


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<I", len(b)) + b


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def get(self, fmt):
        values = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return values[0] if len(values) == 1 else values

    def bytes(self):
        n = self.get("I")
        out = self.data[self.at:self.at + n]
        self.at += n
        return out

    def rest(self):
        return self.data[self.at:]


class Refused(Exception):
    def __init__(self, code, number, message):
        super().__init__(f"code {code} errno {number}: {message}")
        self.code, self.errno, self.message = code, number, message


class Channel:
    def __init__(self, sock):
        self.sock = sock
        self.sock.setblocking(False)
        self.tag = 0
        self.early = {}

    def send(self, kind, payload=b""):
        self.tag += 1
        packet = struct.pack("<HHII", kind, 1, self.tag, len(payload)) + payload
        select.select([], [self.sock], [], 30)
        self.sock.send(packet)
        return self.tag

    def receive(self, timeout=30):
        if not select.select([self.sock], [], [], timeout)[0]:
            raise TimeoutError("no answer")
        data, control, flags, _ = self.sock.recvmsg(1 << 21, socket.CMSG_SPACE(4 * 80))
        if not data:
            raise EOFError("the other side hung up")
        fds = array.array("i")
        for level, what, payload in control:
            if level == socket.SOL_SOCKET and what == socket.SCM_RIGHTS:
                fds.frombytes(payload[:len(payload) - len(payload) % 4])
        kind, _version, tag, length = struct.unpack_from("<HHII", data)
        fds = list(fds)
        if kind & 0x8000:
            memory = fds.pop(0)
            payload = os.pread(memory, length, 0)
            os.close(memory)
        else:
            payload = data[12:]
        return kind & 0x7FFF, tag, payload, fds

    def answer(self, tag, timeout=30):
        end = time.monotonic() + timeout
        while tag not in self.early:
            kind, got, payload, fds = self.receive(max(0, end - time.monotonic()))
            self.early[got] = (kind, payload, fds)
        return self.early.pop(tag)

    def close(self):
        self.sock.close()


class Monitor(Channel):
    def ask(self, kind, payload, timeout=30):
        kind, payload, _fds = self.answer(self.send(kind, payload), timeout)
        if kind == MON_ERROR:
            r = Reader(payload)
            code, number = r.get("Hi")
            r.bytes()
            raise Refused(code, number, r.bytes().decode())
        return payload

    def run(self, *argv, exec_id=None, flags=0, user="", timeout=30, env=("PATH=/usr/bin:/bin", "LANG=C.UTF-8")):
        """Runs a program to its end; (code, stdout)."""
        exec_id = exec_id or "x" + secrets.token_hex(6)
        spec = struct.pack("<I", len(argv)) + b"".join(text(a) for a in argv)
        spec += struct.pack("<I", len(env)) + b"".join(text(v) for v in env)
        spec += text("") + text(user) + struct.pack("<IiQ??", 0o22, 0, 0, False, False)
        head = text(exec_id) + text("") + struct.pack("<IQIQHH?", flags, 0, 0, 0, 0, 0, False)
        self.ask(MON_EXEC, head + struct.pack("<I", len(spec)) + spec, timeout)
        out, offset = b"", 0
        while True:
            r = Reader(self.ask(MON_READ, text(exec_id) + text("") + struct.pack("<BQII??", 1, offset, 56 * 1024, 20000, False, False), timeout))
            offset, _total, eof, _exited = r.get("QQ??")
            data = r.bytes()
            out += data
            offset += len(data)
            if eof:
                break
        return self.wait(exec_id, timeout), out

    def wait(self, exec_id, timeout=30):
        r = Reader(self.ask(MON_WAIT, text(exec_id) + text("") + struct.pack("<I", 20000), timeout))
        r.get("HI"), r.bytes(), r.bytes()
        _flags, _state, _pid, _t0, _t1, _timeout, _reason, code, signal = r.get("IBiqqQBii")
        return code if code >= 0 else -signal


class Keeper(Channel):
    def __init__(self, path):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(path)
        super().__init__(sock)

    def ask(self, kind, payload=b"", timeout=60):
        kind, payload, fds = self.answer(self.send(kind, payload), timeout)
        assert kind == REPLY
        r = Reader(payload)
        code, number = r.get("Hi")
        r.bytes()
        message = r.bytes().decode()
        if code:
            raise Refused(code, number, message)
        return r, fds

    @staticmethod
    def create_message(sandbox, layers, hostname="box", delta="", cpu_milli=0, cpu_weight=100, memory_bytes=0,
                       memory_request_bytes=0, pids=0, io_weight=0, disk_bytes=0, deadline_ms=0, idle_ms=0, grace_ms=0, log_bytes=1 << 20,
                       spool_bytes=0, oom=0, options=0):
        out = text(sandbox) + text(hostname) + struct.pack("<I", len(layers)) + b"".join(text(x) for x in layers)
        return out + text(delta) + struct.pack("<IIQQIIQqQIQQBI", cpu_milli, cpu_weight, memory_bytes, memory_request_bytes, pids,
                                               io_weight, disk_bytes, deadline_ms, idle_ms, grace_ms, log_bytes, spool_bytes, oom, options)

    def create(self, layers, sandbox=None, timeout=60, **fields):
        sandbox = sandbox or new_id()
        _r, fds = self.ask(CREATE, self.create_message(sandbox, layers, **fields), timeout)
        return sandbox, Monitor(socket.socket(fileno=fds[0]))

    def destroy(self, sandbox, timeout=60):
        self.ask(DESTROY, text(sandbox), timeout)

    def limits(self, sandbox, cpu_milli=0, cpu_weight=100, memory_bytes=0, memory_request_bytes=0, pids=0, io_weight=0):
        self.ask(LIMITS, text(sandbox) + struct.pack("<IIQQII", cpu_milli, cpu_weight, memory_bytes, memory_request_bytes, pids, io_weight))

    def list(self):
        r, _ = self.ask(LIST)
        return {r.bytes().decode() for _ in range(r.get("I"))}

    def delete_layer(self, layer):
        self.ask(LAYER_DELETE, text(layer))

    def stats(self):
        r, _ = self.ask(STATS)
        return dict(zip(("pool_ready", "sandboxes", "memory_total", "memory_available", "trees_total", "trees_free"), r.get("IIQQQQ")))
