"""
Fixtures of the image tests. The daemon and its factory are those of tests/system.

registry      Debian's docker-registry, to be filled by the tests
image_daemon  a daemon that may speak plain HTTP to it and to whatever the tests have on loopback
images        its client, with what the tests do with images (helpers.Images)
"""

import importlib.util
import pathlib
import shutil
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
    if name.startswith("pytest_") or name in ("make_daemon",):
        globals()[name] = getattr(system_conftest, name)

import helpers  # noqa: E402
import qsdaemon  # noqa: E402
import registry as registries  # noqa: E402


@pytest.fixture(scope="session")
def registry():
    for program in ("docker-registry", "skopeo"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    home = qsdaemon.make_dir("qs-registry-")
    r = registries.Registry(home)
    yield r
    r.stop()


@pytest.fixture(scope="session")
def hostile():
    """A port for the hostile registry, known before the daemon reads its configuration."""
    return registries.free_port()


@pytest.fixture(scope="session")
def image_daemon(registry, hostile):
    auth = qsdaemon.make_dir("qs-auth-") / "auth.json"
    auth.parent.chmod(0o755)
    auth.write_text("{}")
    auth.chmod(0o644)
    instance = system_conftest.start(
        registry_insecure=f"{registry.host} 127.0.0.1:{hostile} localhost:{hostile}",
        registry_stall_s=2, registry_auth=auth,
        registry_mirrors=f"mirrored.example={registry.host}")
    instance.registry_auth = auth
    yield instance
    try:
        system_conftest.finish(instance)
    finally:
        shutil.rmtree(auth.parent)


@pytest.fixture
def images(image_daemon):
    return helpers.Images(image_daemon)
