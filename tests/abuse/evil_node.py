"""
A node that was taken over: it says to the keeper whatever it can think of.

usage: evil_node.py SOCKET SECONDS SEED SANDBOX LAYER

Started by tests/system/test_evil_node.py with the user and group of the node. SANDBOX is a live one of whose id it makes use in lies; it does
not destroy it, which would be its right.
"""

import contextlib
import errno
import fcntl
import os
import pathlib
import random
import select
import socket
import struct
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "system"))
from keeperclient import CREATE, DESTROY, LAYER_DELETE, LIMITS, LIST, STATS, Keeper, new_id, text  # noqa: E402

PATHS = ("", ".", "..", "/", "../..", "../../../../etc", "/etc/passwd", "sb-../../../../../../canary", "canary", "../canary", "keeper/canary", "a" * 4000,
         "sb-" + "." * 22, "sb-" + "/" * 22, "sb-" + "\0" * 22, "im-" + "a" * 22, "sb-" + "a" * 21, "sb-" + "a" * 23, "sb-aaaaaaaaaaaaaaaaaaaa\n", "%s%n%s",
         "sb-" + "é" * 11, "trees", "next", "dev", ".trash", ".staging", "A" * 64, "0" * 63, "g" * 64, "../" * 21 + "x", "." * 64)
NUMBERS = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


class Evil:
    def __init__(self, path, seed, sandbox, layer):
        self.path, self.sandbox, self.layer = path, sandbox, layer
        self.rng = random.Random(seed)
        self.sock = None
        self.sent = 0

    def connect(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(self.path)
        s.setblocking(False)
        return s

    def name(self):
        r = self.rng
        return r.choice([*PATHS, self.sandbox, self.layer, new_id(), new_id("im-"), "".join(chr(r.randrange(1, 256)) for _ in range(r.randrange(80)))])

    def body(self):
        """A request that is whole in its form, with values from anywhere."""
        r = self.rng
        wild = [self.name() if r.random() < 0.5 else None for _ in range(4)]
        kind = r.choice((CREATE, CREATE, CREATE, DESTROY, LIST, LIMITS, LAYER_DELETE, STATS, r.randrange(65536)))
        if kind == CREATE:
            layers = [self.name() for _ in range(r.choice((0, 1, 2, 64, 65, 200)))] if r.random() < 0.5 else [self.layer] * r.choice((1, 1, 2))
            fields = {f: r.choice((0, 1, 100, 1 << 31, (1 << 32) - 1)) for f in ("cpu_milli", "cpu_weight", "pids", "io_weight", "grace_ms", "options") if r.random() < 0.3}
            fields.update({f: r.choice((0, 1, 1 << 24, 1 << 40, (1 << 63) - 1)) for f in ("memory_bytes", "disk_bytes", "deadline_ms", "idle_ms", "log_bytes", "spool_bytes") if r.random() < 0.3})
            fields["oom"] = r.choice((0, 1, 2, 3, 255))
            return kind, Keeper.create_message(wild[0] or new_id(), layers, hostname=wild[1] or "box", delta=wild[2] or "", **fields)
        if kind == DESTROY:
            name = self.name()
            return kind, text(new_id() if name == self.sandbox else name)
        if kind == LIMITS:
            return kind, text(self.name()) + struct.pack("<IIQQII", *(r.choice(NUMBERS) for _ in range(6)))
        if kind == LAYER_DELETE:
            return kind, text(self.name())
        return kind, b"" if r.random() < 0.7 else os.urandom(r.randrange(200))

    def mutate(self, data):
        r = self.rng
        data = bytearray(data)
        for _ in range(r.choice((0, 0, 1, 1, 2, 8))):
            how = r.randrange(6)
            at = r.randrange(len(data) + 1)
            if how == 0 and at < len(data):
                data[at] ^= 1 << r.randrange(8)
            elif how == 1:
                del data[at:]
            elif how == 2:
                data[at:at] = os.urandom(r.randrange(1, 40))
            elif how == 3 and at + 4 <= len(data):
                data[at:at + 4] = struct.pack("<I", r.choice(NUMBERS))
            elif how == 4 and at < len(data):
                data[at:at + r.randrange(1, 9)] = b"\xff" * r.randrange(1, 9)
            elif how == 5:
                data += data[:at]
        return bytes(data)

    def packet(self):
        r = self.rng
        kind, body = self.body()
        body = self.mutate(body)
        length = len(body) if r.random() < 0.8 else r.choice(NUMBERS)
        head = struct.pack("<HHII", kind & 0xFFFF, 1 if r.random() < 0.9 else r.randrange(65536), r.randrange(1 << 32), length)
        return head + body

    def files(self):
        """Descriptors that come with a message: the keeper takes none."""
        r = self.rng
        if r.random() < 0.8:
            return []
        made = [os.open("/dev/null", os.O_RDWR) for _ in range(r.choice((1, 2, 50, 253)))]
        return made

    def elsewhere(self):
        """A message whose bytes are in a memory file, sealed or not, as long as it says or not."""
        r = self.rng
        kind, body = self.body()
        fd = os.memfd_create("m", os.MFD_ALLOW_SEALING)
        os.write(fd, self.mutate(body))
        if r.random() < 0.5:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, r.choice((1, 2, 4, 8, 15)))
        return struct.pack("<HHII", kind & 0x7FFF | 0x8000, 1, 7, r.choice((len(body), 0, *NUMBERS))), [fd]

    def speak(self, sock):
        r = self.rng
        packet, fds = self.elsewhere() if r.random() < 0.1 else (self.packet(), self.files())
        if r.random() < 0.05:
            packet = packet[:r.randrange(13)]           # half a head, or nothing
        try:
            socket.send_fds(sock, [packet], fds) if fds else sock.send(packet)
            self.sent += 1
        finally:
            for fd in fds:
                os.close(fd)

    def hear(self, sock):
        while select.select([sock], [], [], 0)[0]:
            data, fds, _flags, _ = socket.recv_fds(sock, 1 << 20, 64)
            for fd in fds:
                os.close(fd)
            if not data:
                raise ConnectionResetError
        return sock

    def run(self, seconds):
        end = time.monotonic() + seconds
        many = []
        while time.monotonic() < end:
            try:
                if self.sock is None:
                    self.sock = self.connect()
                    self.deaf = self.rng.random() < 0.2       # sends and never reads
                    self.left = self.rng.randrange(1, 400)
                self.speak(self.sock)
                if not self.deaf:
                    self.hear(self.sock)
                self.left -= 1
                if self.left == 0:
                    raise ConnectionResetError
            except BlockingIOError:
                # The keeper does not read from one who does not: that is the bound on its memory.
                if self.deaf:
                    self.drop()
                else:
                    select.select([self.sock], [], [], 0.05)
            except OSError as e:
                if e.errno not in (None, errno.EPIPE, errno.ECONNRESET, errno.ECONNREFUSED, errno.EMSGSIZE, errno.ETOOMANYREFS, errno.EINVAL):
                    raise
                self.drop()
            if self.rng.random() < 0.002:
                with contextlib.suppress(OSError):
                    many += [self.connect() for _ in range(40)]
            if self.rng.random() < 0.002:
                for s in many:
                    s.close()
                many.clear()

    def drop(self):
        if self.sock is not None:
            self.sock.close()
        self.sock = None


if __name__ == "__main__":
    evil = Evil(sys.argv[1], int(sys.argv[3]), sys.argv[4], sys.argv[5])
    evil.run(float(sys.argv[2]))
    print(evil.sent)
