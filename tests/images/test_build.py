"""
Builds from Dockerfiles: every instruction, stages, the cache, errors that name the line, what a cancelled build leaves.
"""

import io
import tarfile
import textwrap
import time

import pytest

from registry import tar_of


def context(images, files):
    for _ in range(50):
        r = images.api.post("/v1/builds/contexts", content=tar_of(files))
        # The same files just now were another context's, which is being removed: the answer says to try again.
        if r.status_code != 503 or not r.json()["error"]["retryable"]:
            break
        time.sleep(0.1)
    assert r.status_code == 201, r.text
    return r.json()["context"]


def begin(images, dockerfile, files=None, **fields):
    if files is not None:
        fields["context"] = context(images, files)
    return images.api.post("/v1/builds", json={"dockerfile": textwrap.dedent(dockerfile).lstrip("\n"), **fields})


def build(images, dockerfile, files=None, **fields):
    """The image, and the operation that made it."""
    r = begin(images, dockerfile, files, **fields)
    assert r.status_code == 202, r.text
    op = images.wait(r.json())
    assert op["state"] == "succeeded", (op["error"], images.log(op))
    return images.get(op["image"]), op


def build_fails(images, dockerfile, code, *words, files=None, **fields):
    r = begin(images, dockerfile, files, **fields)
    assert r.status_code == 202, r.text
    op = images.wait(r.json())
    assert op["state"] == "failed", op
    assert op["error"]["code"] == code, op["error"]
    for word in words:
        assert word in op["error"]["message"], op["error"]
    return op


def refused(images, dockerfile, *words):
    r = begin(images, dockerfile)
    assert r.status_code == 400, r.text
    assert r.json()["error"]["param"] == "dockerfile"
    for word in words:
        assert word in r.json()["error"]["message"], r.text


def sh(images, image, script):
    with images.api.sandbox(image=image["id"]) as sb:
        r = images.api.run(sb, ["/bin/sh", "-c", script])
        assert r["exec"]["exit"]["code"] == 0, r
        return r["stdout"]


def test_run_writes_a_layer(images):
    image, op = build(images, """
        FROM base
        RUN echo one >/one && mkdir -p /d/sub && chmod 700 /d && rm /etc/issue
        RUN echo two >/two; echo said; echo errored >&2
        """)
    assert sh(images, image, "cat /one /two; stat -c %a /d; test ! -e /etc/issue && echo gone") == "one\ntwo\n700\ngone\n"
    base = images.get("base")
    assert image["layers"][2:] == base["layers"] and len(image["layers"]) == len(base["layers"]) + 2
    log = images.log(op)
    assert "said" in log and "errored" in log


def test_the_cache(images):
    text = """
        FROM base
        ARG WHAT=x
        RUN echo $WHAT; cat /proc/sys/kernel/random/uuid >/unique
        RUN cp /unique /copy
        """
    first, _ = build(images, text)
    second, op = build(images, text)
    assert second["id"] != first["id"] and second["layers"] == first["layers"]
    assert op["result"]["cached_steps"] == 2
    third, op = build(images, text, args={"WHAT": "y"})
    assert third["layers"] != first["layers"] and op["result"]["cached_steps"] == 0
    fourth, op = build(images, text, no_cache=True)
    assert fourth["layers"] != first["layers"] and op["result"]["cached_steps"] == 0


def test_configuration(images):
    image, _ = build(images, r"""
        FROM base
        ENV A=1 B="two words"
        ENV C=$A-x A=2 D=$A
        ENV OLD the old form
        LABEL a=b "c d"='e f'
        EXPOSE 80 53/udp
        VOLUME /data
        STOPSIGNAL SIGINT
        WORKDIR /srv
        WORKDIR sub
        USER 1000:1000
        HEALTHCHECK --interval=5s --retries=2 CMD test -e /x
        ONBUILD RUN echo hello
        SHELL ["/bin/bash", "-c"]
        ENTRYPOINT ["tool", "arg"]
        CMD run $HOME
        """, labels={"given": "label"})
    config = image["config"]["config"]
    assert {k: v for k, v in image["env"].items() if k != "PATH"} == {"A": "2", "B": "two words", "C": "1-x", "D": "1",
                                                                            "OLD": "the old form"}
    assert config["Labels"] == {"a": "b", "c d": "e f", "given": "label"}
    assert config["ExposedPorts"] == {"80/tcp": {}, "53/udp": {}}
    assert config["Volumes"] == {"/data": {}}
    assert (config["StopSignal"], config["WorkingDir"], config["User"]) == ("SIGINT", "/srv/sub", "1000:1000")
    assert config["Healthcheck"] == {"Interval": 5000000000, "Retries": 2, "Test": ["CMD-SHELL", "test -e /x"]}
    assert config["OnBuild"] == ["RUN echo hello"]
    assert config["Entrypoint"] == ["tool", "arg"]
    assert config["Cmd"] == ["/bin/bash", "-c", "run $HOME"]
    assert (image["workdir"], image["user"]) == ("/srv/sub", "1000:1000")
    with images.box(image["id"]) as box:
        assert box.stat("/srv/sub")["type"] == "directory"


def test_copy(images):
    files = {"a.txt": b"a", "b.txt": b"b", "dir/c": b"c", "dir/deep/d": b"d", "dir/link": ("link", "c"), "skip/me": b"no",
             "skip/keep": b"yes", "run.sh": b"#!/bin/sh\necho ran\n", ".dockerignore": b"# comment\nskip\n!skip/keep\n*.md\n", "x.md": b""}
    image, _ = build(images, """
        FROM base
        COPY a.txt /one
        COPY *.txt /texts/
        COPY dir /copied
        COPY --chown=1000:1001 --chmod=640 b.txt /owned/b
        COPY . /all
        WORKDIR /w
        COPY a.txt .
        COPY ["b.txt", "name with blank"]
        COPY --chmod=755 run.sh /bin/run
        RUN run >/ran
        """, files)
    out = sh(images, image, """
        cat /one; ls /texts; cat /copied/deep/d; readlink /copied/link; stat -c '%u:%g %a' /owned/b /owned; ls /all /all/skip; ls /w; cat /ran
        stat -c '%u:%g %a' /usr /tmp /copied""")
    assert out == ("aa.txt\nb.txt\ndc\n1000:1001 640\n1000:1001 755\n/all:\na.txt\nb.txt\ndir\nrun.sh\nskip\n\n/all/skip:\nkeep\n"
                   "a.txt\nname with blank\nran\n0:0 755\n0:0 1777\n0:0 755\n")
    again, _ = build(images, "FROM base\nCOPY a.txt /one\n", {"a.txt": b"a"})
    other, _ = build(images, "FROM base\nCOPY a.txt /one\n", {"a.txt": b"a", "more": b""})
    assert again["layers"] == other["layers"]


def test_stages(images):
    image, op = build(images, """
        ARG BASE=base
        FROM $BASE AS builder
        RUN mkdir /out && echo built >/out/file && chown 7:8 /out/file
        FROM base AS unused
        RUN false
        FROM scratch
        COPY --from=builder /out /
        COPY --from=0 /out/file /again
        """)
    assert op["result"]["steps"] == 5
    with images.box(image["id"]) as box:
        assert box.read("/file") == b"built\n" and box.read("/again") == b"built\n"
        assert (box.stat("/file")["uid"], box.stat("/file")["gid"]) == (7, 8)
    target, _ = build(images, "FROM base AS one\nRUN echo 1 >/x\nFROM base AS two\nRUN false\n", target="one", name="built/target:1")
    assert target["names"] == ["built/target:1"]
    from_built, _ = build(images, "FROM built/target:1\nRUN cat /x >/y\n")
    assert sh(images, from_built, "cat /y") == "1\n"


def test_heredocs_and_escapes(images):
    image, _ = build(images, r'''
        # syntax=docker/dockerfile:1
        # escape=`
        FROM base
        RUN <<EOF
        set -e
        echo "$HOME" >/first
        echo second \
          >/second
        EOF
        RUN cat <<'ONE' >/one && cat <<-TWO >/two
        raw $HOME
        ONE
        	stripped
        	TWO
        ENV NAME=world
        COPY <<FILE <<"RAW" /files/
        hello $NAME
        FILE
        hello $NAME
        RAW
        RUN <<EOF
        #!/usr/bin/env bash
        echo ${BASH_VERSION:+bash} >/shebang
        EOF
        ''')
    assert sh(images, image, "cat /first /second /one /two /files/FILE /files/RAW /shebang") == (
        "/root\nsecond\nraw $HOME\nstripped\nhello world\nhello $NAME\nbash\n")


@pytest.mark.parametrize("text,value", [
    ("$X", "val"), ("${X}", "val"), ("${X:-d}", "val"), ("${N:-d}", "d"), ("${E:-d}", "d"), ("${E-d}", ""), ("${N-d}", "d"),
    ("${X:+alt}", "alt"), ("${N:+alt}", ""), ("${E+alt}", "alt"), ("${X#v}", "al"), ("${P##*/}", "file.tar.gz"), ("${P%%.*}", "/a/file"),
    ("${P%.*}", "/a/file.tar"), ("${P/a/b}", "/b/file.tar.gz"), ("${P//a/b}", "/b/file.tbr.gz"), (r"\$X", "$X"), ("'$X'", "$X"),
    ('"$X y"', "val y"), ("a${X}b", "avalb"), ("${N:-${X}}", "val"), ("$", "$"),
])
def test_expansion(images, text, value):
    image, _ = build(images, f"FROM scratch\nENV X=val E= P=/a/file.tar.gz\nENV R={text}\n")
    assert image["env"]["R"] == value


def test_add_unpacks_archives(images):
    inner = tar_of({"in/file": b"inner"})
    image, _ = build(images, """
        FROM scratch
        ADD a.tar /here
        ADD a.tar.gz /there/
        COPY a.tar /plain
        ADD text.gz /text.gz
        """, {"a.tar": inner, "a.tar.gz": gz(inner), "text.gz": gz(b"just text")})
    with images.box(image["id"]) as box:
        assert box.read("/here/in/file") == b"inner" and box.read("/there/in/file") == b"inner"
        assert box.read("/plain") == inner and box.read("/text.gz") == gz(b"just text")


def gz(data):
    import gzip
    return gzip.compress(data, mtime=0)


def test_onbuild(images):
    build(images, "FROM base\nONBUILD RUN echo triggered >/trigger\n", name="with-trigger")
    image, _ = build(images, "FROM with-trigger\nRUN cat /trigger >/seen\n")
    assert sh(images, image, "cat /seen") == "triggered\n"
    assert "OnBuild" not in image["config"]["config"]


def test_secrets_are_in_no_layer(images):
    image, op = build(images, """
        FROM base
        RUN --mount=type=secret,id=KEY,env=TOKEN test ${#TOKEN} = 6 && echo yes >/seen
        RUN test ${#KEY} = 0 && test ${#TOKEN} = 0
        """, secrets={"KEY": "s3cr3t"})
    assert "KEY" not in image["env"]
    assert sh(images, image, "cat /seen") == "yes\n"
    assert not any("s3cr3t" in line for line in images.log(op))


def test_faults_of_the_text(images):
    refused(images, "FROM base\nRUN echo\nNONSENSE x\n", "line 3, column 1", "NONSENSE")
    refused(images, "RUN echo\n", "line 1", "FROM")
    refused(images, "# nothing\n", "no FROM")
    refused(images, "FROM base\nRUN <<EOF\necho\n", "line 2", "EOF")
    refused(images, "FROM base AS\n", "line 1")
    refused(images, "FROM base\nCOPY\n", "line 2, column 5")
    refused(images, "FROM base\nRUN -- y\n", "line 2")
    refused(images, "# escape=x\nFROM base\n", "line 1")


def test_faults_of_steps(images):
    build_fails(images, "FROM base\nRUN echo before; exit 3\n", "conflict", "line 2", "exit code 3")
    build_fails(images, "FROM base\nCOPY nothing /\n", "not_found", "line 2", "'nothing'", files={"a": b""})
    build_fails(images, "FROM base\nCOPY *.x /\n", "not_found", "'*.x'", files={"a": b""})
    build_fails(images, "FROM base\nCOPY --from=later a /\nFROM base AS later\n", "invalid_argument", "later", target="0")
    build_fails(images, "FROM base\nCOPY --nonsense a /\n", "invalid_argument", "--nonsense", files={"a": b""})
    build_fails(images, "FROM base\nENV A=${B:?not there}\n", "invalid_argument", "not there")
    build_fails(images, "FROM base\nCOPY --chown=nobody-here a /\n", "not_found", "nobody-here", files={"a": b""})
    build_fails(images, "FROM scratch\nRUN x\n", "invalid_argument", "line 2")
    build_fails(images, "FROM base\nRUN sleep 100\n", "timeout", "line 2", step_timeout_s=1)
    assert images.staged() == []


def test_cancel_of_a_copy(images, image_daemon):
    r = begin(images, "FROM base AS a\nRUN truncate -s 512M /big\nFROM base\nCOPY --from=a /big /again\nRUN sleep 1000\n")
    op = r.json()
    give_up = time.monotonic() + 120
    while not any("COPY --from" in line for line in images.log(op)):
        assert time.monotonic() < give_up
        time.sleep(0.02)
    failed = image_daemon.log.read_text().count("image.failed")
    assert images.api.post(f"/v1/operations/{op['id']}/cancel").status_code == 202
    assert images.wait(op)["state"] == "cancelled"
    # The job does not go on for nobody, and leaves nothing.
    give_up = time.monotonic() + 60
    while image_daemon.log.read_text().count("image.failed") == failed or images.staged() != []:
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_cancel(images):
    r = begin(images, "FROM base\nRUN echo started; sleep 1000\n")
    op = r.json()
    give_up = time.monotonic() + 60
    while "started" not in images.log(op):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    assert images.api.post(f"/v1/operations/{op['id']}/cancel").status_code == 202
    op = images.wait(op)
    assert op["state"] == "cancelled"
    assert images.api.post(f"/v1/operations/{op['id']}/cancel").status_code == 409
    live = images.api.get("/v1/sandboxes", params={"app": "builds", "state": "any"}).json()["items"]
    assert live == []


def test_many_steps(images):
    image, _ = build(images, "FROM base\n" + "".join(f"RUN echo {i} >/f{i % 7}; echo {i} >>/all\n" for i in range(45)))
    assert sh(images, image, "cat /f0 /f1; wc -l </all") == "42\n43\n45\n"
    assert len(image["layers"]) <= 40


def test_sandboxes_under_any_user_and_directory(images):
    """UR-095: commands and files work whatever user and working directory the image names; arguments of the build are not inside."""
    image, _ = build(images, """
        FROM base
        ARG BUILD_ONLY=x
        ENV KEPT=y
        RUN mkdir -p /home/me && chown 1001:1001 /home/me
        USER 1001
        ENV DIR=/home/me/deep
        WORKDIR $DIR/er
        RUN touch mine && id -u >who
        """)
    out = sh(images, image, "pwd; id -u; cat who; stat -c %u mine .; echo ${BUILD_ONLY:-unset} $KEPT; touch new && echo may")
    assert out == "/home/me/deep/er\n1001\n1001\n1001\n1001\nunset y\nmay\n"
    with images.box(image["id"]) as box:
        assert box.read("/home/me/deep/er/who") == b"1001\n" and box.names("/home/me/deep/er") == ["mine", "who"]
