"""
Builds that go wrong: what the error says, where, and that nothing is left; builds and the end of the daemon.
"""

import concurrent.futures
import time
import uuid

import pytest

from test_build import begin, build, build_fails, refused, sh


def live(images):
    return images.api.get("/v1/sandboxes", params={"app": "builds", "state": "any"}).json()["items"]


@pytest.mark.parametrize("text,words", [
    ("FROM base\nRUN echo\nNONSENSE x\n", ["line 3, column 1", "NONSENSE"]),
    ("FROM base\n\n\n  CPOY a b\n", ["line 4", "CPOY"]),
    ("FROM base\nRUN --mount\n", ["line 2"]),
    ("FROM base\nRUN cat <<EOF\nnever ends\n", ["line 2", "EOF"]),
    ("FROM\n", ["line 1", "FROM"]),
    ("FROM base extra\n", ["line 1"]),
    ("FROM base AS 1two\n", ["line 1", "1two"]),
    ("ARG A\nENV A=1\n", ["line 2", "FROM"]),
    ("FROM base\nEXPOSE\n", ["line 2, column 7"]),
    ("FROM base\nONBUILD ONBUILD RUN x\n", ["line 2, column 9", "ONBUILD cannot follow"]),
    ("FROM base\n ONBUILD  from x\n", ["line 2, column 10", "FROM cannot follow"]),
    ("FROM base\nONBUILD NONSENSE\n", ["line 2, column 9", "'NONSENSE'"]),
    ("FROM base\nUSER\n", ["line 2, column 5"]), ("FROM base\nWORKDIR  \n", ["line 2", "WORKDIR"]), ("FROM base\nRUN\n", ["line 2, column 4"]),
    ("", ["dockerfile"]),
])
def test_texts_that_are_none(images, text, words):
    refused(images, text, *words)


@pytest.mark.parametrize("line,code,words", [
    ("COPY a\n", "invalid_argument", ["source and a destination"]),
    ("COPY a b c\n", "not_found", ["'a'"]),
    ("COPY ../up /\n", "not_found", ["'../up'"]),
    ("COPY --from=nowhere a /\n", "invalid_argument", ["nowhere"]),
    ("COPY --chmod=999 a /\n", "invalid_argument", ["--chmod", "999"]),
    ("ADD --checksum=sha256:00 https://example.com/x /x\n", "invalid_argument", ["--checksum"]),
    ("RUN --nonsense true\n", "invalid_argument", ["--nonsense"]),
    ("ENV novalue\n", "invalid_argument", ["novalue"]),
    ("ENV A=\"unclosed\n", "invalid_argument", ["quote"]),
    ("ENV A=${B\n", "invalid_argument", ["does not end"]),
    ("LABEL =x\n", "invalid_argument", ["empty"]),
    ("EXPOSE 70000\n", "invalid_argument", ["70000"]),
    ("EXPOSE 80/xyz\n", "invalid_argument", ["xyz"]),
    ("SHELL /bin/sh\n", "invalid_argument", ["exec form"]),
    ("HEALTHCHECK --interval=soon CMD x\n", "invalid_argument", ["--interval", "soon"]),
    ("HEALTHCHECK CMD\n", "invalid_argument", ["CMD needs a command"]), ("HEALTHCHECK CMD []\n", "invalid_argument", ["CMD needs a command"]),
    ("HEALTHCHECK --retries=many CMD x\n", "invalid_argument", ["--retries", "many"]), ("HEALTHCHECK --nonsense CMD x\n", "invalid_argument", ["--nonsense"]),
    ("STOPSIGNAL nonsense\n", "invalid_argument", ["'nonsense' is no signal"]), ("STOPSIGNAL 65\n", "invalid_argument", ["'65' is no signal"]),
    ("COPY --link=maybe x /\n", "invalid_argument", ["--link", "maybe"]), ("COPY --chown=70000 x /\n", "invalid_argument", ["70000", "65535"]),
    ("COPY --chown=0:123456 x /\n", "invalid_argument", ["123456", "65535"]), ("COPY --from= a /\n", "invalid_argument", ["--from"]),
    ("COPY x /etc/passwd/y\n", "invalid_argument", ["not a directory"]), ("COPY x $UNSET\n", "invalid_argument", ["destination is empty"]),
    ("SHELL []\n", "invalid_argument", ["exec form"]), ("RUN [\"\"]\n", "invalid_argument", ["program"]), ("EXPOSE 80:80\n", "invalid_argument", ["80:80"]),
    ("HEALTHCHECK nothing\n", "invalid_argument", ["CMD or NONE"]),
    ("USER nobody-here\nRUN true\n", "", ["no such user"]),
    ("RUN [\"/not/there\"]\n", "executable_not_found", ["/not/there"]),
    ("RUN false | true\nRUN exit 3\n", "conflict", ["line 3", "exit code 3"]),
    ("RUN kill -9 $$\n", "conflict", ["signal 9"]),
])
def test_steps_that_fail(images, line, code, words):
    r = begin(images, "FROM base\n" + line, files={"x": b"x"})
    assert r.status_code == 202, r.text
    op = images.wait(r.json())
    assert op["state"] == "failed", op
    assert op["error"]["code"] == code or not code, op["error"]
    for word in ["line ", *words]:
        assert word in op["error"]["message"], op["error"]
    assert images.log(op)[-1].startswith("failed: line "), images.log(op)


def test_an_unknown_target(images):
    r = begin(images, "FROM base AS one\n", target="two")
    assert r.status_code == 404 and r.json()["error"]["param"] == "target" and "'two'" in r.text


@pytest.mark.parametrize("step,fields", [
    ("RUN exit 1", {}), ("RUN sleep 1000", {"step_timeout_s": 1}), ("RUN (sleep 1000 &) ; while :; do :; done", {"step_timeout_s": 1}),
    ("RUN cat /dev/zero >/big", {"disk_mb": 64}), ("COPY nothing /", {}), ("COPY --from=nowhere a /", {}), ("RUN kill -9 1; kill -9 -1", {}),
], ids=["fails", "never-ends", "never-ends-in-the-background", "fills-the-disk", "copies-nothing", "no-such-stage", "kills-everything"])
def test_what_was_built_before_a_fault_is_known(images, step, fields):
    """Whatever ends the step: nothing of it is left, what came before it is whole, and the next build takes it from the cache."""
    start = f"FROM base\nENV X={uuid.uuid4().hex}\nRUN head -c 5000 /dev/zero >/kept && cat /proc/sys/kernel/random/uuid >>/kept\nCOPY f /\n"
    before = {i["id"] for i in images.api.get("/v1/images", params={"limit": 1000}).json()["items"]}
    files = {"f": b"of the context"}
    r = begin(images, start + step + "\n", files, **fields)
    assert r.status_code == 202, r.text
    op = images.wait(r.json())
    assert op["state"] == "failed" and "line 5" in op["error"]["message"], op
    assert live(images) == [] and images.staged() == []
    assert {i["id"] for i in images.api.get("/v1/images", params={"limit": 1000}).json()["items"]} == before
    image, op = build(images, start + "RUN cp /kept /copied\n", files)
    assert op["result"]["cached_steps"] == 1
    r = images.api.post(f"/v1/images/{image['id']}/verify", json={})
    assert r.status_code == 200 and r.json()["whole"] is True, r.text
    assert sh(images, image, "cmp /kept /copied && wc -c </kept; cat /f") == "5037\nof the context"


def test_a_full_disk(images):
    op = build_fails(images, "FROM base\nRUN dd if=/dev/zero of=/big bs=1M count=200\n", "conflict", "line 2", "exit code 1", disk_mb=64)
    assert any("No space left" in line or "quota" in line.lower() for line in images.log(op)), images.log(op)
    assert live(images) == [] and images.staged() == []


def test_too_little_memory(images):
    build_fails(images, "FROM base\nRUN python3 -c 'x = bytearray(300 << 20)'\n", "conflict", "line 2", "oom", memory_mb=64)
    assert live(images) == []


@pytest.mark.long
def test_a_flood_keeps_its_end(images):
    """UR-098: what is left out is said, by the sandbox that keeps so much or by the log, and the end is there."""
    op = build_fails(images, "FROM base\nRUN yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -n 1200000; echo the end; exit 4\n",
                     "conflict", "exit code 4")
    lines, after = [], 0
    while True:
        r = images.api.get(f"/v1/operations/{op['id']}/log", params={"after": after, "limit": 1000}).json()
        if not r["items"]:
            break
        lines += [line["text"] for line in r["items"]]
        after = r["items"][-1]["seq"]
    assert len(lines) < 1200000 and lines[0].startswith("step 1/")
    assert lines[-2] == "the end" and lines[-1].startswith("failed: "), lines[-3:]
    assert any("left out" in line for line in lines)


def test_the_same_build_at_once(images):
    text = f"FROM base\nENV X={uuid.uuid4().hex}\nRUN cat /proc/sys/kernel/random/uuid >/unique; sleep 1\n"
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: build(images, text), range(3)))
    # Whoever came while the first ran made its own; what is known afterwards is one of them.
    again, op = build(images, text)
    assert op["result"]["cached_steps"] == 1
    assert again["layers"] in [image["layers"] for image, _ in results]


def test_progress_and_sizes(images):
    op = begin(images, f"FROM base\nENV X={uuid.uuid4().hex}\nRUN dd if=/dev/zero of=/k bs=1k count=300 2>/dev/null\nRUN echo waiting; sleep 2\n").json()
    give_up = time.monotonic() + 60
    while "waiting" not in images.log(op):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    seen = images.api.get(f"/v1/operations/{op['id']}").json()["progress"]
    assert (seen["step"], seen["steps"], seen["cached_steps"]) == (4, 4, 0)
    op = images.wait(op)
    steps = {layer["step"]: layer for layer in op["result"]["layers"]}
    assert steps[3]["bytes"] >= 300 * 1024 and steps[3]["cached"] is False
    assert op["result"]["steps"] == 4 and op["result"]["builder"]


def test_a_build_and_the_end_of_the_daemon(make_daemon):
    """The operation says what happened, nothing of the step is left, and the next build goes on where it broke off."""
    from helpers import Images
    daemon = make_daemon()
    images = Images(daemon)
    text = "FROM base\nRUN cat /proc/sys/kernel/random/uuid >/unique\nRUN --mount=type=tmpfs,target=/t echo begun; sleep %d\n"
    op = begin(images, text % 1000).json()
    give_up = time.monotonic() + 60
    while "begun" not in images.log(op):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    daemon.kill_role("control")
    give_up = time.monotonic() + 60
    while True:
        try:
            r = images.api.get(f"/v1/operations/{op['id']}").json()
            if r["state"] != "running":
                break
        except Exception:
            pass
        assert time.monotonic() < give_up
        time.sleep(0.2)
    assert r["state"] == "failed" and "restart" in r["error"]["message"], r
    while live(images) or any(i["source"] == "(a step of a build)" for i in images.api.get("/v1/images").json()["items"]):
        assert time.monotonic() < give_up
        time.sleep(0.2)
    _, op = build(images, text % 0)
    assert op["result"]["cached_steps"] == 1
