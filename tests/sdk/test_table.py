"""
Every RPC that docs/modal-compatibility.md calls full is called by a real client, in a run of its own: python/table.py in both generations.

The client tells what it called with success; what the command line of it called is in the daemon's audit.
"""

import io
import json
import re
import subprocess
import tarfile

import programs as sdk_programs
import qsdaemon

ROW = re.compile(r"^\| `(\w+)` \| full \|", re.M)


def calls(api):
    """The calls of the control plane that the daemon has answered with success."""
    cursor = None
    while True:
        page = api.get("/v1/audit", params={"limit": 1000, **({"cursor": cursor} if cursor else {})}).json()
        for line in page["items"]:
            if line["status"] == 200:
                yield line["path"].rsplit("/", 1)[-1]
        cursor = page["next"]
        if not cursor:
            return


def import_image(api, name):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        content = f"{name}\n".encode()
        info = tarfile.TarInfo("etc/name")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    assert api.post("/v1/images", params={"name": name}, content=data.getvalue()).status_code in (200, 201)


def test_every_full_rpc_is_called(make_daemon, installed, tmp_path):
    daemon = make_daemon()
    python = installed("python") / "bin/python3"
    called = set()
    for generation in sdk_programs.GENERATIONS:
        import_image(daemon.api, f"extra-{generation}")
        home = tmp_path / generation
        home.mkdir()
        env = {**sdk_programs.base_env(daemon, generation, home), "QS_EXTRA_IMAGE": f"extra-{generation}"}
        r = subprocess.run([python, sdk_programs.HERE / "python/table.py"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=240)
        assert r.returncode == 0, r.stdout[-1000:] + r.stderr[-4000:]
        called |= {path.rsplit("/", 1)[-1] for path in json.loads(r.stdout.splitlines()[-1])}
    called |= set(calls(daemon.api))
    full = set(ROW.findall((qsdaemon.ROOT / "docs/modal-compatibility.md").read_text()))
    assert len(full) > 70
    missing = full - called
    assert not missing, f"never called with success: {', '.join(sorted(missing))}"
