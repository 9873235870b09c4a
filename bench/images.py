#!/usr/bin/python3
"""
The images' benchmarks: pull and unpack beside Debian's skopeo and umoci, first commands from a cold, a warm and a smaller image, and a build of
thirty steps that are all known beside Debian's buildah, in one run.

    bench/images.py BUILD RESULTS.json      (bench/run does so)

Debian's docker-registry on loopback serves a Debian root file system in five layers. Rounds are interleaved; what is compared is the median of
ratios within rounds. Adds its rows to RESULTS.json, if it is there. QUICK=1: fewer rounds.
"""

import gzip
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP / "tests/system"), str(TOP / "tests/images")]

import helpers  # noqa: E402
import qsdaemon  # noqa: E402
import registry as registries  # noqa: E402

registries.Image.FORMS["fast"] = (lambda b: gzip.compress(b, 1, mtime=0), registries.Image.FORMS["gzip"][1])
QUICK = bool(os.environ.get("QUICK"))
ROUNDS = 3 if QUICK else 7
rows = []


def add_row(name, samples, gates):
    """`samples`: milliseconds by contender; `gates`: (contender, peer, least or None), how many times faster than the peer."""
    row = {"name": name, "ok": True, "runs": len(next(iter(samples.values()))), "failures": 0, "unit_u": None, "gate_met": True,
           "value": {f"{who}_ms": statistics.median(v) for who, v in samples.items()}, "ratio": {}, "gate": {}}
    for who, peer, least in gates:
        ratio = statistics.median(b / a for a, b in zip(samples[who], samples[peer], strict=True))
        row["ratio"][f"{who}/{peer}"] = ratio
        if least is not None:
            row["gate"][f"{who}/{peer}_min"] = least
            row["gate_met"] = row["gate_met"] and ratio >= least
    rows.append(row)
    print(f"{name:22} " + "  ".join(f"{w} {statistics.median(v):.1f}" for w, v in samples.items()) + " ms")
    print(" " * 23 + "  ".join(f"{k} {v:.3f}" for k, v in row["ratio"].items()) + ("" if row["gate_met"] else "   GATE NOT MET"), flush=True)


def timed(fn):
    t = time.monotonic()
    fn()
    return (time.monotonic() - t) * 1000


def run(*argv, **kwargs):
    subprocess.run([str(a) for a in argv], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **kwargs)


def make_image():
    """A Debian, and four layers as programs come: many files of text and a few of noise."""
    noise = random.Random(1)
    words = [noise.randbytes(6).hex() for _ in range(2000)]
    layers = [pathlib.Path(qsdaemon.base_tar()).read_bytes()]
    for i in range(4):
        files = {f"opt/part{i}/lib{k}.py": (" ".join(noise.choices(words, k=1500)) + "\n").encode() for k in range(700)}
        files |= {f"opt/part{i}/blob{k}": noise.randbytes(4_000_000) for k in range(2)}
        layers.append(registries.tar_of(files))
    return registries.Image(layers, "fast")


class Ours:
    def __init__(self, daemon, ref):
        self.images, self.api, self.ref, self.layers = helpers.Images(daemon), daemon.api, ref, daemon.data_dir / "layers"

    def forget(self, image):
        assert self.api.delete(f"/v1/images/{image['id']}").status_code == 204
        give_up = time.monotonic() + 120
        while any((self.layers / layer).exists() for layer in image["layers"]):
            assert time.monotonic() < give_up, "layers of a removed image stay"
            time.sleep(0.02)

    def pull(self):
        self.image = self.images.pull(self.ref)

    def build(self, name, dockerfile, files):
        r = self.api.post("/v1/builds/contexts", content=registries.tar_of(files), timeout=600)
        assert r.status_code == 201, r.text
        r = self.api.post("/v1/builds", json={"dockerfile": dockerfile, "name": name, "context": r.json()["context"]})
        assert r.status_code == 202, r.text
        op = self.images.wait(r.json())
        assert op["state"] == "succeeded", op

    def first_command(self, image):
        with self.api.sandbox(image=image) as sb:
            done = self.api.run(sb, ["echo", "x"])
            assert done["stdout"] == "x\n", done


def pulls(ours, home):
    def peer():
        run("skopeo", "copy", "-q", "--src-tls-verify=false", f"docker://{ours.ref}", f"oci:{home}/oci:x")
        run("umoci", "unpack", "--image", f"{home}/oci:x", f"{home}/bundle", stderr=subprocess.DEVNULL)

    pull = {"quicksand": [], "skopeo+umoci": []}
    first = {"cold": [], "warm": [], "small": []}
    # The same files under another name: with a layer in common, a pull would not be from nothing.
    r = ours.api.post("/v1/images", params={"name": "small"}, content=pathlib.Path(qsdaemon.base_tar()).read_bytes() + bytes(512), timeout=600)
    assert r.status_code == 201, r.text
    for i in range(ROUNDS + 1):
        turn = {"quicksand": timed(ours.pull)}
        turn["cold"] = timed(lambda: ours.first_command(ours.image["id"]))
        turn["warm"] = timed(lambda: ours.first_command(ours.image["id"]))
        turn["small"] = timed(lambda: ours.first_command("small"))
        turn["skopeo+umoci"] = timed(peer)
        for part in ("oci", "bundle"):
            shutil.rmtree(home / part)
        ours.forget(ours.image)
        if i > 0:                       # the first round warms up
            for samples in (pull, first):
                for who, v in samples.items():
                    v.append(turn[who])
    add_row("image-pull", pull, [("quicksand", "skopeo+umoci", 1.0)])
    add_row("image-first-command", first, [("cold", "warm", None), ("warm", "small", None)])


def starts(ours):
    """A sandbox of an image fifty times as large as another, with as many layers."""
    noise = random.Random(2)
    sizes = {"10-mib": 10 << 20, "500-mib": 500 << 20}
    for name, size in sizes.items():
        block = noise.randbytes(1 << 20)
        files = {f"opt/data{i}": block for i in range(size >> 20)}
        ours.build(f"of-{name}", "FROM small\nCOPY . /\n", files)
    samples = {name: [] for name in sizes}
    for i in range(ROUNDS * 4 + 1):
        for name in sizes:
            took = timed(lambda n=name: ours.first_command(f"of-{n}"))
            if i > 0:
                samples[name].append(took)
    add_row("image-size-start", samples, [("500-mib", "10-mib", 0.9)])


STEPS = ["FROM small", "ARG VERSION=1", "ENV LANG=C.UTF-8 APP=/app", "LABEL maintainer=bench", "WORKDIR /app", "COPY package/meta /app/", "RUN mkdir -p /app/data",
         *(f"RUN echo step {i} >/app/data/{i} && chmod 600 /app/data/{i}" for i in range(16)), "COPY package/lib /app/lib", "COPY --chown=1:1 package/etc /etc/app",
         "RUN cat /app/lib/* | sha256sum >/app/sum", "USER 1000:1000", "EXPOSE 8080", "ENTRYPOINT [\"/bin/cat\"]", "CMD [\"/app/sum\"]"]


class Buildah:
    """With overlay where it works, else with vfs, which copies; that is not in what is measured, since no step is run."""

    def __init__(self, home):
        self.home, self.driver = home / "buildah", "overlay"
        self.home.mkdir()
        (self.home / "base.tar").write_bytes(pathlib.Path(qsdaemon.base_tar()).read_bytes())
        try:
            self.import_base()
        except subprocess.CalledProcessError:
            self.driver = "vfs"
            self.import_base()

    def call(self, *argv):
        command = ["buildah", "--storage-driver", self.driver, "--root", self.home / f"root-{self.driver}", "--runroot", self.home / f"run-{self.driver}", *argv]
        r = subprocess.run([str(a) for a in command], env={**os.environ, "XDG_RUNTIME_DIR": str(self.home)}, stdin=subprocess.DEVNULL, check=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return r.stdout.strip(), r.stderr

    def import_base(self):
        at = self.call("from", "scratch")[0]
        self.call("add", "-q", at, self.home / "base.tar", "/")
        self.call("commit", "-q", "--rm", at, "small")

    def build(self, directory):
        return self.call("bud", "--isolation", "chroot", "--layers", "-t", "built", directory)

    def remove(self):
        for program in (["umount", "-q", f"{self.home}/root-overlay/overlay"], ["rm", "-rf", "--one-file-system", self.home]):
            subprocess.run(program, check=False)


def builds(ours, cli, home):
    assert len(STEPS) == 30
    context = home / "context"
    for part, files in (("meta", 4), ("lib", 100), ("etc", 10)):
        (context / "package" / part).mkdir(parents=True)
        for i in range(files):
            (context / "package" / part / f"file{i}.py").write_text(f"# {part} {i}\n" + "print('a line of a program')\n" * 100)
    (context / "Dockerfile").write_text("\n".join(STEPS) + "\n")
    peer = Buildah(home)
    try:
        runs = sum(step.startswith("RUN") for step in STEPS)
        samples = {"quicksand": [], "buildah": []}
        for i in range(ROUNDS * 2 + 1):
            turn = {"quicksand": timed(lambda: cli("build", "-t", "built", context)), "buildah": timed(lambda: peer.build(context))}
            if i > 0:                   # the first round fills the caches
                for who, v in samples.items():
                    v.append(turn[who])
        op = ours.api.get("/v1/operations", params={"limit": 1}).json()["items"][0]
        assert op["result"]["cached_steps"] == runs, op
        assert peer.build(context)[0].count("Using cache") >= len(STEPS) - 2
        add_row("build-30-cached", samples, [("quicksand", "buildah", 1.0)])
        print(f"buildah with {peer.driver}")
    finally:
        peer.remove()


def main():
    build, results = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    home = qsdaemon.make_dir("qs-bench-images-")
    registry = registries.Registry(home / "registry")
    daemon = None
    try:
        registry.push(make_image(), "bench/image:1", skopeo=False)
        daemon = qsdaemon.Daemon(build, log_level="warn", registry_insecure=registry.host)
        daemon.start()
        ours = Ours(daemon, f"{registry.host}/bench/image:1")
        print(f"load before: {os.getloadavg()}")
        pulls(ours, home)
        starts(ours)
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "QUICKSAND_URL": daemon.url, "QUICKSAND_TOKEN": daemon.token}
        builds(ours, lambda *argv: run(build / "src/cli/quicksand", *argv, env=env, stderr=subprocess.DEVNULL), home)
        print(f"load after: {os.getloadavg()}")
    finally:
        if daemon is not None:
            daemon.stop()
            daemon.purge()
        registry.stop()
        shutil.rmtree(home, ignore_errors=True)
    if results.exists():
        all_results = json.loads(results.read_text())
        all_results["benchmarks"] = [b for b in all_results["benchmarks"] if b["name"] not in {r["name"] for r in rows}] + rows
        results.write_text(json.dumps(all_results, indent=1))
    return 0 if all(r["gate_met"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
