# Server-sent events and answers that take their time: each piece when it was sent, none together with the next.
import http.client
import ssl
import sys
import time
import urllib.request

seconds = sys.argv[1] if len(sys.argv) > 1 else "1"
for base in ("https://www.farm.test", "http://www.farm.test"):
    came = []
    with urllib.request.urlopen(base + "/app/events") as r:
        assert r.headers["content-type"] == "text/event-stream"
        for line in r:
            if line.startswith(b"data: "):
                came.append((time.monotonic(), float(line[6:])))
    assert len(came) == 5
    for (a, sent_a), (b, sent_b) in zip(came, came[1:]):
        assert b - a > (sent_b - sent_a) / 2, came

context = ssl.create_default_context()
for make in (lambda: http.client.HTTPSConnection("www.farm.test", context=context), lambda: http.client.HTTPConnection("www.farm.test")):
    c = make()
    for _ in range(2):
        c.request("GET", f"/app/poll?s={seconds}")
        assert c.getresponse().read() == b"done\n"
        port = c.sock.getsockname()[1]
        # And the connection is silent for as long, then used again.
        time.sleep(float(seconds))
    c.request("GET", "/small")
    assert c.getresponse().read() == b"small\n"
    assert c.sock.getsockname()[1] == port
    c.close()
