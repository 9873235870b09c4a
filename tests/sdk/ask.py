"""
Runs inside of sandboxes: requests by HTTPS, one a word of the command line, as JSON {"url", "headers", "address"}. Sent as the text of
`python3 -c`. Prints a JSON line a request: what the server tells that it saw, with "own" for a certificate of the sandbox's authority, or
{"status", "text"} of another answer, or {"error"}.
"""

import http.client
import json
import socket
import ssl
import sys
import urllib.parse


def connect(host, address, context):
    return context.wrap_socket(socket.create_connection((address, 443), timeout=30), server_hostname=host)


def ask(spec):
    url = urllib.parse.urlsplit(spec["url"])
    address = spec.get("address", url.hostname)
    context = ssl.create_default_context()
    own = True
    try:
        s = connect(url.hostname, address, context)
    except ssl.SSLCertVerificationError:
        # The servers' own authority is unknown in here, as an authority of somebody's own is.
        own = False
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = connect(url.hostname, address, context)
    c = http.client.HTTPSConnection(url.hostname, timeout=30)
    c.sock = s
    c.request("GET", url.path or "/", headers=spec.get("headers", {}))
    r = c.getresponse()
    body = r.read().decode()
    return {"own": own, **(json.loads(body) if r.status == 200 else {"status": r.status, "text": body})}


for word in sys.argv[1:]:
    try:
        out = ask(json.loads(word))
    except (OSError, http.client.HTTPException) as e:
        out = {"error": type(e).__name__}
    print(json.dumps(out))
