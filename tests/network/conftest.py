"""
Fixtures of the network tests: the daemon runs in a namespace without an uplink, and `world` is all there is outside of it.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

import qsdaemon  # noqa: E402

import opened  # noqa: E402
import teller as teller_module  # noqa: E402
import world as world_module  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the tests that take long, and only those")


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--long")
    chosen = [i for i in items if (i.get_closest_marker("long") is not None) == wanted]
    config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
    items[:] = chosen


def image_tar(name):
    """The files of an image of Debian packages. They come from where this process was before: there is no way out here."""
    def make():
        world_module.enter(world_module.HOME)
        return qsdaemon.packages_tar(name)

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(make).result()


def begin_image(name):
    # What goes wrong is said by the fixture, which tries again.
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        image_tar(name)


def pytest_collection_finish(session):
    """An image takes a minute or two to make: it is begun while other tests run."""
    for name in {f.removesuffix("_tar") for item in session.items for f in item.fixturenames if f.endswith("_tar")}:
        if not session.config.option.collectonly:
            threading.Thread(target=begin_image, args=(name,), daemon=True).start()


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; runs with --long")
    if os.geteuid() != 0:
        pytest.exit("needs root", 1)
    world_module.HOME = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    world_module.new_namespace()
    world_module.sh("ip link set lo up")


@pytest.fixture(scope="session")
def world():
    home = qsdaemon.make_dir("qs-world-")
    home.chmod(0o755)               # egress reads the authority
    yield world_module.World(home)
    qsdaemon.shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def clients_tar():
    return image_tar("clients")


@pytest.fixture(scope="session")
def suites_tar():
    return image_tar("suites")


@pytest.fixture(scope="session")
def daemon(world):
    instance = qsdaemon.Daemon(qsdaemon.build_dir(), egress_dns=world_module.DNS, egress_ca=world.home / "ca.pem")
    try:
        instance.start()
        instance.import_base()
        yield instance
    except BaseException:
        print(instance.log_tail())
        raise
    finally:
        left = instance.stop()
        tail = instance.log_tail()
        reports = instance.sanitizer_reports()
        instance.purge()
    assert not reports, "\n".join(reports[:20])
    assert not left, "left behind: " + ", ".join(left[:20]) + "\n" + tail


@pytest.fixture
def api(daemon, world):
    world.clear()
    return daemon.api


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    instance = getattr(item, "funcargs", {}).get("daemon")
    if report.failed and instance is not None:
        report.sections.append(("log of the daemon", instance.log_tail(lines=25)))


@pytest.fixture(scope="session")
def teller(world):
    return teller_module.Teller(world)


@pytest.fixture
def server(teller):
    """Tells what arrived of requests."""
    teller.clear()
    yield teller
    teller.go_on.set()


@pytest.fixture
def secret(api):
    values = {"TOKEN": opened.VALUE, "USER": "me", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": opened.AWS_KEY}
    assert api.put("/v1/secrets/inject", json={"values": values}).status_code in (200, 201)
    yield "inject"
    api.delete("/v1/secrets/inject")
