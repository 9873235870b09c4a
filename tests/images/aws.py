"""
A stand-in for the service of AWS that gives out passwords for registries of ECR. It checks the signature of a request by itself, from
the description of Signature Version 4, and knows access keys, their session tokens and what may be wrong with them.
"""

import base64
import contextlib
import datetime
import hashlib
import hmac
import http.server
import json
import re
import threading
import time

TARGET = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(secret, day, region, service, text):
    key = ("AWS4" + secret).encode()
    for part in (day, region, service, "aws4_request"):
        key = mac(key, part)
    return mac(key, text).hex()


class Aws:
    def __init__(self, port, password="issued-password"):
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}/"
        self.password = password
        self.reset()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                with contextlib.suppress(ConnectionError):
                    outer.handle(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self):
        self.keys = {"AKIAEXAMPLE": "secret/of+the=key"}
        self.sessions = {}              # access key id -> the token that it must come with
        self.expired = set()            # session tokens
        self.answer = None              # (status, bytes) instead
        self.answers = []               # the same, one request each
        self.expires_in_s = 12 * 3600
        self.requests = []
        self.regions = []

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def refuse(self, kind, message):
        return 400, json.dumps({"__type": "com.amazon.coral.service#" + kind, "message": message}).encode()

    def judge(self, rq, body):
        h = {k.lower(): " ".join(v.split()) for k, v in rq.headers.items()}
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, ?"
                             r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})", h.get("authorization", ""))
        if not found:
            return self.refuse("MissingAuthenticationTokenException", "Missing Authentication Token")
        key, day, region, service, signed, given = found.groups()
        names = signed.split(";")
        if names != sorted(names) or "host" not in names or "x-amz-date" not in names or "x-amz-target" not in names:
            return self.refuse("IncompleteSignatureException", "SignedHeaders: " + signed)
        if "x-amz-security-token" in h and "x-amz-security-token" not in names:
            return self.refuse("InvalidSignatureException", "x-amz-security-token must be signed")
        at = datetime.datetime.strptime(h["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC).timestamp()
        if not h["x-amz-date"].startswith(day) or abs(at - time.time()) > 900 or service != "ecr":
            return self.refuse("InvalidSignatureException", "Signature expired: " + h["x-amz-date"])
        if key not in self.keys or h.get("x-amz-security-token") != self.sessions.get(key):
            return self.refuse("UnrecognizedClientException", f"The security token {key} included in the request is invalid.")
        canonical = "\n".join([rq.command, rq.path, "", *(f"{n}:{h[n]}" for n in names), "", signed, hashlib.sha256(body).hexdigest()])
        text = "\n".join(["AWS4-HMAC-SHA256", h["x-amz-date"], f"{day}/{region}/{service}/aws4_request",
                          hashlib.sha256(canonical.encode()).hexdigest()])
        if not hmac.compare_digest(signature(self.keys[key], day, region, service, text), given):
            return self.refuse("InvalidSignatureException", "The Canonical String should have been\n" + canonical)
        if h.get("x-amz-security-token") in self.expired:
            return self.refuse("ExpiredTokenException", "The security token included in the request is expired")
        if h["x-amz-target"] != TARGET or json.loads(body) != {} or h["content-type"] != "application/x-amz-json-1.1":
            return self.refuse("InvalidParameterException", "not this operation")
        self.regions.append(region)
        token = base64.b64encode(f"AWS:{self.password}".encode()).decode()
        return 200, json.dumps({"authorizationData": [{"authorizationToken": token, "expiresAt": time.time() + self.expires_in_s,
                                                       "proxyEndpoint": "https://012345678901.dkr.ecr.eu-west-1.amazonaws.com"}]}).encode()

    def handle(self, rq):
        body = rq.rfile.read(int(rq.headers.get("content-length", 0)))
        self.requests.append(dict(rq.headers))
        status, answer = self.judge(rq, body)
        if self.answers:
            status, answer = self.answers.pop(0)
        elif self.answer is not None:
            status, answer = self.answer
        rq.send_response(status)
        rq.send_header("content-type", "application/x-amz-json-1.1")
        rq.send_header("content-length", str(len(answer)))
        rq.end_headers()
        rq.wfile.write(answer)
