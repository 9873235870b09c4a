"""
Every RPC that src/api/modal/rpcs.def calls FULL was called by a real client: the audit of the daemon that the other tests used tells.

Runs after them (pytest takes files by name) and only where all of them were chosen.
"""

import re

import pytest

import programs as sdk_programs
import qsdaemon

ROW = re.compile(r"^RPC\((\w+), .*, FULL, ", re.M)
# Called by none of the clients that are tested: by older ones, or only after hours.
NOT_CALLED = set()


def calls(api):
    cursor = None
    while True:
        page = api.get("/v1/audit", params={"limit": 1000, **({"cursor": cursor} if cursor else {})}).json()
        for line in page["items"]:
            yield line
        cursor = page["next"]
        if not cursor:
            return


def test_every_full_rpc_was_called(request, daemon, installed):
    chosen = {i.callspec.params["case"] for i in request.session.items if "case" in getattr(getattr(i, "callspec", None), "params", {})}
    core = {c for c in sdk_programs.all_cases() if not c.long}
    if not core <= chosen:
        pytest.skip("not all cases were chosen")
    for client in ("js-0.11.1", "js-0.9.0", "python", "go"):
        installed(client)
    full = set(ROW.findall((qsdaemon.ROOT / "src/api/modal/rpcs.def").read_text()))
    assert len(full) > 50
    called = {line["path"].rsplit("/", 1)[1] for line in calls(daemon.api) if "ModalClient" in line["path"] and line["status"] == 200}
    missing = full - called - NOT_CALLED
    assert not missing, f"never called with success: {', '.join(sorted(missing))}"
