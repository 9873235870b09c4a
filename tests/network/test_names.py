"""
The resolver of a sandbox under many questions: what is remembered may be asked for at any rate, what is not costs.
"""

import time

from test_policy import network

ASK = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(10)
s.connect(("192.0.2.53", 53))
codes = {}
for i in range(int(sys.argv[2])):
    name = sys.argv[1].replace("N", str(i))
    s.send(struct.pack("!HHHHHH", i & 65535, 0x100, 1, 0, 0, 0)
           + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\\0" + struct.pack("!HH", 1, 1))
    code = s.recv(2048)[3] & 15
    codes[code] = codes.get(code, 0) + 1
print(codes)
"""


def ask(api, sb, name, count):
    r = api.run(sb, ["python3", "-c", ASK, name, str(count)])
    assert r["exec"]["exit"]["code"] == 0, r
    return eval(r["stdout"], {})


def test_a_name_that_is_remembered_may_be_asked_for_often(api, world):
    with api.sandbox(network={"allow_domains": ["allowed.test"]}) as sb:
        assert ask(api, sb, "allowed.test", 1200) == {0: 1200}
        assert network(api, sb)["denied"] == 0


def test_other_names_have_a_rate(api, world):
    """Questions that would go outside: the first ones do, the rest is refused, and later there is room again."""
    with api.sandbox(network={"allow_domains": ["*.wild.test"]}) as sb:
        codes = ask(api, sb, "nN.wild.test", 1200)
        assert sum(codes.values()) == 1200 and set(codes) == {3, 5}, codes
        assert codes[3] >= 500
        assert len({name for name, _ in world.queries}) == codes[3]
        time.sleep(2)
        assert ask(api, sb, "moreN.wild.test", 50) == {3: 50}
