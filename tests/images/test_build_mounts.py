"""
RUN --mount: what is there during the step, that nothing of it is in the image, in a key or in a log, and what caches keep.
"""

import threading
import time
import uuid

import pytest

from test_build import begin, build, build_fails, sh

FILES = {"a.txt": b"a", "dir/one": b"1", "dir/deep/two": b"2", "skip.md": b"", ".dockerignore": b"*.md\n"}
ALL = "find / -xdev -path /proc -prune -o -path /sys -prune -o -path /dev -prune -o -path /__modal -prune -o -print | sort | sha256sum"


def said(images, op, word):
    return [line for line in images.log(op) if line.startswith(word)]


def test_bind(images):
    image, op = build(images, """
        FROM base AS other
        RUN mkdir /made && echo made >/made/file && chown 7:8 /made/file
        FROM base
        WORKDIR /work
        RUN --mount=target=/src --mount=type=bind,source=dir,target=here,rw \
            --mount=type=bind,from=other,source=/made,target=/usr/share/made,ro --mount=type=bind,source=a.txt,target=/etc/a.conf \
            echo "said $(ls -A /src | tr '\\n' ' ')/ $(cat here/deep/two) $(cat /usr/share/made/file) $(stat -c %u:%g /usr/share/made/file) $(cat /etc/a.conf)"; \
            echo changed >here/one; echo new >here/new; cp here/one /kept
        """, FILES)
    assert said(images, op, "said") == ["said .dockerignore a.txt dir / 2 made 7:8 a"]
    assert sh(images, image, "cat /kept; ls -A /work /; ls -d /usr/share/made /etc/a.conf 2>&1 | grep -c 'No such'").splitlines()[0] == "changed"
    assert sh(images, image, "ls -A /work; ls -d /src /usr/share/made /etc/a.conf 2>/dev/null; echo end") == "end\n"


def test_what_a_bind_hides_comes_back(images):
    image, op = build(images, """
        FROM base
        RUN mkdir /d && echo below >/d/below && echo x >/d/one
        RUN --mount=source=dir,target=/d ls /d >/list && rm /d/one
        """, FILES)
    assert sh(images, image, "cat /list; cat /d/below /d/one") == "deep\none\nbelow\nx\n"


def test_a_bind_is_in_the_key(images):
    text = "FROM base\nRUN --mount=source=dir,target=/d cat /d/one; cat /proc/sys/kernel/random/uuid >/unique\n"
    first, _ = build(images, text, FILES)
    again, op = build(images, text, {**FILES, "a.txt": b"other"})
    assert op["result"]["cached_steps"] == 1 and again["layers"] == first["layers"]
    other, op = build(images, text, {**FILES, "dir/one": b"other"})
    assert op["result"]["cached_steps"] == 0 and other["layers"] != first["layers"]


def test_secrets_in_files(images, image_daemon):
    value = "s3cr3t-" + uuid.uuid4().hex + "\n with a second line"
    image, op = build(images, """
        FROM base
        RUN useradd -u 1234 someone
        RUN --mount=type=secret,id=KEY cat /run/secrets/KEY | sha256sum >/sum; stat -c '%a %u:%g' /run/secrets/KEY >>/sum
        USER someone
        WORKDIR /tmp
        RUN --mount=type=secret,id=KEY,target=/var/run/deep/in/key,mode=0440,uid=1234,gid=5 --mount=type=secret,id=KEY,env=BOTH \
            test "$(cat /run/deep/in/key)" = "$BOTH" && stat -c '%a %u:%g' /var/run/deep/in/key >/tmp/second; echo $HOME $PWD $(id -u) >>/tmp/second
        RUN --mount=type=secret,id=ABSENT test ! -e /run/secrets/ABSENT
        """, secrets={"KEY": value})
    import hashlib
    out = sh(images, image, "cat /sum /tmp/second; ls -A /run; ls -d /run/secrets 2>/dev/null; echo end")
    want = hashlib.sha256(value.encode()).hexdigest() + "  -\n400 0:0\n440 1234:5\n/home/someone /tmp 1234\n"
    assert out.startswith(want) and "secrets" not in out and "deep" not in out
    # Neither in a layer, nor in a key, nor in a log.
    word = value.split("\n")[0].encode()
    for layer in image["layers"]:
        for path in (image_daemon.data_dir / "layers" / layer).rglob("*"):
            assert not path.is_file() or path.is_symlink() or word not in path.read_bytes()
    assert not any(word.decode() in line for line in images.log(op))
    again, op = build(images, "FROM base\nRUN --mount=type=secret,id=KEY cat /run/secrets/KEY >/dev/null; cat /proc/sys/kernel/random/uuid >/u\n", secrets={"KEY": "1"})
    other, op = build(images, "FROM base\nRUN --mount=type=secret,id=KEY cat /run/secrets/KEY >/dev/null; cat /proc/sys/kernel/random/uuid >/u\n", secrets={"KEY": "2"})
    assert op["result"]["cached_steps"] == 1 and again["layers"] == other["layers"]


def layers_with(images, image, word):
    return [str(path) for layer in image["layers"] for path in (images.daemon.data_dir / "layers" / layer).rglob("*")
            if path.is_file() and not path.is_symlink() and word.encode() in path.read_bytes()]


@pytest.mark.parametrize("before,target,step,out", [
    ("mkdir -p /run/secrets /data && ln -s /data/x /run/secrets/K", "/run/secrets/K", "cat /run/secrets/K; test ! -e /data/x", "ls -A /data; readlink /run/secrets/K"),
    ("mkdir -p /d /e && echo old >/e/x && ln -s ../e/x /d/K", "/d/K", "cat /d/K; cat /e/x", "cat /e/x; readlink /d/K"),
    ("mkdir /d && echo old >/d/x && ln /d/x /d/K", "/d/K", "cat /d/K; cat /d/x", "cat /d/x /d/K"),
    ("mkdir /d && mkfifo /d/K", "/d/K", "cat /d/K", "test -p /d/K && echo fifo"),
    ("mkdir /app && echo 1 >/app/f", "/app/.npmrc", "cat /app/.npmrc; mv /app /srv/app", "ls -A /srv/app"),
    ("mkdir /app && echo 1 >/app/f", "/app/.npmrc", "cat /app/.npmrc; ln /app/.npmrc /app/other", "ls -A /app"),
    ("true", "/new/deep/K", "cat /new/deep/K; mv /new /srv/new", "find /srv"),
    ("ln -s /dev/shm /app", "/app/K", "cat /app/K", "ls -A /dev/shm"),
], ids=["link", "link-to-a-file", "second-name", "fifo", "moved", "named-again", "moved-with-its-directories", "no-layer"])
def test_secrets_stay_in_no_layer(images, before, target, step, out):
    """Whatever an image has put in their place, and wherever the step puts them: not in the image. A link there leads nobody."""
    value = uuid.uuid4().hex
    image, op = build(images, f"FROM base\nRUN {before}\nRUN --mount=type=secret,id=K,target={target} {step}\n", secrets={"K": value}, no_cache=True)
    assert any(value in line for line in images.log(op))
    assert layers_with(images, image, value) == []
    assert value not in sh(images, image, out)


@pytest.mark.parametrize("before,target", [("mkdir -p /d/K", "/d/K"), ("ln -s /proc/self /d", "/d/K"), ("true", "/d/.."), ("true", "/d/K/")])
def test_secrets_that_cannot_be_there(images, before, target):
    """A step that asked for a file does not run without it."""
    op = build_fails(images, f"FROM base\nRUN {before}\nRUN --mount=type=secret,id=K,target={target} echo it-ran\n", "conflict", "line 3", "secret",
                     secrets={"K": "v"})
    assert "it-ran" not in images.log(op)


def test_a_failing_step_with_a_secret(images):
    build_fails(images, "FROM base\nRUN --mount=type=secret,id=K exit 7\n", "conflict", "line 2", "exit code 7", secrets={"K": "v"})
    build_fails(images, "FROM base\nRUN --mount=type=secret,id=K [\"/not/there\"]\n", "executable_not_found", "line 2", secrets={"K": "v"})
    build_fails(images, "FROM base\nRUN --mount=type=secret,id=K sleep 100\n", "timeout", "line 2", secrets={"K": "v"}, step_timeout_s=1)
    build_fails(images, "FROM base\nRUN --mount=type=secret,id=K,required true\n", "invalid_argument", "line 2", "'K'", "required")


def test_tmpfs(images):
    image, op = build(images, """
        FROM base
        RUN mkdir /t && echo x >/t/old
        RUN --mount=type=tmpfs,target=/t,size=10m --mount=type=tmpfs,target=/new/t ls -A /t >/list; stat -c %a /t >>/list; echo y >/t/y; echo z >/new/t/z
        """)
    assert sh(images, image, "cat /list; ls /t; ls -d /new 2>/dev/null; echo end") == "1777\nold\nend\n"


def test_cache(images):
    name = uuid.uuid4().hex
    text = """
        FROM base
        RUN mkdir -p /c && echo image >/c/image
        RUN --mount=type=cache,id=%s,target=%s ls -A %s; stat -c 'mode %%a' %s; echo %s >%s/file-%s; rm -f %s/gone; touch %s/gone; ln -f %s/file-%s %s/link
        """

    def run(target, n):
        return build(images, text % (name, target, target, target, n, target, n, target, target, target, n, target), no_cache=True)

    first, op = run("/c", 1)
    assert "mode 755" in images.log(op) and "image" not in images.log(op)
    assert sh(images, first, "ls -A /c") == "image\n"
    second, op = run("/c", 2)
    assert {"file-1", "gone", "link"} <= set(images.log(op))
    third, op = run("/elsewhere/deep", 3)
    assert {"file-1", "file-2"} <= set(images.log(op))
    assert sh(images, third, "ls -d /elsewhere 2>/dev/null; echo end") == "end\n"
    # What is removed from it stays removed.
    build(images, f"FROM base\nRUN --mount=type=cache,id={name},target=/c rm /c/file-1\n", no_cache=True)
    _, op = build(images, f"FROM base\nRUN --mount=type=cache,id={name},target=/c,readonly ls /c; touch /c/lost\n", no_cache=True)
    assert "file-1" not in images.log(op) and "file-2" in images.log(op)
    _, op = build(images, f"FROM base\nRUN --mount=type=cache,id={name},target=/c ls /c; echo end\n", no_cache=True)
    assert "lost" not in images.log(op)


def test_a_cache_begins_with_a_stage(images):
    name = uuid.uuid4().hex
    text = f"""
        FROM base AS seed
        RUN mkdir /s && echo seed >/s/seed
        FROM base
        RUN --mount=type=cache,id={name},from=seed,source=/s,target=/c,mode=0700,uid=5,gid=6 stat -c '%a %u:%g' /c; ls /c; echo more >/c/more
        """
    _, op = build(images, text, no_cache=True)
    assert "700 5:6" in images.log(op) and "seed" in images.log(op)
    _, op = build(images, text, no_cache=True)
    assert {"seed", "more", "700 5:6"} <= set(images.log(op))


@pytest.mark.parametrize("sharing,want", [("shared", {"a", "b", "seen-a", "seen-b"}), ("locked", {"a", "b", "seen-a", "seen-b"}), ("private", None)])
def test_two_builds_and_one_cache(images, sharing, want):
    name = uuid.uuid4().hex
    text = ("FROM base\nRUN --mount=type=cache,id=%s,target=/c,sharing=%s echo begun; ls /c; sleep 2; echo >/c/%s; cp /c/%s /c/seen-%s; echo ended\n")
    ops = {who: begin(images, text % (name, sharing, who, who, who), no_cache=True).json() for who in "ab"}
    ended = {who: images.wait(op) for who, op in ops.items()}
    assert all(op["state"] == "succeeded" for op in ended.values()), ended
    logs = {who: images.log(op) for who, op in ended.items()}
    _, op = build(images, f"FROM base\nRUN --mount=type=cache,id={name},target=/c ls /c\n", no_cache=True)
    found = {line for line in images.log(op) if line in {"a", "b", "seen-a", "seen-b"}}
    if sharing == "private":
        assert found in ({"a", "seen-a"}, {"b", "seen-b"})
    else:
        assert found == want
    waited = [who for who in "ab" if any("waiting for the cache" in line for line in logs[who])]
    assert len(waited) == (1 if sharing == "locked" else 0)


def test_cancel_while_it_waits_for_a_cache(images):
    name = uuid.uuid4().hex
    text = f"FROM base\nRUN --mount=type=cache,id={name},target=/c,sharing=locked echo begun; sleep 1000\n"
    first = begin(images, text, no_cache=True).json()
    give_up = time.monotonic() + 60
    while "begun" not in images.log(first):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    second = begin(images, text, no_cache=True).json()
    while not any("waiting for the cache" in line for line in images.log(second)):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    for op in (second, first):
        assert images.api.post(f"/v1/operations/{op['id']}/cancel").status_code == 202
        assert images.wait(op)["state"] == "cancelled"


def test_mounts_in_mounts(images):
    name = uuid.uuid4().hex
    text = f"FROM base\nRUN --mount=target=/src --mount=type=cache,id={name},target=/src/node_modules --mount=type=tmpfs,target=/src/tmp echo x >>/src/node_modules/x; wc -l </src/node_modules/x; ls -A /src/tmp; cat /src/a.txt\n"
    build(images, text, FILES, no_cache=True)
    image, op = build(images, text, FILES, no_cache=True)
    assert "2" in images.log(op)
    assert sh(images, image, "ls -d /src 2>/dev/null; echo end") == "end\n"


@pytest.mark.parametrize("mount,words", [
    ("type=ssh", ["ssh"]), ("type=ssh,id=default", ["ssh"]), ("type=volume,target=/x", ["volume"]), ("type=cache", ["no target"]), ("type=tmpfs,target=/", ["root"]),
    ("type=cache,target=/x,sharing=maybe", ["sharing", "maybe"]), ("type=bind,target=/x,nonsense=1", ["nonsense"]),
    ("type=tmpfs,target=/x,id=y", ["'id'"]), ("type=secret", ["no id"]), ("type=cache,target=/x,mode=9", ["mode"]), ("type=cache,target=/x,uid=70000", ["uid"]),
    ("type=secret,id=a,required=perhaps", ["required"]), ("target=/x,from=nowhere", ["nowhere"]),
])
def test_faults(images, mount, words):
    build_fails(images, f"FROM base\nRUN --mount={mount} true\n", "invalid_argument", "line 2", *words)


def test_a_bind_of_nothing(images):
    build_fails(images, "FROM base\nRUN --mount=source=nothing,target=/x true\n", "not_found", "line 2", "'nothing'", files=FILES)
    build_fails(images, "FROM base\nRUN --mount=source=a.txt,target=/usr true\n", "invalid_argument", "line 2", "directory", files=FILES)
    assert images.staged() == []


def test_caches_are_listed_and_removed(images):
    name = "list/" + uuid.uuid4().hex
    text = f"FROM base\nRUN --mount=type=cache,id={name},target=/c ls /c; head -c 5000 /dev/zero >/c/five\n"
    build(images, text, no_cache=True)
    mine = [c for c in images.api.get("/v1/builds/caches").json()["items"] if c["id"] == name]
    assert len(mine) == 1 and mine[0]["size_bytes"] >= 5000 and mine[0]["last_used_at"] > 1e9
    r = images.api.post("/v1/images:gc", json={"unused_s": 3600, "dry_run": True}).json()
    assert name not in [c["id"] for c in r["caches"]]
    r = images.api.post("/v1/images:gc", json={"unused_s": 0, "dry_run": True}).json()
    assert name in [c["id"] for c in r["caches"]]
    at = "/v1/builds/caches/" + name.replace("/", "%2F")
    assert images.api.delete(at).status_code == 204
    assert images.api.delete(at).status_code == 404
    _, op = build(images, text, no_cache=True)
    assert "five" not in images.log(op)
