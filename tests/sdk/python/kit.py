"""What every Python case file uses: an app, an image, a sandbox, and small helpers."""

import contextlib
import functools
import hashlib
import os
import secrets
import threading
import time

import modal
import modal.exception

GENERATION = os.environ["QS_GENERATION"]
V2 = GENERATION == "v2"
IMAGE = os.environ["QS_IMAGE"]


def unique(prefix):
    return f"{prefix}-{secrets.token_hex(6)}"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


APP_NAME = unique("app")
app = modal.App.lookup(APP_NAME, create_if_missing=True)
image = modal.Image.from_registry(IMAGE)


def only(generation):
    """Marks a case of one generation; programs.py reads the mark."""
    return lambda function: function


def alone(function):
    function.alone = True
    return function


def create(*args, **options):
    return modal.Sandbox.create(*args, **{"app": app, "image": image, **options})


@contextlib.contextmanager
def sandbox(*args, **options):
    sb = create(*args, **options)
    try:
        yield sb
    finally:
        sb.terminate()


shared_lock = threading.Lock()


@functools.cache
def make_shared():
    return create(timeout=900)


def shared():
    """One sandbox for all cases of a file that do not change it."""
    with shared_lock:
        return make_shared()


def end():
    if make_shared.cache_info().currsize:
        make_shared().terminate()


def run(sb, *argv, **options):
    p = sb.exec(*argv, **options)
    out, err = p.stdout.read(), p.stderr.read()
    return out, err, p.wait()


@contextlib.contextmanager
def raises(kind, text=None, what=""):
    try:
        yield
    except kind as e:
        assert text is None or text in str(e), f"{text!r} is not in {e!r}"
        return
    except Exception as e:
        raise AssertionError(f"expected {kind}, got {e!r}") from e
    raise AssertionError(f"expected {kind}, there was none {what}")


@contextlib.contextmanager
def within(seconds):
    start = time.monotonic()
    yield
    took = time.monotonic() - start
    assert took < seconds, f"took {took:.1f} s"
