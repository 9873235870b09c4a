"""
Fixtures of the SDK tests. The daemon and its factory are those of tests/system.

clouds      stand-ins for registries of clouds, which the daemon knows
clients     where each client is installed: {"js-0.11.1": path, ...}, or why it is not
programs    the started client programs of this session
outside     a daemon of its own in a namespace, with servers outside of it (outside.py)
generation  v1 and v2; v1 with --long alone

Without --long a core is run: what bears neither the mark `long` nor `rest`. With it everything is.
"""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
SYSTEM = HERE.parent / "system"
sys.path[:0] = [str(HERE), str(SYSTEM)]

spec = importlib.util.spec_from_file_location("system_conftest", SYSTEM / "conftest.py")
system_conftest = importlib.util.module_from_spec(spec)
sys.modules["system_conftest"] = system_conftest
spec.loader.exec_module(system_conftest)

# pytest finds hooks and fixtures by their names in this file.
for name in dir(system_conftest):
    if name.startswith("pytest_") or name in ("api", "make_daemon"):
        globals()[name] = getattr(system_conftest, name)

import clouds as sdk_clouds  # noqa: E402
import outside as sdk_outside  # noqa: E402
import programs as sdk_programs  # noqa: E402


def pytest_configure(config):
    system_conftest.pytest_configure(config)
    config.addinivalue_line("markers", "rest: not of the core; runs with --long")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--long"):
        return
    chosen = [i for i in items if not (i.get_closest_marker("long") or i.get_closest_marker("rest"))]
    config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
    items[:] = chosen


@pytest.fixture(scope="session")
def clouds():
    c = sdk_clouds.Clouds()
    yield c
    c.stop()


@pytest.fixture(scope="session")
def daemon(clouds):
    instance = system_conftest.start(**clouds.options())
    yield instance
    system_conftest.finish(instance)


@pytest.fixture(params=[pytest.param("v1", marks=pytest.mark.rest), "v2"])
def generation(request):
    return request.param


@pytest.fixture(scope="session")
def clients():
    r = subprocess.run([HERE / "setup"], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, timeout=900)
    assert r.returncode == 0
    found = {}
    for line in r.stdout.splitlines():
        state, name, rest = line.split(" ", 2)
        found[name] = (state, rest)
    return found


@pytest.fixture(scope="session")
def installed(clients):
    """A function: where a client is; skips the test that asks if it cannot be had."""
    def where(name):
        state, rest = clients[name]
        if state == "skip":
            pytest.skip(rest)
        assert state == "ok", rest
        return pathlib.Path(rest)
    return where


def chosen_cases(items):
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if case:
            yield case


@pytest.fixture(scope="session")
def outside():
    made = sdk_outside.Outside()
    try:
        made.start()
        yield made
    finally:
        left, tail, reports = made.stop()
    assert not reports, "\n".join(reports[:20])
    assert not left, "left behind: " + ", ".join(left[:20]) + "\n" + tail


@pytest.fixture(scope="session")
def programs(request, daemon, clouds, installed, tmp_path_factory):
    """A function: the run of a program, started with all its chosen cases when it is first asked for."""
    runs = {}

    def run(program):
        if program not in runs:
            names = [c.name for c in chosen_cases(request.session.items) if c.program == program]
            home = tmp_path_factory.mktemp("home")
            where = installed(program.client)
            if program.topic in sdk_outside.TOPICS:
                there = request.getfixturevalue("outside")
                runs[program] = there.do(sdk_programs.start, program, where, there.daemon, home, names, sdk_outside.env())
            else:
                runs[program] = sdk_programs.start(program, where, daemon, home, names, clouds.env())
        return runs[program]

    yield run
    for r in runs.values():
        r.stop()
