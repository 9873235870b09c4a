#!/usr/bin/python3
"""
The images' benchmarks: pull and unpack beside Debian's skopeo and umoci, and first commands from a cold, a warm and a smaller image, in one
run.

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
    row = {"name": name, "ok": True, "runs": ROUNDS, "failures": 0, "unit_u": None, "gate_met": True,
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
