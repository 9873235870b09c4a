"""
What the tests of opened connections share: a client that runs inside, and questions about what it was told.
"""

import json

import teller as t

VALUE = "s3cr3t-Of-the-tests-0123456789"
AWS_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

CLIENT = r"""
import http.client, json, socket, ssl, sys
context = ssl.create_default_context()
context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
def connect(spec):
    s = socket.create_connection((spec.get("address", spec["host"]), spec["port"]), timeout=spec.get("timeout", 30))
    if spec.get("alpn"):
        context.set_alpn_protocols(spec["alpn"])
    if spec["tls"]:
        s = context.wrap_socket(s, server_hostname=spec.get("sni", spec["host"]), suppress_ragged_eofs=False)
    return s
def converse(spec, out):
    with connect(spec) as s:
        for piece in spec["send"]:
            s.sendall(piece.encode("latin-1"))
            if spec.get("answers"):
                r = http.client.HTTPResponse(s, method=piece.split(" ")[0])
                r.begin()
                out.append([r.status, dict(r.getheaders()), r.read().decode("latin-1")])
            elif spec.get("turns"):
                out.append(s.recv(65536).decode("latin-1"))
        if not spec.get("answers") and not spec.get("turns"):
            out.append("")
            while piece := s.recv(65536):
                out[0] += piece.decode("latin-1")
for spec in json.loads(sys.stdin.read()):
    out = []
    error = text = None
    try:
        converse(spec, out)
    except (OSError, http.client.HTTPException) as e:
        error, text = type(e).__name__, str(e)
    print(json.dumps({"out": out, "error": error, "text": text}))
"""


def rule(*injects, **more):
    """A rule of the name keyed for allowed.test, with the secret `inject`."""
    return {"name": "keyed", "domains": ["allowed.test"], "inject": [{"secret": "inject", **i} for i in injects], **more}


HEADER = rule({"header": "X-Key", "value": "$TOKEN"})


def policy(*rules):
    return {"rules": list(rules)}


def spec(send, host="allowed.test", port=t.TLS, **more):
    return {"host": host, "port": port, "send": send, "tls": port != t.PLAIN, **more}


def talks(api, sb, specs):
    """What came back on each of the connections."""
    r = api.run(sb, ["python3", "-c", CLIENT], stdin=json.dumps(specs), timeout=300)
    assert r["exec"]["exit"]["code"] == 0, r
    return [json.loads(line) for line in r["stdout"].splitlines()]


def talk(api, sb, send, **more):
    """What came back for the pieces: the text of all of it, unless `answers` or `turns` are asked for."""
    return talks(api, sb, [spec(send, **more)])[0]


def text(api, sb, send, **more):
    """What came back; "" where the connection was cut before that."""
    return (talk(api, sb, send, **more)["out"] or [""])[0]


def head(target="/", method="GET", host="allowed.test", **fields):
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items())]
    return "\r\n".join(lines) + "\r\n\r\n"


def ask(api, sb, *requests, **more):
    """The answers to requests of one connection: (status, fields, body) each."""
    answer = talk(api, sb, list(requests), answers=True, **more)
    assert answer["error"] is None, answer
    return answer["out"]


def told(answer):
    status, _, body = answer
    assert status == 200, answer
    return json.loads(body)


def field(answer, name):
    return [v for k, v in told(answer)["fields"] if k.lower() == name.lower()]


def network(api, sb):
    r = api.get(f"/v1/sandboxes/{sb.id}/network")
    assert r.status_code == 200, r.text
    return r.json()


def last_denial(api, sb):
    d = network(api, sb)["denials"][-1]
    return d["reason"], d["protocol"], d["name"], d["port"], d["rule"]
