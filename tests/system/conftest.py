"""
Fixtures of the system tests.

daemon       the instance that most tests share, with the image `base`
tools        the name of an image of it with compilers, databases and the like
suites       one with more languages and with test suites, for long tests
api          a client of it (qsdaemon.Api)
make_daemon  a factory of further instances, for tests that kill theirs: make_daemon(supervised=True)

Tests that bear the mark `long` run with --long alone. Root is needed.
"""

import contextlib
import os
import subprocess
import threading

import pytest

import qsdaemon


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the tests that take long, and only those")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; runs with --long")


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--long")
    chosen = [i for i in items if (i.get_closest_marker("long") is not None) == wanted]
    config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
    items[:] = chosen


IMAGES = ("tools", "suites")


def make_image(name):
    # What goes wrong is said by the fixture, which tries again.
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        qsdaemon.packages_tar(name)


def pytest_collection_finish(session):
    """An image takes a minute or two to make: it is begun while other tests run."""
    for name in {f for item in session.items for f in item.fixturenames} & set(IMAGES):
        if os.geteuid() == 0 and not session.config.option.collectonly:
            threading.Thread(target=make_image, args=(name,), daemon=True).start()


INSTANCES = []
MARKS = {}


def start(**options):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    instance = qsdaemon.Daemon(qsdaemon.build_dir(), **options)
    INSTANCES.append(instance)
    try:
        instance.start()
        instance.import_base()
    except BaseException:
        print(instance.log_tail())
        finish(instance, check=False)
        raise
    return instance


def finish(instance, check=True):
    left = instance.stop()
    INSTANCES.remove(instance)
    tail = instance.log_tail()
    reports = instance.sanitizer_reports()
    instance.purge()
    if check:
        assert not reports, "\n".join(reports[:20])
        assert not left, "left behind: " + ", ".join(left[:20]) + "\n" + tail


@pytest.fixture(scope="session")
def daemon():
    instance = start()
    yield instance
    finish(instance)


@pytest.fixture(scope="session")
def tools(daemon):
    daemon.import_image("tools", qsdaemon.packages_tar("tools"))
    return "tools"


@pytest.fixture(scope="session")
def suites(daemon):
    daemon.import_image("suites", qsdaemon.packages_tar("suites"))
    return "suites"


@pytest.fixture
def api(daemon):
    return daemon.api


@pytest.fixture
def make_daemon():
    made = []

    def make(**options):
        made.append(start(**options))
        return made[-1]

    yield make
    for instance in reversed(made):
        finish(instance)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    for instance in INSTANCES:
        MARKS[instance.home] = instance.log.stat().st_size if instance.log.exists() else 0


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        for instance in INSTANCES:
            tail = instance.log_tail(MARKS.get(instance.home, 0))
            if tail:
                report.sections.append((f"log of {instance.home.name}", tail))
